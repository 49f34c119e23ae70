"""A flow as a field on vectors whose zeros are its fixed points, and its linear part there.

Several states y of a discretization may stand for one measure (on a sphere, points of any length). Let C map a state to
its `canonical` representative c = C(y), which moves as the measure does,

    flow      ċ = F(c),        F(y) = DC(c) f(c),     f the velocity
    layers    c ← c + F(c),    F(y) = C(S(c)) − c,    S one layer

F is constant where C is. The image of DC is the tangent space of canonical states; with an orthonormal basis B of it

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
from particleflow.discretization.discretization_capabilities import HasCanonicalState
from particleflow.dynamics.flow import Flow
from particleflow.simulation.stepping import moved_by_a_layer

_DIRECTIONS = 32  # derivatives taken at a time: each needs memory for all pairs of particles
_SMALL_MOVES = 3  # random moves on which a linear part is compared with the field
_ROUNDING_ULPS = 300  # allowed rounding error of a field, in units of rounding of the largest number of the state
_SLANT = 0.5  # singular values of DC are 0 or 1 where C is an orthogonal projection, and near that elsewhere


class VectorField(eqx.Module):
    """A flow of states, or one layer of it, as a field F on vectors; its zeros are the fixed points.

    Parameters: `flow`, `discretization`; `state`, from which the leaves that do not move are taken; the `time` at which
    the flow is evaluated; `layer`, the size of an explicit layer, None for a flow in continuous time.
    """

    flow: Flow
    discretization: AbstractDiscretization
    state: Any
    time: Array
    layer: Array | None

    @property
    def vector(self) -> Float[Array, " m"]:
        """The leaves of the state that move, as one vector."""
        return ravel_pytree(self._parts()[0])[0]

    def whole(self, vector: Float[Array, " m"]) -> Any:
        """The state whose moving leaves are a vector."""
        moving, fixed = self._parts()
        return eqx.combine(ravel_pytree(moving)[1](vector), fixed)

    def canonical(self, vector: Float[Array, " m"]) -> Float[Array, " m"]:
        """C(y), the vector of the canonical state that stands for the same measure."""
        how, state = self.discretization, self.whole(vector)
        return self._flat(how.canonical(self.flow, self.time, state) if isinstance(how, HasCanonicalState) else state)

    def field(self, vector: Float[Array, " m"]) -> Float[Array, " m"]:
        """F(y) = DC(c) f(c) of a flow, C(S(c)) − c of a layer, at c = C(y)."""
        place = self.canonical(vector)
        state = self.whole(place)
        if self.layer is not None:
            return self.canonical(self._flat(self.discretization.step(self.flow, self.time, state, self.layer))) - place
        rate = ravel_pytree(eqx.filter(self.discretization.velocity(self.flow, self.time, state), eqx.is_array))[0]
        return jax.jvp(self.canonical, (place,), (rate,))[1]

    def depends_on_time(self) -> bool:
        """Whether the time enters the computation of the field, by the traced program."""

        def field_at(time: Array) -> Array:
            return eqx.tree_at(lambda system: system.time, self, time).field(self.vector)

        program = jax.make_jaxpr(field_at)(self.time).jaxpr
        used = {id(each) for equation in program.eqns for each in equation.invars} | {id(o) for o in program.outvars}
        return id(program.invars[0]) in used

    def _parts(self) -> tuple[Any, Any]:
        """The state split into leaves that move and leaves that stay."""
        if self.layer is not None:
            return split(self.state, moved_by_a_layer(self.flow, self.discretization, self.time, self.state))
        rate = jax.eval_shape(lambda: self.discretization.velocity(self.flow, self.time, self.state))
        return split(self.state, rate)

    def _flat(self, state: Any) -> Float[Array, " m"]:
        """The moving leaves of any state, as one vector."""
        moving = self._parts()[0]
        moves = jax.tree_util.tree_map(lambda leaf: leaf is not None, moving, is_leaf=lambda leaf: leaf is None)
        return ravel_pytree(eqx.filter(state, moves))[0]


class Linearisation(NamedTuple):
    """A field and its linear part at a canonical vector c.

    Attributes: `vector` c; `residual` F(c); `jacobian` DF(c); `projection` DC(c); `fields`, what a frame of the state
    stores; for small random moves s, `bend` |F(c + s) − F(c) − DF s| beyond rounding, and `slope` |DF s|. Numbers are
    in 64 bits.
    """

    vector: Array
    residual: np.ndarray
    jacobian: np.ndarray
    projection: np.ndarray
    fields: dict[str, np.ndarray]
    bend: np.ndarray
    slope: np.ndarray


def linearise(system: VectorField, vector: Float[Array, " m"]) -> Linearisation:
    """F, DF and DC at the canonical vector of a given one, by one compiled program."""
    place, *numbers = _linearise(system, vector)
    return Linearisation(place, *jax.tree_util.tree_map(lambda leaf: np.asarray(leaf, float), numbers))


@eqx.filter_jit
def _linearise(system: VectorField, vector: Array) -> tuple:
    place = system.canonical(vector)
    slopes, projection = _derivatives(lambda at: (system.field(at), system.canonical(at)), place)
    moves = _small_moves(place)
    values = jax.lax.map(system.field, jnp.concatenate([place[None], place[None] + moves]))
    expected = moves @ slopes.T
    fields = system.discretization.fields(system.flow, system.time, system.whole(place))
    return place, values[0], slopes, projection, fields, *_bend_and_slope(values, expected, place)


def _bend_and_slope(values: Array, expected: Array, vector: Array) -> tuple[Array, Array]:
    """`bend` and `slope` of all moves, from the field before and after each, and the `expected` linear changes."""
    inner = tuple(range(1, expected.ndim))
    rounding = _ROUNDING_ULPS * jnp.finfo(vector.dtype).eps * jnp.max(jnp.abs(vector))
    bend = jnp.max(jnp.abs(values[1:] - values[:1] - expected), axis=inner)
    return jnp.maximum(bend - rounding, 0), jnp.max(jnp.abs(expected), axis=inner)


def _small_moves(vector: Array) -> Float[Array, "k m"]:
    """A few random moves of relative size √eps: only a kink or a jump of the field shows beyond its linear part."""
    size = jnp.sqrt(jnp.finfo(vector.dtype).eps) * jnp.maximum(jnp.max(jnp.abs(vector)), 1e-3)
    return size * jax.random.uniform(jax.random.key(0), (_SMALL_MOVES, vector.size), vector.dtype, -1.0, 1.0)


def _derivatives(function: Any, vector: Float[Array, " m"]) -> Any:
    """The Jacobians (k, m) of functions of a vector, by forward mode, `_DIRECTIONS` at a time."""

    def along(direction: Array) -> Any:
        return jax.jvp(function, (vector,), (direction,))[1]

    batches = -(-vector.size // _DIRECTIONS)
    size = -(-vector.size // batches)  # equal batches, of which the last directions are zero: one program for all
    directions = jnp.eye(batches * size, vector.size, dtype=vector.dtype).reshape(batches, size, vector.size)
    columns = jax.lax.map(jax.vmap(along), directions) if batches > 1 else jax.vmap(along)(directions[0])
    return jax.tree_util.tree_map(lambda each: each.reshape(batches * size, -1)[: vector.size].T, columns)


def tangent_basis(projection: np.ndarray) -> np.ndarray:
    """An orthonormal basis, as columns, of the image of DC; of blocks (n, d, d) one basis each."""
    size = projection.shape[-1]
    if np.array_equal(projection, np.broadcast_to(np.eye(size), projection.shape)):
        return projection
    lengths, vectors = np.linalg.eigh(projection @ np.swapaxes(projection, -1, -2))
    rank = int((lengths > _SLANT**2).sum(axis=-1).max())
    return vectors[..., size - rank :]


class WeightlessMotion(NamedTuple):
    """The linear motion of weightless particles.

    Attributes: `blocks` Bᵀ ∂ₓF B of each (count, k, k); `bend` and `slope` as of `Linearisation`.
    """

    blocks: np.ndarray
    bend: np.ndarray
    slope: np.ndarray


def weightless_motion(system: VectorField, vector: Float[Array, " m"]) -> WeightlessMotion:
    """The linear motion of weightless particles, which are the second half of all particles.

    A particle without weight does not move any other, so one derivative along one direction of all of them together
    gives a column of every block.
    """
    slopes, projections, bend, slope = (np.asarray(each, float) for each in _weightless_motion(system, vector))
    basis = tangent_basis(projections)
    return WeightlessMotion(np.swapaxes(basis, 1, 2) @ slopes @ basis, bend, slope)


@eqx.filter_jit
def _weightless_motion(system: VectorField, vector: Array) -> tuple[Array, Array, Array, Array]:
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
    moves = _small_moves(vector)[:, vector.size // 2 :].reshape(-1, count, dimension)
    places = jnp.concatenate([vector[None], vector[None] + jax.vmap(place_of)(moves)])
    values = jax.lax.map(system.field, places)[:, vector.size // 2 :].reshape(-1, count, dimension)
    expected = jnp.einsum("gij,kgj->kgi", slopes, moves)
    return slopes, projections, *_bend_and_slope(values, expected, vector)
