"""Attention with biases, as trained networks have it.

Queries and keys are affine maps of the points. The bias of the keys adds ⟨Qx + b, c⟩ to the logits of a query, the
same for all sources: it moves the log-mass and cancels in every local mean. That of the queries does not cancel: it
adds ⟨b, Ky⟩, a tilt of the measure that all queries share.
"""

from typing import Any

from jaxtyping import Array, Float

from particleflow._support.arrays import apply_linear_map, as_float_array, as_linear_map, as_scalar, plus
from particleflow.kernels.base import points_of
from particleflow.kernels.capabilities import Quadratic
from particleflow.kernels.inner_product import AbstractInner


class AffineAttention(AbstractInner, Quadratic):
    """K(x, y) = exp β⟨Qx + b, Ky + c⟩: one head of a trained transformer, before it is normalised.

    Source: Vaswani et al., Attention is all you need (2017), with β = 1/√k for heads of k dimensions; the biases are
    those of BERT and GPT-2.

    Parameters: inverse temperature `beta`; `query` Q and `key` K, each a number, a diagonal or a matrix; `query_bias` b
    and `key_bias` c, each a number or a vector.
    """

    beta: Float[Array, ""]
    query: Float[Array, "..."]
    key: Float[Array, "..."]
    query_bias: Float[Array, "..."]
    key_bias: Float[Array, "..."]

    def __init__(self, beta: Any = 1.0, query: Any = 1.0, key: Any = 1.0, query_bias: Any = 0.0, key_bias: Any = 0.0):
        self.beta = as_scalar(beta, "beta")
        self.query = as_linear_map(query, "query")
        self.key = as_linear_map(key, "key")
        self.query_bias = as_float_array(query_bias, "query_bias")
        self.key_bias = as_float_array(key_bias, "key_bias")

    def queries(self, sites: Any) -> Float[Array, "m k"]:
        """q(x) = β(Qx + b)."""
        return self.beta * plus(apply_linear_map(self.query, points_of(sites), "query"), self.query_bias, "query_bias")

    def keys(self, sites: Any) -> Float[Array, "n k"]:
        """k(y) = Ky + c."""
        return plus(apply_linear_map(self.key, points_of(sites), "key"), self.key_bias, "key_bias")
