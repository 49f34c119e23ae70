"""Conditionals of Boltzmann type: a family whose natural parameter is an affine function of an input x,

    p(y | x) = exp(⟨W x + b, u(y)⟩ − G(W x + b)) h(dy).

The base measure determines the model:

    coins {0, 1}^d      p(y_j = 1 | x) = σ((W x + b)_j), a layer of a restricted Boltzmann machine, or one unit of a
                        Boltzmann machine given the others
    outcomes            p(y = j | x) = softmax_j(W x + b), a classifier
    tokens, W = βQ      p(y = x_j | x) ∝ exp β⟨Q x, x_j⟩, attention, whose output is the mean
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import apply_linear_map, as_float_array, as_linear_map
from particleflow._support.representation import shown
from particleflow.errors import ShapeError, check_kind
from particleflow.theory.exponential_family.base import AbstractExponentialFamily


class Conditional(eqx.Module):
    """A family whose natural parameter is W x + b for the input x.

    Parameters: `family` of the outputs; `weight` W, a number, a diagonal or a matrix; `bias` b, a number or a vector.
    Inputs have shape (m, d).
    """

    family: AbstractExponentialFamily
    weight: Float[Array, "..."]
    bias: Float[Array, "..."]

    def __init__(self, family: AbstractExponentialFamily, weight: Any = 1.0, bias: Any = 0.0):
        self.family = family
        self.weight = as_linear_map(weight, "weight")
        self.bias = as_float_array(bias, "bias")

    def __check_init__(self):
        check_kind(self.family, AbstractExponentialFamily, "family", "an exponential family")
        if self.bias.shape not in ((), (self.family.dimension,)):
            raise ShapeError(
                f"Argument `bias` must be a number or have shape ({self.family.dimension},), but has {self.bias.shape}."
            )

    def parameters(self, inputs: Float[Array, "m d"]) -> Float[Array, "m k"]:
        """The natural parameter W x + b of every input."""
        rows = apply_linear_map(self.weight, as_float_array(inputs, "inputs"), "weight")
        if rows.ndim != 2 or rows.shape[1] != self.family.dimension:
            raise ShapeError(
                f"Argument `inputs` must become parameters of shape (m, {self.family.dimension}), but W x has shape "
                f"{rows.shape}."
            )
        return rows + (self.bias if self.bias.ndim == 0 else self.bias[None, :])

    def mean(self, inputs: Float[Array, "m d"]) -> Float[Array, "m k"]:
        """E[u(y) | x] = ∇G(W x + b)."""
        return jax.vmap(self.family.mean)(self.parameters(inputs))

    def log_density(self, inputs: Float[Array, "m d"], outputs: Float[Array, "m *e"]) -> Float[Array, " m"]:
        """log dp(y | x)/dh = ⟨W x + b, u(y)⟩ − G(W x + b) of every pair of an input and an output."""
        parameters = self.parameters(inputs)
        statistics = self.family.statistic(as_float_array(outputs, "outputs"))
        if statistics.shape != parameters.shape:
            raise ShapeError(f"There are {parameters.shape[0]} inputs, but outputs of shape {statistics.shape}.")
        return jnp.sum(parameters * statistics, axis=1) - jax.vmap(self.family.log_normalizer)(parameters)

    def sample(self, key: Array, inputs: Float[Array, "m d"], count: int) -> Float[Array, "m count *e"]:
        """Independent draws of y for every input."""
        parameters = self.parameters(inputs)
        keys = jax.random.split(key, parameters.shape[0])
        return jax.vmap(lambda each, parameter: self.family.sample(each, parameter, count))(keys, parameters)

    def __repr__(self) -> str:
        return shown(self)
