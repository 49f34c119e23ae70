"""Fixed points of flows and of layers, with their eigenvalues and kind."""

from particleflow.equilibria.nature import Nature
from particleflow.equilibria.point import FixedPoint
from particleflow.equilibria.search import fixed_points

__all__ = ["FixedPoint", "Nature", "fixed_points"]


def __dir__() -> list[str]:
    return __all__
