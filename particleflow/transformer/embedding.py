"""Embeddings, from words to points, and unembeddings, from points to distributions over words.

    x_i = N(c E[word_i] + p(i) + T[type_i])            the embedded token
    P(next word = v | x) ∝ exp(⟨x, E_v⟩ + b_v)         the prediction from the last hidden state

A dense embedding is a linear map of one-hot vectors, computed by taking rows of the table E. The unembedding is softmax
attention: the attention weights of a query x over the measure of all words, with weights e^b, under the kernel
exp⟨x, y⟩.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from particleflow._support.arrays import as_float_array, as_scalar, is_concrete, plus, progression
from particleflow._support.representation import shown
from particleflow.dynamics.drifts.pointwise import FeedForward
from particleflow.dynamics.geometry import LayerNorm
from particleflow.errors import ArgumentError, DtypeError, ShapeError
from particleflow.kernels.inner_product import Attention
from particleflow.kernels.positional import AbstractEncoding, FiniteEncoding
from particleflow.measure import Measure, Sites
from particleflow.summation.local_mean import attention_weights


class Embedding(eqx.Module):
    """Token, position and type embeddings, added and normalised: x_i = N(c E[word_i] + p(i) + T[type_i]).

    Parameters: `table` E with one row a word; `positions`, a learned `PositionTable` or the `Sinusoidal` encoding, None
    for none; `types` T, one row a token type, None for none; `norm` N, None for none; `scale` c of the table;
    `projection` (d, e) of rows of e numbers into d dimensions and `projection_bias` (d,), as ALBERT has them.
    """

    table: Float[Array, "v e"]
    positions: AbstractEncoding | None
    types: Float[Array, "s e"] | None
    norm: LayerNorm | None
    scale: Float[Array, ""]
    projection: Float[Array, "d e"] | None
    projection_bias: Float[Array, "..."]

    def __init__(
        self,
        table: Any,
        positions: AbstractEncoding | None = None,
        types: Any = None,
        norm: LayerNorm | None = None,
        scale: Any = 1.0,
        projection: Any = None,
        projection_bias: Any = 0.0,
    ):
        self.table = as_float_array(table, "table")
        self.positions = positions
        self.types = None if types is None else as_float_array(types, "types")
        self.norm = norm
        self.scale = as_scalar(scale, "scale")
        self.projection = None if projection is None else as_float_array(projection, "projection")
        self.projection_bias = as_float_array(projection_bias, "projection_bias")

    def __check_init__(self):
        for name in ("table", "types", "projection"):
            array = getattr(self, name)
            if array is not None and (array.ndim != 2 or 0 in array.shape):
                raise ShapeError(f"Argument `{name}` must be a matrix, but has shape {array.shape}.")
            if array is not None and array.shape[1] != self.table.shape[1]:
                raise ShapeError(
                    f"Argument `{name}` must have {self.table.shape[1]} columns as the table has, but has shape "
                    f"{array.shape}."
                )

    @staticmethod
    def one_hot(vocabulary: int, **settings: Any) -> "Embedding":
        """The embedding of words as one-hot vectors: the table is the identity; `settings` as for `Embedding`."""
        return Embedding(jnp.eye(vocabulary), **settings)

    @property
    def vocabulary(self) -> int:
        """The number of words."""
        return self.table.shape[0]

    @property
    def width(self) -> int:
        """The dimension d of the tokens."""
        return self.table.shape[1] if self.projection is None else self.projection.shape[0]

    @property
    def longest(self) -> int | None:
        """The most tokens that there are positions for; None where there is no limit."""
        return self.positions.longest if isinstance(self.positions, FiniteEncoding) else None

    def __call__(self, ids: Any, types: Any = None) -> Float[Array, "n d"]:
        """The embedded tokens (n, d) of token `ids` (n,) and, where the embedding has types, their `types` (n,)."""
        known = as_ids(ids, "ids", self.vocabulary)
        if self.types is None and types is not None:
            raise ArgumentError("Argument `types` was given, but this embedding has no token types.")
        kinds = None
        if self.types is not None:
            given = np.zeros(known.shape, np.int32) if types is None else types
            kinds = as_ids(given, "types", self.types.shape[0])
            if kinds.shape != known.shape:
                raise ShapeError(f"Argument `types` must have shape {known.shape}, but has {kinds.shape}.")
        places = progression(0.0, 1.0, known.shape[0], self.table.dtype)
        if self.longest is not None and known.shape[0] > self.longest:
            raise ShapeError(
                f"Argument `ids` holds {known.shape[0]} words, but positions are known for {self.longest} only."
            )
        return _embedded(self, known, kinds, places)

    def measure(self, ids: Any, types: Any = None, mask: Any = None) -> Measure:
        """The embedded tokens as a measure with positions 0, 1, …; a padded token (`mask` 0) has no weight."""
        points = self(ids, types)
        places = progression(0.0, 1.0, points.shape[0], points.dtype)
        if mask is None:
            return Measure.uniform(points, positions=places)
        seen = np.asarray(mask)
        if seen.shape != points.shape[:1] or not np.isin(seen, (0, 1)).all():
            raise ArgumentError(f"Argument `mask` must hold a 0 or a 1 for each of {points.shape[0]} tokens.")
        return Measure.weighted(points, jnp.asarray(seen / max(seen.sum(), 1), points.dtype), positions=places)

    def __repr__(self) -> str:
        return shown(self)


class Unembedding(eqx.Module):
    """The prediction of a word from a hidden state: P(v | x) ∝ exp(⟨f(x), E_v⟩ + b_v).

    Parameters: `table` E with one row a word, often that of the embedding; `bias` b; `transform` and `norm`, which f
    applies in turn, as in the head of BERT, None for the identity.
    """

    table: Float[Array, "v d"]
    bias: Float[Array, " v"] | None
    transform: FeedForward | None
    norm: LayerNorm | None

    def __init__(
        self, table: Any, bias: Any = None, transform: FeedForward | None = None, norm: LayerNorm | None = None
    ):
        self.table = as_float_array(table, "table")
        self.bias = None if bias is None else as_float_array(bias, "bias")
        self.transform = transform
        self.norm = norm

    @property
    def words(self) -> Measure:
        """The measure of all words: their embeddings, with weights e^{b}."""
        flat = jnp.zeros(self.table.shape[0], self.table.dtype)
        return Measure(self.table, flat if self.bias is None else self.bias)

    def seen(self, states: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """f(x), the states that are compared with the words."""
        if self.transform is not None:
            states = self.transform(0.0, Sites(states), Measure.uniform(states))
        return states if self.norm is None else self.norm.normalise(states)

    def logits(self, states: Float[Array, "n d"]) -> Float[Array, "n v"]:
        """The logits ⟨f(x), E_v⟩ + b_v of every word."""
        words = self.words
        return Attention().log_matrix(self.seen(states), words.points) + words.log_weights[None, :]

    def distribution(self, states: Float[Array, "n d"]) -> Float[Array, "n v"]:
        """P(v | x) of every word; rows sum to one."""
        return attention_weights(Attention(), self.words, self.seen(states))

    def __repr__(self) -> str:
        return shown(self)


@eqx.filter_jit
def _embedded(embedding: Embedding, ids: Array, types: Array | None, places: Array) -> Float[Array, "n d"]:
    """N(c E[ids] + T[types] + p(places)), projected."""
    rows = embedding.scale * embedding.table[ids]
    if embedding.types is not None and types is not None:
        rows = rows + embedding.types[types]
    if embedding.positions is not None:
        rows = rows + embedding.positions.vectors(places, rows.shape[1])
    rows = rows if embedding.norm is None else embedding.norm.normalise(rows)
    if embedding.projection is None:
        return rows
    return plus(rows @ embedding.projection.T, embedding.projection_bias, "projection_bias")


def as_ids(ids: Any, name: str, count: int) -> Int[Array, " n"]:
    """Token or type ids from 0 to count − 1, checked unless they are traced."""
    if not is_concrete(ids):
        return ids
    numbers = np.asarray(ids)
    if numbers.ndim != 1 or numbers.size == 0:
        raise ShapeError(f"Argument `{name}` must be a list of at least one number, but has shape {numbers.shape}.")
    if not np.issubdtype(numbers.dtype, np.integer):
        raise DtypeError(f"Argument `{name}` must hold whole numbers, but has dtype {numbers.dtype}.")
    if numbers.min() < 0 or numbers.max() >= count:
        worst = numbers[(numbers < 0) | (numbers >= count)][0]
        raise ArgumentError(f"Argument `{name}` must hold numbers from 0 to {count - 1}, but holds {worst}.")
    return jax.device_put(numbers.astype(np.int32))
