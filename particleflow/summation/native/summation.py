"""Exact sums by native code, and what is used where it cannot be had."""

from collections.abc import Iterator
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Int

from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.moments import Moments
from particleflow.summation.base import (
    AbstractSummation,
    Choice,
    Limits,
    as_query_sites,
    check_precision,
    value_columns,
)
from particleflow.summation.blockwise import Blockwise
from particleflow.summation.dense import Dense, pairs_and_bytes
from particleflow.summation.native.build import library
from particleflow.summation.native.form import KernelParts
from particleflow.summation.native.operator import native_moments

_FEWEST_QUERIES = 4  # fewer fill too little of a vector
_DENSE_BYTES = 16 * 2**20


class Native(AbstractSummation):
    """Lanes of queries against blocks of sources, in C++ for this processor: memory O(n), exact.

    Kernels: products of inner products, of one curve of a distance (several Gaussians count as one), and of bands of
    positions; see `KernelParts`. For others, and where there is no library, it is the exact sum of XLA, and `select`
    tells the reason.

    Parameters: `widen`, whether single-precision sums whose scores spread over more than 12 are made in double
    precision, so that means are right to 3e-7 at any β. Without it weights are as right as scores in single precision
    are, to about 1e-7 times the largest |score|, which trained networks bear, in half of the time.
    """

    relative_time: ClassVar[float] = 1.0
    widen: bool = eqx.field(static=True)

    def __init__(self, widen: bool = True):
        self.widen = widen

    def moments(self, kernel: AbstractKernel, measure: Measure, queries: Any, values: Any = None) -> Moments:
        """The moments of `measure` under `kernel`, seen from each query."""
        sites = as_query_sites(queries)
        parts = KernelParts.of(kernel, measure.dimension)
        if parts is None or library().path is None:
            return self._by_xla(measure, sites).moments(kernel, measure, sites, values)
        check_precision(kernel, measure, sites)
        form, arrays = parts.arrays(measure, sites, value_columns(measure, values))
        summed = native_moments(form._replace(widen=self.widen), arrays)
        return Moments(summed.log_mass + parts.query_offsets(sites), summed.mean)

    def choices(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Iterator[Choice]:
        """Itself, or what sums in its place, and why."""
        obstacle, sites = self.obstacle(kernel, measure), as_query_sites(queries)
        how = self if obstacle is None else self._by_xla(measure, sites)
        reason = "as asked" if obstacle is None else f"in place of Native: {obstacle}"
        yield Choice(how, reason, cost=how.pairs(measure, sites))

    def promise(self, kernel: AbstractKernel, measure: Measure, queries: Sites, limits: Limits) -> Choice | None:
        """Exact, for kernels whose form it knows."""
        if queries.points.shape[0] < _FEWEST_QUERIES or self.obstacle(kernel, measure) is not None:
            return None
        pairs, _ = pairs_and_bytes(measure, queries)
        return Choice(self, f"{pairs.split(' need ')[0]} in native code", cost=self.pairs(measure, queries))

    def draw(
        self, key: Array, kernel: AbstractKernel, measure: Measure, queries: Any, draws: int
    ) -> Int[Array, "m draws"]:
        """Indices of points drawn ∝ K(x, y) dμ(y); drawn by XLA, with the same draws as every exact summation."""
        return self._by_xla(measure, as_query_sites(queries)).draw(key, kernel, measure, queries, draws)

    def obstacle(self, kernel: AbstractKernel, measure: Measure) -> str | None:
        """An unknown factor of the kernel, or why there is no library."""
        if KernelParts.of(kernel, measure.dimension) is None:
            return "the kernel has a factor that native code does not know"
        found = library()
        return None if found.path is not None else f"no native sum: {found.reason}"

    def _by_xla(self, measure: Measure, queries: Sites) -> AbstractSummation:
        return Dense() if pairs_and_bytes(measure, queries)[1] <= _DENSE_BYTES else Blockwise()
