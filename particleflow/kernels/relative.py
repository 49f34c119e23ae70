"""Attention with relative positions, as Transformer-XL has it: scores of contents, and scores of the distance.

The distance enters by sinusoids, and those of a difference are products of those of both positions,

    sin ω(t − s) = sin ωt cos ωs − cos ωt sin ωs,    cos ω(t − s) = cos ωt cos ωs + sin ωt sin ωs,

so that the score is an inner product of longer vectors, of the query at t and of the source at s: sums are those of
attention, and need no matrix of lags. In single precision the angle ωt of a position t is right to 6e-8 t.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import apply_linear_map, as_float_array, as_linear_map, as_scalar, plus
from particleflow.errors import ArgumentError, ShapeError
from particleflow.kernels.base import points_of, positions_of
from particleflow.kernels.inner_product import AbstractInner
from particleflow.kernels.positional import Sinusoidal


class RelativeAttention(AbstractInner):
    """K(x, y) = exp β(⟨Qx + u, Ky⟩ + ⟨Qx + v, W r(t − s)⟩) for x at position t and y at s, r the `encoding` of the lag.

    Source: Dai et al., Transformer-XL: attentive language models beyond a fixed-length context (2019), with β = 1/√k
    for heads of k dimensions and a causal mask, which is another factor: `RelativeAttention(...) * Causal()`. Columns
    of W are sines and cosines in turn, as `Sinusoidal` has them; there all sines come first.

    Parameters: inverse temperature `beta`; `query` Q, `key` K and `position_key` W, each a number, a diagonal or a
    matrix; `query_bias` u and `position_bias` v, each a number or a vector; the `encoding` of lags.
    """

    beta: Float[Array, ""]
    query: Float[Array, "..."]
    key: Float[Array, "..."]
    position_key: Float[Array, "..."]
    query_bias: Float[Array, "..."]
    position_bias: Float[Array, "..."]
    encoding: Sinusoidal

    def __init__(
        self,
        beta: Any = 1.0,
        query: Any = 1.0,
        key: Any = 1.0,
        position_key: Any = 1.0,
        query_bias: Any = 0.0,
        position_bias: Any = 0.0,
        encoding: Any = None,
    ):
        self.beta = as_scalar(beta, "beta")
        self.query = as_linear_map(query, "query")
        self.key = as_linear_map(key, "key")
        self.position_key = as_linear_map(position_key, "position_key")
        self.query_bias = as_float_array(query_bias, "query_bias")
        self.position_bias = as_float_array(position_bias, "position_bias")
        self.encoding = Sinusoidal() if encoding is None else encoding

    def __check_init__(self):
        if not isinstance(self.encoding, Sinusoidal):
            raise ArgumentError(
                f"Argument `encoding` must be `Sinusoidal`, but is {type(self.encoding).__name__}: only of sines and "
                "cosines is the vector of a lag made of those of both positions. A table of positions is added to the "
                "points by `Encoded`, and any table of scores is a factor `PositionMatrix`."
            )
        if self.position_key.ndim == 2:
            self._check_length(self.position_key.shape[1])

    def queries(self, sites: Any) -> Float[Array, "m k"]:
        """β(Qx + u), then β(Wᵀ(Qx + v) turned by the angles of t)."""
        content = apply_linear_map(self.query, points_of(sites), "query")
        wanted = self._lag_scores(plus(content, self.position_bias, "position_bias"))
        waves = Sinusoidal(base=self.encoding.base).vectors(positions_of(sites, "query"), wanted.shape[1])
        pairs, (sines, cosines) = wanted.reshape(len(wanted), -1, 2), (waves[:, ::2], waves[:, 1::2])
        of_sine = pairs[..., 1] * sines - pairs[..., 0] * cosines
        of_cosine = pairs[..., 0] * sines + pairs[..., 1] * cosines
        turned = jnp.stack([of_sine, of_cosine], axis=2).reshape(wanted.shape)
        return self.beta * jnp.concatenate([plus(content, self.query_bias, "query_bias"), turned], axis=1)

    def keys(self, sites: Any) -> Float[Array, "n k"]:
        """Ky, then the encoding r(s) of the position."""
        content = apply_linear_map(self.key, points_of(sites), "key")
        length = self.position_key.shape[1] if self.position_key.ndim == 2 else content.shape[1]
        return jnp.concatenate([content, self.encoding.vectors(positions_of(sites, "measure"), length)], axis=1)

    def _lag_scores(self, rows: Float[Array, "m k"]) -> Float[Array, "m p"]:
        """Wᵀa of every row a: how much each sine and cosine of the lag counts."""
        matrix = self.position_key
        if matrix.ndim and matrix.shape[0] != rows.shape[1]:
            raise ShapeError(
                f"Argument `position_key` must have {rows.shape[1]} rows, one a coordinate of the query, "
                f"but has shape {matrix.shape}."
            )
        if matrix.ndim < 2:
            self._check_length(rows.shape[1])
        return apply_linear_map(matrix.T, rows, "position_key")

    @staticmethod
    def _check_length(length: int) -> None:
        if length % 2:
            raise ShapeError(
                f"The encoding of a lag must have an even number of coordinates, a sine and a cosine each, but has "
                f"{length}; give `position_key` a matrix with an even number of columns."
            )
