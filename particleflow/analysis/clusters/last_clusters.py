"""The final clusters of a run: a few tight clusters in a late frame, by which its particles are coloured."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.clusters.clusters import choose_threshold, label_active, linked_points
from particleflow.analysis.clusters.separation import is_separated
from particleflow.analysis.reading import FloatArray, IntArray, frame_weights, masses_of, select_frames
from particleflow.analysis.run_character import character_of
from particleflow.analysis.samples import stored_points

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

MOST_CLUSTERS = 12
MOSTLY_ONE = 0.7  # chance that two particles are of one cluster, above which an earlier frame is searched for
_LEAST_MASS = 0.01  # of a cluster of its own
_FRAMES = 48  # searched at most, from the last one backwards


@dataclass(frozen=True)
class LastClusters:
    """The frame the clusters were found in, each particle's cluster (N,), numbered from 0, and their centres (k, d)."""

    frame: int
    labels: IntArray
    centres: FloatArray


def last_clusters(run: "Trajectory") -> LastClusters | None:
    """The last frame of one run that has 2 to 12 tight clusters; None without one, or if particles are kept apart.

    Before the last frame no cluster may dominate: Σ_c m_c² ≤ 0.7, the chance that two particles are of one cluster.
    Clusters of less than 1 % of the mass count only far from others; else their particles go with the nearest other
    one. A density has none.
    """
    if masses_of(run) is not None or not character_of(run).gathers or not np.isfinite(stored_points(run, 0)).all():
        return None
    threshold = choose_threshold(run).value
    for frame in select_frames(len(run), _FRAMES)[::-1].tolist():
        points, weights = linked_points(run, stored_points(run, frame)), frame_weights(run, frame)
        found = _tight_clusters(points, weights, threshold) if np.isfinite(points).all() else None
        if found is None:
            continue
        labels, centres = found
        alike = np.square(np.bincount(labels, weights)).sum()
        if len(centres) > 1 and (alike <= MOSTLY_ONE or frame == len(run) - 1):
            return LastClusters(frame, labels, centres) if len(centres) <= MOST_CLUSTERS else None
    return None


def frame_clusters(run: "Trajectory", frame: int) -> IntArray:
    """The clusters of one frame at the run's own threshold, (N,); −1 for particles without mass."""
    points = linked_points(run, np.nan_to_num(stored_points(run, frame)))
    return label_active(points, frame_weights(run, frame) > 0, choose_threshold(run).value)


def _tight_clusters(points: FloatArray, weights: FloatArray, threshold: float) -> tuple[IntArray, FloatArray] | None:
    """Every particle's cluster (N,) and the centres (k, d) of those that count; None if they are not separated."""
    labels = label_active(points, weights > 0, threshold)
    if not is_separated(points, labels, threshold, weights=weights):
        return None
    active = labels >= 0
    mass = np.bincount(labels[active], weights[active])
    heavy = np.flatnonzero(mass >= _LEAST_MASS)
    if mass[heavy].sum() < 0.9:
        return None
    sums = [np.bincount(labels[active], weights[active] * column[active]) for column in points.T]
    middles = np.stack(sums, axis=-1) / mass[:, None]
    heavy = _heavy_or_far(mass, middles, heavy)
    centres = middles[heavy]
    number = np.full(len(mass) + 1, -1)
    number[heavy] = np.arange(len(heavy))
    own = number[labels]
    inside = own >= 0
    own[~inside] = np.linalg.norm(points[~inside, None] - centres[None], axis=-1).argmin(axis=1)
    return own, centres


def _heavy_or_far(mass: Any, middles: FloatArray, heavy: IntArray) -> IntArray:
    """The heavy clusters; if there are few in all, also light ones farther from them than half their least distance."""
    if not 1 < len(heavy) < len(mass) <= MOST_CLUSTERS:
        return heavy
    away = np.linalg.norm(middles[:, None] - middles[heavy], axis=-1)
    gap = np.min(away[heavy] + np.where(np.eye(len(heavy)), np.inf, 0.0))
    return np.flatnonzero((mass >= _LEAST_MASS) | (away.min(axis=1) > gap / 2))
