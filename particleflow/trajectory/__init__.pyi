from . import store as store
from .trajectory import Trajectory as Trajectory
