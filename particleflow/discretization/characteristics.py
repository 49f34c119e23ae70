"""Characteristics: particles that carry along the density at their places.

Along ẋ = v(t, x, μ_t) the density of μ_t changes by how much the field spreads,

    d/dt log ρ(t, x(t)) = −div v(t, ·, μ_t) at x(t),

the method of characteristics for the continuity equation, and the instantaneous change of variables of continuous
normalizing flows (Chen et al. 2018). The divergence is that of the field at fixed μ: moving one test particle does not
move the measure. On a sphere it is the Riemannian divergence, and ρ the density on the sphere: the field that moves
states is homogeneous of degree one and has no radial part, so that its divergence in R^d is the Riemannian one.

μ itself is still the sum of the particles: the density is that of the law which the particles are quadrature points of,
as good as their sums are.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow.discretization.base import AbstractDiscretization
from particleflow.discretization.discretization_capabilities import HasLogDensity, StartsFromSamplingLaw
from particleflow.discretization.particles.cloud_states import AbstractCloud
from particleflow.discretization.particles.particles import Particles
from particleflow.dynamics.flow import Flow
from particleflow.dynamics.geometry import NormalisesTheSet, carried_names, for_weights
from particleflow.dynamics.initial.density import Density
from particleflow.errors import ArgumentError, whole_number
from particleflow.measure import Measure

LOG_DENSITY = "log_density"
_ON_GEOMETRY_ULPS = 1e3  # how far a geometry may move a point that is on it, in eps of the largest coordinate


class Traced(eqx.Module):
    """Particles, and the logarithm of the density at each."""

    cloud: AbstractCloud
    log_density: Float[Array, " n"] | None


class Characteristics(AbstractDiscretization, HasLogDensity, StartsFromSamplingLaw):
    """Particles that carry the log-density along: ẋ = v(t, x, μ_t), d/dt log ρ = −div v(t, ·, μ_t) at x.

    The start must have its log-density as the field `log_density` of its measure: of the law that its points are drawn
    from, with respect to volume (on spheres, to area). In a scenario it is that of the initial kind, where this is
    known. Frames store it as the field of that name, and the observable `entropy` reads it. Refused for noise, under
    which the density does not follow particle paths, and for residual streams, whose points are directions only.

    Parameters: `trace`, "exact" for the sum of d derivatives, or "random" for `draws` random signs each (Hutchinson),
    of variance ≤ 2(|J|² − |diag J|²)/draws at every time, for large d; `seed` of those signs, which stay the same.
    """

    trace: Literal["exact", "random"] = eqx.field(static=True)
    draws: int = eqx.field(static=True)
    seed: int = eqx.field(static=True)

    def __init__(self, trace: Literal["exact", "random"] = "exact", draws: int = 1, seed: int = 0):
        self.trace = trace
        self.draws = draws
        self.seed = seed

    def __check_init__(self):
        if self.trace not in ("exact", "random"):
            raise ArgumentError(f"Argument `trace` must be 'exact' or 'random', but is {self.trace!r}.")
        whole_number(self.draws, "draws")

    def begin(self, flow: Flow, measure: Measure) -> Traced:
        """The particles, and their log-density."""
        others = {name: values for name, values in measure.fields.items() if name != LOG_DENSITY}
        return Traced(Particles().begin(flow, measure.with_fields(others)), measure.fields[LOG_DENSITY])

    def from_sampling_law(
        self, flow: Flow, measure: Measure, drawn: Float[Array, "n d"], density: Density | None
    ) -> Measure:
        """Attach the log-density of the sampling law at the points, unless the start has a log-density."""
        if density is None or LOG_DENSITY in measure.fields:
            return measure
        with np.errstate(divide="ignore"):
            logs = np.log(density.at(np.asarray(drawn, float)))
        moved = logs - _stretching(flow, measure, np.asarray(drawn, float), density)
        return measure.with_fields({**measure.fields, LOG_DENSITY: jnp.asarray(moved, measure.points.dtype)})

    def measure(self, flow: Flow, time: Any, state: Traced) -> Measure:
        """The particles, with the log-density as a field."""
        found = Particles().measure(flow, time, state.cloud)
        return found.with_fields({**found.fields, LOG_DENSITY: state.log_density})

    def observed(self, flow: Flow, time: Any, state: Traced) -> Measure:
        """The particles with their points as drifts see them."""
        return Particles().observed(flow, time, state.cloud)

    def velocity(self, flow: Flow, time: Any, state: Traced) -> Traced:
        """The velocities of the particles, and minus the divergence of their field."""
        moving, start = state.cloud.moving, state.cloud.measure_at(state.cloud.moving)
        if isinstance(flow.geometry, NormalisesTheSet):  # its field is that of the normalised set, known anywhere
            moving = for_weights(flow.geometry, start.log_weights).retract(moving)

        def field(probes: Array) -> Array:
            return flow.velocity_at(time, probes, start.with_points(moving), start.positions)

        return Traced(Particles().velocity(flow, time, state.cloud), -self._divergence(field, moving))

    def step(self, flow: Flow, time: Any, state: Traced, size: Any) -> Traced:
        """Refuse: an explicit layer has no divergence to follow."""
        raise ArgumentError(
            "The density along particles changes with the divergence of a flow in continuous time, but the solver "
            "'map' takes explicit layers; use adaptive steps, or the solver 'euler'."
        )

    def fields(self, flow: Flow, time: Any, state: Traced) -> dict[str, Array]:
        """What particles have, and the log-density."""
        return {**Particles().fields(flow, time, state.cloud), LOG_DENSITY: state.log_density}  # pyright: ignore

    def log_density(self, flow: Flow, time: Any, state: Traced) -> Float[Array, " n"]:
        """The log-density that was carried along."""
        return state.log_density  # pyright: ignore[reportReturnType]

    def check(self, flow: Flow, measure: Measure, *, flow_per_run: bool = False) -> None:
        """The start must have a density, and a state must be nothing but its point."""
        if LOG_DENSITY not in measure.fields:
            raise ArgumentError(
                "The density along particles must begin somewhere, but the start has no field `log_density`; give it "
                "with measure.with_fields({'log_density': ...}), or begin with a cloud of known density."
            )
        if flow.is_noisy:
            raise ArgumentError(
                "With noise the density does not move along the paths of particles, but the flow has temperature; use "
                "a discretization of the density itself, or 'gaussian'."
            )
        points = jax.ShapeDtypeStruct(measure.points.shape[-2:], measure.points.dtype)
        hidden = carried_names(flow.geometry, points)
        if hidden:
            raise ArgumentError(
                f"The points of the geometry {flow.geometry.name} are not all that moves ({', '.join(hidden)}), and "
                "have no density of their own; use a space itself, such as the sphere."
            )
        others = {name: values for name, values in measure.fields.items() if name != LOG_DENSITY}
        bare = eqx.tree_at(lambda each: each.fields, measure, others)
        Particles().check(flow, bare, flow_per_run=flow_per_run)

    def _divergence(self, field: Any, points: Float[Array, "n d"]) -> Float[Array, " n"]:
        """Σ_k ∂v_k/∂x_k at every point: a point's velocity depends on no other probe, so one derivative serves all."""

        def along(directions: Float[Array, "n d"]) -> Float[Array, " n"]:
            return jnp.sum(directions * jax.jvp(field, (points,), (directions,))[1], axis=1)

        if self.trace == "random":
            signs = jax.random.rademacher(jax.random.key(self.seed), (self.draws, *points.shape), points.dtype)
            return jnp.mean(jax.lax.map(along, signs), axis=0)
        axes = np.eye(points.shape[1])[:, None, :] * np.ones((1, points.shape[0], 1))
        return jnp.sum(jax.lax.map(along, jnp.asarray(axes, points.dtype)), axis=0)


def _stretching(flow: Flow, measure: Measure, drawn: np.ndarray, density: Density) -> float:
    """The log-factor by which volume grows from the sampling law to the geometry; refused where there is none.

    A sphere stretches the unit sphere by its radius, and a normalised set all of space by T, of which (det T)² is the
    quotient of the determinants of both covariances.
    """
    facts, points = flow.geometry.facts(density.dimension), np.asarray(measure.points, float)
    factor = float(np.asarray(facts.radius)) if facts.kind == "sphere" else 1.0
    allowed = _ON_GEOMETRY_ULPS * np.finfo(measure.points.dtype).eps * np.max(np.abs(points), initial=1.0)
    same = np.max(np.abs(points - factor * drawn), initial=0.0) <= allowed
    if facts.kind == density.space and isinstance(flow.geometry, NormalisesTheSet):
        shares = np.exp(np.asarray(measure.log_weights, float))
        before, after = (
            np.linalg.slogdet(np.atleast_2d(np.cov(each.T, aweights=shares, ddof=0)))[1] for each in (drawn, points)
        )
        return float(0.5 * (after - before))
    if facts.kind == density.space and same:
        return (density.dimension - 1) * float(np.log(factor))
    spaces = {"sphere": "on the unit sphere", "flat": "in flat space"}
    raise ArgumentError(
        f"The start has a density {spaces[density.space]}, and that of its points on the geometry "
        f"{flow.geometry.name} is unknown; take a start on that geometry, or give the field `log_density`."
    )
