"""The present of a run: what observables and events look at."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._names import snake_case
from particleflow.discretization.base import AbstractDiscretization
from particleflow.discretization.particles import Particles
from particleflow.drifts.base import Interaction
from particleflow.errors import ArgumentError
from particleflow.flow import Flow
from particleflow.measure import Measure


class Present(eqx.Module):
    """A flow at one time, in one state; everything else is read from these when it is asked for.

    Attributes: `flow`, `discretization`, `time`, `state`; `measure` (what is stored), `seen` (what drifts look at),
    `velocity` (how the stored points move), `interaction` (the first kernel that acts); `condensed` (the same present
    on fewer points, where particles have coalesced).
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
    def seen(self) -> Measure:
        """The measure that drifts look at."""
        return self.discretization.seen(self.flow, self.time, self.state)

    @property
    def condensed(self) -> "Present":
        """The same present on as few points as carry the measure.

        For what depends on the measure alone and sums over all pairs; what counts particles must not ask it.
        """
        how, state = self.discretization.condensed(self.state)
        return Present(self.flow, how, self.time, state)

    @property
    def velocity(self) -> Float[Array, "n d"]:
        """How the stored points move; where they are places of a density, how the flow moves what is there."""
        return self.discretization.motion(self.flow, self.time, self.state)

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
        if not self.discretization.atoms:
            name = snake_case(type(self.discretization).__name__)
            raise ArgumentError(f"{what}, but the points of {name} are places of a density and no particles.")
        return self.measure

    def frame(self) -> dict[str, Array]:
        """What a frame stores of the state."""
        return self.discretization.fields(self.flow, self.time, self.state)
