"""Kernels of an inner product: attention and its relatives."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._arrays import apply_linear_map, as_linear_map, as_nonnegative, as_positive, as_scalar
from particleflow.kernels.base import AbstractMatrixKernel, inner_products, points_of, safe_log, squared_distances


class Attention(AbstractMatrixKernel):
    """K(x, y) = exp β⟨Qx, Ky⟩.

    Parameters: inverse temperature `beta`; `query` Q and `key` K, each a number, a diagonal or a matrix.
    """

    beta: Float[Array, ""]
    query: Float[Array, "..."]
    key: Float[Array, "..."]

    def __init__(self, beta: Any = 1.0, query: Any = 1.0, key: Any = 1.0):
        self.beta = as_scalar(beta, "beta")
        self.query = as_linear_map(query, "query")
        self.key = as_linear_map(key, "key")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix β⟨Qx_i, Ky_j⟩."""
        queries = self.beta * apply_linear_map(self.query, points_of(xs), "query")
        return inner_products(queries, apply_linear_map(self.key, points_of(ys), "key"))


class Cosine(AbstractMatrixKernel):
    """K(x, y) = exp(β ⟨x, y⟩ / (|x| |y|)); a zero vector is orthogonal to everything."""

    beta: Float[Array, ""]

    def __init__(self, beta: Any = 1.0):
        self.beta = as_scalar(beta, "beta")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix β cos∠(x_i, y_j)."""
        return inner_products(self.beta * _directions(points_of(xs)), _directions(points_of(ys)))


class Sigmoid(AbstractMatrixKernel):
    """K(x, y) = 1 / (1 + exp(−β⟨Qx, Ky⟩ − offset)): the weights of sigmoid attention."""

    beta: Float[Array, ""]
    offset: Float[Array, ""]
    query: Float[Array, "..."]
    key: Float[Array, "..."]

    def __init__(self, beta: Any = 1.0, offset: Any = 0.0, query: Any = 1.0, key: Any = 1.0):
        self.beta = as_scalar(beta, "beta")
        self.offset = as_scalar(offset, "offset")
        self.query = as_linear_map(query, "query")
        self.key = as_linear_map(key, "key")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log σ(β⟨Qx_i, Ky_j⟩ + offset)."""
        exponent = Attention(self.beta, self.query, self.key).log_matrix(xs, ys)
        return jax.nn.log_sigmoid(exponent + self.offset)


class SigmoidExponential(AbstractMatrixKernel):
    """K(x, y) = exp tanh(scale ⟨x, y⟩ + offset): the sigmoid kernel of kernel machines, made positive."""

    scale: Float[Array, ""]
    offset: Float[Array, ""]

    def __init__(self, scale: Any = 1.0, offset: Any = 0.0):
        self.scale = as_scalar(scale, "scale")
        self.offset = as_scalar(offset, "offset")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix tanh(scale ⟨x_i, y_j⟩ + offset)."""
        return jnp.tanh(inner_products(self.scale * points_of(xs), points_of(ys)) + self.offset)


class Rectified(AbstractMatrixKernel):
    """K(x, y) = max(0, β⟨Qx, Ky⟩ + offset): the weights of ReLU attention; a query may see nothing at all."""

    beta: Float[Array, ""]
    offset: Float[Array, ""]
    query: Float[Array, "..."]
    key: Float[Array, "..."]

    def __init__(self, beta: Any = 1.0, offset: Any = 0.0, query: Any = 1.0, key: Any = 1.0):
        self.beta = as_positive(beta, "beta")
        self.offset = as_scalar(offset, "offset")
        self.query = as_linear_map(query, "query")
        self.key = as_linear_map(key, "key")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log max(0, β⟨Qx_i, Ky_j⟩ + offset)."""
        exponent = Attention(self.beta, self.query, self.key).log_matrix(xs, ys)
        return safe_log(jax.nn.relu(exponent + self.offset))


class SquaredDistanceAttention(AbstractMatrixKernel):
    """K(x, y) = exp(−β |Qx − Ky|²): L2 attention."""

    beta: Float[Array, ""]
    query: Float[Array, "..."]
    key: Float[Array, "..."]

    def __init__(self, beta: Any = 1.0, query: Any = 1.0, key: Any = 1.0):
        self.beta = as_nonnegative(beta, "beta")
        self.query = as_linear_map(query, "query")
        self.key = as_linear_map(key, "key")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix −β |Qx_i − Ky_j|²."""
        queries = apply_linear_map(self.query, points_of(xs), "query")
        return -self.beta * squared_distances(queries, apply_linear_map(self.key, points_of(ys), "key"))


class Constant(AbstractMatrixKernel):
    """K(x, y) = 1: the local mean under it is the plain mean."""

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """A matrix of zeros."""
        queries, points = points_of(xs), points_of(ys)
        return jnp.zeros((queries.shape[0], points.shape[0]), points.dtype)


def _directions(vectors: Array) -> Array:
    squares = jnp.sum(jnp.square(vectors), axis=-1, keepdims=True)
    nonzero = squares > 0
    return jnp.where(nonzero, vectors * jax.lax.rsqrt(jnp.where(nonzero, squares, 1.0)), 0.0)
