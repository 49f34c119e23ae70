from . import equilibria as equilibria
from . import exponential_family as exponential_family
from . import stability as stability
from .kernel_as_law import JointLaw as JointLaw
from .kernel_as_law import joint_law as joint_law
