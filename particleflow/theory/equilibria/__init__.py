"""Fixed points of flows and of layers, with their eigenvalues and kind.

search            guesses in, distinct fixed points out         zero_finding     least squares and Newton's method
vector_field      a flow as a field on vectors, its Jacobian    spectrum         eigenvalues, merged particles too
stability_kind    from eigenvalues to stable, saddle, …         fixed_point      the result and its card
"""

from particleflow.theory.equilibria.fixed_point import FixedPoint
from particleflow.theory.equilibria.search import fixed_points
from particleflow.theory.equilibria.stability_kind import Nature

__all__ = ["FixedPoint", "Nature", "fixed_points"]


def __dir__() -> list[str]:
    return __all__
