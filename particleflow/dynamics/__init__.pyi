from . import drifts as drifts
from . import geometry as geometry
from . import initial as initial
from .flow import Flow as Flow
