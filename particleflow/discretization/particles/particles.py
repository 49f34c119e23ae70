"""Particles: the measure is a cloud of points of fixed weight, each of which moves with the flow.

μ_t = Σ_j w_j δ_{x_j(t)},    ẋ_j = v(t, x_j, μ_t) on the geometry.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow._support.arrays import as_positive
from particleflow.discretization.base import POINTS, AbstractDiscretization
from particleflow.discretization.discretization_capabilities import (
    Coalescing,
    DrivenByNoise,
    HasCanonicalState,
    HasStatistics,
    MovesRows,
    Noise,
)
from particleflow.discretization.particles.cloud_states import AbstractCloud, Cloud, Coalesced
from particleflow.discretization.particles.coalescing import check_exchangeable, coalesced, padded_size
from particleflow.discretization.particles.merged_points import MergedPoints, merged_points
from particleflow.dynamics.flow import Flow
from particleflow.dynamics.geometry import (
    AbstractGeometry,
    carried_fields,
    carried_names,
    check_start,
    for_weights,
    lifted,
)
from particleflow.errors import ArgumentError
from particleflow.measure import Measure


class Particles(AbstractDiscretization, Coalescing, DrivenByNoise, HasCanonicalState, HasStatistics, MovesRows):
    """Points of fixed weight that move with the flow.

    With `coalesce` = ε, particles that have come within ε of each other and move together are carried by one point from
    then on, at their weighted mean and with their weights added; frames still show every one of them. It happens
    between two windows of a run, so save frames while clusters form. Where particles differ by more than where they are
    it would be wrong, and is refused: kernels of positions, values of their own, noise of their own.

    Merging moves no particle by more than ε at a time, and keeps the mean of those that merge; between merges all
    particles of a point move exactly alike. So the run is that of all particles, pushed by at most ε now and then, as
    the solver's own error pushes them at every step. A push by δ changes every log K(x, y) by at most 2ℓδ, ℓ the
    Lipschitz constant of log K in x or in y, and so log E: the card of a run shows how many points are left, by how
    much merging has moved a particle in all, and the sum of these bounds on log E. What the flow makes of a push later
    is not in it: it shrinks where clusters form, and grows, as every error does, where particles part.

    Parameters: `coalesce`, the distance ε; left out, every particle is a point of its own for ever.
    """

    coalesce: float | None = eqx.field(static=True)

    def __init__(self, coalesce: float | None = None):
        self.coalesce = None if coalesce is None else float(as_positive(coalesce, "coalesce"))

    def begin(self, flow: Flow, measure: Measure) -> AbstractCloud:
        """The points, lifted to what the geometry moves; fields of the measure set what the points do not determine."""
        moving = lifted(flow.geometry, measure.points, measure.fields)
        cloud = Cloud(moving, measure.log_weights, measure.values, measure.positions)
        return cloud if self.coalesce is None else Coalesced.uncoalesced(cloud)

    def measure(self, flow: Flow, time: Any, state: AbstractCloud) -> Measure:
        """The points on the geometry, with the fields from which the run could begin again."""
        geometry = _geometry(flow, state)
        fields = {name: state.per_particle(values) for name, values in carried_fields(geometry, state.moving).items()}
        return state.particle_measure(geometry.retract(state.moving)).with_fields(fields)

    def observed(self, flow: Flow, time: Any, state: AbstractCloud) -> Measure:
        """The particles with their points as drifts see them."""
        return state.particle_measure(_geometry(flow, state).observe(state.moving, time))

    def carriers(self, state: AbstractCloud) -> tuple[AbstractDiscretization, Any]:
        """The points that carry the particles, as particles."""
        return Particles(), state.carriers()

    def canonical(self, flow: Flow, time: Any, state: AbstractCloud) -> AbstractCloud:
        """Retracted and lifted again: a state on a sphere may have any length, its point has one."""
        geometry, moving = _geometry(flow, state), state.moving
        return state.moved(lifted(geometry, geometry.retract(moving), carried_fields(geometry, moving)))

    def merge_points(self, flow: Flow, measure: Measure, distance: float) -> MergedPoints:
        """Particles within linking `distance` of each other as one point, if they differ in nothing but place."""
        check_exchangeable(flow, measure, flow_per_run=False, wish="merge")
        moving = lifted(flow.geometry, measure.points, measure.fields)
        return merged_points(Cloud(moving, measure.log_weights), distance)

    def velocity(self, flow: Flow, time: Any, state: AbstractCloud) -> AbstractCloud:
        """The velocity of every particle."""
        return state.rate(flow.velocity(time, state.moving, state.measure_at(state.moving)))

    def step(self, flow: Flow, time: Any, state: AbstractCloud, size: Any) -> AbstractCloud:
        """One residual layer, x ← N(x + size · v(x))."""
        return state.moved(flow.step(time, state.moving, state.measure_at(state.moving), size))

    def fields(self, flow: Flow, time: Any, state: AbstractCloud) -> dict[str, Array]:
        """The points, and what the geometry carries along."""
        geometry = _geometry(flow, state)
        shown = {POINTS: geometry.retract(state.moving), **carried_fields(geometry, state.moving)}
        return {name: state.per_particle(values) for name, values in shown.items()}

    def noises(self, flow: Flow, state: AbstractCloud) -> tuple[Noise, ...]:
        """One for every particle, and one that all share."""
        count, dimension = state.moving.shape

        def driven(temperature: Array, shape: tuple[int, ...]) -> Noise:
            def act(time: Any, now: AbstractCloud, increment: Array) -> AbstractCloud:
                kick = jnp.sqrt(2 * temperature) * jnp.broadcast_to(increment, now.moving.shape)
                return now.rate(_geometry(flow, now).diffuse(now.moving, kick, time))

            return Noise(shape, act)

        return driven(flow.temperature, (count, dimension)), driven(flow.common_temperature, (1, dimension))

    def moving_rows(self, state: AbstractCloud) -> Array:
        """The points, or the residual streams that the geometry moves."""
        return state.moving

    def resolution(self) -> float:
        """ε, the distance up to which two particles may become one; 0 without `coalesce`."""
        return self.coalesce or 0.0

    def after_window(self, flow: Flow, time: Array, state: Any, layer: float | None) -> Any:
        """The state with particles merged that have come within ε and move together."""
        return state if self.coalesce is None else coalesced(flow, time, state, self.coalesce, layer)

    def pad_states(self, states: Sequence[Any]) -> Sequence[Any]:
        """Pad the states to one number of points, rounded up to a power of two."""
        if self.coalesce is None:
            return states
        count = len(states[0].members)
        size = max(padded_size(int(state.carrying), count) for state in states)
        return [state.padded(size) for state in states]

    def statistics(self, states: Any) -> dict[str, Any]:
        """How many points carry the particles, and what merging has done, of all runs."""
        if self.coalesce is None:
            return {}
        left, bound = np.asarray(states.carrying), float(np.max(np.asarray(states.log_energy_bound)))
        return {
            "coalesce": self.coalesce,
            "points left": int(left.max()),
            "particles merged": int(np.sum(states.members.shape[-1] - left)),
            "moved by merging": float(np.max(np.asarray(states.displacement))),
            "log-energy bound of merging": bound if np.isfinite(bound) else "none: log K has no known slope",
        }

    def check(self, flow: Flow, measure: Measure, *, flow_per_run: bool = False) -> None:
        """Points must be on the geometry, and only fields that it carries may be set."""
        geometry, points = for_weights(flow.geometry, measure.log_weights), measure.points
        check_start(geometry, points, per_run=flow_per_run)
        cloud = jax.ShapeDtypeStruct(points.shape[-2:], points.dtype)
        carried = carried_names(geometry, cloud) if measure.fields else []
        unknown = sorted(measure.fields.keys() - set(carried))
        if unknown:
            known = f"carries {', '.join(carried)}" if carried else "carries nothing along"
            raise ArgumentError(
                f"The start has the fields {', '.join(unknown)}, but the geometry {geometry.name} {known}."
            )
        if self.coalesce is not None:
            check_exchangeable(flow, measure, flow_per_run=flow_per_run)


def _geometry(flow: Flow, state: AbstractCloud) -> AbstractGeometry:
    """The geometry of particles of these weights."""
    return for_weights(flow.geometry, state.point_log_weights)
