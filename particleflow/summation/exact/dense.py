"""The whole matrix at once: fastest for small clouds, and the reference for every other summation.

Row maxima first, then exponentials, then one matrix product that gives means and masses together. Beyond some
megabytes the matrix leaves the cache, and blocks are several times faster.
"""

from typing import Any

from jaxtyping import Array, Int

from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.summation.base import (
    Choice,
    Limits,
    as_query_sites,
    check_precision,
    cost_of_pairs,
    logits_of,
    value_columns,
)
from particleflow.summation.candidates import Candidate
from particleflow.summation.device_axis import is_shared, shared_in_blocks
from particleflow.summation.moments import Moments
from particleflow.summation.prepared import PreparedSum
from particleflow.summation.sampling import DrawsPoints, drawn_indices


class Dense(Candidate, DrawsPoints):
    """All pairs in one matrix: memory O(m·n), exact. Derivatives keep the matrix, too."""

    def summed(self, prepared: PreparedSum, values: Any = None) -> Moments:
        """Row maxima, exponentials and one product, of the whole matrix log K(x_i, y_j) + log w_j."""
        measure, columns = prepared.measure, value_columns(prepared.measure, values)

        def of_queries(queries: Sites) -> Moments:
            logits = logits_of(prepared.kernel, queries, measure.sites, measure.log_weights)
            return Moments.from_logits(logits, columns)

        count = prepared.queries.points.shape[0]
        if is_shared(count):
            return shared_in_blocks(of_queries, prepared.queries, count, count)
        return of_queries(prepared.queries)

    def promise(self, prepared: PreparedSum, limits: Limits) -> Choice | None:
        """Exact, while the matrix of all pairs fits."""
        pairs, needed = pairs_and_bytes(prepared.measure, prepared.queries)
        if needed > limits.dense_bytes:
            return None
        reason = f"{pairs}, within the {limits.dense_bytes / 2**20:.3g} MiB allowed for a dense matrix"
        return Choice(self, reason, cost=cost_of_pairs(prepared.measure, prepared.queries))

    def draw(
        self, key: Array, kernel: AbstractKernel, measure: Measure, queries: Any, draws: int
    ) -> Int[Array, "m draws"]:
        """Indices of points drawn ∝ K(x, y) dμ(y), one query after the other, with all points at once."""
        sites = as_query_sites(queries)
        check_precision(kernel, measure, sites)
        return drawn_indices(key, kernel, measure, sites, draws, measure.count)


def pairs_and_bytes(measure: Measure, queries: Sites) -> tuple[str, int]:
    """The size of the matrix of all pairs, as a sentence and in bytes.

    One matrix counts: compilers fuse the logits into their exponentials, more often than not.
    """
    count, itemsize = queries.points.shape[0], queries.points.dtype.itemsize
    needed = count * measure.count * itemsize
    return f"{count} × {measure.count} pairs need {needed / 2**20:.3g} MiB", needed
