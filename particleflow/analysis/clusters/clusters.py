"""Clusters at a threshold: which particles belong together, and how many groups there are, frame by frame.

A cluster is a connected component of the graph that links particles at distance at most r (single linkage cut at r).
Distances are straight lines in the stored coordinates: on the sphere they are **chordal**, |x − y|, never angles;
`chordal_from_inner` and `chordal_from_angle` turn other thresholds into chordal ones. Hidden states of a transformer
are compared by their directions x/|x|, on the unit sphere: their lengths are what its norms take away. Particles of
zero weight belong to no cluster: their label is −1. Components are counted only where they are clusters and not chains
(see `separation`).
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from particleflow._support.single_linkage import components
from particleflow.analysis.clusters.separation import is_separated, known_counts
from particleflow.analysis.reading import (
    FloatArray,
    IntArray,
    Progress,
    as_points,
    as_positive,
    as_weights,
    fixed_weights,
    frame_points,
    frame_weights,
    is_spherical,
    iterate,
    single_run,
    sphere_radius,
    with_mass,
)
from particleflow.errors import ArgumentError

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

DEFAULT_INNER = 0.999
NETWORK_INNER = 0.9  # cosine of two words that count as one: copies of a word reach it, different words seldom do
# A run stops where a distance is met up to rounding and the tolerance of root finding; its last merge counts as one.
EVENT_SLACK = 1e-5


GIVEN = "given"  # the reason of a threshold that the user has chosen


class Threshold(NamedTuple):
    """A linking distance, the metric it is measured in, and where it comes from."""

    value: float
    metric: str
    reason: str


def chordal_from_inner(inner: float, radius: float = 1.0) -> float:
    """Return the chord between two points of a sphere whose normalised inner product is given.

    |x − y| = R √(2 (1 − c)), c = ⟨x, y⟩ / R². Linking at ⟨x, y⟩ ≥ 0.999 on the unit sphere is linking at 0.0447.

    inner: c, between −1 and 1; radius: R.
    """
    if not -1.0 <= inner <= 1.0:
        raise ArgumentError(f"Argument `inner` must lie between -1 and 1, but is {inner}.")
    return as_positive(radius, "radius") * float(np.sqrt(2.0 * (1.0 - inner)))


def inner_from_chordal(chord: float, radius: float = 1.0) -> float:
    """Return the normalised inner product of two points of a sphere at a chordal distance: c = 1 − (|x−y|/R)²/2.

    chord: |x − y|, at most 2R; radius: R.
    """
    scaled = as_positive(chord, "chord", zero=True) / as_positive(radius, "radius")
    if scaled > 2.0:
        raise ArgumentError(f"Argument `chord` must be at most the diameter {2 * radius}, but is {chord}.")
    return 1.0 - 0.5 * scaled * scaled


def chordal_from_angle(angle: float, radius: float = 1.0) -> float:
    """Return the chord that spans an angle in radians: |x − y| = 2 R sin(angle / 2).

    angle: between 0 and π; radius: R.
    """
    if not 0.0 <= angle <= np.pi:
        raise ArgumentError(f"Argument `angle` must lie between 0 and pi, but is {angle}.")
    return 2.0 * as_positive(radius, "radius") * float(np.sin(0.5 * angle))


def counts_directions(trajectory: "Trajectory") -> bool:
    """Whether the clusters of a run are those of directions: the layers of a network move points in flat space.

    A run whose event has a distance of its own is counted in the coordinates in which the event is.
    """
    facts = trajectory.facts
    return facts.is_network and facts.space.kind == "flat" and facts.linking_distance is None


def unit_directions(points: FloatArray) -> FloatArray:
    """x/|x| of points (..., d); a point at the origin stays there."""
    lengths = np.linalg.norm(points, axis=-1, keepdims=True)
    return points / np.where(lengths > 0, lengths, 1.0)


def linked_points(trajectory: "Trajectory", points: FloatArray) -> FloatArray:
    """Points (..., d) of a run as clusters are found among them: their directions, for a network, else as they are."""
    return unit_directions(points) if counts_directions(trajectory) else points


def choose_threshold(trajectory: "Trajectory", threshold: float | None = None) -> Threshold:
    """Return the linking distance to use, with the reason for it; a number that is given is taken as it is.

    A run with an event at a distance of its own (clustered, merged) is counted at that distance, so that both agree.
    The default elsewhere, on a sphere of radius R, links ⟨x, y⟩ ≥ 0.999 R², the level at which the published phase
    diagrams call two tokens equal: chordal R √0.002 = 0.0447 R. R is what the run says (`Trajectory.facts`), or the
    root-mean-square norm of the first frame. In flat space R is the root-mean-square distance to the mean in
    the first frame, R² = Σ_i w_i |x_i − Σ_j w_j x_j|²: a fixed length for the run, which scales with the data. For the
    hidden states of a network it is between directions, which are linked at a cosine of 0.9, chordal √0.2 = 0.447: at
    0.999 no two words of a trained network ever become one.

    trajectory: one run, or an ensemble whose runs share a radius; threshold: a linking distance that is given.
    """
    metric = "chordal" if is_spherical(trajectory) else "euclidean"
    metric = "directional" if counts_directions(trajectory) else metric
    if threshold is not None:
        return Threshold(as_positive(threshold, "threshold", zero=True), metric, GIVEN)
    distance = trajectory.facts.linking_distance
    if distance is not None:
        return Threshold(distance * (1 + EVENT_SLACK), metric, f"the distance {distance:g} of the run's event")
    if counts_directions(trajectory):
        return Threshold(chordal_from_inner(NETWORK_INNER), metric, f"cosine {NETWORK_INNER} of two hidden states")
    if metric == "chordal":
        radius, stated = sphere_radius(trajectory)
        where = "" if stated else ", measured in the first frame"
        reason = f"inner product {DEFAULT_INNER} of unit vectors on a sphere of radius {radius:g}{where}"
    else:
        radius = _root_mean_square(single_run(trajectory))
        reason = f"sqrt(0.002) times the root-mean-square radius {radius:.6g} of the first frame"
    return Threshold(chordal_from_inner(DEFAULT_INNER, radius if radius > 0 else 1.0), metric, reason)


def _root_mean_square(trajectory: "Trajectory") -> float:
    """Return the root-mean-square distance to the mean in the first frame, √(Σ_i w_i |x_i − x̄|²)."""
    points, weights = with_mass(frame_points(trajectory, 0), frame_weights(trajectory, 0))
    return float(np.sqrt(weights @ np.square(points - weights @ points).sum(axis=1)))


def label_active(points: FloatArray, active: "np.ndarray", threshold: float) -> IntArray:
    """Label clusters among the active particles; the others get −1."""
    if active.all():
        return components(points, threshold)
    labels = np.full(points.shape[0], -1, dtype=np.int64)
    labels[active] = components(points[active], threshold)
    return labels


def cluster_labels(points: ArrayLike, threshold: float, *, weights: ArrayLike | None = None) -> IntArray:
    """Label the clusters of one cloud at distance ≤ threshold: 0, 1, … in the order of their first particle.

    points: (N, d), or (N,) on a line. weights: (N,); particles of weight zero get the label −1.
    """
    array = as_points(points)
    active = as_weights(weights, array.shape[0]) > 0
    return label_active(array, active, as_positive(threshold, "threshold", zero=True))


def cluster_count(points: ArrayLike, threshold: float, *, weights: ArrayLike | None = None) -> int | None:
    """Return the number of clusters of one cloud at distance ≤ threshold; None where they are not separated.

    points: (N, d), or (N,) on a line; threshold: r; weights: (N,), particles of weight zero are not counted.
    """
    labels = cluster_labels(points, threshold, weights=weights)
    return int(labels.max()) + 1 if is_separated(points, labels, threshold, weights=weights) else None


def cluster_masses(labels: ArrayLike, weights: ArrayLike | None = None) -> FloatArray:
    """Return the mass of every cluster, m_c = Σ_{i in c} w_i, at the place of its label; the label −1 is left out.

    labels: (N,), as of `cluster_labels`; weights: (N,), equal if left out.
    """
    array = np.asarray(labels, dtype=np.int64)
    mass = as_weights(weights, array.size)
    return np.bincount(array[array >= 0], weights=mass[array >= 0]).astype(np.float64)


def effective_count(masses: ArrayLike) -> float:
    """Return the effective number of clusters (Σ_c m_c)² / Σ_c m_c²: k for k equal ones; stragglers barely count.

    masses: (k,) of the clusters, in any unit.
    """
    array = np.asarray(masses, dtype=np.float64)
    return float(array.sum() ** 2 / np.square(array).sum())


def cluster_counts(
    trajectory: "Trajectory", threshold: float | None = None, *, progress: Progress | None = None
) -> FloatArray:
    """Return the number of clusters in every frame, shape (T,); NaN from the first frame not separated to the last.

    threshold: the linking distance (chordal on the sphere); without it, that of `choose_threshold`.
    """
    trajectory = single_run(trajectory)
    weights = fixed_weights(trajectory)
    chosen = choose_threshold(trajectory, threshold).value
    numbers, separated = np.zeros(len(trajectory), dtype=np.int64), np.zeros(len(trajectory), dtype=bool)
    for index, points in iterate(trajectory, progress):
        linked = linked_points(trajectory, points)
        labels = label_active(linked, weights > 0, chosen)
        numbers[index] = labels.max() + 1
        separated[index] = is_separated(linked, labels, chosen, weights=weights)
    return known_counts(numbers, separated)
