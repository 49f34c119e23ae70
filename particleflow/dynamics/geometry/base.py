"""Where the particles live, as a few maps.

A *state* is what the integrator moves, one row y a particle. A geometry consists of
- `retract(state)`: the point of the space that a state stands for; this is what is saved,
- `observe(state, time)`: what a drift sees of it (the same point, but for gains, biases and moving frames),
- `tangent(state, velocity, time)`: how the state moves when the drift is `velocity`,
- `diffuse(state, increment, time)`: how it moves under an increment of Brownian motion,
- `advance(state, velocity, size, time)`: where one explicit step leads, as in a layer of a transformer,
- `facts(dimension)`: what the stored points are, for code that sees nothing else of the space.

What only some geometries can do is in `geometry_capabilities`: carry more along than points, normalise a whole set,
move normal laws.

Constrained spaces use fields that are homogeneous of degree one in the state,

    ẏ = (|y|/R) P_y v(R y/|y|),    P_y v = v − ⟨y, v⟩y/|y|².

Such a field has no radial part that grows, so the constraint holds to rounding however long the run and whatever the
sign of V, and rescaling a state changes nothing that can be observed.
"""

import abc
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import is_concrete
from particleflow._support.representation import shown
from particleflow._support.text import kind_of
from particleflow.dynamics.geometry.geometry_capabilities import NormalisesTheSet, State, lifted
from particleflow.errors import ArgumentError

_MEMBERSHIP = 1e3  # a start is on a geometry if retracting moves it by less than this many rounding units


class Facts(NamedTuple):
    """What the stored points are: on a sphere of some radius or in flat space, and what their coordinates mean.

    `kind` is the space and `radius` that of a sphere; `coordinates` describes the stored numbers in words;
    `sees_stored` is whether drifts see the stored points themselves, so that attention can be computed from them alone.
    """

    kind: Literal["sphere", "flat"]
    radius: Any = None
    coordinates: str = "the particles"
    sees_stored: bool = True

    def description(self) -> dict[str, Any]:
        """The facts as plain values; the radii of several runs are a list."""
        radius = None if self.radius is None else np.asarray(self.radius).tolist()
        return {**self._asdict(), "radius": radius}


class AbstractGeometry(eqx.Module):
    """A space for particles, as maps between states y, points of the space and velocities.

    A new geometry defines `retract`, `observe`, `tangent` and `advance`, `diffuse` for flows with noise, and `facts`
    where it is not flat.
    """

    @abc.abstractmethod
    def retract(self, state: State) -> State:
        """The point of the space that a state stands for."""

    @abc.abstractmethod
    def observe(self, state: State, time: Any = 0.0) -> State:
        """What a drift sees of a state."""

    @abc.abstractmethod
    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """How a state moves under a drift's velocity."""

    @abc.abstractmethod
    def advance(self, state: State, velocity: State, size: Any, time: Any = 0.0) -> State:
        """Where one explicit step under a drift's velocity leads."""

    def diffuse(self, state: State, increment: State, time: Any = 0.0) -> State:
        """How a state moves under an increment of Brownian motion (Stratonovich); refused where it is not defined."""
        raise ArgumentError(f"The geometry {self.name} does not say how noise acts on it, but the flow has noise.")

    @property
    def noise_is_additive(self) -> bool:
        """Whether an increment of noise acts alike everywhere, so that Itô and Stratonovich agree: in flat space."""
        return self.facts(1).kind == "flat" and not isinstance(self, NormalisesTheSet)

    def facts(self, dimension: int) -> Facts:
        """What the stored points are: points of flat space, or of a sphere."""
        return Facts("flat")

    @property
    def name(self) -> str:
        """The kind of this geometry, as a scenario calls it."""
        return kind_of(type(self))

    def check_contains(self, points: Float[Array, "*runs n d"]) -> None:
        """Raise unless every point is on this geometry."""
        if isinstance(self, NormalisesTheSet):
            self.check_spread(points)
        check_retracted(self, points, retracted(self, points))

    def __repr__(self) -> str:
        return shown(self)


@eqx.filter_jit
def retracted(geometry: AbstractGeometry, points: Float[Array, "*runs n d"]) -> Float[Array, "*runs n d"]:
    """The points that a run begins with: those of states that only points are known of, as one compiled program."""
    return geometry.retract(lifted(geometry, points, {}))


@eqx.filter_jit
def retracted_by_run(geometry: AbstractGeometry, points: Float[Array, "runs n d"]) -> Float[Array, "runs n d"]:
    """`retracted` for an ensemble in which every run has its own geometry, whose arrays have a leading axis of runs."""
    return eqx.filter_vmap(lambda each, points: retracted(each, points), in_axes=eqx.if_array(0))(geometry, points)


def check_retracted(
    geometry: AbstractGeometry, points: Float[Array, "*runs n d"], retracted: Float[Array, "*runs n d"]
) -> None:
    """Raise unless retracting has left every point where it is, and has found a direction for every point.

    Inside `jit` or `grad` nothing can be checked.
    """
    if not (is_concrete(points) and is_concrete(retracted)):
        return
    before, after = np.asarray(points), np.asarray(retracted)
    distance = np.max(np.abs(after - before), axis=-1)
    limit = _MEMBERSHIP * float(np.finfo(before.dtype).eps) * max(1.0, float(np.max(np.abs(before))))
    if not (distance <= limit).all():
        worst = np.unravel_index(np.argmax(np.where(np.isfinite(distance), distance, np.inf)), distance.shape)
        raise ArgumentError(
            f"The start must be on the geometry {type(geometry).__name__}, but {_place(worst)} is off it by "
            f"{distance[worst]:.3g}; use `geometry.retract(points)` to put it there."
        )
    if not after.any(axis=-1).all() and geometry.facts(before.shape[-1]).kind == "sphere":
        nowhere = np.unravel_index(np.argmin(after.any(axis=-1)), distance.shape)
        raise ArgumentError(
            f"The start must be on the geometry {type(geometry).__name__}, but {_place(nowhere)} has no direction."
        )


def check_start(geometry: AbstractGeometry, points: Float[Array, "*runs n d"], *, per_run: bool) -> None:
    """Raise unless every point is on the geometry; with `per_run` its arrays have a leading axis of runs."""
    if per_run:
        check_retracted(geometry, points, retracted_by_run(geometry, points))
    else:
        geometry.check_contains(points)


def _place(index: tuple[Any, ...]) -> str:
    run = f"run {index[0]}, " if len(index) == 2 else ""
    return f"{run}particle {index[-1]}"


def norms(vectors: State) -> Float[Array, "n 1"]:
    """|x| of every row, with gradient 0 (not NaN) at 0."""
    squares = jnp.sum(jnp.square(vectors), axis=-1, keepdims=True)
    nonzero = squares > 0
    return jnp.where(nonzero, jnp.sqrt(jnp.where(nonzero, squares, 1.0)), 0.0)


def directions(vectors: State) -> State:
    """x/|x| of every row; 0 stays 0."""
    length = norms(vectors)
    return vectors / jnp.where(length > 0, length, 1.0)


def project_out(unit: State, vectors: State) -> State:
    """v − ⟨u, v⟩u for every row, u a unit vector."""
    return vectors - jnp.sum(unit * vectors, axis=-1, keepdims=True) * unit
