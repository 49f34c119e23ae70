"""Word vectors against the counts that they are learned from: frequencies, mutual information, entropy."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

from particleflow import kernels as k
from particleflow.errors import ArgumentError
from particleflow.learning import NegativeSampling, SkipGram, cooccurrences, learn

SENTENCE = "a rose is a rose is a rose and so is a song so is a rose and a song is a song"
TEXT = SENTENCE.split()
COUNTS = np.random.default_rng(0).integers(1, 20, size=(5, 4)).astype(float)
TABLES = ["query_table", "key_table"]


def tables(rank: int, words: int = 5, contexts: int = 4) -> k.Embedded:
    rng = np.random.default_rng(1)
    return k.Embedded(0.3 * rng.normal(size=(words, rank)), 0.3 * rng.normal(size=(contexts, rank)))


def test_counting():
    counts, words = cooccurrences(TEXT, window=2)
    by_hand = np.zeros_like(counts)
    for i, word in enumerate(TEXT):
        for j, other in enumerate(TEXT):
            by_hand[words.index(word), words.index(other)] += 0 < abs(i - j) <= 2
    np.testing.assert_array_equal(counts, by_hand)
    assert words == ["a", "and", "is", "rose", "so", "song"]
    with pytest.raises(ArgumentError, match="window"):
        cooccurrences(["a", "b"], window=2)


def test_losses_by_hand():
    """With a pair that never occurred, which adds nothing to the losses of pairs seen."""
    counts, kernel = COUNTS.copy(), tables(3)
    counts[2, 1] = 0
    logits = np.asarray(kernel.query_table) @ np.asarray(kernel.key_table).T
    expected = -np.sum(counts * log_softmax(logits, axis=1)) / counts.sum()
    assert abs(float(SkipGram(counts)(kernel)) - expected) < 1e-13
    noise = counts.sum(axis=0) ** 0.75
    drawn = 4 * counts.sum(axis=1)[:, None] * noise / noise.sum()
    expected = -np.sum(counts * np.log(expit(logits)) + drawn * np.log(expit(-logits))) / counts.sum()
    assert abs(float(NegativeSampling(counts, 4, power=0.75)(kernel)) - expected) < 1e-13
    with pytest.raises(ArgumentError, match="every word"):
        SkipGram([[0.0, 0.0], [1.0, 2.0]])


@pytest.mark.slow
def test_full_rank_reaches_the_conditional_frequencies():
    learned = learn(tables(4), SkipGram(COUNTS), TABLES, steps=400, tolerance=1e-15)
    logits = np.asarray(learned.model.query_table) @ np.asarray(learned.model.key_table).T
    frequencies = COUNTS / COUNTS.sum(axis=1, keepdims=True)
    assert np.max(np.abs(np.exp(log_softmax(logits, axis=1)) - frequencies)) < 1e-6
    assert abs(learned.loss + np.sum(COUNTS * np.log(frequencies)) / COUNTS.sum()) < 1e-10


@pytest.mark.slow
def test_negative_sampling_reaches_mutual_information_less_log_k():
    total, negatives = COUNTS.sum(), 3.0
    information = np.log(COUNTS * total / np.outer(COUNTS.sum(axis=1), COUNTS.sum(axis=0)))
    learned = learn(tables(4), NegativeSampling(COUNTS, negatives), TABLES, steps=600, tolerance=1e-15)
    logits = np.asarray(learned.model.query_table) @ np.asarray(learned.model.key_table).T
    assert np.max(np.abs(logits - (information - np.log(negatives)))) < 1e-4


@pytest.mark.slow
def test_low_rank_is_as_good_as_another_minimiser_finds():
    """SciPy from the same start, on the loss of NumPy: tables of rank 2 lose the same."""
    start = tables(2)
    learned = learn(start, SkipGram(COUNTS), TABLES, steps=400)

    def by_hand(flat: np.ndarray) -> float:
        logits = flat[:10].reshape(5, 2) @ flat[10:].reshape(4, 2).T
        return float(-np.sum(COUNTS * log_softmax(logits, axis=1)) / COUNTS.sum())

    begun = np.concatenate([np.ravel(start.query_table), np.ravel(start.key_table)])
    theirs = minimize(by_hand, begun, method="BFGS", options={"gtol": 1e-9})
    assert abs(learned.loss - theirs.fun) < 1e-7
