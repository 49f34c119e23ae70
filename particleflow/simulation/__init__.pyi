from . import events as events
from . import observables as observables
