"""Drifts: the vector field that a cloud of particles exerts on every point.

    ẋ = drift(t, x, μ)

A drift is called with the time, the queries (points with their positions) and the measure of all particles, and
returns one velocity a query. Drifts add up (`d1 + d2`: heads, feed-forward, confinement) and can be multiplied
with a number (`0.5 * d`).
"""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from particleflow._arrays import as_scalar
from particleflow.errors import ArgumentError
from particleflow.measure import Measure, Sites


class AbstractDrift(eqx.Module):
    """A velocity field that may depend on the whole measure."""

    @abc.abstractmethod
    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """The velocity at every query."""

    def __add__(self, other: "AbstractDrift") -> "Sum":
        return Sum((*terms_of(self), *terms_of(other)))

    def __mul__(self, factor: Any) -> "Multiple":
        return Multiple(self, factor)

    def __rmul__(self, factor: Any) -> "Multiple":
        return Multiple(self, factor)


class Sum(AbstractDrift):
    """Σ_l drift_l(t, x, μ)."""

    drifts: tuple[AbstractDrift, ...]

    def __init__(self, drifts: Any):
        self.drifts = tuple(drifts)

    def __check_init__(self):
        if not self.drifts:
            raise ArgumentError("Argument `drifts` must name at least one drift, but is empty.")
        for index, drift in enumerate(self.drifts):
            if not isinstance(drift, AbstractDrift):
                raise ArgumentError(f"Argument `drifts[{index}]` must be a drift, but is {drift!r}.")

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """The sum of the velocities."""
        first, *others = (drift(time, queries, measure) for drift in self.drifts)
        return sum(others, start=first)


class Multiple(AbstractDrift):
    """factor · drift(t, x, μ)."""

    drift: AbstractDrift
    factor: Float[Array, ""]

    def __init__(self, drift: AbstractDrift, factor: Any):
        self.drift = drift
        self.factor = as_scalar(factor, "factor")

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """The multiple of the velocity."""
        return self.factor * self.drift(time, queries, measure)


def terms_of(drift: AbstractDrift) -> tuple[AbstractDrift, ...]:
    """The summands of a drift."""
    return drift.drifts if isinstance(drift, Sum) else (drift,)
