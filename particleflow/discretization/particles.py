"""Particles: the measure is a cloud of points of fixed weight, each of which moves with the flow.

μ_t = Σ_j w_j δ_{x_j(t)},    ẋ_j = v(t, x_j, μ_t) on the geometry.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.discretization.base import POINTS, AbstractDiscretization, Noise
from particleflow.errors import ArgumentError
from particleflow.flow import Flow
from particleflow.geometry import check_retracted, retracted_by_run
from particleflow.measure import Measure


class Cloud(eqx.Module):
    """The state of particles: what the geometry moves (a residual stream, say), and what stays with every particle."""

    moving: Float[Array, "n d"]
    log_weights: Float[Array, " n"] | None
    values: Float[Array, "n *k"] | None = None
    positions: Float[Array, " n"] | None = None

    def on(self, points: Float[Array, "n d"]) -> Measure:
        """The measure of these weights, values and positions on some points."""
        return Measure(points, self.log_weights, self.values, self.positions)


class Particles(AbstractDiscretization):
    """Points of fixed weight that move with the flow."""

    def begin(self, flow: Flow, measure: Measure) -> Cloud:
        """The points, lifted to what the geometry moves; fields of the measure set what the points do not tell."""
        moving = flow.geometry.lift(measure.points, measure.fields)
        return Cloud(moving, measure.log_weights, measure.values, measure.positions)

    def measure(self, flow: Flow, time: Any, state: Cloud) -> Measure:
        """The points on the geometry, with the fields from which the run could begin again."""
        return state.on(flow.geometry.retract(state.moving)).with_fields(flow.geometry.fields(state.moving))

    def seen(self, flow: Flow, time: Any, state: Cloud) -> Measure:
        """What the geometry shows to drifts."""
        return state.on(flow.geometry.observe(state.moving, time))

    def velocity(self, flow: Flow, time: Any, state: Cloud) -> Cloud:
        """The velocity of every particle."""
        return Cloud(flow.velocity(time, state.moving, state.on(state.moving)), None)

    def step(self, flow: Flow, time: Any, state: Cloud, size: Any) -> Cloud:
        """One residual layer, x ← N(x + size · v(x))."""
        moved = flow.step(time, state.moving, state.on(state.moving), size)
        return Cloud(moved, state.log_weights, state.values, state.positions)

    def fields(self, flow: Flow, time: Any, state: Cloud) -> dict[str, Array]:
        """The points, and what the geometry carries along."""
        return {POINTS: flow.geometry.retract(state.moving), **flow.geometry.fields(state.moving)}

    def noises(self, flow: Flow, state: Cloud) -> tuple[Noise, ...]:
        """One for every particle, and one that all share."""
        count, dimension = state.moving.shape

        def driven(temperature: Array, shape: tuple[int, ...]) -> Noise:
            def act(time: Any, now: Cloud, increment: Array) -> Cloud:
                kick = jnp.sqrt(2 * temperature) * jnp.broadcast_to(increment, now.moving.shape)
                return Cloud(flow.geometry.diffuse(now.moving, kick, time), None)

            return Noise(shape, act)

        return driven(flow.temperature, (count, dimension)), driven(flow.common_temperature, (1, dimension))

    def check(self, flow: Flow, measure: Measure, *, flow_per_run: bool = False) -> None:
        """Points must be on the geometry, and only fields that it carries may be set."""
        geometry, points = flow.geometry, measure.points
        if flow_per_run:
            check_retracted(geometry, points, retracted_by_run(geometry, points))
        else:
            geometry.check_contains(points)
        cloud = jax.ShapeDtypeStruct(points.shape[-2:], points.dtype)
        carried = jax.eval_shape(geometry.fields, cloud) if measure.fields else {}
        unknown = sorted(measure.fields.keys() - carried.keys())
        if unknown:
            known = f"carries {', '.join(sorted(carried))}" if carried else "carries nothing along"
            raise ArgumentError(
                f"The start has the fields {', '.join(unknown)}, but the geometry {geometry.name} {known}."
            )
