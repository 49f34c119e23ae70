"""Where the particles live, as a few maps.

A *state* is what the integrator moves, one row a particle. A geometry says
- `retract(state)`: the point of the space that a state stands for; this is what is saved,
- `observe(state, time)`: what a drift sees of it (the same point, unless a gain, a bias or a moving frame comes in),
- `tangent(state, velocity, time)`: how the state moves when the drift says `velocity`,
- `advance(state, velocity, size, time)`: where one explicit step leads, as in a layer of a transformer.

Constrained spaces use fields that are homogeneous of degree one in the state. Such a field has no radial part that
grows, so the constraint holds to rounding however long the run and whatever the sign of V, and rescaling a state
changes nothing that can be observed.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._arrays import apply_linear_map, as_float_array, as_linear_map, as_positive, is_concrete
from particleflow.errors import ArgumentError, ShapeError

State = Float[Array, "n d"]
_MEMBERSHIP = 1e3  # a start is on a geometry if retracting moves it by less than this many rounding units
_FLAT = ("Euclidean", "Rescaled")  # where 0 is a point like any other


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

    def check_contains(self, points: Float[Array, "*runs n d"]) -> None:
        """Raise unless every point is on this geometry."""
        check_retracted(type(self).__name__, points, retracted(self, points))


@eqx.filter_jit
def retracted(geometry: AbstractGeometry, points: Float[Array, "*runs n d"]) -> Float[Array, "*runs n d"]:
    """`geometry.retract(points)` as one compiled program, for when a run begins."""
    return geometry.retract(points)


def check_retracted(geometry: str, points: Float[Array, "*runs n d"], retracted: Float[Array, "*runs n d"]) -> None:
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
            f"The start must be on the geometry {geometry}, but {_place(worst)} is off it by {distance[worst]:.3g}; "
            "use `geometry.retract(points)` to put it there."
        )
    if geometry not in _FLAT and not after.any(axis=-1).all():
        nowhere = np.unravel_index(np.argmin(after.any(axis=-1)), distance.shape)
        raise ArgumentError(f"The start must be on the geometry {geometry}, but {_place(nowhere)} has no direction.")


def _place(index: tuple[Any, ...]) -> str:
    run = f"run {index[0]}, " if len(index) == 2 else ""
    return f"{run}particle {index[-1]}"


class Euclidean(AbstractGeometry):
    """R^d: nothing is constrained."""

    def retract(self, state: State) -> State:
        """The state itself."""
        return state

    def observe(self, state: State, time: Any = 0.0) -> State:
        """The state itself."""
        return state

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """The velocity itself."""
        return velocity

    def advance(self, state: State, velocity: State, size: Any, time: Any = 0.0) -> State:
        """y + size · tangent."""
        return state + size * self.tangent(state, velocity, time)


class Sphere(AbstractGeometry):
    """The sphere {|x| = radius} (Post-LN): ẋ = P_x v, P_x v = v − ⟨x, v⟩x/|x|²."""

    radius: Float[Array, ""]

    def __init__(self, radius: Any = 1.0):
        self.radius = as_positive(radius, "radius")

    def retract(self, state: State) -> State:
        """radius · y/|y|."""
        return self.radius * directions(state)

    def observe(self, state: State, time: Any = 0.0) -> State:
        """radius · y/|y|."""
        return self.retract(state)

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """(|y|/radius) P_y v."""
        return norms(state) / self.radius * project_out(directions(state), velocity)

    def advance(self, state: State, velocity: State, size: Any, time: Any = 0.0) -> State:
        """The residual layer N(x + size · v)."""
        return self.retract(self.retract(state) + size * velocity)


class LayerNorm(AbstractGeometry):
    """Layer norm as a projection: coordinate mean 0 and norm √d; drifts see gain ⊙ z + bias.

    Without gain and bias this is the sphere S^{d−2} of radius √d, so attention at β is attention on the unit
    sphere at βd.
    """

    gain: Float[Array, "..."]
    bias: Float[Array, "..."]

    def __init__(self, gain: Any = 1.0, bias: Any = 0.0):
        self.gain = _scale_or_vector(gain, "gain")
        self.bias = _scale_or_vector(bias, "bias")

    def retract(self, state: State) -> State:
        """√d (y − ȳ)/|y − ȳ|, ȳ the mean of the coordinates."""
        return np.sqrt(state.shape[-1]) * directions(_centred(state))

    def observe(self, state: State, time: Any = 0.0) -> State:
        """gain ⊙ z + bias for the retracted z."""
        return _affine(self.gain, self.bias, self.retract(state))

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """(|y|/√d) P_y (v − v̄)."""
        centred = _centred(state)
        moved = project_out(directions(centred), _centred(velocity))
        return norms(centred) / np.sqrt(state.shape[-1]) * moved

    def advance(self, state: State, velocity: State, size: Any, time: Any = 0.0) -> State:
        """The residual layer N(x + size · v)."""
        return self.retract(self.retract(state) + size * velocity)


class RmsNorm(AbstractGeometry):
    """RMS norm as a projection: the sphere of radius √d; drifts see gain ⊙ z."""

    gain: Float[Array, "..."]

    def __init__(self, gain: Any = 1.0):
        self.gain = _scale_or_vector(gain, "gain")

    def retract(self, state: State) -> State:
        """√d y/|y|."""
        return np.sqrt(state.shape[-1]) * directions(state)

    def observe(self, state: State, time: Any = 0.0) -> State:
        """gain ⊙ z for the retracted z."""
        return _affine(self.gain, jnp.zeros(()).astype(state.dtype), self.retract(state))

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """(|y|/√d) P_y v."""
        return norms(state) / np.sqrt(state.shape[-1]) * project_out(directions(state), velocity)

    def advance(self, state: State, velocity: State, size: Any, time: Any = 0.0) -> State:
        """The residual layer N(x + size · v)."""
        return self.retract(self.retract(state) + size * velocity)


class PreNorm(AbstractGeometry):
    """Pre-LN: the residual stream y moves freely, the drift sees θ = y/|y|; so θ' = P A/r, r' = ⟨θ, A⟩."""

    def retract(self, state: State) -> State:
        """θ = y/|y|."""
        return directions(state)

    def observe(self, state: State, time: Any = 0.0) -> State:
        """θ = y/|y|."""
        return directions(state)

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """The velocity itself."""
        return velocity

    def advance(self, state: State, velocity: State, size: Any, time: Any = 0.0) -> State:
        """y + size · tangent."""
        return state + size * self.tangent(state, velocity, time)


class PeriNorm(AbstractGeometry):
    """Peri-LN: the drift is normalised too; θ' = P A/(r|A|), r' = ⟨θ, A⟩/|A|."""

    def retract(self, state: State) -> State:
        """θ = y/|y|."""
        return directions(state)

    def observe(self, state: State, time: Any = 0.0) -> State:
        """θ = y/|y|."""
        return directions(state)

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """A/|A|."""
        return directions(velocity)

    def advance(self, state: State, velocity: State, size: Any, time: Any = 0.0) -> State:
        """y + size · tangent."""
        return state + size * self.tangent(state, velocity, time)


class Ngpt(AbstractGeometry):
    """nGPT: steps of length α on the sphere, θ' = α P A/|A|."""

    alpha: Float[Array, ""]

    def __init__(self, alpha: Any = 1.0):
        self.alpha = as_positive(alpha, "alpha")

    def retract(self, state: State) -> State:
        """θ = y/|y|."""
        return directions(state)

    def observe(self, state: State, time: Any = 0.0) -> State:
        """θ = y/|y|."""
        return directions(state)

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """|y| α P_y A/|A|."""
        return self.alpha * norms(state) * project_out(directions(state), directions(velocity))

    def advance(self, state: State, velocity: State, size: Any, time: Any = 0.0) -> State:
        """N(θ + size · α A/|A|)."""
        return self.retract(self.retract(state) + size * self.alpha * directions(velocity))


class SqrtScaled(AbstractGeometry):
    """The sphere with depth-scaled steps, θ' = P A/√(t + 1)."""

    def retract(self, state: State) -> State:
        """θ = y/|y|."""
        return directions(state)

    def observe(self, state: State, time: Any = 0.0) -> State:
        """θ = y/|y|."""
        return directions(state)

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """|y| P_y A/√(t + 1)."""
        return norms(state) * project_out(directions(state), velocity) / jnp.sqrt(1 + jnp.asarray(time, state.dtype))

    def advance(self, state: State, velocity: State, size: Any, time: Any = 0.0) -> State:
        """N(θ + size · A/√(t + 1))."""
        return self.retract(self.retract(state) + size * velocity / jnp.sqrt(1 + jnp.asarray(time, state.dtype)))


class Rescaled(AbstractGeometry):
    """The frame z = e^{−tV} x of Euclidean space: what the flow ẋ = V m(x) does beyond its own expansion.

    The drift must use the same value matrix V.
    """

    value: Float[Array, "..."]

    def __init__(self, value: Any = 1.0):
        self.value = as_linear_map(value, "value")

    def retract(self, state: State) -> State:
        """z itself."""
        return state

    def observe(self, state: State, time: Any = 0.0) -> State:
        """x = e^{tV} z."""
        return apply_linear_map(self._exponential(time, state.dtype), state, "value")

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """ż = e^{−tV} ẋ − V z."""
        back = apply_linear_map(self._exponential(-jnp.asarray(time), state.dtype), velocity, "value")
        return back - apply_linear_map(self.value, state, "value")

    def advance(self, state: State, velocity: State, size: Any, time: Any = 0.0) -> State:
        """y + size · tangent."""
        return state + size * self.tangent(state, velocity, time)

    def _exponential(self, time: Any, dtype) -> Array:
        scaled = jnp.asarray(time, dtype) * self.value.astype(dtype)
        return jax.scipy.linalg.expm(scaled) if self.value.ndim == 2 else jnp.exp(scaled)


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


def _centred(vectors: State) -> State:
    return vectors - jnp.mean(vectors, axis=-1, keepdims=True)


def _affine(gain: Array, bias: Array, points: State) -> State:
    for name, array in (("gain", gain), ("bias", bias)):
        if array.ndim == 1 and array.shape != points.shape[-1:]:
            raise ShapeError(f"Argument `{name}` must have shape {points.shape[-1:]}, but has {array.shape}.")
    lifted_gain = gain if gain.ndim == 0 else gain[None, :]
    lifted_bias = bias if bias.ndim == 0 else bias[None, :]
    return lifted_gain * points + lifted_bias


def _scale_or_vector(value: Any, name: str) -> Array:
    array = as_float_array(value, name)
    if array.ndim > 1:
        raise ShapeError(f"Argument `{name}` must be a number or a vector, but has shape {array.shape}.")
    return array
