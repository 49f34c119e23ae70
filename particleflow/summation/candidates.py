"""Summations that `Auto` may choose: each promises an error and a cost for given points, and sums what is prepared.

A promise is kept, or not given: a summation that cannot keep the limits, or does not fit the kernel's forms, returns
None and is passed over. So a new way to sum is one class, and one line in the list of candidates of `auto`.

A promise needs sums and programs of its own. So an approximation first bounds its cost from below, and is passed over
where that is more than another summation costs. It promises an error for the points it is given (their extent, their
weights), not for their number alone; where they are traced `Auto` allows none. What it would sum with (how many modes,
features, cells) is settled in the summation that its choice names, so that it is a constant of compiled code.
"""

import abc
from collections.abc import Iterator
from typing import Any

from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure
from particleflow.summation.base import AbstractSummation, Choice, Limits, check_precision
from particleflow.summation.moments import Moments
from particleflow.summation.prepared import PreparedSum, prepare


class Candidate(AbstractSummation):
    """A summation that `Auto` may choose."""

    def moments(self, kernel: AbstractKernel, measure: Measure, queries: Any, values: Any = None) -> Moments:
        """The moments of `measure` under `kernel`, seen from each query: prepared, checked and summed."""
        prepared = prepare(kernel, measure, queries)
        check_precision(kernel, measure, prepared.queries)
        return self.summed(prepared, values)

    @abc.abstractmethod
    def summed(self, prepared: PreparedSum, values: Any = None) -> Moments:
        """The moments of a prepared sum, whose precision was checked."""

    @abc.abstractmethod
    def promise(self, prepared: PreparedSum, limits: Limits) -> Choice | None:
        """This summation, settled for a sum, with its error and cost; None where it cannot keep the limits."""


class Approximation(Candidate):
    """A candidate with an error, which it bounds for the given points."""

    @abc.abstractmethod
    def cost_bounds(self, prepared: PreparedSum, limits: Limits) -> Iterator[float]:
        """Lower bounds of the cost that `promise` would state, in native pairs: each closer, and slower to find.

        The first is known from shapes and forms; ∞ where there will be no promise.
        """
