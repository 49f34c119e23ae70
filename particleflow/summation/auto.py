"""The choice among summations, open to inspection.

Candidates are asked for a promise within the limits. Without a tolerance the first that gives one is taken, from shapes
and forms alone; with one, the cheapest for these points. Promises take time, too: who seems to cost more than the one
that was found is not asked before that one is passed over.
"""

from collections.abc import Iterator
from functools import cache
from heapq import heapify, heappop, heappush
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Int

from particleflow._arrays import is_concrete, is_traced, remembered
from particleflow.errors import ArgumentError
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.moments import Moments
from particleflow.summation.base import AbstractSummation, Choice, Limits, as_query_sites
from particleflow.summation.blockwise import Blockwise
from particleflow.summation.dense import Dense
from particleflow.summation.native import Native, library
from particleflow.summation.separated import Separated

# The fastest first; the last one promises to sum whatever it is given, so there is always an answer.
_EXACT: tuple[AbstractSummation, ...] = (Native(), Separated(), Dense(), Blockwise())


@cache
def _approximate() -> tuple[AbstractSummation, ...]:
    """Those that are asked, and loaded, only where there is a tolerance to keep."""
    from particleflow.summation.features import Features
    from particleflow.summation.near_far import NearFar
    from particleflow.summation.spectral import Spectral

    return Spectral(), NearFar(), Features()


class Auto(AbstractSummation):
    """`Native` where there is such a sum, `Separated` for kernels of a few positive features; else `Dense` while all
    pairs fit into `dense_bytes`, and `Blockwise` beyond.

    All are exact.

    `tolerance`, the error of the mean relative to max |z| and of the log-mass, absolute, allows approximations that
    promise to keep it for these points; None allows none. Inside `jit` nothing is looked at, and nothing is promised
    but exact sums, which keep any tolerance.
    """

    dense_bytes: int = eqx.field(static=True, default=16 * 2**20)
    tolerance: float | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        given = self.tolerance
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if given is not None and not (is_number and given > 0 and np.isfinite(given)):
            raise ArgumentError(f"Argument `tolerance` must be a positive number or None, but is {given!r}.")

    def choices(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Iterator[Choice]:
        """What could be used for these, and why, the cheapest first; the last one is exact."""
        sites, limits = as_query_sites(queries), Limits(self.tolerance, self.dense_bytes)
        exact = remembered(_exact, _EXACT, library().description, limits, kernel, measure, sites)
        known = is_concrete(measure.points) and is_concrete(sites.points)
        asked = _approximate() if self.tolerance is not None and known and not is_traced() else ()
        # Bids, the lowest first: who is looked at again comes back with a better one, and then with a promise.
        bids = [(each.least_cost(kernel, measure, sites, limits), place) for place, each in enumerate(asked)]
        heapify(bids)
        glanced: set[int] = set()
        promised: dict[int, Choice] = {}
        while bids and bids[0][0] < exact.cost:
            place = heappop(bids)[1]
            if place in promised:
                yield self._kept(promised[place])
            elif place not in glanced:
                glanced.add(place)
                heappush(bids, (asked[place].likely_cost(kernel, measure, sites, limits), place))
            elif (found := asked[place].promise(kernel, measure, sites, limits)) is not None:
                promised[place] = found
                heappush(bids, (found.cost, place))
        yield self._kept(exact)

    def _kept(self, choice: Choice) -> Choice:
        """The choice, with how it keeps the tolerance."""
        if self.tolerance is None:
            return choice
        error = "exact up to rounding" if choice.error == 0 else f"with an error of at most {choice.error:.3g}"
        return choice._replace(reason=f"{choice.reason}; {error}, within the tolerance {self.tolerance:.3g}")

    def allowed_error(self) -> float | None:
        """The tolerance."""
        return self.tolerance

    def exactly(self) -> "Auto":
        """The same without a tolerance."""
        return Auto(self.dense_bytes)

    def leaves_open(self) -> bool:
        """It does: any exact sum is as good."""
        return True

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


def _exact(
    candidates: tuple[AbstractSummation, ...],
    native: str,
    limits: Limits,
    kernel: AbstractKernel,
    measure: Measure,
    sites: Sites,
) -> Choice:
    """The first exact candidate that promises to sum these, with what stood in the way of those before it.

    Exact sums promise by shapes and forms alone, and by what `native` code there is.
    """
    promises = ((place, each.promise(kernel, measure, sites, limits)) for place, each in enumerate(candidates))
    place, choice = next((place, promise) for place, promise in promises if promise is not None)
    obstacles = filter(None, (each.obstacle(kernel, measure) for each in candidates[:place]))
    return choice._replace(reason="; ".join([choice.reason, *obstacles]))
