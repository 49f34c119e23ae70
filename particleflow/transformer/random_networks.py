"""Transformers of any size with random weights, as at the beginning of training.

Weights are independent and normal, of standard deviation `spread`, or 1/√(number of inputs) where none is given, so
that a layer preserves the size of its input; biases are zero and gains one.
"""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from particleflow._support.arrays import as_positive
from particleflow.dynamics.drifts.pointwise import Activation, FeedForward
from particleflow.dynamics.geometry import LayerNorm
from particleflow.dynamics.initial.base import MAXIMUM_NUMBERS
from particleflow.errors import ArgumentError, whole_number
from particleflow.kernels.positional import AbstractEncoding, PositionTable, Sinusoidal
from particleflow.transformer.embedding import Embedding, Unembedding
from particleflow.transformer.layer_blocks import LayerParts, Placement
from particleflow.transformer.network import EncoderDecoder, Transformer
from particleflow.transformer.random_attention import AttentionKind, random_attention, random_heads, random_matrix

Positions = Literal["sinusoidal", "learned", "none"]


class Architecture(NamedTuple):
    """The sizes and choices of a transformer.

    Parameters: dimension `width` of tokens; number of layers `depth`; `heads` a layer; `hidden` dimension of the
    feed-forward layers, 4 · width if left out; `vocabulary`; `positions`, and the `longest` text that learned ones are
    for; `types` of tokens; `placement` of norms and their `epsilon`; `activation`; `causal` attention; `shared` weights
    of all layers (ALBERT); `spread` of weights; `attention`, its kind, "softmax", "linearised" or "near_and_far", the
    last with the `radius` of its near field; `precision` of all numbers, that of JAX if left out.
    """

    width: int = 32
    depth: int = 4
    heads: int = 4
    hidden: int | None = None
    vocabulary: int = 100
    positions: Positions = "sinusoidal"
    longest: int = 512
    types: int = 0
    placement: Placement = "pre"
    epsilon: float = 1e-5
    activation: Activation = "gelu_exact"
    causal: bool = False
    shared: bool = False
    spread: float | None = None
    attention: AttentionKind = "softmax"
    radius: float = 4.0
    precision: Literal["float32", "float64"] | None = None

    def check(self) -> None:
        """Raise unless all sizes are positive, the heads divide the width, and all weights fit into memory."""
        hidden = 4 * self.width if self.hidden is None else self.hidden
        sizes = self._asdict() | {"hidden": hidden}
        for name in ("width", "depth", "heads", "hidden", "vocabulary", "longest"):
            whole_number(sizes[name], name)
        whole_number(self.types, "types", 0)
        layers = 1 if self.shared else self.depth
        numbers = (self.vocabulary + self.longest + layers * (8 * self.width + 2 * hidden)) * self.width
        if numbers > MAXIMUM_NUMBERS:
            raise ArgumentError(
                f"A network of width {self.width}, depth {self.depth} and {hidden} hidden dimensions would hold more "
                f"than {MAXIMUM_NUMBERS} numbers; make it smaller."
            )
        if self.spread is not None:
            as_positive(self.spread, "spread")
        if self.width % self.heads:
            raise ArgumentError(f"Argument `heads` must divide the width {self.width}, but is {self.heads}.")
        if self.positions not in ("sinusoidal", "learned", "none"):
            raise ArgumentError(
                f'Argument `positions` must be "sinusoidal", "learned" or "none", but is {self.positions!r}. '
                "What acts on scores, such as `kernels.Alibi`, is the `positional` kernel of heads in a `TokenFlow`."
            )


def random_transformer(key: Array, architecture: Architecture, cross: bool = False) -> Transformer:
    """A transformer with random weights.

    Parameters: random `key`; `architecture`; `cross`, whether layers have cross attention, as in a decoder.
    """
    architecture.check()
    for_words, *for_layers = jax.random.split(key, 1 + (1 if architecture.shared else architecture.depth))
    embedding = _embedding(for_words, architecture)
    layers = [_layer(each, architecture, cross) for each in for_layers]
    final = _norm(architecture) if architecture.placement == "pre" else None
    unembedding = Unembedding(embedding.table)
    made = Transformer(embedding, layers, architecture.placement, architecture.depth, final, unembedding)
    return made if architecture.precision is None else in_precision(made, architecture.precision)


def random_classifier(key: Array, architecture: Architecture, labels: int = 1) -> Transformer:
    """A transformer with random weights and a read-out of classes in place of words: logits ⟨E_c, x̄⟩ + b_c.

    Parameters: random `key`; `architecture`; the number of `labels`, 1 for the logistic read-out y = σ(βᵀ x̄ + b) of
    two classes, which starts at y = 1/2.
    """
    whole_number(labels, "labels")
    network = random_transformer(key, architecture)
    dtype = network.embedding.table.dtype
    readout = Unembedding(jnp.zeros((labels, architecture.width), dtype), jnp.zeros(labels, dtype))
    return eqx.tree_at(lambda made: made.unembedding, network, readout)


def in_precision(model: Any, precision: str) -> Any:
    """A network, or any module, with all of its strongly typed numbers in "float32" or "float64"."""
    if precision not in ("float32", "float64"):
        raise ArgumentError(f'Argument `precision` must be "float32" or "float64", but is {precision!r}.')
    strong, others = eqx.partition(model, lambda leaf: eqx.is_inexact_array(leaf) and not leaf.weak_type)
    return eqx.combine(jax.tree_util.tree_map(lambda leaf: leaf.astype(precision), strong), others)


def random_encoder_decoder(key: Array, encoder: Architecture, decoder: Architecture) -> EncoderDecoder:
    """An encoder and a causal decoder of the same width with cross attention on it, with random weights."""
    if encoder.width != decoder.width:
        raise ArgumentError(f"Encoder and decoder must be equally wide, but have {encoder.width} and {decoder.width}.")
    first, second = jax.random.split(key)
    return EncoderDecoder(
        random_transformer(first, encoder), random_transformer(second, decoder._replace(causal=True), cross=True)
    )


def _embedding(key: Array, architecture: Architecture) -> Embedding:
    """The embedding of an architecture, entries of standard deviation `spread` or 1."""
    width, spread = architecture.width, architecture.spread or 1.0
    keys = jax.random.split(key, 3)
    table = spread * jax.random.normal(keys[0], (architecture.vocabulary, width))
    positions: AbstractEncoding | None = None
    if architecture.positions == "sinusoidal":
        positions = Sinusoidal()
    elif architecture.positions == "learned":
        positions = PositionTable(spread * jax.random.normal(keys[1], (architecture.longest, width)))
    types = spread * jax.random.normal(keys[2], (architecture.types, width)) if architecture.types else None
    norm = _norm(architecture) if architecture.placement == "post" else None
    return Embedding(table, positions, types, norm)


def _layer(key: Array, architecture: Architecture, cross: bool) -> LayerParts:
    """One layer; its cross attention has weights of its own."""
    for_own, for_other, for_inner, for_outer = jax.random.split(key, 4)
    width, hidden = architecture.width, architecture.hidden or 4 * architecture.width
    inner = random_matrix(for_inner, hidden, width, architecture.spread)
    outer = random_matrix(for_outer, width, hidden, architecture.spread)
    feed_forward = FeedForward(inner, jnp.zeros(hidden), outer, jnp.zeros(width), architecture.activation)
    attention = random_attention(
        architecture.attention, for_own, width, architecture.heads, architecture.spread, architecture.causal,
        architecture.radius,
    )  # fmt: skip
    parts = LayerParts(attention, feed_forward, _norm(architecture), _norm(architecture))
    other = random_heads(for_other, width, architecture.heads, architecture.spread) if cross else None
    return parts._replace(cross=other, cross_norm=_norm(architecture)) if cross else parts


def _norm(architecture: Architecture) -> LayerNorm:
    """A layer norm with neutral gain and bias."""
    return LayerNorm(jnp.ones(architecture.width), jnp.zeros(architecture.width), architecture.epsilon)
