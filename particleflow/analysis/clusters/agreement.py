"""How good a clustering is: silhouette, and agreement with given labels (adjusted Rand index, mutual information).

All three are averages over particles, or over pairs of different particles, and take weights: a particle counts by its
mass w_i, a pair by w_i w_j, one of weight zero not at all. Without weights they are the usual numbers.
"""

import numpy as np
from numpy.typing import ArrayLike

from particleflow.analysis.reading import FloatArray, IntArray, as_points, as_weights
from particleflow.errors import ArgumentError, ShapeError

_PAIRS_AT_ONCE = 1 << 22  # distances in memory: 32 MB


def adjusted_rand_index(labels: ArrayLike, reference: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """Return the Rand index corrected for chance, 1 for equal partitions and 0 on average for random ones.

    Let S be the mass of pairs inside the cells of a partition, S = Σ_cells ½[(Σ_i w_i)² − Σ_i w_i²]; it is
    Σ n(n−1)/2 for n particles of weight one. With S_a and S_b for the two partitions, S_both for their common
    refinement, S_all for all particles in one cell, and the value E = S_a S_b / S_all expected by chance, the index is
    (S_both − E) / (½(S_a + S_b) − E).

    labels, reference: (N,) of any type; weights: (N,), equal if left out.
    """
    left, right, mass = _labellings(labels, reference, weights)
    both = left * (int(right.max()) + 1) + right
    # In units of the heaviest particle equal weights are ones, and the sums whole numbers without rounding.
    mass = mass / mass.max()
    pairs, first_pairs, second_pairs, total = (
        _pair_mass(cells, mass) for cells in (both, left, right, np.zeros_like(left))
    )
    if total == 0 or first_pairs == second_pairs == pairs:
        return 1.0
    expected = first_pairs * second_pairs / total
    return (pairs - expected) / (0.5 * (first_pairs + second_pairs) - expected)


def normalized_mutual_information(
    labels: ArrayLike, reference: ArrayLike, *, weights: ArrayLike | None = None
) -> float:
    """Return the mutual information over the mean entropy, I(A, B) / ½(H(A) + H(B)); 1 for equal partitions.

    H = −Σ_c m_c log m_c for the masses of the cells, I(A, B) = H(A) + H(B) − H(A, B). A particle split in two at one
    place changes nothing.

    labels, reference: (N,) of any type; weights: (N,), equal if left out.
    """
    left, right, mass = _labellings(labels, reference, weights)
    if left.max() == right.max() == 0:
        return 1.0
    first, second = _entropy(left, mass), _entropy(right, mass)
    joint = _entropy(left * (int(right.max()) + 1) + right, mass)
    return float(np.clip((first + second - joint) / (0.5 * (first + second)), 0.0, 1.0))


def silhouette(
    points: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None, maximum: int = 5000, seed: int = 0
) -> float:
    """Return the mean silhouette Σ_i w_i s_i / Σ_i w_i, s_i = (b_i − a_i) / max(a_i, b_i).

    a_i is the mean distance to the rest of the particle's own cluster c, Σ_{j∈c} w_j |x_i − x_j| / (m_c − w_i), b_i the
    least mean distance Σ_{j∈c'} w_j |x_i − x_j| / m_c' to another; particles alone in their cluster count as 0. Beyond
    `maximum` particles the mean is over a random sample of that size (of the seed), each still compared with all
    particles. Particles labelled −1 are left out. Needs at least two clusters.

    points: (N, d); labels: (N,); weights: (N,), equal if left out.
    """
    array, label = as_points(points), np.asarray(labels, dtype=np.int64)
    if label.shape != (array.shape[0],):
        raise ShapeError(f"`labels` must have shape ({array.shape[0]},), but has shape {label.shape}.")
    mass = as_weights(weights, label.size)
    counted = (label >= 0) & (mass > 0)
    array, mass = array[counted], mass[counted]
    label = np.unique(label[counted], return_inverse=True)[1]
    if label.size == 0 or label.max() == 0:
        raise ArgumentError("A silhouette needs at least two clusters, but there is at most one.")
    chosen = np.arange(label.size)
    if label.size > maximum:
        chosen = np.sort(np.random.default_rng(seed).choice(label.size, maximum, replace=False))
    block = max(1, _PAIRS_AT_ONCE // label.size)
    blocks = [chosen[k : k + block] for k in range(0, chosen.size, block)]
    total = sum(float(mass[rows] @ _silhouettes(array, label, mass, rows)) for rows in blocks)
    return total / float(mass[chosen].sum())


def _silhouettes(points: FloatArray, label: IntArray, mass: FloatArray, rows: IntArray) -> FloatArray:
    """Return the silhouettes s_i of some particles `rows`, each compared with all: O(rows · N d) time and memory.

    Distances are summed cluster by cluster along particles sorted by label, so that no mask a cluster is needed.
    """
    from scipy.spatial.distance import cdist

    order = np.argsort(label, kind="stable")
    sizes, masses = np.bincount(label), np.bincount(label, weights=mass)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    sums = np.add.reduceat(cdist(points[rows], points[order]) * mass[order], starts, axis=1)
    own, place = label[rows], np.arange(rows.size)
    rest = masses[own] - mass[rows]
    others = (sizes[own] > 1) & (rest > 0)
    inside = sums[place, own] / np.where(others, rest, 1.0)
    means = sums / masses
    means[place, own] = np.inf
    outside = means.min(axis=1)
    largest = np.maximum(inside, outside)
    return np.where(others & (largest > 0), (outside - inside) / np.where(largest > 0, largest, 1.0), 0.0)


def _labellings(
    labels: ArrayLike, reference: ArrayLike, weights: ArrayLike | None
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return both labellings of the particles that have mass, numbered from 0 on, and the masses."""
    left, right = np.asarray(labels).reshape(-1), np.asarray(reference).reshape(-1)
    if left.shape != right.shape or left.size == 0:
        raise ShapeError(f"Both labellings must have one length, at least 1, but have {left.size} and {right.size}.")
    mass = as_weights(weights, left.size)
    first, second = (np.unique(side[mass > 0], return_inverse=True)[1] for side in (left, right))
    return first, second, mass[mass > 0]


def _pair_mass(cells: IntArray, mass: FloatArray) -> float:
    """Return Σ_cells ½[(Σ w)² − Σ w²]; a cell of one particle counts as 0 exactly, not as a rounding error."""
    names = np.unique(cells, return_inverse=True)[1]
    together, alone = np.bincount(names, weights=mass), np.bincount(names, weights=np.square(mass))
    return 0.5 * float((np.square(together) - alone)[np.bincount(names) > 1].sum())


def _entropy(cells: IntArray, mass: FloatArray) -> float:
    """Return −Σ_c m_c log m_c over the cells that are there."""
    masses = np.bincount(np.unique(cells, return_inverse=True)[1], weights=mass)
    return float(-(masses * np.log(masses)).sum())
