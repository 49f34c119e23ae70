"""Where the particles live, as a few maps.

A *state* is what the integrator moves, one row y a particle. A geometry says
- `retract(state)`: the point of the space that a state stands for; this is what is saved,
- `fields(state)`: what retracting forgets and the run needs (the norm of a residual stream), saved beside the points,
- `lift(points, fields)`: the state that these stand for, so that a run can begin where another one ended,
- `observe(state, time)`: what a drift sees of it (the same point, unless a gain, a bias or a moving frame comes in),
- `tangent(state, velocity, time)`: how the state moves when the drift says `velocity`,
- `diffuse(state, increment, time)`: how it moves under an increment of Brownian motion,
- `advance(state, velocity, size, time)`: where one explicit step leads, as in a layer of a transformer,
- `facts(dimension)`: what those who only see the stored points should know of the space;
- `given(log_weights)`: the geometry of particles of these weights, which matters where it looks at the `whole_set`;
- `retract_law`, `tangent_law`, `advance_law`: what `retract`, `tangent` and `advance` do to a normal law.

Constrained spaces use fields that are homogeneous of degree one in the state,

    ẏ = (|y|/R) P_y v(R y/|y|),    P_y v = v − ⟨y, v⟩y/|y|².

Such a field has no radial part that grows, so the constraint holds to rounding however long the run and whatever the
sign of V, and rescaling a state changes nothing that can be observed.
"""

import abc
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._arrays import is_concrete
from particleflow._names import snake_case
from particleflow._shown import shown
from particleflow.errors import ArgumentError
from particleflow.normal import Affine, Normal

State = Float[Array, "n d"]
_MEMBERSHIP = 1e3  # a start is on a geometry if retracting moves it by less than this many rounding units


class Facts(NamedTuple):
    """What the stored points are: on a sphere of some radius or in flat space, and what their coordinates mean.

    `sees_stored`: whether drifts see the stored points themselves, so that attention can be computed from them alone.
    """

    kind: Literal["sphere", "flat"]
    radius: Any = None
    coordinates: str = "the particles"
    sees_stored: bool = True

    def description(self) -> dict[str, Any]:
        """The facts as plain values; the radii of several runs are a list."""
        radius = None if self.radius is None else np.asarray(self.radius).tolist()
        return {**self._asdict(), "radius": radius}


class Restoring(eqx.Module):
    """The field E[v] + A (x − mean) that a normalised set does not follow."""

    mean: Float[Array, " d"]
    offset: Float[Array, " d"]
    matrix: Float[Array, "d d"]

    def at(self, points: Float[Array, "m d"]) -> Float[Array, "m d"]:
        """The field at some points, which need not be those of the set."""
        return self.offset[None, :] + (points - self.mean[None, :]) @ self.matrix.T


class AbstractGeometry(eqx.Module):
    """A space for particles; see the module's first lines."""

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
        """How a state moves under an increment of Brownian motion (Stratonovich); refused unless a geometry says so."""
        raise ArgumentError(f"The geometry {self.name} does not say how noise acts on it, but the flow has noise.")

    def fields(self, state: State) -> dict[str, Array]:
        """What `retract` forgets of a state, by name; nothing unless a geometry says so."""
        return {}

    def lift(self, points: State, fields: Mapping[str, Array]) -> State:
        """The state that points and fields stand for: the points, where nothing else is carried along."""
        return points

    @property
    def is_free(self) -> bool:
        """Whether drifts see the state itself, which moves by their velocity alone; no, unless a geometry says so."""
        return False

    @property
    def whole_set(self) -> bool:
        """Whether something is demanded of all particles together, not of each alone; no, unless a geometry says so."""
        return False

    def holds_covariance(self, dimension: int) -> bool:
        """Whether the covariance of the set stands still whatever moves it; no, unless a geometry says so."""
        return False

    def given(self, log_weights: Float[Array, "*runs n"]) -> "AbstractGeometry":
        """The geometry of particles of these weights: itself, unless they matter."""
        return self

    def restoring(self, points: State, velocity: State, shares: Float[Array, " n"], heat: Any) -> Restoring:
        """The affine field that a whole set of such velocities does not follow, to be taken off; for a `whole_set`.

        Parameters: `points` of the set, their `velocity` and their `shares`, which sum to one; `heat`, the temperature
        of a diffusion that acts beside it, 0 where noise moves the points one by one.
        """
        raise ArgumentError(f"The geometry {self.name} demands nothing of the whole set.")

    @property
    def noise_is_additive(self) -> bool:
        """Whether an increment of noise acts alike everywhere, so that Itô and Stratonovich agree: in flat space."""
        return self.facts(1).kind == "flat" and not self.whole_set

    def retract_law(self, law: Normal) -> Normal:
        """The normal law on the space that a normal law of states stands for; refused unless a geometry says so."""
        raise ArgumentError(f"A Gaussian lives in flat space, but the geometry is {self.name}. Use particles.")

    def tangent_law(self, law: Normal, field: Affine, heat: Any) -> Affine:
        """How a normal law moves under an affine field; `heat` is the temperature whose diffusion acts beside it."""
        raise ArgumentError(f"A Gaussian lives in flat space, but the geometry is {self.name}. Use particles.")

    def advance_law(self, law: Normal, field: Affine, size: Any) -> Normal:
        """Where one explicit step under an affine field leads a normal law."""
        raise ArgumentError(f"A Gaussian lives in flat space, but the geometry is {self.name}. Use particles.")

    def facts(self, dimension: int) -> Facts:
        """What the stored points are; flat space unless a geometry says more."""
        return Facts("flat")

    @property
    def name(self) -> str:
        """The kind of this geometry, as a scenario calls it."""
        return snake_case(type(self).__name__)

    def check_contains(self, points: Float[Array, "*runs n d"]) -> None:
        """Raise unless every point is on this geometry."""
        check_retracted(self, points, retracted(self, points))

    def __repr__(self) -> str:
        return shown(self)


@eqx.filter_jit
def retracted(geometry: AbstractGeometry, points: Float[Array, "*runs n d"]) -> Float[Array, "*runs n d"]:
    """`geometry.retract(points)` as one compiled program, for when a run begins."""
    return geometry.retract(points)


@eqx.filter_jit
def retracted_by_run(geometry: AbstractGeometry, points: Float[Array, "runs n d"]) -> Float[Array, "runs n d"]:
    """The same for an ensemble in which every run has a geometry of its own: its arrays have a leading axis of runs."""
    return eqx.filter_vmap(lambda each, points: each.retract(points), in_axes=eqx.if_array(0))(geometry, points)


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
