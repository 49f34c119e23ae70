"""Predict tokens of a text: the next one from the past, or masked ones from both sides.

    NextToken      −mean log P(s_{t+1} | s_1 … s_t)       as GPT is trained, with causal attention
    MaskedToken    −mean log P(s_t | all but the masked)  as BERT is trained: 15 % of the tokens are predicted

The last part of the text is held back: its first half is for validation, its second half for the test, which nothing is
chosen by. What counting says about the same half is beside it (`token_counts`).
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from particleflow.errors import ArgumentError, ShapeError, whole_number
from particleflow.learning.task import AbstractTask, Part, Scores, logistic_scores
from particleflow.learning.token_counts import TokenCounts

_HELD_OUT = 0x5EED  # of the key that masks what is held back
_SHARE = 0.2
_PREDICTED, _MASKED, _RANDOM = 0.15, 0.8, 0.1  # Devlin et al., BERT (2019), section 3.1
MASK = "▢"


class NextToken(AbstractTask):
    """The next token of a text, predicted at every place of a window of it.

    Parameters: the `text`, of which each letter is a token, or a list of tokens; `length` of a window;
    `held_out_share`, the last part of the text, which is not learned from: half for validation, half for the test.
    """

    symbols: tuple[str, ...] = eqx.field(static=True)
    learned: Int[Array, " t"]
    validated: Int[Array, " v"]
    tested: Int[Array, " h"]
    length: int = eqx.field(static=True)

    def __init__(self, text: str | Sequence[str], length: int = 32, held_out_share: float = _SHARE):
        self.length = whole_number(length, "length")
        self.symbols = tuple(sorted(set(text)))
        self.learned, self.validated, self.tested = _parts(text, self.symbols, self.length + 1, held_out_share)

    @property
    def vocabulary(self) -> int:
        """The number of different tokens."""
        return len(self.symbols)

    def ids(self, text: str | Sequence[str]) -> Int[Array, " n"]:
        """The token ids of a text; a token that the text of the task lacks is refused."""
        return _ids(text, self.symbols)

    def batch(self, key: Array, count: int) -> Int[Array, "b n"]:
        """Windows of length + 1 tokens at random places of what is learned from."""
        return _windows(self.learned, _places(key, self.learned, self.length + 1, count), self.length + 1)

    def held_out(self, count: int, part: Part = "test") -> Int[Array, "b n"]:
        """Windows spread evenly over a part that was held back."""
        held = self.validated if part == "validation" else self.tested
        return _windows(held, _spread(held, self.length + 1, count), self.length + 1)

    def scores(self, model: Any, samples: Int[Array, "b n"]) -> Scores:
        """Cross entropy of the next tokens at all places of the windows, and the share that is most likely."""
        return logistic_scores(jax.vmap(model.logits)(samples[:, :-1]), samples[:, 1:])

    def counts(self) -> TokenCounts:
        """Unigrams and bigrams of the part that is learned from, and what they say about the test."""
        return TokenCounts(np.asarray(self.learned), np.asarray(self.tested), self.vocabulary)


class MaskedToken(AbstractTask):
    """Hidden tokens of a window of a text, predicted from both sides: BERT's masking.

    15 % of the tokens are predicted; of these 80 % are shown as a mask, 10 % as a random token, 10 % as they are.

    Parameters: as for `NextToken`. The mask is one more token, the last one of the vocabulary.
    """

    symbols: tuple[str, ...] = eqx.field(static=True)
    learned: Int[Array, " t"]
    validated: Int[Array, " v"]
    tested: Int[Array, " h"]
    length: int = eqx.field(static=True)

    def __init__(self, text: str | Sequence[str], length: int = 32, held_out_share: float = _SHARE):
        self.length = whole_number(length, "length")
        if MASK in text:
            raise ArgumentError(f"Argument `text` must not hold {MASK}, which stands for a masked token.")
        self.symbols = (*sorted(set(text)), MASK)
        self.learned, self.validated, self.tested = _parts(text, self.symbols, self.length, held_out_share)

    @property
    def vocabulary(self) -> int:
        """The number of different tokens, the mask among them."""
        return len(self.symbols)

    def ids(self, text: str | Sequence[str]) -> Int[Array, " n"]:
        """The token ids of a text, in which ▢ is the mask; a token that the text of the task lacks is refused."""
        return _ids(text, self.symbols)

    def batch(self, key: Array, count: int) -> tuple[Int[Array, "b n"], Int[Array, "b n"], Bool[Array, "b n"]]:
        """Windows at random places: the tokens, what is shown of them, and which are predicted."""
        for_place, for_mask = jax.random.split(key)
        return self._hidden(
            for_mask, _windows(self.learned, _places(for_place, self.learned, self.length, count), self.length)
        )

    def held_out(
        self, count: int, part: Part = "test"
    ) -> tuple[Int[Array, "b n"], Int[Array, "b n"], Bool[Array, "b n"]]:
        """Windows spread evenly over a part that was held back, always masked alike."""
        held = self.validated if part == "validation" else self.tested
        windows = _windows(held, _spread(held, self.length, count), self.length)
        return self._hidden(jax.random.key(_HELD_OUT), windows)

    def scores(self, model: Any, samples: tuple[Int[Array, "b n"], Int[Array, "b n"], Bool[Array, "b n"]]) -> Scores:
        """Cross entropy of the hidden tokens, and the share of them that is most likely."""
        tokens, seen, hidden = samples
        return logistic_scores(jax.vmap(model.logits)(seen), tokens, hidden)

    def counts(self) -> TokenCounts:
        """Unigrams and bigrams of the part that is learned from, and what they say about the test."""
        return TokenCounts(np.asarray(self.learned), np.asarray(self.tested), self.vocabulary - 1)

    def _hidden(
        self, key: Array, tokens: Int[Array, "b n"]
    ) -> tuple[Int[Array, "b n"], Int[Array, "b n"], Bool[Array, "b n"]]:
        """Some windows, what is shown of them, and which of their tokens are predicted: at least one a window."""
        for_choice, for_kind, for_random, for_one = jax.random.split(key, 4)
        hidden = jax.random.bernoulli(for_choice, _PREDICTED, tokens.shape)
        one = jax.random.randint(for_one, (len(tokens), 1), 0, self.length)
        none = ~jnp.any(hidden, axis=1, keepdims=True)
        hidden = hidden | (none & (jnp.arange(self.length)[None] == one))
        kind = jax.random.uniform(for_kind, tokens.shape)
        others = jax.random.randint(for_random, tokens.shape, 0, self.vocabulary - 1, dtype=tokens.dtype)
        mask = jnp.full_like(tokens, self.vocabulary - 1)
        replaced = jnp.where(kind < _MASKED, mask, jnp.where(kind < _MASKED + _RANDOM, others, tokens))
        return tokens, jnp.where(hidden, replaced, tokens), hidden


def _parts(
    text: str | Sequence[str], symbols: tuple[str, ...], window: int, share: float
) -> tuple[Int[Array, " t"], Int[Array, " v"], Int[Array, " h"]]:
    """The ids of the first part of a text, and of both halves of the last `share`; all hold at least one window."""
    if not 0 < share < 1:
        raise ArgumentError(f"Argument `held_out_share` must be between 0 and 1, but is {share!r}.")
    ids = _ids(text, symbols)
    cut, middle = round(len(ids) * (1 - share)), round(len(ids) * (1 - share / 2))
    if min(cut, middle - cut, len(ids) - middle) < window:
        raise ShapeError(
            f"A window has {window} tokens, but of {len(ids)} tokens {cut} are learned from, {middle - cut} and "
            f"{len(ids) - middle} held back; give a longer text or a smaller `length`."
        )
    return ids[:cut], ids[cut:middle], ids[middle:]


def _ids(text: str | Sequence[str], symbols: tuple[str, ...]) -> Int[Array, " n"]:
    """The numbers of tokens among the symbols."""
    number = {symbol: place for place, symbol in enumerate(symbols)}
    unknown = next((token for token in text if token not in number), None)
    if unknown is not None:
        raise ArgumentError(f"The token {unknown!r} is none of the {len(symbols)} tokens of this task.")
    return jnp.asarray([number[token] for token in text], dtype=jnp.int32)


def _places(key: Array, ids: Int[Array, " t"], window: int, count: int) -> Int[Array, " b"]:
    """Random first places of windows."""
    return jax.random.randint(key, (count,), 0, len(ids) - window + 1)


def _spread(ids: Int[Array, " h"], window: int, count: int) -> Int[Array, " b"]:
    """At most `count` first places of windows, evenly over all."""
    last = len(ids) - window
    return jnp.asarray(np.unique(np.linspace(0, last, min(count, last + 1)).astype(int)))


def _windows(ids: Int[Array, " t"], places: Int[Array, " b"], window: int) -> Int[Array, "b n"]:
    """The windows that begin at some places."""
    return ids[places[:, None] + jnp.arange(window)[None]]
