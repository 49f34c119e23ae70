"""The choice among summations, open to inspection.

Candidates are asked for a promise within the limits. Without a tolerance the first that gives one is taken, from shapes
and forms alone; with one, the cheapest for these points.
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
from particleflow.summation.spectral import Spectral

# Approximations, then exact ones, the fastest first; the last promises to sum whatever it is given: there is an answer.
_CANDIDATES: tuple[AbstractSummation, ...] = (Spectral(), Native(), Dense(), Blockwise())


class Auto(AbstractSummation):
    """`Native` where there is such a sum; else `Dense` while all pairs fit into `dense_bytes`, and `Blockwise` beyond.

    All are exact.

    `tolerance`, the error of the mean relative to max |z| and of the log-mass, absolute, allows approximations that
    promise to keep it for these points; None allows none. Inside `jit` points are not known, and nothing is promised
    but exact sums, which keep any tolerance.
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
        promises = ((place, each.promise(kernel, measure, sites, limits)) for place, each in enumerate(_CANDIDATES))
        given = ((place, choice) for place, choice in promises if choice is not None)
        taken, choice = next(given) if self.tolerance is None else min(given, key=lambda each: each[1].cost)
        for obstacle in filter(None, (candidate.obstacle(kernel, measure) for candidate in _CANDIDATES[:taken])):
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
