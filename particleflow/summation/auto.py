"""The choice among exact summations, made from shapes alone and open to inspection."""

from typing import Any, NamedTuple

import equinox as eqx

from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure
from particleflow.moments import Moments
from particleflow.summation.base import AbstractSummation, as_query_sites
from particleflow.summation.blockwise import Blockwise
from particleflow.summation.dense import Dense


class Choice(NamedTuple):
    """A summation and the reason it was chosen."""

    summation: AbstractSummation
    reason: str


class Auto(AbstractSummation):
    """`Dense` while the matrix of all pairs fits into `dense_bytes`, else `Blockwise`; never an approximation."""

    dense_bytes: int = eqx.field(static=True, default=16 * 2**20)

    def select(self, measure: Measure, queries: Any) -> Choice:
        """What would be used for these sizes, and why."""
        points = as_query_sites(queries).points
        needed = points.shape[0] * measure.count * points.dtype.itemsize
        size = f"{points.shape[0]} × {measure.count} pairs need {needed / 2**20:.3g} MiB"
        if needed <= self.dense_bytes:
            return Choice(Dense(), f"{size}, within the {self.dense_bytes / 2**20:.3g} MiB allowed for a dense matrix")
        return Choice(
            Blockwise(), f"{size}, more than the {self.dense_bytes / 2**20:.3g} MiB allowed for a dense matrix"
        )

    def moments(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Moments:
        """The moments of `measure` under `kernel`, seen from each query."""
        return self.select(measure, queries).summation.moments(kernel, measure, queries)
