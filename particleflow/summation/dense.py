"""The whole matrix at once: fastest for small clouds, and the yardstick for every other summation.

Row maxima first, then exponentials, then one matrix product that gives means and masses together. Beyond some
megabytes the matrix leaves the cache, and blocks are several times faster.
"""

from typing import Any

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
    logits_of,
    value_columns,
)
from particleflow.summation.sampling import drawn_indices


class Dense(AbstractSummation):
    """All pairs in one matrix: memory O(m·n), exact. Derivatives keep the matrix, too."""

    def moments(self, kernel: AbstractKernel, measure: Measure, queries: Any, values: Any = None) -> Moments:
        """The moments of `measure` under `kernel`, seen from each query."""
        sites = as_query_sites(queries)
        check_precision(kernel, measure, sites)
        logits = logits_of(kernel, sites, measure.sites, measure.log_weights)
        return Moments.from_logits(logits, value_columns(measure, values))

    def promise(self, kernel: AbstractKernel, measure: Measure, queries: Sites, limits: Limits) -> Choice | None:
        """Exact, while the matrix of all pairs fits."""
        pairs, needed = pairs_and_bytes(measure, queries)
        if needed > limits.dense_bytes:
            return None
        reason = f"{pairs}, within the {limits.dense_bytes / 2**20:.3g} MiB allowed for a dense matrix"
        return Choice(self, reason, cost=self.pairs(measure, queries))

    def draw(
        self, key: Array, kernel: AbstractKernel, measure: Measure, queries: Any, draws: int
    ) -> Int[Array, "m draws"]:
        """Indices of points drawn ∝ K(x, y) dμ(y), one query after the other, with all points at once."""
        sites = as_query_sites(queries)
        check_precision(kernel, measure, sites)
        return drawn_indices(key, kernel, measure, sites, draws, measure.count)


def pairs_and_bytes(measure: Measure, queries: Sites) -> tuple[str, int]:
    """The size of the matrix of all pairs, in words and in bytes.

    One matrix counts: compilers fuse the logits into their exponentials, more often than not.
    """
    count, itemsize = queries.points.shape[0], queries.points.dtype.itemsize
    needed = count * measure.count * itemsize
    return f"{count} × {measure.count} pairs need {needed / 2**20:.3g} MiB", needed
