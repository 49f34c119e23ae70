"""The equation: drifts on a geometry, where particles begin, and the Gaussian laws that stay Gaussian.

flow        a drift on a geometry, with or without noise
drifts/     vector fields: attention and its relatives, MeanShift, feed-forward layers, schedules
geometry/   where particles live: flat spaces, spheres, and where a layer normalises
initial/    what a run begins with: drawn, laid out by a rule, or read from a file
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
