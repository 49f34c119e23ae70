"""The whole matrix at once: fastest for small clouds, and the yardstick for every other summation."""

from typing import Any

from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure
from particleflow.moments import Moments
from particleflow.summation.base import AbstractSummation, as_query_sites, check_precision, logits_of, value_columns


class Dense(AbstractSummation):
    """All pairs in one matrix: memory O(m·n)."""

    def moments(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Moments:
        """The moments of `measure` under `kernel`, seen from each query."""
        sites = as_query_sites(queries)
        check_precision(kernel, measure, sites)
        logits = logits_of(kernel, sites, measure.sites, measure.log_weights)
        return Moments.from_logits(logits, value_columns(measure))
