"""The choice among summations, made from shapes and forms alone and open to inspection.

Candidates are asked in turn, the cheapest first, for a promise within the limits; the first that gives one is taken.
"""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Int

from particleflow.errors import ArgumentError
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure
from particleflow.moments import Moments
from particleflow.summation.base import AbstractSummation, Choice, Limits, as_query_sites
from particleflow.summation.blockwise import Blockwise
from particleflow.summation.dense import Dense
from particleflow.summation.native import Native

# The last one promises to sum whatever it is given, so there is always an answer.
_CANDIDATES: tuple[AbstractSummation, ...] = (Native(), Dense(), Blockwise())


class Auto(AbstractSummation):
    """`Native` where there is such a sum; else `Dense` while all pairs fit into `dense_bytes`, and `Blockwise` beyond.

    All are exact.

    `tolerance`, the error of the mean relative to max |z| and of the log-mass, absolute, allows approximations that
    promise to keep it; None allows none. As yet every candidate is exact, which keeps any tolerance.
    """

    dense_bytes: int = eqx.field(static=True, default=16 * 2**20)
    tolerance: float | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        given = self.tolerance
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if given is not None and not (is_number and given > 0 and np.isfinite(given)):
            raise ArgumentError(f"Argument `tolerance` must be a positive number or None, but is {given!r}.")

    def select(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Choice:
        """What would be used for these, and why."""
        sites, limits = as_query_sites(queries), Limits(self.tolerance, self.dense_bytes)
        promises = (candidate.promise(kernel, measure, sites, limits) for candidate in _CANDIDATES)
        choice = next(promise for promise in promises if promise is not None)
        passed_over = _CANDIDATES[: _CANDIDATES.index(choice.summation)]
        for obstacle in filter(None, (candidate.obstacle(kernel, measure) for candidate in passed_over)):
            choice = choice._replace(reason=f"{choice.reason}; {obstacle}")
        if self.tolerance is None:
            return choice
        error = "exact up to rounding" if choice.error == 0 else f"with an error of at most {choice.error:.3g}"
        return choice._replace(reason=f"{choice.reason}; {error}, within the tolerance {self.tolerance:.3g}")

    def moments(self, kernel: AbstractKernel, measure: Measure, queries: Any, values: Any = None) -> Moments:
        """The moments of `measure` under `kernel`, seen from each query."""
        return self.select(kernel, measure, queries).summation.moments(kernel, measure, queries, values)

    def draw(
        self, key: Array, kernel: AbstractKernel, measure: Measure, queries: Any, draws: int
    ) -> Int[Array, "m draws"]:
        """Indices of points drawn ∝ K(x, y) dμ(y), by what would be used for the moments."""
        return self.select(kernel, measure, queries).summation.draw(key, kernel, measure, queries, draws)
