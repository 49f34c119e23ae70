"""Word vectors as kernel regression: K(i, j) = exp⟨φ_i, ψ_j⟩ between words i and contexts j, learned from counts.

A text is counted once, N_ij the number of times that word j stands near word i. Shares of the kernel are then fitted to
the shares of the counts, which makes the tables φ and ψ of an `Embedded` kernel word vectors:

    SkipGram           −Σ_ij (N_ij/N) log (K_ij/Σ_l K_il)                     word2vec with the whole softmax
    NegativeSampling   −Σ_ij [N_ij log σ(log K_ij) + k N_i q_j log σ(−log K_ij)]/N

Tables of full rank reach the least of each: K_ij/Σ_l K_il = N_ij/N_i, the conditional frequencies, whose entropy is the
least loss; log K_ij = log (N_ij N/(N_i N_j)) − log k, the pointwise mutual information less log k, for q_j = N_j/N.
So word2vec is a Nadaraya–Watson regression whose kernel is learned, and its vectors factor a matrix of counts. Sources:
Mikolov et al., Distributed representations of words and phrases and their compositionality (2013); Levy and Goldberg,
Neural word embedding as implicit matrix factorization (2014).
"""

from collections.abc import Hashable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array, as_positive
from particleflow.errors import ArgumentError, ShapeError, whole_number
from particleflow.kernels import AbstractKernel
from particleflow.measure import Measure
from particleflow.summation import AbstractSummation, Auto
from particleflow.summation.local_mean import log_normalizer


def cooccurrences(tokens: Sequence[Hashable], window: int = 2) -> tuple[np.ndarray, list[Any]]:
    """Count how often word j stands at most `window` places from word i: the matrix N, and the words in its order.

    Parameters: `tokens`, the words of a text one after the other; `window` ≥ 1. Words are numbered as `sorted` orders
    them.
    """
    whole_number(window, "window")
    words = sorted(set(tokens))  # type: ignore[type-var]
    if len(tokens) <= window:
        raise ArgumentError(
            f"Argument `tokens` must hold more than `window` = {window} words, but holds {len(tokens)}."
        )
    number = {word: place for place, word in enumerate(words)}
    text, counts = np.array([number[word] for word in tokens]), np.zeros((len(words), len(words)))
    for lag in range(1, window + 1):
        np.add.at(counts, (text[:-lag], text[lag:]), 1.0)
    return counts + counts.T, words


class SkipGram(eqx.Module):
    """−Σ_ij (N_ij/N) log (K_ij/Σ_l K_il): the cross-entropy of the contexts of every word under softmax.

    The kernel is one of letters, such as `Embedded`: Σ_l K_il is its log-mass at word i under the counting measure of
    all contexts. Parameters: `counts` N (words, contexts) ≥ 0; `summation`.
    """

    counts: Float[Array, "n m"]
    contexts: Measure
    summation: AbstractSummation

    def __init__(self, counts: Any, summation: AbstractSummation | None = None):
        self.counts = _checked(counts)
        self.contexts = Measure(_letters(self.counts.shape[1], self.counts), jnp.zeros(self.counts.shape[1]))
        self.summation = summation or Auto()

    def __call__(self, kernel: AbstractKernel) -> Float[Array, ""]:
        """The mean over all pairs that were counted of −log (share of the context)."""
        words = _letters(self.counts.shape[0], self.counts)
        log_masses = log_normalizer(kernel, self.contexts, words, summation=self.summation)
        return -_mean(kernel.log_matrix(words, self.contexts.points) - log_masses[:, None], self.counts)


class NegativeSampling(eqx.Module):
    """−Σ_ij [N_ij log σ(log K_ij) + k N_i q_j log σ(−log K_ij)]/N: pairs that were seen against k drawn ones.

    The negative pairs are not drawn: their expected number N_i q_j k stands in their place. Parameters: `counts` N
    (words, contexts) ≥ 0; `negatives` k > 0 to every pair; `power` of q_j ∝ N_j^power, 0.75 in word2vec.
    """

    counts: Float[Array, "n m"]
    negatives: Float[Array, ""]
    power: float = eqx.field(static=True)

    def __init__(self, counts: Any, negatives: Any = 5.0, power: float = 1.0):
        self.counts = _checked(counts)
        self.negatives = as_positive(negatives, "negatives")
        self.power = float(power)

    def __call__(self, kernel: AbstractKernel) -> Float[Array, ""]:
        """The mean loss of a pair that was counted, with its negative pairs."""
        rows, columns = self.counts.shape
        logits = kernel.log_matrix(_letters(rows, self.counts), _letters(columns, self.counts))
        noise = jnp.sum(self.counts, axis=0) ** self.power
        drawn = self.negatives * jnp.sum(self.counts, axis=1)[:, None] * (noise / jnp.sum(noise))[None, :]
        total = jnp.sum(self.counts)
        return -_mean(jax.nn.log_sigmoid(logits), self.counts) - jnp.sum(drawn * jax.nn.log_sigmoid(-logits)) / total


def _mean(values: Float[Array, "n m"], counts: Float[Array, "n m"]) -> Float[Array, ""]:
    """The mean over pairs that were counted; a pair that never occurred does not matter, whatever its value."""
    return jnp.sum(jnp.where(counts > 0, counts * jnp.where(counts > 0, values, 0.0), 0.0)) / jnp.sum(counts)


def _letters(count: int, like: Array) -> Float[Array, "n 1"]:
    """The numbers 0, 1, 2, … of words, as points of an alphabet."""
    return jnp.arange(count, dtype=like.dtype)[:, None]


def _checked(counts: Any) -> Float[Array, "n m"]:
    """Counts (words, contexts) that are not negative, with something in every row."""
    found = as_float_array(counts, "counts")
    if found.ndim != 2 or 0 in found.shape:
        raise ShapeError(f"Argument `counts` must have shape (words, contexts), but has {found.shape}.")
    if (np.asarray(found) < 0).any() or not (np.asarray(found) > 0).any(axis=1).all():
        raise ArgumentError("Argument `counts` must not be negative, and every word must have a context.")
    return found
