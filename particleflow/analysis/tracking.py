"""Clusters through time: labels that stay with a cluster from frame to frame, and the merge tree of the run.

A cluster of one frame is the heir of a cluster of the frame before when it holds the largest part of its mass. A
cluster with one such ancestor takes its label; with several, they have merged, and the label of the survivor of the
merges stays (see `merge_tree`); with none, it split off and gets a new label.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from particleflow.analysis.clusters import Threshold, choose_threshold, label_active
from particleflow.analysis.frames import FloatArray, IntArray, Progress, is_log_spaced, iterate, single_run
from particleflow.analysis.merge_tree import Birth, Contact, Merge, MergeTree, first_contacts
from particleflow.errors import ArgumentError

if TYPE_CHECKING:
    from particleflow.trajectory import Trajectory


@dataclass(frozen=True)
class ClusterTrack:
    """The clusters of a run at one threshold.

    labels: (T, N), consistent through time, −1 for particles of no weight; counts, largest_mass and effective_count:
    (T,), the number of clusters, the mass of the heaviest one, and 1 / Σ m_c²; tree: the merge tree.
    """

    threshold: Threshold
    interpolation: str
    times: FloatArray
    labels: NDArray[np.int32]
    counts: IntArray
    largest_mass: FloatArray
    effective_count: FloatArray
    tree: MergeTree


def track_clusters(
    trajectory: "Trajectory",
    threshold: float | None = None,
    *,
    interpolation: str = "auto",
    progress: Progress | None = None,
) -> ClusterTrack:
    """Follow the clusters of a run through time, frame by frame.

    threshold: the linking distance (chordal on the sphere), by default that of `choose_threshold`.
    interpolation: "linear" or "log" in time for merge times; "auto" takes "log" for log-spaced frames.
    """
    trajectory = single_run(trajectory)
    if interpolation not in ("auto", "linear", "log"):
        raise ArgumentError(f'Argument `interpolation` must be "auto", "linear" or "log", but is {interpolation!r}.')
    times = np.asarray(trajectory.times, dtype=np.float64)
    if interpolation == "auto":
        interpolation = "log" if is_log_spaced(times) else "linear"
    chosen = choose_threshold(trajectory, threshold)
    tracker = _Tracker(chosen.value, np.asarray(trajectory.weights, dtype=np.float64), times, interpolation)
    frames = len(trajectory)
    labels = np.empty((frames, trajectory.count), dtype=np.int32)
    counts, largest, effective = np.empty(frames, dtype=np.int64), np.empty(frames), np.empty(frames)
    for index, points in iterate(trajectory, progress):
        labels[index] = tracker.advance(index, points)
        counts[index] = tracker.masses.size
        largest[index] = tracker.masses.max()
        effective[index] = 1.0 / np.square(tracker.masses).sum()
    tree = MergeTree(chosen.value, tracker.births, tracker.merges, tracker.resolution)
    return ClusterTrack(chosen, interpolation, times, labels, counts, largest, effective, tree)


class _Tracker:
    """The state between two frames: every particle's component, every component's label, mass and size."""

    def __init__(self, threshold: float, weights: FloatArray, times: FloatArray, interpolation: str):
        self.threshold, self.weights, self.times, self.interpolation = threshold, weights, times, interpolation
        self.active = weights > 0
        self.births: list[Birth] = []
        self.merges: list[Merge] = []
        self.resolution = 0.0
        self.points = np.empty((0, 0))
        self.component = np.empty(0, dtype=np.int64)
        self.names = np.empty(0, dtype=np.int64)
        self.masses = np.empty(0)
        self.sizes = np.empty(0, dtype=np.int64)

    def advance(self, index: int, points: FloatArray) -> IntArray:
        """Take one more frame and return the labels of its particles."""
        points = points[self.active]
        weights = self.weights[self.active]
        component = label_active(points, np.ones(points.shape[0], dtype=bool), self.threshold)
        masses = np.bincount(component, weights=weights).astype(np.float64)
        sizes = np.bincount(component)
        if index == 0:
            names = self._first_names(masses, sizes)
        else:
            names = self._next_names(index, points, component, masses, sizes)
        self.points, self.component, self.names, self.masses, self.sizes = points, component, names, masses, sizes
        labels = np.full(self.active.size, -1, dtype=np.int64)
        labels[self.active] = names[component]
        return labels

    def _first_names(self, masses: FloatArray, sizes: IntArray) -> IntArray:
        order = np.argsort(-masses, kind="stable")
        names = np.empty(masses.size, dtype=np.int64)
        names[order] = np.arange(masses.size)
        time = float(self.times[0])
        for label, cluster in enumerate(order):
            self.births.append(Birth(label, 0, time, -1, float(masses[cluster]), int(sizes[cluster])))
        return names

    def _next_names(
        self, index: int, points: FloatArray, component: IntArray, masses: FloatArray, sizes: IntArray
    ) -> IntArray:
        heir, origin = _match(self.component, component, self.weights[self.active])
        families = np.bincount(heir, minlength=masses.size)
        names = np.full(masses.size, -1, dtype=np.int64)
        names[heir] = self.names  # right for every cluster with one ancestor; merged ones follow
        if (families > 1).any():
            names = self._merge(index, points, component, heir, families, names)
        for cluster in np.flatnonzero(families == 0):
            names[cluster] = len(self.births)
            parent = int(self.names[origin[cluster]])
            birth = Birth(len(self.births), index, float(self.times[index]), parent, 0.0, int(sizes[cluster]))
            self.births.append(birth._replace(mass=float(masses[cluster])))
        return names

    def _merge(
        self, index: int, points: FloatArray, component: IntArray, heir: IntArray, families: IntArray, names: IntArray
    ) -> IntArray:
        """Record the merges of one interval in time order and name the clusters that come out of them."""
        merging = np.flatnonzero(families[heir] > 1)  # clusters of the frame before
        order = merging[np.lexsort((self.names[merging], -self.masses[merging], heir[merging]))]
        heaviest = np.full(families.size, -1, dtype=np.int64)
        first = np.ones(order.size, dtype=bool)
        first[1:] = np.diff(heir[order]) != 0
        heaviest[heir[order[first]]] = order[first]
        involved = (heir[self.component] == component) & (families[component] > 1)
        contacts, resolution = first_contacts(
            self.points[involved],
            points[involved],
            self.component[involved],
            heaviest[component[involved]],
            self.threshold,
        )
        self.resolution = max(self.resolution, resolution)
        # What no recorded touch joins is connected through particles that came from elsewhere: the end of the interval.
        late = [Contact(1.0, int(heaviest[heir[p]]), int(p)) for p in order[~first]]
        survivor = self._record(index, [*contacts, *late])
        for cluster in np.flatnonzero(families > 1):
            names[cluster] = self.names[survivor[int(heaviest[cluster])]]
        return names

    def _record(self, index: int, contacts: list[Contact]) -> dict[int, int]:
        """Apply touches in time order; return, for every cluster named in them, the one that carries its label on."""
        touched = {p for contact in contacts for p in (contact.first, contact.second)}
        leader, group = {p: p for p in touched}, {p: [p] for p in touched}
        mass, size = {p: float(self.masses[p]) for p in touched}, {p: int(self.sizes[p]) for p in touched}
        for contact in contacts:
            pair = {leader[contact.first], leader[contact.second]}
            if len(pair) == 1:
                continue
            keep, lose = sorted(pair, key=lambda p: (-mass[p], self.names[p]))
            time = self._interpolate(index, contact.fraction)
            absorbed_mass = mass[lose]
            mass[keep] += mass[lose]
            size[keep] += size[lose]
            names = int(self.names[keep]), int(self.names[lose])
            self.merges.append(Merge(time, index, *names, mass[keep], size[keep], absorbed_mass))
            leader |= dict.fromkeys(group[lose], keep)
            group[keep] += group.pop(lose)
        return leader

    def _interpolate(self, index: int, fraction: float) -> float:
        start, end = float(self.times[index - 1]), float(self.times[index])
        if self.interpolation == "log" and start > 0:
            return float(start * (end / start) ** fraction)
        return start + (end - start) * fraction


def _match(before: IntArray, after: IntArray, weights: FloatArray) -> tuple[IntArray, IntArray]:
    """Return, by largest shared mass, the heir of every cluster before and the origin of every cluster after."""
    clusters = int(after.max()) + 1
    key, inverse = np.unique(before * clusters + after, return_inverse=True)
    shared = np.bincount(inverse, weights=weights)
    old, new = key // clusters, key % clusters
    heir = np.empty(int(before.max()) + 1, dtype=np.int64)
    origin = np.empty(clusters, dtype=np.int64)
    # Assignment keeps the last of repeated indices, so the largest share must come last.
    order = np.lexsort((-new, shared))
    heir[old[order]] = new[order]
    order = np.lexsort((-old, shared))
    origin[new[order]] = old[order]
    return heir, origin
