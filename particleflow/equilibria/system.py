"""A flow as a field on vectors whose zeros are its fixed points, and its linear part there.

A state y of a discretization may be one of many that stand for the same measure (its length on a sphere). Let C be the
map to the one that is `canonical`. The measure then moves as c = C(y) does,

    flow      ċ = F(c),        F(y) = DC(c) f(c),     f the velocity
    layers    c ← c + F(c),    F(y) = C(S(c)) − c,    S one layer

F does not change along directions that C forgets. The others, the image of DC, are the tangent space; with an
orthonormal basis B of it

    J = Bᵀ DF B    has the growth rates as eigenvalues, and 1 + J has the multipliers of a layer.

Without C the length of a state would be an unknown, and 0 a zero of every homogeneous field.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from particleflow.discretization import AbstractDiscretization
from particleflow.discretization.base import split
from particleflow.flow import Flow
from particleflow.integrate import moved_by_a_layer

_DIRECTIONS = 32  # at a time: each needs memory for all pairs of particles
_TRIES = 3  # small moves by which a linear part is tried
_UNITS = 300  # of rounding, which a field may have
_SLANT = 0.5  # singular values of DC are 0 or 1 where C is an orthogonal projection, and near that elsewhere


class System(eqx.Module):
    """A flow of states, or one layer of it, as a field on vectors.

    Parameters: `flow`, `discretization`; `state`, one that says what stays; the `time` at which the flow is asked;
    `layer`, the size of an explicit layer, None for a flow in continuous time.
    """

    flow: Flow
    discretization: AbstractDiscretization
    state: Any
    time: Array
    layer: Array | None

    @property
    def vector(self) -> Float[Array, " m"]:
        """What moves of the state, as one vector."""
        return ravel_pytree(self._parts()[0])[0]

    def whole(self, vector: Float[Array, " m"]) -> Any:
        """The state that a vector stands for."""
        moving, fixed = self._parts()
        return eqx.combine(ravel_pytree(moving)[1](vector), fixed)

    def canonical(self, vector: Float[Array, " m"]) -> Float[Array, " m"]:
        """C(y)."""
        return self._flat(self.discretization.canonical(self.flow, self.time, self.whole(vector)))

    def field(self, vector: Float[Array, " m"]) -> Float[Array, " m"]:
        """F(y)."""
        place = self.canonical(vector)
        state = self.whole(place)
        if self.layer is not None:
            return self.canonical(self._flat(self.discretization.step(self.flow, self.time, state, self.layer))) - place
        rate = ravel_pytree(eqx.filter(self.discretization.velocity(self.flow, self.time, state), eqx.is_array))[0]
        return jax.jvp(self.canonical, (place,), (rate,))[1]

    def looks_at_time(self) -> bool:
        """Whether the field is computed from the time at all."""

        def asked(time: Array) -> Array:
            return eqx.tree_at(lambda system: system.time, self, time).field(self.vector)

        program = jax.make_jaxpr(asked)(self.time).jaxpr
        used = {id(each) for equation in program.eqns for each in equation.invars} | {id(o) for o in program.outvars}
        return id(program.invars[0]) in used

    def _parts(self) -> tuple[Any, Any]:
        """What moves, and what stays."""
        if self.layer is not None:
            return split(self.state, moved_by_a_layer(self.flow, self.discretization, self.time, self.state))
        rate = jax.eval_shape(lambda: self.discretization.velocity(self.flow, self.time, self.state))
        return split(self.state, rate)

    def _flat(self, state: Any) -> Float[Array, " m"]:
        moving = self._parts()[0]
        moves = jax.tree_util.tree_map(lambda leaf: leaf is not None, moving, is_leaf=lambda leaf: leaf is None)
        return ravel_pytree(eqx.filter(state, moves))[0]


class Near(NamedTuple):
    """A system near a vector: the canonical one, F there, DF and DC; `fields`, what a frame would store.

    `bend` is by how much small moves change F otherwise than DF says, beyond rounding, and `slope` by how much DF says.
    Numbers are in 64 bits.
    """

    vector: Array
    residual: np.ndarray
    jacobian: np.ndarray
    projection: np.ndarray
    fields: dict[str, np.ndarray]
    bend: np.ndarray
    slope: np.ndarray


def near(system: System, vector: Float[Array, " m"]) -> Near:
    """A system near a vector, by one program."""
    place, *numbers = _near(system, vector)
    return Near(place, *jax.tree_util.tree_map(lambda leaf: np.asarray(leaf, float), numbers))


@eqx.filter_jit
def _near(system: System, vector: Array) -> tuple:
    place = system.canonical(vector)
    slopes, projection = _derivatives(lambda at: (system.field(at), system.canonical(at)), place)
    moves = _moves(place)
    values = jax.lax.map(system.field, jnp.concatenate([place[None], place[None] + moves]))
    expected = moves @ slopes.T
    fields = system.discretization.fields(system.flow, system.time, system.whole(place))
    return place, values[0], slopes, projection, fields, *_tried(values, expected, place)


def _tried(values: Array, expected: Array, vector: Array) -> tuple[Array, Array]:
    """`bend` and `slope` of all moves: of the field without one and after each, and what a linear part expects."""
    inner = tuple(range(1, expected.ndim))
    rounding = _UNITS * jnp.finfo(vector.dtype).eps * jnp.max(jnp.abs(vector))
    bend = jnp.max(jnp.abs(values[1:] - values[:1] - expected), axis=inner)
    return jnp.maximum(bend - rounding, 0), jnp.max(jnp.abs(expected), axis=inner)


def _moves(vector: Array) -> Float[Array, "k m"]:
    """A few random moves by √eps of a state: so small that what is smooth does not bend, but a jump is large."""
    size = jnp.sqrt(jnp.finfo(vector.dtype).eps) * jnp.maximum(jnp.max(jnp.abs(vector)), 1e-3)
    return size * jax.random.uniform(jax.random.key(0), (_TRIES, vector.size), vector.dtype, -1.0, 1.0)


def _derivatives(function: Any, vector: Float[Array, " m"]) -> Any:
    """The derivatives (k, m) of functions of a vector, a few directions at a time."""

    def along(direction: Array) -> Any:
        return jax.jvp(function, (vector,), (direction,))[1]

    batches = -(-vector.size // _DIRECTIONS)
    size = -(-vector.size // batches)  # equal batches, of which the last directions are zero: one program for all
    directions = jnp.eye(batches * size, vector.size, dtype=vector.dtype).reshape(batches, size, vector.size)
    columns = jax.lax.map(jax.vmap(along), directions) if batches > 1 else jax.vmap(along)(directions[0])
    return jax.tree_util.tree_map(lambda each: each.reshape(batches * size, -1)[: vector.size].T, columns)


def tangent_basis(projection: np.ndarray) -> np.ndarray:
    """An orthonormal basis, as columns, of the image of DC; of several blocks (n, d, d) as columns of each."""
    size = projection.shape[-1]
    if np.array_equal(projection, np.broadcast_to(np.eye(size), projection.shape)):
        return projection
    lengths, vectors = np.linalg.eigh(projection @ np.swapaxes(projection, -1, -2))
    rank = int((lengths > _SLANT**2).sum(axis=-1).max())
    return vectors[..., size - rank :]


class Apart(NamedTuple):
    """The linear motion of weightless particles: Bᵀ ∂ₓF B of each, (count, k, k); `bend` and `slope` as of `Near`."""

    blocks: np.ndarray
    bend: np.ndarray
    slope: np.ndarray


def apart(system: System, vector: Float[Array, " m"]) -> Apart:
    """The linear motion of weightless particles, where the second half of all particles are such ones.

    What has no weight moves nobody else, so that one direction for all of them at once gives a column of every block.
    """
    slopes, projections, bend, slope = (np.asarray(each, float) for each in _apart(system, vector))
    basis = tangent_basis(projections)
    return Apart(np.swapaxes(basis, 1, 2) @ slopes @ basis, bend, slope)


@eqx.filter_jit
def _apart(system: System, vector: Array) -> tuple[Array, Array, Array, Array]:
    points = jax.tree_util.tree_leaves(system.discretization.fields(system.flow, system.time, system.whole(vector)))[0]
    count, dimension = points.shape[0] // 2, vector.size // points.shape[0]
    zeros = jnp.zeros((count, dimension), vector.dtype)

    def place_of(rows: Array) -> Array:
        return jnp.concatenate([zeros, rows]).ravel()

    def column(unit: Array) -> tuple[Array, Array]:
        direction = place_of(jnp.broadcast_to(unit[None], zeros.shape))
        moved = jax.jvp(lambda at: (system.field(at), system.canonical(at)), (vector,), (direction,))[1]
        return moved[0].reshape(-1, dimension)[count:], moved[1].reshape(-1, dimension)[count:]

    columns = jax.vmap(column)(jnp.eye(dimension, dtype=vector.dtype))
    slopes, projections = (jnp.moveaxis(each, 0, 2) for each in columns)
    moves = _moves(vector)[:, vector.size // 2 :].reshape(-1, count, dimension)
    places = jnp.concatenate([vector[None], vector[None] + jax.vmap(place_of)(moves)])
    values = jax.lax.map(system.field, places)[:, vector.size // 2 :].reshape(-1, count, dimension)
    expected = jnp.einsum("gij,kgj->kgi", slopes, moves)
    return slopes, projections, *_tried(values, expected, vector)
