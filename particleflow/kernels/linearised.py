"""Linearised attention: kernels that are an inner product of a few positive features, so that sums of them factor.

    K(x, y) = ⟨φ(Qx), φ(Ky)⟩,    Σ_j w_j K(x, y_j) z_j = φ(Qx)ᵀ Σ_j w_j φ(Ky_j) ⊗ z_j

The matrix on the right is made once for all queries: the cost is O(N) in place of O(N²), and the matrix of all K has at
most as high a rank as φ has components. Source: Katharopoulos et al., Transformers are RNNs (2020).
"""

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import apply_linear_map, as_linear_map
from particleflow.errors import ArgumentError
from particleflow.kernels.base import AbstractMatrixKernel, inner_products, points_of, safe_log
from particleflow.kernels.forms import Separable

FeatureMap = Literal["elu", "elu_reversed", "softplus"]
_MAPS: dict[str, Callable[[Array], Array]] = {
    "elu": lambda u: jnp.where(u > 0, u + 1, jnp.exp(jnp.minimum(u, 0.0))),
    "elu_reversed": lambda u: jnp.where(u < 0, 1 - u, jnp.exp(jnp.minimum(-u, 0.0))),
    "softplus": jax.nn.softplus,
}
_FAR = 37.0  # log softplus(u) = u to the last digit for u < −37


def _log_elu(u: Array) -> Array:
    """log(elu(u) + 1)."""
    return jnp.where(u > 0, jnp.log1p(jnp.maximum(u, 0.0)), u)


def _log_softplus(u: Array) -> Array:
    """log log(1 + e^u)."""
    return jnp.where(u > -_FAR, jnp.log(jax.nn.softplus(jnp.maximum(u, -_FAR))), u)


_LOGARITHMS: dict[str, Callable[[Array], Array]] = {
    "elu": _log_elu,
    "elu_reversed": lambda u: _log_elu(-u),
    "softplus": _log_softplus,
}


class LinearisedAttention(AbstractMatrixKernel):
    """K(x, y) = Σ_l φ(Qx)_l φ(Ky)_l with a positive function φ of every coordinate: attention in O(N).

    `features`: "elu", φ(u) = elu(u) + 1 (Katharopoulos et al. 2020); "elu_reversed", φ(u) = elu(−u) + 1, which is
    linearly independent of it (both together are the attention of rank two of Nguyen et al., FMMformer, 2021); or
    "softplus", φ(u) = log(1 + e^u). Unlike exp⟨Qx, Ky⟩ it grows only as the product of the lengths.

    Parameters: `features`; `query` Q and `key` K, each a number, a diagonal or a matrix.
    """

    features: FeatureMap = eqx.field(static=True)
    query: Float[Array, "..."]
    key: Float[Array, "..."]

    def __init__(self, features: FeatureMap = "elu", query: Any = 1.0, key: Any = 1.0):
        self.features = features
        self.query = as_linear_map(query, "query")
        self.key = as_linear_map(key, "key")

    def __check_init__(self):
        if self.features not in _MAPS:
            choices = ", ".join(repr(name) for name in _MAPS)
            raise ArgumentError(f"Argument `features` must be one of {choices}, but is {self.features!r}.")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log ⟨φ(Qx_i), φ(Ky_j)⟩, also where features underflow (far negative coordinates)."""
        queries, keys = self._queries(xs), self._keys(ys)
        products = inner_products(_MAPS[self.features](queries), _MAPS[self.features](keys))
        numbers, logarithm = jnp.finfo(products.dtype), _LOGARITHMS[self.features]
        held = products > numbers.tiny / numbers.eps
        # Chosen pair by pair: a pair that a mask hides must not change a bit of another one.
        return jax.lax.cond(
            jnp.all(held),
            lambda: safe_log(products),
            lambda: jnp.where(held, safe_log(products), _log_inner_products(logarithm(queries), logarithm(keys))),
        )

    def separable(self) -> Separable:
        """φ(Qx) and φ(Ky); in sums over them, features that underflow count as zero."""
        features = _MAPS[self.features]
        return Separable(lambda xs: features(self._queries(xs)), lambda ys: features(self._keys(ys)))

    def vanishes(self) -> bool:
        """Never: features are positive."""
        return False

    def _queries(self, sites: Any) -> Float[Array, "m k"]:
        return apply_linear_map(self.query, points_of(sites), "query")

    def _keys(self, sites: Any) -> Float[Array, "n k"]:
        return apply_linear_map(self.key, points_of(sites), "key")


@jax.checkpoint
def _log_inner_products(log_rows: Float[Array, "m k"], log_columns: Float[Array, "n k"]) -> Float[Array, "m n"]:
    """log Σ_l e^{a_il + b_jl}, one feature after another: no array of pairs and features is held."""

    def add(total: Array, feature: tuple[Array, Array]) -> tuple[Array, None]:
        return jnp.logaddexp(total, feature[0][:, None] + feature[1][None]), None

    nothing = jnp.full((len(log_rows), len(log_columns)), -jnp.inf, log_rows.dtype)
    return jax.lax.scan(add, nothing, (log_rows.T, log_columns.T))[0]
