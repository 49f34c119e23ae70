"""Classify a sequence by its marked tokens, with a logistic read-out of the pooled last states.

    y = σ(βᵀ x̄_L),    x̄_L = (1/n) Σ_i x_i(L)

Every token has a class, and some tokens are marked. The label is that of the first marked token, which attention has to
find among all, or the parity of their number, which no mean of single tokens tells.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from particleflow.errors import ArgumentError, whole_number
from particleflow.learning.task import AbstractTask, Part, Scores, last_states, logistic_scores

Rule = Literal["first", "parity"]
Samples = tuple[Int[Array, "b n"], Int[Array, " b"]]
# Keys that draw what is held back; batches are drawn by keys that are folded in, which are others.
_HELD_OUT: dict[Part, int] = {"validation": 0x5EED, "test": 0x7E57}


class SequenceClassification(AbstractTask):
    """Sequences of tokens of some classes, each marked or not: token id = class + classes · marked.

    `rule`: "first", the label is the class of the first marked token (there is one always); "parity", the number of
    marked tokens modulo 2.

    Parameters: `length` n of a sequence; number of `classes`; `rule`; `share` of tokens that are marked.
    """

    length: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    rule: Rule = eqx.field(static=True)
    share: float = eqx.field(static=True)

    def __init__(self, length: int = 12, classes: int = 2, rule: Rule = "first", share: float = 0.25):
        self.length = whole_number(length, "length")
        self.classes = whole_number(classes, "classes")
        self.rule = rule
        self.share = float(share)

    def __check_init__(self):
        if self.rule not in ("first", "parity"):
            raise ArgumentError(f'Argument `rule` must be "first" or "parity", but is {self.rule!r}.')
        if self.rule == "first" and self.classes < 2:
            raise ArgumentError("Argument `classes` must be at least 2 for the class of the first marked token.")
        if not 0 < self.share < 1:
            raise ArgumentError(f"Argument `share` must be between 0 and 1, but is {self.share}.")

    @property
    def vocabulary(self) -> int:
        """The number of different tokens, 2 · classes."""
        return 2 * self.classes

    @property
    def labels(self) -> int:
        """The number of different labels."""
        return self.classes if self.rule == "first" else 2

    def batch(self, key: Array, count: int) -> Samples:
        """Sequences (b, n) and their labels (b,)."""
        for_class, for_mark, for_one = jax.random.split(key, 3)
        shape = (count, self.length)
        classes = jax.random.randint(for_class, shape, 0, self.classes, dtype=jnp.int32)
        marked = jax.random.bernoulli(for_mark, self.share, shape)
        if self.rule == "parity":
            return self._ids(classes, marked), jnp.sum(marked, axis=1, dtype=jnp.int32) % 2
        one = jax.random.randint(for_one, (count, 1), 0, self.length)
        lonely = ~jnp.any(marked, axis=1, keepdims=True)
        marked = marked | (lonely & (jnp.arange(self.length)[None] == one))
        first = jnp.argmax(marked, axis=1)
        labels = jnp.take_along_axis(classes, first[:, None], axis=1)[:, 0]
        return self._ids(classes, marked), labels

    def held_out(self, count: int, part: Part = "test") -> Samples:
        """Sequences drawn by a key of their own for each part."""
        return self.batch(jax.random.key(_HELD_OUT[part]), count)

    def scores(self, model: Any, samples: Samples) -> Scores:
        """Cross entropy of the label given the pooled last states, and the share of labels that are most likely."""
        ids, labels = samples
        pooled = jnp.mean(last_states(model, ids), axis=1)
        return logistic_scores(model.head.logits(pooled), labels)

    def _ids(self, classes: Int[Array, "b n"], marked: Bool[Array, "b n"]) -> Int[Array, "b n"]:
        """The token ids of classes, marked or not."""
        return classes + self.classes * marked.astype(classes.dtype)
