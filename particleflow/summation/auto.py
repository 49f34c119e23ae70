"""The choice among summations, open to inspection.

Candidates are asked for a promise within the limits. Without a tolerance the first that gives one is taken, from shapes
and forms alone; with one, the cheapest for these points.
"""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Int

from particleflow._arrays import is_concrete
from particleflow.errors import ArgumentError
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure
from particleflow.moments import Moments
from particleflow.summation.base import AbstractSummation, Choice, Limits, as_query_sites
from particleflow.summation.blockwise import Blockwise
from particleflow.summation.dense import Dense
from particleflow.summation.features import Features
from particleflow.summation.native import Native
from particleflow.summation.near_far import NearFar
from particleflow.summation.spectral import Spectral

# Approximations, which promise nothing without a tolerance, then exact ones, the fastest first; the last one promises
# to sum whatever it is given, so there is always an answer.
_CANDIDATES: tuple[AbstractSummation, ...] = (Spectral(), NearFar(), Features(), Native(), Dense(), Blockwise())


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

    def choices(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> list[Choice]:
        """What could be used for these, and why, the best first: up to the first that is exact."""
        sites = as_query_sites(queries)
        known = is_concrete(measure.points) and is_concrete(sites.points)
        limits = Limits(self.tolerance if known else None, self.dense_bytes)
        promises = ((place, each.promise(kernel, measure, sites, limits)) for place, each in enumerate(_CANDIDATES))
        given = ((place, choice) for place, choice in promises if choice is not None)
        ranked = [next(given)] if limits.tolerance is None else sorted(given, key=lambda each: each[1].cost)
        exact = next(rank for rank, (_, choice) in enumerate(ranked) if choice.error == 0)
        return [self._explained(place, choice, kernel, measure) for place, choice in ranked[: exact + 1]]

    def _explained(self, place: int, choice: Choice, kernel: AbstractKernel, measure: Measure) -> Choice:
        """The choice, with what stood in the way of candidates before it, and how it keeps the tolerance."""
        obstacles = (candidate.obstacle(kernel, measure) for candidate in _CANDIDATES[:place])
        reason = "; ".join([choice.reason, *filter(None, obstacles)])
        if self.tolerance is not None:
            error = "exact up to rounding" if choice.error == 0 else f"with an error of at most {choice.error:.3g}"
            reason = f"{reason}; {error}, within the tolerance {self.tolerance:.3g}"
        return choice._replace(reason=reason)

    def allowed_error(self) -> float | None:
        """The tolerance."""
        return self.tolerance

    def tightened(self, factor: float) -> "Auto":
        """The same with `factor` times less tolerance."""
        return Auto(self.dense_bytes, None if self.tolerance is None else self.tolerance / factor)

    def moments(self, kernel: AbstractKernel, measure: Measure, queries: Any, values: Any = None) -> Moments:
        """The moments of `measure` under `kernel`, seen from each query."""
        return self.select(kernel, measure, queries).summation.moments(kernel, measure, queries, values)

    def draw(
        self, key: Array, kernel: AbstractKernel, measure: Measure, queries: Any, draws: int
    ) -> Int[Array, "m draws"]:
        """Indices of points drawn ∝ K(x, y) dμ(y), by what would be used for the moments."""
        return self.select(kernel, measure, queries).summation.draw(key, kernel, measure, queries, draws)
