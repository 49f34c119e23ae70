"""Exact sums by native code, or by XLA where there is none."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
from jaxtyping import Array, Int

from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.summation.base import NATIVE_TIME, Choice, Limits, as_query_sites, cost_of_pairs, value_columns
from particleflow.summation.candidates import Candidate
from particleflow.summation.exact.blockwise import Blockwise
from particleflow.summation.exact.dense import Dense, pairs_and_bytes
from particleflow.summation.moments import Moments
from particleflow.summation.native.operands import operands_of
from particleflow.summation.native.primitive import native_moments
from particleflow.summation.prepared import PreparedSum, prepare
from particleflow.summation.sampling import DrawsPoints

_FEWEST_QUERIES = 4  # fewer fill too little of a vector
_DENSE_BYTES = 16 * 2**20


class Native(Candidate, DrawsPoints):
    """Lanes of queries against blocks of sources, in C++ for this processor: memory O(n), exact.

    Kernels: products of inner products, of one curve of a distance (several Gaussians count as one), and of bands of
    positions. For others, and where there is no library, it is the exact sum of XLA, and `select` tells the reason.

    Parameters: `widen`, whether single-precision sums whose scores spread over more than 12 are made in double
    precision, so that means are right to 3e-7 at any β. Without it weights are as right as scores in single precision
    are, to about 1e-7 times the largest |score|, which trained networks bear, in half of the time.
    """

    widen: bool = eqx.field(static=True)

    def __init__(self, widen: bool = True):
        self.widen = widen

    def summed(self, prepared: PreparedSum, values: Any = None) -> Moments:
        """The moments by native code, or by XLA where it cannot sum this kernel, or is not there."""
        measure, queries = prepared.measure, prepared.queries
        if prepared.parts is None or prepared.library.path is None:
            return _by_xla(measure, queries).summed(prepared, values)
        form, arrays = operands_of(prepared, value_columns(measure, values))
        found = native_moments(form._replace(widen=self.widen), arrays)
        return Moments(found.log_mass + prepared.parts.query_offsets(queries), found.mean)

    def choices(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Iterator[Choice]:
        """Itself, or what sums in its place, and why."""
        prepared = prepare(kernel, measure, queries)
        obstacle, sites = self.obstacle(prepared), prepared.queries
        if obstacle is None:
            yield Choice(self, "as asked", cost=cost_of_pairs(measure, sites, NATIVE_TIME))
        else:
            yield Choice(_by_xla(measure, sites), f"in place of Native: {obstacle}", cost=cost_of_pairs(measure, sites))

    def promise(self, prepared: PreparedSum, limits: Limits) -> Choice | None:
        """Exact, for kernels of the parts above and enough queries to fill vectors."""
        measure, queries = prepared.measure, prepared.queries
        if queries.points.shape[0] < _FEWEST_QUERIES or self.obstacle(prepared) is not None:
            return None
        pairs, _ = pairs_and_bytes(measure, queries)
        cost = cost_of_pairs(measure, queries, NATIVE_TIME)
        return Choice(self, f"{pairs.split(' need ')[0]} in native code", cost=cost)

    def draw(
        self, key: Array, kernel: AbstractKernel, measure: Measure, queries: Any, draws: int
    ) -> Int[Array, "m draws"]:
        """Indices of points drawn ∝ K(x, y) dμ(y); drawn by XLA, with the same draws as every exact summation."""
        return _by_xla(measure, as_query_sites(queries)).draw(key, kernel, measure, queries, draws)

    def obstacle(self, prepared: PreparedSum) -> str | None:
        """Why native code cannot sum this on this machine: an unknown factor, or no library. None if it can."""
        if prepared.parts is None:
            return "the kernel has a factor that native code does not know"
        found = prepared.library
        return None if found.path is not None else f"no native sum: {found.reason}"


def _by_xla(measure: Measure, queries: Sites) -> Dense | Blockwise:
    """The exact sum of XLA that fits into memory."""
    return Dense() if pairs_and_bytes(measure, queries)[1] <= _DENSE_BYTES else Blockwise()
