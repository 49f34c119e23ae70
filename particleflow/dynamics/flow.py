"""A flow: a drift on a geometry, with or without noise.

    dX = P v(t, X, μ_t) dt + √(2 temperature) P ∘ dW + √(2 common_temperature) P ∘ dB

μ_t is the law of the particles themselves; W is independent for every particle, B is shared by all of them. The
noise is in the Stratonovich sense, which on the sphere is Brownian motion and in R^d makes no difference.

A flow is the equation for μ_t alone. How μ_t is carried by numbers is decided by a discretization. The law μ_t
itself follows the continuity equation

    ∂_t μ + div(μ P v(t, ·, μ)) = temperature · Δμ,

which is what one simulates whether by particles, by cells or by moments.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import Nonnegative, as_nonnegative, is_concrete
from particleflow._support.representation import shown
from particleflow.dynamics.drifts.base import AbstractDrift, Chooser, Interaction, Sum, added
from particleflow.dynamics.geometry import AbstractGeometry, Euclidean, NormalisesTheSet, for_weights, moving_laws
from particleflow.dynamics.normal_law import Affine, Normal
from particleflow.errors import check_kind
from particleflow.measure import Measure, Sites


class Flow(eqx.Module):
    """A measure under a drift on a geometry.

    Parameters: `drift`, or a list of them, which is their sum; `geometry`, flat space if left out; `temperature` of the
    noise that every particle has of its own; `common_temperature` of the noise that all share.
    """

    drift: AbstractDrift
    geometry: AbstractGeometry
    temperature: Nonnegative
    common_temperature: Nonnegative

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
        """The kernels that act at this time, in the order of the drifts."""
        return self.drift.interactions(time)

    def resummed(self, time: Any, choose: Chooser) -> "Flow":
        """The same equation with the summation that `choose` names for each kernel."""
        return eqx.tree_at(lambda flow: flow.drift, self, self.drift.resummed(time, choose))

    def observed(
        self, time: Any, state: Float[Array, "n d"], start: Measure, geometry: AbstractGeometry | None = None
    ) -> Measure:
        """The measure that a drift sees: the weights and positions of `start` on the observed points."""
        return start.with_points((geometry or self.geometry).observe(state, time))

    def velocity(self, time: Any, state: Float[Array, "n d"], start: Measure) -> Float[Array, "n d"]:
        """How the states of particles move: the drift of the observed measure, made tangent, summed over its stages."""
        first, *others = (
            geometry.tangent(state, self._velocity_of(drift, time, state, start, geometry), time)
            for drift, geometry in self._stages(time, start)
        )
        return sum(others, start=first)

    def velocity_at(
        self, time: Any, places: Float[Array, "m d"], measure: Measure, positions: Float[Array, " m"] | None = None
    ) -> Float[Array, "m d"]:
        """The velocity of a particle at some places, under this measure: it carries a density from cell to cell.

        At the points of the measure it is `velocity`. A geometry that normalises the whole set subtracts the affine
        field of this measure everywhere; it contains the spreading by diffusion, which `velocity` leaves to the noise.

        Parameters: the `places`, and their `positions`; `measure`, whose points are the states of the particles.
        """
        first, *others = (
            self._velocity_at(drift, geometry, time, Sites(places, positions), measure, heat)
            for (drift, geometry), heat in zip(self._stages(time, measure), self._heats(time, measure), strict=True)
        )
        return sum(others, start=first)

    def law_velocity(self, time: Any, law: Normal) -> Affine:
        """How a normal law moves: the affine field of its stages, each as its geometry moves laws."""
        fields = [
            moving_laws(geometry).tangent_law(law, drift.affine(time, law), heat)
            for (drift, geometry), heat in zip(self._stages(time, None), self._heats(time, None), strict=True)
        ]
        return added(fields)

    def step(self, time: Any, state: Float[Array, "n d"], start: Measure, size: Any) -> Float[Array, "n d"]:
        """One explicit layer, x ← N(x + size · v(x)); the stages of a block one after the other."""
        for drift, geometry in self._stages(time, start):
            state = geometry.advance(state, self._velocity_of(drift, time, state, start, geometry), size, time)
        return state

    def law_step(self, time: Any, law: Normal, size: Any) -> Normal:
        """One explicit layer of a normal law, the law of x ← N(x + size · v(x)); stages one after the other."""
        for drift, geometry in self._stages(time, None):
            law = moving_laws(geometry).advance_law(law, drift.affine(time, law), size)
        return law

    def _stages(self, time: Any, start: Measure | None) -> list[tuple[AbstractDrift, AbstractGeometry]]:
        stages = [(drift, own or self.geometry) for drift, own in self.drift.stages(time)]
        return stages if start is None else [(drift, for_weights(space, start.log_weights)) for drift, space in stages]

    def _heats(self, time: Any, start: Measure | None) -> list[Any]:
        """The temperature, for the first stage: there is one diffusion, however many stages there are."""
        return [self.temperature, *(jnp.zeros_like(self.temperature),) * (len(self._stages(time, start)) - 1)]

    def _velocity_at(
        self, drift: AbstractDrift, geometry: AbstractGeometry, time: Any, sites: Sites, measure: Measure, heat: Any
    ) -> Float[Array, "m d"]:
        """The velocity of one stage at sites that are not of the measure."""
        if not isinstance(geometry, NormalisesTheSet):
            observed = measure.with_points(geometry.observe(measure.points, time))
            velocity = drift(time, sites._replace(points=geometry.observe(sites.points, time)), observed)
            return geometry.tangent(sites.points, velocity, time)
        shares = jnp.exp(measure.log_weights - measure.log_mass)
        velocity, own = (drift(time, each, measure) for each in (sites, measure.sites))
        return velocity - geometry.restoring(measure.points, own, shares, heat).at(sites.points)

    def _velocity_of(
        self, drift: AbstractDrift, time: Any, state: Array, start: Measure, geometry: AbstractGeometry
    ) -> Float[Array, "n d"]:
        measure = self.observed(time, state, start, geometry)
        return drift(time, measure.sites, measure)

    def __repr__(self) -> str:
        return shown(self)


def flow_of_run(flow: Flow, run: int) -> Flow:
    """The flow of one run, of a flow whose arrays have a leading axis of runs."""
    return jax.tree_util.tree_map(lambda leaf: leaf[run] if eqx.is_array(leaf) else leaf, flow)
