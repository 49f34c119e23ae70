from . import equilibria as equilibria
from . import exponential_family as exponential_family
from . import stability as stability
