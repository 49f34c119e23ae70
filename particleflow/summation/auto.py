"""The choice among summations, open to inspection.

Candidates promise an error and a cost within the limits. Without a tolerance the first that gives a promise is taken,
from shapes and forms alone; with one, the cheapest for these points. Promises take time, too: a candidate whose cost is
bounded by more than the best one found is evaluated only after that one is passed over.
"""

from collections.abc import Iterator
from functools import cache
from heapq import heapify, heappop, heappush
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Int

from particleflow._support.arrays import is_concrete, is_traced, remembered
from particleflow.errors import ArgumentError
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure
from particleflow.summation.base import Choice, LeavesChoiceOpen, Limits, check_precision
from particleflow.summation.candidates import Approximation, Candidate
from particleflow.summation.exact.blockwise import Blockwise
from particleflow.summation.exact.dense import Dense
from particleflow.summation.exact.separated import Separated
from particleflow.summation.moments import Moments
from particleflow.summation.native.native import Native
from particleflow.summation.prepared import PreparedSum, prepare
from particleflow.summation.sampling import DrawsPoints, check_draws

# The fastest first; the last one can sum everything, so there is always a choice.
_EXACT: tuple[Candidate, ...] = (Native(), Separated(), Dense(), Blockwise())


@cache
def _approximations() -> tuple[Approximation, ...]:
    """The candidates with an error; loaded only where there is a tolerance to keep."""
    from particleflow.summation.features import Features
    from particleflow.summation.near_far.near_far import NearFar
    from particleflow.summation.spectral import Spectral
    from particleflow.summation.tree.tree import Tree

    return Spectral(), NearFar(), Tree(), Features()


class Auto(LeavesChoiceOpen, DrawsPoints):
    """`Native` where there is such a sum, `Separated` for kernels of a few positive features; else `Dense` while all
    pairs fit into `dense_bytes`, and `Blockwise` beyond.

    All are exact.

    `tolerance`, the error of the mean relative to max |z| and of the log-mass, absolute, allows approximations that
    promise to keep it for these points; None allows none. Inside `jit`, where the points are unknown, sums are exact.
    """

    dense_bytes: int = eqx.field(static=True, default=16 * 2**20)
    tolerance: float | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        given = self.tolerance
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if given is not None and not (is_number and given > 0 and np.isfinite(given)):
            raise ArgumentError(f"Argument `tolerance` must be a positive number or None, but is {given!r}.")

    def choices(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Iterator[Choice]:
        """The summations that could be used, and why, the cheapest first; the last one is exact."""
        return self._choices(prepare(kernel, measure, queries))

    def _choices(self, prepared: PreparedSum) -> Iterator[Choice]:
        """The approximations that may be cheaper than the exact sum, then the exact one.

        A priority queue by cost: lower bound after lower bound, then the promise. Each refinement re-enters the queue.
        """
        limits = Limits(self.tolerance, self.dense_bytes)
        exact = remembered(_exact, _EXACT, prepared.library.description, limits, prepared)
        known = is_concrete(prepared.measure.points) and is_concrete(prepared.queries.points)
        candidates = _approximations() if self.tolerance is not None and known and not is_traced() else ()
        if candidates and isinstance(exact.summation, Native):
            exact = exact._replace(cost=exact.cost * exact.summation.share_of_cost(prepared))
        bounds = [each.cost_bounds(prepared, limits) for each in candidates]
        queue = [(next(each), place) for place, each in enumerate(bounds)]
        heapify(queue)
        promises: dict[int, Choice] = {}
        while queue and queue[0][0] < exact.cost:
            place = heappop(queue)[1]
            if place in promises:
                yield self._kept(promises[place])
            elif (closer := next(bounds[place], None)) is not None:
                heappush(queue, (closer, place))
            elif (found := candidates[place].promise(prepared, limits)) is not None:
                promises[place] = found
                heappush(queue, (found.cost, place))
        yield self._kept(exact)

    def _kept(self, choice: Choice) -> Choice:
        """The choice, with its error and the tolerance added to its reason."""
        if self.tolerance is None:
            return choice
        error = "exact up to rounding" if choice.error == 0 else f"with an error of at most {choice.error:.3g}"
        return choice._replace(reason=f"{choice.reason}; {error}, within the tolerance {self.tolerance:.3g}")

    def allowed_error(self) -> float | None:
        """The tolerance; None where sums are exact."""
        return self.tolerance

    def exactly(self) -> "Auto":
        """The same without a tolerance."""
        return Auto(self.dense_bytes)

    def tightened(self, factor: float) -> "Auto":
        """The same with `factor` times less tolerance."""
        return Auto(self.dense_bytes, None if self.tolerance is None else self.tolerance / factor)

    def moments(self, kernel: AbstractKernel, measure: Measure, queries: Any, values: Any = None) -> Moments:
        """The moments of `measure` under `kernel`, seen from each query, by the best choice for them."""
        prepared = prepare(kernel, measure, queries)
        check_precision(kernel, measure, prepared.queries)
        return self._best(prepared).summed(prepared, values)

    def draw(
        self, key: Array, kernel: AbstractKernel, measure: Measure, queries: Any, draws: int
    ) -> Int[Array, "m draws"]:
        """Indices of points drawn ∝ K(x, y) dμ(y), by the summation that would be used for moments."""
        how = check_draws(self._best(prepare(kernel, measure, queries)))
        return how.draw(key, kernel, measure, queries, draws)

    def _best(self, prepared: PreparedSum) -> Candidate:
        chosen = next(self._choices(prepared)).summation
        assert isinstance(chosen, Candidate)
        return chosen


def _exact(candidates: tuple[Candidate, ...], native: str, limits: Limits, prepared: PreparedSum) -> Choice:
    """The first exact candidate that can sum this, with the reason why `Native`, the first of all, cannot.

    Exact sums promise by shapes and forms alone, and by what `native` code there is.
    """
    promises = ((each, each.promise(prepared, limits)) for each in candidates)
    how, choice = next((each, promise) for each, promise in promises if promise is not None)
    first = candidates[0]
    obstacle = first.obstacle(prepared) if isinstance(first, Native) and how is not first else None
    return choice if obstacle is None else choice._replace(reason=f"{choice.reason}; {obstacle}")
