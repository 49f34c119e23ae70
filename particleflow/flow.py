"""A flow: a drift on a geometry, with or without noise.

    dX = P v(t, X, μ_t) dt + √(2 temperature) P ∘ dW + √(2 common_temperature) P ∘ dB

μ_t is the law of the particles themselves; W is independent for every particle, B is shared by all of them. The
noise is in the Stratonovich sense, which on the sphere is Brownian motion and in R^d makes no difference.

A flow is the equation for μ_t alone. How μ_t is carried by numbers is the business of a discretization. The law μ_t
itself follows the continuity equation

    ∂_t μ + div(μ P v(t, ·, μ)) = temperature · Δμ,

which is what one simulates whether by particles, by cells or by moments.
"""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from particleflow._arrays import as_nonnegative, is_concrete
from particleflow._shown import shown
from particleflow.drifts.base import AbstractDrift, Chooser, Interaction, Sum
from particleflow.errors import check_kind
from particleflow.geometry import AbstractGeometry, Euclidean
from particleflow.measure import Measure, Sites


class Flow(eqx.Module):
    """A measure under a drift on a geometry.

    Parameters: `drift`, or a list of them, which is their sum; `geometry`, flat space if left out; `temperature` of the
    noise that every particle has of its own; `common_temperature` of the noise that all share.
    """

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
        several = isinstance(drift, list | tuple) and len(drift) != 1
        self.drift = Sum(drift) if several else drift[0] if isinstance(drift, list | tuple) else drift
        self.geometry = geometry or Euclidean()
        self.temperature = as_nonnegative(temperature, "temperature")
        self.common_temperature = as_nonnegative(common_temperature, "common_temperature")

    def __check_init__(self):
        check_kind(self.drift, AbstractDrift, "drift", "a drift or a list of them")
        check_kind(self.geometry, AbstractGeometry, "geometry", "a geometry")

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

    def interactions(self, time: Any) -> tuple[Interaction, ...]:
        """What attracts or repels at this time, in the order of the drifts."""
        return self.drift.interactions(time)

    def resummed(self, time: Any, choose: Chooser) -> "Flow":
        """The same equation, with what sums its kernels chosen anew."""
        return eqx.tree_at(lambda flow: flow.drift, self, self.drift.resummed(time, choose))

    def observed(
        self, time: Any, state: Float[Array, "n d"], start: Measure, geometry: AbstractGeometry | None = None
    ) -> Measure:
        """The measure that a drift sees: the weights and positions of `start` on the observed points."""
        return start.with_points((geometry or self.geometry).observe(state, time))

    def velocity(self, time: Any, state: Float[Array, "n d"], start: Measure) -> Float[Array, "n d"]:
        """How the states of particles move: the drift of the observed measure, made tangent, summed over its stages."""
        first, *others = (
            geometry.tangent(state, self._said(drift, time, state, start, geometry), time)
            for drift, geometry in self._stages(time)
        )
        return sum(others, start=first)

    def velocity_at(self, time: Any, places: Float[Array, "m d"], measure: Measure) -> Float[Array, "m d"]:
        """How a particle would move at some places, where the measure is: what carries a density from cell to cell."""

        def moved(drift: AbstractDrift, geometry: AbstractGeometry) -> Float[Array, "m d"]:
            seen = measure.with_points(geometry.observe(measure.points, time))
            return geometry.tangent(places, drift(time, Sites(geometry.observe(places, time)), seen), time)

        first, *others = (moved(drift, geometry) for drift, geometry in self._stages(time))
        return sum(others, start=first)

    def step(self, time: Any, state: Float[Array, "n d"], start: Measure, size: Any) -> Float[Array, "n d"]:
        """One explicit layer, x ← N(x + size · v(x)); the stages of a block one after the other."""
        for drift, geometry in self._stages(time):
            state = geometry.advance(state, self._said(drift, time, state, start, geometry), size, time)
        return state

    def _stages(self, time: Any) -> list[tuple[AbstractDrift, AbstractGeometry]]:
        return [(drift, own or self.geometry) for drift, own in self.drift.stages(time)]

    def _said(
        self, drift: AbstractDrift, time: Any, state: Array, start: Measure, geometry: AbstractGeometry
    ) -> Float[Array, "n d"]:
        measure = self.observed(time, state, start, geometry)
        return drift(time, measure.sites, measure)

    def __repr__(self) -> str:
        return shown(self)
