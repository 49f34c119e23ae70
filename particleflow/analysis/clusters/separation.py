"""Separation: whether the connected components of a frame are clusters, or chains of a cloud that is still dense.

Where particles are closer together than the linking distance r by density alone, single linkage joins all of them, or
breaks their cloud wherever chance left a gap: the number of components then says nothing about clusters. A cluster is
small against the distance that links it, a chain is not. With the mass m_c and the centre x̄_c of a component c,

    reach_c = max_{i ∈ c} |x_i − x̄_c|,    x̄_c = Σ_{i ∈ c} w_i x_i / m_c,
    c is a chain          if  reach_c > 3 r,
    a frame is separated  if  Σ_{c is a chain} m_c ≤ ½ Σ_c m_c :

most of the mass is in clusters. The reach is between the half and the whole of the diameter and costs O(N d); it sees
a thin tail, which breaks into pieces when it is thrown off, where a mean width would not. A dense circle or sphere of
radius R > 3 r is a chain; where 3 r ≥ R nothing on it is far wider than r.

Frames of a run that are not separated have no number of clusters, and neither have those between two of them.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from particleflow.analysis.clusters.brackets import BETWEEN_FRAMES, ChangeTimes, bracket_of
from particleflow.analysis.reading import FloatArray, IntArray, as_points, as_positive, as_weights, in_units
from particleflow.errors import ShapeError

CHAIN_REACH = 3.0  # linking distances: a component that reaches farther from its centre is a chain
CHAIN_SHARE = 0.5  # of the mass: a frame with more of it in chains is not separated
NOT_SEPARATED = "not separated"
CHAINS = "chains, not separated"  # in pictures


def cluster_reaches(points: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None) -> FloatArray:
    """Return how far each cluster reaches from its centre of mass, max_{i ∈ c} |x_i − x̄_c|, at the place of its label.

    points: (N, d), or (N,) on a line; labels: (N,), 0 … k − 1, or −1 for particles of no cluster; weights: (N,).
    """
    array, numbers = as_points(points), np.asarray(labels, dtype=np.int64)
    if numbers.shape != array.shape[:1]:
        raise ShapeError(f"Argument `labels` must have shape {array.shape[:1]}, but has {numbers.shape}.")
    mass = as_weights(weights, numbers.size)
    inside = numbers >= 0
    if not inside.all():
        array, numbers, mass = array[inside], numbers[inside], mass[inside]
    return _reaches(array, numbers, mass)


def _reaches(points: FloatArray, labels: IntArray, weights: FloatArray) -> FloatArray:
    """The reach of every cluster; all labels are at least 0.

    Coordinates are taken from one particle of the cluster, so that equal points have the reach 0 and not one of
    rounding.
    """
    total = np.bincount(labels, weights=weights)
    one = np.zeros(total.size, dtype=np.int64)
    one[labels] = np.arange(labels.size)
    scaled, unit = in_units(points)
    away = np.zeros(labels.size)
    for column in scaled.T:
        offset = column - column[one][labels]
        middle = np.bincount(labels, weights=weights * offset) / np.where(total > 0, total, 1.0)
        away += np.square(offset - middle[labels])
    farthest = np.zeros(total.size)
    np.maximum.at(farthest, labels, away)
    return unit * np.sqrt(farthest)


def is_separated(points: ArrayLike, labels: ArrayLike, threshold: float, *, weights: ArrayLike | None = None) -> bool:
    """Tell whether most of the mass of a frame is in clusters that are small against the linking distance.

    points: (N, d), or (N,) on a line; labels: (N,), those of `cluster_labels` at the threshold; weights: (N,).
    """
    distance = as_positive(threshold, "threshold", zero=True)
    reaches, masses = _reaches_and_masses(points, labels, weights)
    return bool(masses[reaches > CHAIN_REACH * distance].sum() <= CHAIN_SHARE * masses.sum())


def _reaches_and_masses(
    points: ArrayLike, labels: ArrayLike, weights: ArrayLike | None
) -> tuple[FloatArray, FloatArray]:
    """The reach and the mass of every cluster."""
    reaches = cluster_reaches(points, labels, weights=weights)
    numbers = np.asarray(labels, dtype=np.int64)
    mass = as_weights(weights, numbers.size)
    return reaches, np.bincount(numbers[numbers >= 0], weights=mass[numbers >= 0]).astype(np.float64)


def chain_masses(
    points: ArrayLike, labels: ArrayLike, threshold: float, *, weights: ArrayLike | None = None
) -> FloatArray:
    """Return the masses of the chains of a frame, the heaviest first: components that reach farther than 3 thresholds.

    A string of particles, each near to the next, is one chain: its number means something where chains are far apart.
    points: (N, d), or (N,) on a line; labels: (N,), those of `cluster_labels` at the threshold; weights: (N,).
    """
    reaches, masses = _reaches_and_masses(points, labels, weights)
    found = masses[reaches > CHAIN_REACH * as_positive(threshold, "threshold", zero=True)]
    return np.sort(found)[::-1]


def counted_frames(separated: ArrayLike) -> NDArray[np.bool_]:
    """Tell which frames have a number of clusters: those before the first and after the last one not separated.

    separated: (T,), whether each frame is separated.
    """
    found = np.array(separated, dtype=bool)
    chains = np.flatnonzero(~found)
    if chains.size:
        found[chains[0] : chains[-1] + 1] = False
    return found


def known_counts(components: ArrayLike, separated: ArrayLike) -> FloatArray:
    """Return the number of clusters in every frame, NaN where they are not separated.

    components: (T,), the number of connected components; separated: (T,), whether each frame is separated.
    """
    return np.where(counted_frames(separated), np.asarray(components, dtype=np.float64), np.nan)


def spans_without_count(
    times: ArrayLike, counts: ArrayLike, changes: ChangeTimes = BETWEEN_FRAMES
) -> list[tuple[float, float]]:
    """Return the stretches of time without a number of clusters, each from the middle to the middle of two saved times.

    times, counts: (T,), NaN where clusters are not separated; changes: see `bracket_of`.
    """
    missing = np.isnan(np.asarray(counts, dtype=np.float64)).astype(np.int8)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], missing, [0]]))).reshape(-1, 2)
    middle = [[bracket_of(times, frame, changes).middle for frame in ends] for ends in edges.tolist()]
    return [(first, after) for first, after in middle]


def plain_count(count: Any) -> int | None:
    """Return a number of clusters as an integer, None where it is not known."""
    return None if count is None or np.isnan(count) else int(count)
