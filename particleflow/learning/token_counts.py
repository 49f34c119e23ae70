"""What counting says about a text: entropies of its tokens alone, and given the token before.

    unigram    H₁ = −mean log p(s_t)              p(s) ∝ number of s + α
    bigram     H₂ = −mean log p(s_t | s_{t−1})    p(s | r) ∝ number of r s + α

Counts are those of one part of a text, means over another one. A token or a pair that the first part lacks would make
them infinite, so α is added to all counts; the α that is best for the other part is taken, which favours counting.
"""

import numpy as np
from jaxtyping import Float, Int

_AMOUNTS = np.geomspace(1e-3, 10.0, 81)


class TokenCounts:
    """Unigrams and bigrams of a text, and their cross entropies on another one, in nats.

    Parameters: the ids `learned` that are counted; `held`, those that are predicted; the number `vocabulary` of tokens.
    """

    def __init__(self, learned: Int[np.ndarray, " t"], held: Int[np.ndarray, " h"], vocabulary: int):
        self.learned, self.held, self.vocabulary = learned, held, vocabulary

    def unigram(self) -> float:
        """The cross entropy of the tokens that are predicted, without the first one."""
        counts = np.bincount(self.learned, minlength=self.vocabulary)[None]
        return self._least(counts, np.zeros(len(self.held) - 1, int), self.held[1:])

    def bigram(self) -> float:
        """The cross entropy of the tokens that are predicted, each given the one before."""
        counts = np.zeros((self.vocabulary, self.vocabulary))
        np.add.at(counts, (self.learned[:-1], self.learned[1:]), 1)
        return self._least(counts, self.held[:-1], self.held[1:])

    def bigram_accuracy(self) -> float:
        """The share of tokens that are the most frequent ones after the token before."""
        counts = np.zeros((self.vocabulary, self.vocabulary))
        np.add.at(counts, (self.learned[:-1], self.learned[1:]), 1)
        return float(np.mean(np.argmax(counts, axis=1)[self.held[:-1]] == self.held[1:]))

    def _least(self, counts: Float[np.ndarray, "c v"], given: np.ndarray, tokens: np.ndarray) -> float:
        """The cross entropy with the best α."""
        found = []
        for amount in _AMOUNTS:
            shares = (counts + amount) / np.sum(counts + amount, axis=1, keepdims=True)
            found.append(float(-np.mean(np.log(shares[given, tokens]))))
        return min(found)
