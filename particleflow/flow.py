"""A flow: a drift on a geometry, with or without noise.

    dX = P v(t, X, μ_t) dt + √(2 temperature) P ∘ dW + √(2 common_temperature) P ∘ dB

μ_t is the law of the particles themselves; W is independent for every particle, B is shared by all of them. The
noise is in the Stratonovich sense, which on the sphere is Brownian motion and in R^d makes no difference.
"""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from particleflow._arrays import as_nonnegative, is_concrete
from particleflow.drifts.base import AbstractDrift, Sum
from particleflow.errors import ArgumentError
from particleflow.geometry import AbstractGeometry, Euclidean
from particleflow.measure import Measure


class Flow(eqx.Module):
    """Particles under `drift` on `geometry`; a list of drifts is their sum."""

    drift: AbstractDrift
    geometry: AbstractGeometry
    temperature: Float[Array, ""]
    common_temperature: Float[Array, ""]

    def __init__(
        self,
        drift: AbstractDrift | list[AbstractDrift] | tuple[AbstractDrift, ...],
        geometry: AbstractGeometry | None = None,
        temperature: Any = 0.0,
        common_temperature: Any = 0.0,
    ):
        self.drift = drift if isinstance(drift, AbstractDrift) else (drift[0] if len(drift) == 1 else Sum(drift))
        self.geometry = geometry or Euclidean()
        self.temperature = as_nonnegative(temperature, "temperature")
        self.common_temperature = as_nonnegative(common_temperature, "common_temperature")

    def __check_init__(self):
        if not isinstance(self.drift, AbstractDrift):
            raise ArgumentError(f"Argument `drift` must be a drift or a list of them, but is {self.drift!r}.")

    @property
    def is_noisy(self) -> bool:
        """Whether there is noise, as far as it can be known: not while the flow is traced (`jit`, `grad`)."""
        return any(is_concrete(amount) and bool(np.any(np.asarray(amount) > 0)) for amount in self._temperatures)

    @property
    def may_be_noisy(self) -> bool:
        """Whether there is noise, or may be: a traced temperature could be anything."""
        return self.is_noisy or not all(is_concrete(amount) for amount in self._temperatures)

    @property
    def _temperatures(self) -> tuple[Array, Array]:
        return self.temperature, self.common_temperature

    def observed(self, time: Any, state: Float[Array, "n d"], start: Measure) -> Measure:
        """The measure that the drift sees: the weights and positions of `start` on the observed points."""
        return start.with_points(self.geometry.observe(state, time))

    def velocity(self, time: Any, state: Float[Array, "n d"], start: Measure) -> Float[Array, "n d"]:
        """How the state moves: the drift of the observed measure, made tangent."""
        measure = self.observed(time, state, start)
        return self.geometry.tangent(state, self.drift(time, measure.sites, measure), time)

    def step(self, time: Any, state: Float[Array, "n d"], start: Measure, size: Any) -> Float[Array, "n d"]:
        """One explicit step: the residual layer x ← N(x + size · v(x))."""
        measure = self.observed(time, state, start)
        return self.geometry.advance(state, self.drift(time, measure.sites, measure), size, time)
