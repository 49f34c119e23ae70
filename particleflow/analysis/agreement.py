"""How good a clustering is: silhouette, and agreement with given labels (adjusted Rand index, mutual information)."""

import numpy as np
from numpy.typing import ArrayLike

from particleflow.analysis.frames import FloatArray, IntArray, as_points
from particleflow.errors import ArgumentError, ShapeError

_BLOCK = 512


def adjusted_rand_index(labels: ArrayLike, reference: ArrayLike) -> float:
    """Return the Rand index corrected for chance, 1 for equal partitions and 0 on average for random ones.

    With n_ij the contingency table, a_i and b_j its margins, and S(n) = Σ n(n−1)/2:
    (S(n_ij) − E) / (½(S(a) + S(b)) − E), E = S(a) S(b) / S(n).
    """
    table, first, second = _contingency(labels, reference)
    pairs, first_pairs, second_pairs = (float((n * (n - 1) // 2).sum()) for n in (table, first, second))
    count = int(first.sum())
    total = count * (count - 1) / 2
    if total == 0 or first_pairs == second_pairs == pairs:
        return 1.0
    expected = first_pairs * second_pairs / total
    return (pairs - expected) / (0.5 * (first_pairs + second_pairs) - expected)


def normalized_mutual_information(labels: ArrayLike, reference: ArrayLike) -> float:
    """Return the mutual information over the mean entropy, I(A, B) / ½(H(A) + H(B)); 1 for equal partitions."""
    table, first, second = _contingency(labels, reference)
    if first.size == second.size == 1:
        return 1.0
    count = first.sum()
    joint = _entropy(table / count)
    left, right = _entropy(first / count), _entropy(second / count)
    return float(np.clip((left + right - joint) / (0.5 * (left + right)), 0.0, 1.0))


def silhouette(points: ArrayLike, labels: ArrayLike, *, maximum: int = 5000, seed: int = 0) -> float:
    """Return the mean silhouette, s_i = (b_i − a_i) / max(a_i, b_i).

    a_i is the mean distance to the particle's own cluster, b_i the least mean distance to another; particles alone in
    their cluster count as 0. Beyond `maximum` particles the mean is over a random sample of that size (of the seed),
    each still compared with all particles. Particles labelled −1 are left out. Needs at least two clusters.
    """
    array, label = as_points(points), np.asarray(labels, dtype=np.int64)
    if label.shape != (array.shape[0],):
        raise ShapeError(f"`labels` must have shape ({array.shape[0]},), but has shape {label.shape}.")
    array, label = array[label >= 0], label[label >= 0]
    label = np.unique(label, return_inverse=True)[1]
    if label.size == 0 or label.max() == 0:
        raise ArgumentError("A silhouette needs at least two clusters, but there is at most one.")
    chosen = np.arange(label.size)
    if label.size > maximum:
        chosen = np.sort(np.random.default_rng(seed).choice(label.size, maximum, replace=False))
    total = sum(_silhouettes(array, label, chosen[k : k + _BLOCK]) for k in range(0, chosen.size, _BLOCK))
    return float(total / chosen.size)


def _silhouettes(points: FloatArray, label: IntArray, rows: IntArray) -> float:
    from scipy.spatial.distance import cdist

    order = np.argsort(label, kind="stable")
    sizes = np.bincount(label)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    sums = np.add.reduceat(cdist(points[rows], points[order]), starts, axis=1)
    own = label[rows]
    place = np.arange(rows.size)
    inside = sums[place, own] / np.maximum(sizes[own] - 1, 1)
    means = sums / sizes
    means[place, own] = np.inf
    outside = means.min(axis=1)
    largest = np.maximum(inside, outside)
    score = np.where((sizes[own] > 1) & (largest > 0), (outside - inside) / np.where(largest > 0, largest, 1.0), 0.0)
    return float(score.sum())


def _contingency(labels: ArrayLike, reference: ArrayLike) -> tuple[IntArray, IntArray, IntArray]:
    """Return the non-zero cells of the contingency table and its two margins."""
    left, right = np.asarray(labels).reshape(-1), np.asarray(reference).reshape(-1)
    if left.shape != right.shape or left.size == 0:
        raise ShapeError(f"Both labellings must have one length, at least 1, but have {left.size} and {right.size}.")
    left, right = (np.unique(side, return_inverse=True)[1] for side in (left, right))
    cells = np.unique(left * (int(right.max()) + 1) + right, return_counts=True)[1]
    return cells, np.bincount(left), np.bincount(right)


def _entropy(probabilities: FloatArray) -> float:
    positive = probabilities[probabilities > 0]
    return float(-(positive * np.log(positive)).sum())
