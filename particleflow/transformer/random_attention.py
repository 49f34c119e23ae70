"""Random attention for one layer of a network: softmax heads, linearised heads, or a blend of near field and far field.

    softmax         Σ_h O_h softmax(β Q_h x · K_h y) V_h y
    linearised      Σ_h O_h Σ_j φ(Q_h x)·φ(K_h y_j) V_h y_j / Σ_j φ(Q_h x)·φ(K_h y_j)         O(n) for n tokens
    near_and_far    w₁ · softmax where |t − s| < radius + w₂ · (linearised with φ₁ + with φ₂)   FMMformer

The three parts of the blend begin with the same matrices Q, K, V and O. To keep them equal while the network learns, as
the FMMformer does, name their paths together, as one parameter in three places.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array

from particleflow.dynamics.drifts.attend import Attend
from particleflow.dynamics.drifts.base import AbstractDrift, Sum
from particleflow.dynamics.drifts.blend import Blend
from particleflow.dynamics.drifts.heads import MultiHead
from particleflow.errors import ArgumentError
from particleflow.kernels.affine import AffineAttention
from particleflow.kernels.base import AbstractKernel
from particleflow.kernels.linearised import FeatureMap, LinearisedAttention
from particleflow.kernels.positional import Causal, Window
from particleflow.summation.exact.separated import Separated
from particleflow.transformer.layer_blocks import attention_settings

AttentionKind = Literal["softmax", "linearised", "near_and_far"]
ATTENTION_KINDS: tuple[AttentionKind, ...] = ("softmax", "linearised", "near_and_far")
_FAR: tuple[FeatureMap, ...] = ("elu", "elu_reversed")


def random_matrix(key: Array, rows: int, columns: int, spread: float | None) -> Any:
    """A matrix of independent normal numbers of standard deviation `spread`, or 1/√columns."""
    return (spread or columns**-0.5) * jax.random.normal(key, (rows, columns))


def random_heads(key: Array, width: int, count: int, spread: float | None, causal: bool = False) -> MultiHead:
    """Softmax heads without biases, as networks have them."""
    query, keys, value, output = _matrices(key, width, spread)
    none = jnp.zeros(width)
    return MultiHead.of_matrices(
        count, query, keys, value, output, none, none, none, none, **attention_settings(causal)
    )


def random_attention(
    kind: AttentionKind, key: Array, width: int, count: int, spread: float | None, causal: bool, radius: float
) -> AbstractDrift:
    """The self-attention of one layer of width `width`, of `count` heads of a kind; `radius` of the near field."""
    if kind == "softmax":
        return random_heads(key, width, count, spread, causal)
    if kind == "linearised":
        return _linearised(key, width, count, spread, causal, "elu")
    if kind != "near_and_far":
        choices = ", ".join(f'"{each}"' for each in ATTENTION_KINDS)
        raise ArgumentError(f"Argument `attention` must be one of {choices}, but is {kind!r}.")
    band: AbstractKernel = Window(radius) * Causal() if causal else Window(radius)
    near = [_inside(head, band) for head in random_heads(key, width, count, spread).each]
    far = Sum(_linearised(key, width, count, spread, causal, features) for features in _FAR)
    return Blend([MultiHead(near), far], jnp.ones(2))


def _inside(head: Attend, band: AbstractKernel) -> Attend:
    """A softmax head that sees nothing outside of a band of positions."""
    kernel = head.kernel
    assert isinstance(kernel, AffineAttention)
    return Attend(kernel, head.value, "row", band, head.output, head.summation, value_bias=head.value_bias)


def _linearised(
    key: Array, width: int, count: int, spread: float | None, causal: bool, features: FeatureMap
) -> MultiHead:
    """Heads of linearised attention without biases."""
    query, keys, value, output = _matrices(key, width, spread)
    rows = zip(*(jnp.split(each, count) for each in (query, keys, value, output.T)), strict=True)
    mask = Causal() if causal else None
    return MultiHead(
        [Attend(LinearisedAttention(features, q, k), v, "row", mask, o.T, Separated()) for q, k, v, o in rows]
    )


def _matrices(key: Array, width: int, spread: float | None) -> list[Array]:
    """Q, K, V and O of all heads together."""
    return [random_matrix(each, width, width, spread) for each in jax.random.split(key, 4)]
