"""Kernels of an inner product: attention and its relatives.

Q and K are linear maps, each a number (a multiple of the identity), a diagonal or a matrix; both may lead into a space
of fewer dimensions. On the unit sphere an inner product is a distance, |x − y|² = 2 − 2⟨x, y⟩, and off it is not: there
exp β⟨x, y⟩ grows with the lengths of both vectors, and nothing keeps a flow of such tokens bounded.
"""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import (
    Nonnegative,
    apply_linear_map,
    as_linear_map,
    as_nonnegative,
    as_positive,
    as_scalar,
)
from particleflow.kernels.base import AbstractMatrixKernel, Form, inner_products, points_of, safe_log
from particleflow.kernels.capabilities import Quadratic
from particleflow.kernels.forms import Bilinear, Radial, Shape


class AbstractInner(AbstractMatrixKernel):
    """K(x, y) = e^{⟨q(x), k(y)⟩} with q ∝ β."""

    beta: eqx.AbstractVar[Float[Array, ""]]

    @abstractmethod
    def queries(self, sites: Any) -> Float[Array, "m k"]:
        """q(x) of every site, β included."""

    @abstractmethod
    def keys(self, sites: Any) -> Float[Array, "n k"]:
        """k(y) of every site, without β."""

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix of exponents ⟨q(x_i), k(y_j)⟩."""
        return inner_products(self.queries(xs), self.keys(ys))

    def bilinear(self) -> Bilinear:
        """θ = q(x), s = k(y), no offsets."""
        return Bilinear(self.queries, self.keys)

    def vanishes(self) -> bool:
        """Never: an exponential is positive."""
        return False

    def inverse_temperature(self) -> Float[Array, ""]:
        """β, the parameter of the kernel."""
        return self.beta


class Attention(AbstractInner, Quadratic):
    """K(x, y) = exp β⟨Qx, Ky⟩: the weights of softmax attention, before they are normalised.

    Source: Vaswani et al., Attention is all you need (2017), where β = 1/√d; as a flow of particles, Geshkovski et al.,
    A mathematical perspective on transformers (2023). A negative β repels.

    Parameters: inverse temperature `beta`; `query` Q and `key` K, each a number, a diagonal or a matrix.
    """

    form: ClassVar[Form] = "inner"
    beta: Float[Array, ""]
    query: Float[Array, "..."]
    key: Float[Array, "..."]

    def __init__(self, beta: Any = 1.0, query: Any = 1.0, key: Any = 1.0):
        self.beta = as_scalar(beta, "beta")
        self.query = as_linear_map(query, "query")
        self.key = as_linear_map(key, "key")

    def queries(self, sites: Any) -> Float[Array, "m k"]:
        """q(x) = βQx of every query."""
        return self.beta * apply_linear_map(self.query, points_of(sites), "query")

    def keys(self, sites: Any) -> Float[Array, "n k"]:
        """k(y) = Ky of every source."""
        return apply_linear_map(self.key, points_of(sites), "key")


class Cosine(AbstractInner):
    """K(x, y) = exp(β ⟨x, y⟩ / (|x| |y|)); a zero vector is orthogonal to everything.

    Source: query-key normalisation, Henry et al. (2020). On a sphere of radius r it is attention with β/r².
    """

    beta: Float[Array, ""]

    def __init__(self, beta: Any = 1.0):
        self.beta = as_scalar(beta, "beta")

    def queries(self, sites: Any) -> Float[Array, "m d"]:
        """q(x) = βx/|x|, and 0 for 0."""
        return self.beta * _directions(points_of(sites))

    def keys(self, sites: Any) -> Float[Array, "n d"]:
        """k(y) = y/|y|, and 0 for 0."""
        return _directions(points_of(sites))


class Sigmoid(AbstractMatrixKernel):
    """K(x, y) = 1 / (1 + exp(−β⟨Qx, Ky⟩ − offset)): the weights of sigmoid attention.

    Source: Ramapuram et al., Theory, analysis, and best practices for sigmoid self-attention (2024), where the weights
    are not normalised and offset = −log n. For exponents far below 0 it is attention, far above 0 it is 1.
    """

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

    def vanishes(self) -> bool:
        """Never: a sigmoid is positive."""
        return False

    def inverse_temperature(self) -> Float[Array, ""]:
        """β, the parameter of the kernel."""
        return self.beta


class SigmoidExponential(AbstractMatrixKernel):
    """K(x, y) = exp tanh(scale ⟨x, y⟩ + offset): the sigmoid kernel of kernel machines, made positive.

    It stays between 1/e and e, so that it localizes only weakly: no query is ever far from any point.
    """

    scale: Float[Array, ""]
    offset: Float[Array, ""]

    def __init__(self, scale: Any = 1.0, offset: Any = 0.0):
        self.scale = as_scalar(scale, "scale")
        self.offset = as_scalar(offset, "offset")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix tanh(scale ⟨x_i, y_j⟩ + offset)."""
        return jnp.tanh(inner_products(self.scale * points_of(xs), points_of(ys)) + self.offset)

    def vanishes(self) -> bool:
        """Never: it stays between 1/e and e."""
        return False


class Rectified(AbstractMatrixKernel):
    """K(x, y) = max(0, β⟨Qx, Ky⟩ + offset): the weights of ReLU attention; a query may see nothing at all.

    Source: Wortsman et al., Replacing softmax with ReLU in vision transformers (2023). Normalised by rows, the scale β
    matters only beside the offset.
    """

    beta: Nonnegative
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

    def inverse_temperature(self) -> Float[Array, ""]:
        """β, the parameter of the kernel."""
        return self.beta


class SquaredDistanceAttention(AbstractMatrixKernel, Quadratic):
    """K(x, y) = exp(−β |Qx − Ky|²): L2 attention.

    Source: Kim, Papamakarios and Mnih, The Lipschitz constant of self-attention (2021), where Q = K makes attention
    Lipschitz, which the inner product is not. With Q = K = 1 it is the Gaussian of width² = 1/(2β).
    """

    form: ClassVar[Form] = "distance"
    beta: Nonnegative
    query: Float[Array, "..."]
    key: Float[Array, "..."]

    def __init__(self, beta: Any = 1.0, query: Any = 1.0, key: Any = 1.0):
        self.beta = as_nonnegative(beta, "beta")
        self.query = as_linear_map(query, "query")
        self.key = as_linear_map(key, "key")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix −β |Qx_i − Ky_j|²."""
        return self.radial().log_matrix(xs, ys)

    def radial(self) -> Radial:
        """k(r²) = −β r² of Qx and Ky; as a curve it has no derivative in β at β = 0, and shows NaN there."""
        return Radial(
            lambda squares, dimension: -self.beta * squares,
            self._queries,
            self._keys,
            shape=lambda dimension: Shape("gaussian", jnp.sqrt(self.beta)),
        )

    def bilinear(self) -> Bilinear:
        """θ = 2βQx, s = Ky, a = −β|Qx|², b = −β|Ky|²."""
        return Bilinear(
            lambda xs: 2 * self.beta * self._queries(xs),
            self._keys,
            lambda xs: -self.beta * jnp.sum(jnp.square(self._queries(xs)), axis=1),
            lambda ys: -self.beta * jnp.sum(jnp.square(self._keys(ys)), axis=1),
        )

    def vanishes(self) -> bool:
        """Never: an exponential is positive."""
        return False

    def inverse_temperature(self) -> Float[Array, ""]:
        """β, the parameter: ∇ₓ log K = 2β Qᵀ(Ky − Qx) has a factor 2 more."""
        return self.beta

    def _queries(self, sites: Any) -> Float[Array, "m k"]:
        return apply_linear_map(self.query, points_of(sites), "query")

    def _keys(self, sites: Any) -> Float[Array, "n k"]:
        return apply_linear_map(self.key, points_of(sites), "key")


class Constant(AbstractMatrixKernel, Quadratic):
    """K(x, y) = 1: the local mean under it is the plain mean. It is the limit β → 0 of attention."""

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """A matrix of zeros, the logarithms of 1."""
        queries, points = points_of(xs), points_of(ys)
        return jnp.zeros((queries.shape[0], points.shape[0]), points.dtype)

    def bilinear(self) -> Bilinear:
        """No features and no offsets."""
        return Bilinear(_no_features, _no_features)

    def vanishes(self) -> bool:
        """Never: it is 1 everywhere."""
        return False


def _no_features(sites: Any) -> Float[Array, "m 0"]:
    return points_of(sites)[:, :0]


def _directions(vectors: Array) -> Array:
    """x/|x|, and 0 for 0, with gradient 0 (not NaN) there."""
    squares = jnp.sum(jnp.square(vectors), axis=-1, keepdims=True)
    nonzero = squares > 0
    return jnp.where(nonzero, vectors * jax.lax.rsqrt(jnp.where(nonzero, squares, 1.0)), 0.0)
