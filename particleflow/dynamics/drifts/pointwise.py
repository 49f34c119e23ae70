"""Drifts that act on every particle alone: feed-forward layers, linear fields, confinement.

    ẋ = W₂ σ(W₁ x + b₁) + b₂,    ẋ = A x,    ẋ = −∇U(x)

They do not depend on the measure, so under them alone μ_t is the push-forward of μ_0 by the flow map of one particle,
and the continuity equation is linear. Together with attention they are the other half of a transformer block.
A Gaussian stays one only under those that are affine: linear fields, quadratic confinement, layers without activation.
"""

import math
from typing import Any, Literal

import equinox as eqx
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
    as_scalar,
    is_concrete,
    plus,
)
from particleflow.dynamics.drifts.base import AbstractDrift
from particleflow.dynamics.normal_law import Affine, Normal
from particleflow.errors import ArgumentError
from particleflow.measure import Measure, Sites

Activation = Literal["tanh", "relu", "gelu", "gelu_exact", "sigmoid", "identity"]
_ACTIVATIONS = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,  # ½x(1 + tanh(√(2/π)(x + 0.044715x³))), as in GPT-2
    "gelu_exact": lambda x: 0.5 * x * (1 + jax.lax.erf(math.sqrt(0.5) * x)),  # x Φ(x), as in BERT
    "sigmoid": jax.nn.sigmoid,
    "identity": lambda x: x,
}


class FeedForward(AbstractDrift):
    """ẋ = W₂ σ(W₁ x + b₁) + b₂: the field of a residual network (W₂ = 1, b₂ = 0 gives σ(Wx + b)).

    One explicit step of size h is the residual layer x + h W₂ σ(W₁x + b₁) + h b₂; its limit in depth is a neural ODE.
    Parameters: `weight` W₁ (h, d); `bias` b₁ (h,) or a number; `output` W₂ (d, h), a diagonal or a number;
    `output_bias` b₂; `activation` σ, by name.
    """

    weight: Float[Array, "h d"]
    bias: Float[Array, "..."]
    output: Float[Array, "..."]
    output_bias: Float[Array, "..."]
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        weight: Any,
        bias: Any = 0.0,
        output: Any = 1.0,
        output_bias: Any = 0.0,
        activation: Activation = "tanh",
    ):
        self.weight = as_linear_map(weight, "weight")
        self.bias = as_float_array(bias, "bias")
        self.output = as_linear_map(output, "output")
        self.output_bias = as_float_array(output_bias, "output_bias")
        self.activation = activation

    def __check_init__(self):
        if self.activation not in _ACTIVATIONS:
            choices = ", ".join(repr(name) for name in _ACTIVATIONS)
            raise ArgumentError(f"Argument `activation` must be one of {choices}, but is {self.activation!r}.")

    @staticmethod
    def random(key: Array, dimension: int, width: int, activation: Activation = "tanh") -> "FeedForward":
        """Independent Gaussian weights of variance 1/d and 1/h, and biases of variance 1."""
        keys = jax.random.split(key, 3)
        weight = jax.random.normal(keys[0], (width, dimension)) / jnp.sqrt(dimension)
        output = jax.random.normal(keys[1], (dimension, width)) / jnp.sqrt(width)
        return FeedForward(weight, jax.random.normal(keys[2], (width,)), output, 0.0, activation)

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """W₂ σ(W₁ x + b₁) + b₂."""
        hidden = plus(apply_linear_map(self.weight, queries.points, "weight"), self.bias, "bias")
        velocity = apply_linear_map(self.output, _ACTIVATIONS[self.activation](hidden), "output")
        return plus(velocity, self.output_bias, "output_bias")

    def affine(self, time: Any, law: Normal) -> Affine:
        """The layer itself, if its activation is the identity: W₂(W₁ x + b₁) + b₂.

        Any other activation bends a Gaussian out of shape, and is refused.
        """
        if self.activation != "identity":
            raise ArgumentError(
                f"A Gaussian does not stay one under a feed_forward with activation {self.activation!r}, whose "
                "velocity is not affine. Use particles."
            )
        return Affine.of(lambda points: self(time, Sites(points), law.cloud()), law.mean)


class RandomFeedForward(AbstractDrift):
    """A feed-forward layer with Gaussian weights drawn from its own `seed`; see `FeedForward.random`.

    The weights depend on `seed`, `dimension` and `width` alone, so that a scenario needs no file for them.
    """

    layer: FeedForward

    def __init__(
        self,
        dimension: int,
        width: int = 64,
        seed: int = 0,
        activation: Activation = "tanh",
    ):
        self.layer = FeedForward.random(jax.random.key(seed), dimension, width, activation)

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """The velocity of the layer."""
        return self.layer(time, queries, measure)

    def affine(self, time: Any, law: Normal) -> Affine:
        """That of the layer."""
        return self.layer.affine(time, law)


class Linear(AbstractDrift):
    """ẋ = A x, A a number, a diagonal or a matrix: x(t) = e^{tA} x(0)."""

    matrix: Float[Array, "..."]

    def __init__(self, matrix: Any):
        self.matrix = as_linear_map(matrix, "matrix")

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """A x."""
        return apply_linear_map(self.matrix, queries.points, "matrix")

    def affine(self, time: Any, law: Normal) -> Affine:
        """The field A x about the mean a: u = A a, B = A."""
        return law.identity().mapped(self.matrix, "matrix")


class Confinement(AbstractDrift):
    """ẋ = −strength |x − c|^{power−2} (x − c): the gradient flow of (strength/power) |x − c|^power."""

    strength: Nonnegative
    power: Float[Array, ""]
    centre: Float[Array, "..."]

    def __init__(self, strength: Any = 1.0, power: Any = 2.0, centre: Any = 0.0):
        self.strength = as_nonnegative(strength, "strength")
        self.power = as_scalar(power, "power", lambda number: number >= 2, "at least 2")
        self.centre = as_float_array(centre, "centre")

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """−strength |x − c|^{power−2} (x − c)."""
        away = plus(queries.points, -self.centre, "centre")
        squares = jnp.sum(jnp.square(away), axis=1, keepdims=True)
        nonzero = squares > 0
        at_rest = jnp.where(self.power > 2, 0.0, 1.0)  # |x − c|^{power−2} at the centre, where it has no derivative
        growth = jnp.where(nonzero, jnp.where(nonzero, squares, 1.0) ** ((self.power - 2) / 2), at_rest)
        return -self.strength * growth * away

    def affine(self, time: Any, law: Normal) -> Affine:
        """−strength (x − c), if the power is 2."""
        if is_concrete(self.power) and np.any(np.asarray(self.power) != 2):
            raise ArgumentError("A Gaussian does not stay one under a confinement of another power than 2.")
        field = law.identity()
        return Affine(plus(field.offset[None], -self.centre, "centre")[0], field.matrix).times(-self.strength)
