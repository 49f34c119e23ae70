"""Spaces: flat ones, and the spheres that a normalisation puts points on.

A normalisation is a map N of a vector y that forgets its length (and, for layer norm, its mean):

    sphere      N(y) = R y/|y|
    RMS norm    N(y) = gain ⊙ y/√(|y|²/d + ε)
    layer norm  N(y) = gain ⊙ (y − ȳ)/√(|y − ȳ|²/d + ε) + bias,    ȳ the mean of the coordinates

What it forgets are the `fields` residual_norm and residual_mean. By itself such a space is the geometry of the Post-LN
flow: points stay on the sphere, and drifts see N of them. `norm_placement` puts the same N into other places.
"""

import abc
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import (
    Nonnegative,
    apply_linear_map,
    as_float_array,
    as_linear_map,
    as_nonnegative,
    as_positive,
    is_concrete,
)
from particleflow.dynamics.geometry.base import AbstractGeometry, Facts, directions, norms, project_out
from particleflow.dynamics.geometry.geometry_capabilities import MovesLaws, State, Unconstrained
from particleflow.dynamics.normal_law import Affine, Normal
from particleflow.errors import ShapeError

RESIDUAL_NORM, RESIDUAL_MEAN = "residual_norm", "residual_mean"


class Euclidean(AbstractGeometry, MovesLaws, Unconstrained):
    """R^d, without any constraint: ẋ = v, and the step y + size · v."""

    def retract(self, state: State) -> State:
        """Return the state itself: every y is a point of R^d."""
        return state

    def observe(self, state: State, time: Any = 0.0) -> State:
        """Return the state itself: drifts see y."""
        return state

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """Return the velocity itself: ẏ = v."""
        return velocity

    def diffuse(self, state: State, increment: State, time: Any = 0.0) -> State:
        """Return the increment itself: dy = dW."""
        return increment

    def advance(self, state: State, velocity: State, size: Any, time: Any = 0.0) -> State:
        """Take the Euler step y + size · v."""
        return state + size * velocity

    def retract_law(self, law: Normal) -> Normal:
        """Return the law itself: points are states."""
        return law

    def tangent_law(self, law: Normal, field: Affine, heat: Any) -> Affine:
        """Return the field itself: a law moves with ẋ = v(x)."""
        return field

    def advance_law(self, law: Normal, field: Affine, size: Any) -> Normal:
        """Push the law forward by x + size · v(x)."""
        return law.pushed(field, size)


class Rescaled(AbstractGeometry):
    """The frame z = e^{−tV} x of Euclidean space, in which the expansion of the flow ẋ = V m(x) is divided out.

    The drift must use the same value matrix V. With V = 1 the hull of z shrinks to a polytope (Geshkovski, Letrouit,
    Polyanskiy and Rigollet, The emergence of clusters in self-attention dynamics, 2023).
    """

    value: Float[Array, "..."]

    def __init__(self, value: Any = 1.0):
        self.value = as_linear_map(value, "value")

    def retract(self, state: State) -> State:
        """Return z itself: the moving frame is what is saved."""
        return state

    def observe(self, state: State, time: Any = 0.0) -> State:
        """x = e^{tV} z."""
        return apply_linear_map(self._exponential(time, state.dtype), state, "value")

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """ż = e^{−tV} ẋ − V z."""
        return self._back(velocity, time) - apply_linear_map(self.value, state, "value")

    def diffuse(self, state: State, increment: State, time: Any = 0.0) -> State:
        """Carry the increment into the moving frame: dz = e^{−tV} dW."""
        return self._back(increment, time)

    def advance(self, state: State, velocity: State, size: Any, time: Any = 0.0) -> State:
        """Take the Euler step z + size · ż in the moving frame."""
        return state + size * self.tangent(state, velocity, time)

    def facts(self, dimension: int) -> Facts:
        """Flat, in a moving frame that drifts do not see."""
        return Facts("flat", None, "the frame z = exp(−tV) x", sees_stored=False)

    def _back(self, vectors: State, time: Any) -> State:
        return apply_linear_map(self._exponential(-jnp.asarray(time), vectors.dtype), vectors, "value")

    def _exponential(self, time: Any, dtype) -> Array:
        scaled = jnp.asarray(time, dtype) * self.value.astype(dtype)
        return jax.scipy.linalg.expm(scaled) if self.value.ndim == 2 else jnp.exp(scaled)


class AbstractSphere(AbstractGeometry):
    """A sphere that a normalisation N puts points on; as a geometry, the flow ẋ = P_x v and the layer N(x + f).

    A new sphere defines N (`normalise`), what N forgets (`residual`) and how to undo that (`restore`), beside the maps
    of every geometry.
    """

    @abc.abstractmethod
    def normalise(self, vectors: State) -> State:
        """N(y), with gain, bias and ε, as a network applies it."""

    @abc.abstractmethod
    def residual(self, state: State) -> dict[str, Array]:
        """What `retract` forgets, by name."""

    @abc.abstractmethod
    def restore(self, points: State, fields: Mapping[str, Array]) -> State:
        """The vector with these forgotten numbers whose retraction these points are."""

    def diffuse(self, state: State, increment: State, time: Any = 0.0) -> State:
        """(|y|/R) P_y dW: Brownian motion on the sphere."""
        return self.tangent(state, increment, time)

    def advance(self, state: State, velocity: State, size: Any, time: Any = 0.0) -> State:
        """retract(retract(y) + size · v): the residual layer, back on the sphere."""
        return self.retract(self.retract(state) + size * velocity)


class Sphere(AbstractSphere):
    """The sphere {|x| = radius} (Post-LN): ẋ = P_x v, P_x v = v − ⟨x, v⟩x/|x|²."""

    radius: Nonnegative

    def __init__(self, radius: Any = 1.0):
        self.radius = as_positive(radius, "radius")

    def retract(self, state: State) -> State:
        """The point radius · y/|y| of the sphere."""
        return self.radius * directions(state)

    def normalise(self, vectors: State) -> State:
        """The point radius · y/|y| of the sphere, of any vectors."""
        return self.radius * directions(vectors)

    def observe(self, state: State, time: Any = 0.0) -> State:
        """The point itself, radius · y/|y|: this normalisation has no gain."""
        return self.retract(state)

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """The tangent part (|y|/radius) P_y v, homogeneous of degree one in y."""
        return norms(state) / self.radius * project_out(directions(state), velocity)

    def residual(self, state: State) -> dict[str, Array]:
        """The norm |y|, which the point forgets."""
        return {RESIDUAL_NORM: norms(state)[:, 0]}

    def restore(self, points: State, fields: Mapping[str, Array]) -> State:
        """The vector |y| x/|x| of this norm; x itself without one."""
        return _with_norm(points, fields)

    def facts(self, dimension: int) -> Facts:
        """A sphere of the given radius."""
        return Facts("sphere", self.radius)


class LayerNorm(AbstractSphere):
    """Layer norm as a projection: coordinate mean 0 and norm √d; drifts see gain ⊙ z/√(1 + ε) + bias.

    Without gain, bias and ε this is the sphere S^{d−2} of radius √d, so attention at β is attention on the unit
    sphere at βd.
    """

    gain: Float[Array, "..."]
    bias: Float[Array, "..."]
    epsilon: Nonnegative

    def __init__(self, gain: Any = 1.0, bias: Any = 0.0, epsilon: Any = 0.0):
        self.gain = _scale_or_vector(gain, "gain")
        self.bias = _scale_or_vector(bias, "bias")
        self.epsilon = as_nonnegative(epsilon, "epsilon")

    def retract(self, state: State) -> State:
        """√d (y − ȳ)/|y − ȳ|, ȳ the mean of the coordinates."""
        return math.sqrt(state.shape[-1]) * directions(_centred(state))

    def normalise(self, vectors: State) -> State:
        """gain ⊙ (y − ȳ)/√(|y − ȳ|²/d + ε) + bias."""
        return _affine(self.gain, self.bias, _scaled_to_root(_centred(vectors), self.epsilon))

    def observe(self, state: State, time: Any = 0.0) -> State:
        """N of the point on the sphere, with gain, bias and ε."""
        return self.normalise(self.retract(state))

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """(|y|/√d) P_y (v − v̄)."""
        centred = _centred(state)
        moved = project_out(directions(centred), _centred(velocity))
        return norms(centred) / math.sqrt(state.shape[-1]) * moved

    def residual(self, state: State) -> dict[str, Array]:
        """|y − ȳ| and ȳ."""
        return {RESIDUAL_NORM: norms(_centred(state))[:, 0], RESIDUAL_MEAN: jnp.mean(state, axis=-1)}

    def restore(self, points: State, fields: Mapping[str, Array]) -> State:
        """|y − ȳ| x/|x| + ȳ."""
        state = _with_norm(points, fields)
        return state + fields[RESIDUAL_MEAN][:, None] if RESIDUAL_MEAN in fields else state

    def facts(self, dimension: int) -> Facts:
        """A sphere of radius √d; drifts see the points only without gain, bias and ε."""
        sees = is_neutral(self.gain, 1.0) and is_neutral(self.bias, 0.0) and is_neutral(self.epsilon, 0.0)
        return Facts("sphere", math.sqrt(dimension), "layer-normalised vectors", sees)


class RmsNorm(AbstractSphere):
    """RMS norm as a projection: the sphere of radius √d; drifts see gain ⊙ z/√(1 + ε)."""

    gain: Float[Array, "..."]
    epsilon: Nonnegative

    def __init__(self, gain: Any = 1.0, epsilon: Any = 0.0):
        self.gain = _scale_or_vector(gain, "gain")
        self.epsilon = as_nonnegative(epsilon, "epsilon")

    def retract(self, state: State) -> State:
        """The point √d y/|y| of the sphere of radius √d."""
        return math.sqrt(state.shape[-1]) * directions(state)

    def normalise(self, vectors: State) -> State:
        """gain ⊙ y/√(|y|²/d + ε)."""
        return _affine(self.gain, jnp.zeros((), vectors.dtype), _scaled_to_root(vectors, self.epsilon))

    def observe(self, state: State, time: Any = 0.0) -> State:
        """N of the point on the sphere, with gain and ε."""
        return self.normalise(self.retract(state))

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """The tangent part (|y|/√d) P_y v, homogeneous of degree one in y."""
        return norms(state) / math.sqrt(state.shape[-1]) * project_out(directions(state), velocity)

    def residual(self, state: State) -> dict[str, Array]:
        """The norm |y|, which the point forgets."""
        return {RESIDUAL_NORM: norms(state)[:, 0]}

    def restore(self, points: State, fields: Mapping[str, Array]) -> State:
        """The vector |y| x/|x| of this norm; x itself without one."""
        return _with_norm(points, fields)

    def facts(self, dimension: int) -> Facts:
        """A sphere of radius √d; drifts see the points only without gain and ε."""
        sees = is_neutral(self.gain, 1.0) and is_neutral(self.epsilon, 0.0)
        return Facts("sphere", math.sqrt(dimension), "RMS-normalised vectors", sees)


def is_neutral(parameter: Array, value: float) -> bool:
    """Whether a parameter is known to be this number everywhere: it cannot be known while it is traced."""
    return is_concrete(parameter) and bool(np.all(np.asarray(parameter) == value))


def _with_norm(points: State, fields: Mapping[str, Array]) -> State:
    return directions(points) * fields[RESIDUAL_NORM][:, None] if RESIDUAL_NORM in fields else points


def _scaled_to_root(vectors: State, epsilon: Array) -> State:
    """y/√(|y|²/d + ε) of every row; 0 stays 0, with gradient 0, where ε is 0."""
    scale = jnp.mean(jnp.square(vectors), axis=-1, keepdims=True) + epsilon
    positive = scale > 0
    return vectors / jnp.where(positive, jnp.sqrt(jnp.where(positive, scale, 1.0)), 1.0)


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
