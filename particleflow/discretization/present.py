"""The present of a run: what observables and events are functions of."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.text import kind_of
from particleflow.discretization.base import AbstractDiscretization
from particleflow.discretization.discretization_capabilities import CarriesDensity, Coalescing
from particleflow.discretization.particles.particles import Particles
from particleflow.dynamics.drifts.base import Interaction
from particleflow.dynamics.flow import Flow
from particleflow.errors import ArgumentError
from particleflow.measure import Measure


class Present(eqx.Module):
    """A flow at one time, in one state; everything else is computed from these when it is read.

    Attributes: `flow`, `discretization`, `time`, `state`; `measure` (what is stored), `observed` (what drifts act on),
    `velocity` (of the stored points), `interaction` (the first kernel that acts); `reduced` (the same present on fewer
    points, where particles have coalesced).
    """

    flow: Flow
    discretization: AbstractDiscretization
    time: Any
    state: Any

    @staticmethod
    def of(flow: Flow, measure: Any, time: Any = 0.0) -> "Present":
        """The present of particles that are given as a measure or as points."""
        measure = measure if isinstance(measure, Measure) else Measure.uniform(measure)
        time = jnp.asarray(time, measure.points.dtype)
        return Present(flow, Particles(), time, Particles().begin(flow, measure))

    @property
    def measure(self) -> Measure:
        """The measure that the state stands for, on the points that are stored."""
        return self.discretization.measure(self.flow, self.time, self.state)

    @property
    def observed(self) -> Measure:
        """The measure that drifts act on: the points as the geometry observes them."""
        return self.discretization.observed(self.flow, self.time, self.state)

    @property
    def reduced(self) -> "Present":
        """The same present on as few points as carry the measure.

        For what depends on the measure alone and sums over all pairs; not for what counts particles.
        """
        if not isinstance(self.discretization, Coalescing):
            return self
        how, state = self.discretization.carriers(self.state)
        return Present(self.flow, how, self.time, state)

    @property
    def velocity(self) -> Float[Array, "n d"]:
        """The velocity of the stored points; where they are places of a density, that of the flow at these places."""
        return self.discretization.point_velocity(self.flow, self.time, self.state)

    @property
    def interaction(self) -> Interaction:
        """The first kernel that acts at this time."""
        found = self.flow.interactions(self.time)
        if not found:
            raise ArgumentError(
                "This observable needs a drift with a kernel (attend, mean_shift, …), but the flow has none."
            )
        return found[0]

    def of_particles(self, what: str) -> Measure:
        """The measure, of particles; where it is a density it is refused, because `what` counts particles."""
        if isinstance(self.discretization, CarriesDensity):
            name = kind_of(type(self.discretization))
            raise ArgumentError(f"{what}, but the points of {name} are places of a density and no particles.")
        return self.measure

    def frame(self) -> dict[str, Array]:
        """What a frame stores of the state."""
        return self.discretization.fields(self.flow, self.time, self.state)
