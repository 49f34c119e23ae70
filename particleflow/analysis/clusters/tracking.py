"""Clusters through time: labels that stay with a cluster from frame to frame, and the merge tree of the run.

Let C be the clusters of one frame, C' those of the next, and m(c, c') = Σ_{i ∈ c ∩ c'} w_i the mass they share:

    heir of c     = argmax over c' ∈ C' of m(c, c')        where most of a cluster's mass goes
    origin of c'  = argmax over c ∈ C of m(c, c')          where most of a cluster's mass comes from

A cluster that is heir to one takes its label; one that is heir to several comes from a merge, and the label of the
survivor of the merges stays (see `merge_tree`); one that is heir to none has split off from its origin and gets a new
label. Only mass counts, so a particle split in two at one place changes no label and no merge; particles of weight zero
belong to no cluster.

A run whose first frame is a dense cloud, not separated (see `separation`), has no clusters until it is separated for
good: labels, births and merges begin in the frame after the last one that is not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from particleflow._support.single_linkage import distinct
from particleflow._support.text import plural
from particleflow.analysis.clusters.brackets import BETWEEN_FRAMES, Bracket, ChangeTimes, bracket_after, bracket_of
from particleflow.analysis.clusters.clusters import (
    EVENT_SLACK,
    Threshold,
    choose_threshold,
    cluster_masses,
    label_active,
    linked_points,
)
from particleflow.analysis.clusters.merge_tree import Birth, Contact, Merge, MergeTree, first_contacts
from particleflow.analysis.clusters.separation import (
    NOT_SEPARATED,
    is_separated,
    known_counts,
    plain_count,
    spans_without_count,
)
from particleflow.analysis.reading import (
    FloatArray,
    IntArray,
    Progress,
    fixed_weights,
    iterate,
    single_run,
)
from particleflow.trajectory.status import Status

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory


_IN_MEMORY = 64 * 2**20  # bytes of labels
_ARRAYS = ("times", "labels", "components", "counts", "largest_mass", "effective_count")


@dataclass(frozen=True, repr=False)
class ClusterTrack:
    """The clusters of a run at one threshold.

    labels: (T, N), consistent through time, −1 for particles of no weight and in a dense start (of large runs in a
    temporary file, read as it is used); components: (T,), the number of connected components; counts, largest_mass and
    effective_count: (T,), the number of clusters, the mass max_c m_c of the heaviest one, and 1 / Σ_c m_c², NaN where
    clusters are not separated; tree: the merge tree; changes: what is known of the times at which the count changes.
    """

    threshold: Threshold
    times: FloatArray
    labels: NDArray[np.int32]
    components: IntArray
    counts: FloatArray
    largest_mass: FloatArray
    effective_count: FloatArray
    tree: MergeTree
    changes: ChangeTimes = BETWEEN_FRAMES

    def arrays(self) -> dict[str, NDArray]:
        """The track as arrays of numbers and text, from which `from_arrays` makes it again."""
        named = {name: getattr(self, name) for name in _ARRAYS}
        births = np.asarray(self.tree.births, dtype=np.float64).reshape(-1, len(Birth._fields))
        merges = [(*merge.between, *merge[1:]) for merge in self.tree.merges]
        numbers = np.array([self.threshold.value, self.tree.threshold, self.tree.resolution, *self.changes])
        words = np.array([self.threshold.metric, self.threshold.reason])
        rows = np.asarray(merges, dtype=np.float64).reshape(-1, len(Merge._fields) + 1)
        return {**named, "births": births, "merges": rows, "numbers": numbers, "words": words}

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray]) -> "ClusterTrack":
        """Make the track again from its `arrays`, as received from another process."""
        value, linking, resolution, whole, exact = arrays["numbers"].tolist()
        metric, reason = arrays["words"].tolist()
        births = [
            Birth(int(label), int(frame), time, int(parent), mass, int(size))
            for label, frame, time, parent, mass, size in arrays["births"].tolist()
        ]
        merges = [
            Merge(Bracket(before, after), int(frame), int(survivor), int(absorbed), mass, int(size), lost)
            for before, after, frame, survivor, absorbed, mass, size, lost in arrays["merges"].tolist()
        ]
        changes = ChangeTimes(bool(whole), bool(exact))
        spans = tuple(spans_without_count(arrays["times"], arrays["counts"], changes))
        tree = MergeTree(linking, births, merges, resolution, spans)
        named = {name: arrays[name] for name in _ARRAYS}
        return ClusterTrack(Threshold(value, metric, reason), tree=tree, changes=changes, **named)

    def __repr__(self) -> str:
        """A card of five lines: how many clusters there were, when they merged, and how unequal the last ones are."""
        frames, particles = self.labels.shape
        last = (
            f"{self.largest_mass[-1]:.1%} of the mass in the heaviest, effective number {self.effective_count[-1]:.3g}"
            if np.isfinite(self.counts[-1])
            else NOT_SEPARATED
        )
        size = f"{plural(particles, 'particle')} over {plural(frames, 'frame')}"
        lines = [
            f"ClusterTrack of {size}, t = {self.times[0]:g} to {self.times[-1]:g}",
            f"  clusters   {self._counted()}",
            f"  at the end {last}",
            f"  merges     {self.tree.span()}",
            f"  threshold  {self.threshold.value:.4g} ({self.threshold.metric})",
        ]
        return "\n".join(lines)

    def _counted(self) -> str:
        """The first and the last number of clusters, and since when it is the last one."""
        first, last = (plain_count(self.counts[place]) for place in (0, -1))
        begin = NOT_SEPARATED if first is None else first
        if last is None:
            since = bracket_after(self.times, np.isfinite(self.counts), self.changes)
            return f"{begin} → {NOT_SEPARATED} since t = {since}"
        since = bracket_after(self.times, self.counts != last, self.changes)
        return f"{begin} → {last}, unchanged since t = {since}"


def track_clusters(
    trajectory: "Trajectory",
    threshold: float | None = None,
    *,
    progress: Progress | None = None,
) -> ClusterTrack:
    """Follow the clusters of a run through time, frame by frame.

    threshold: the linking distance (chordal on the sphere), by default that of `choose_threshold`.
    """
    trajectory = single_run(trajectory)
    times = np.asarray(trajectory.times, dtype=np.float64)
    weights = fixed_weights(trajectory)
    chosen = choose_threshold(trajectory, threshold)
    changes = ChangeTimes(trajectory.facts.time_unit is not None, _ends_at_a_merge(trajectory, chosen.value))
    tracker = _Tracker(chosen.value, weights, times, changes)
    frames = len(trajectory)
    labels = _empty_labels(frames, trajectory.count)
    components, separated = np.empty(frames, dtype=np.int64), np.empty(frames, dtype=bool)
    largest, effective = np.empty(frames), np.empty(frames)
    for index, points in iterate(trajectory, progress):
        linked = linked_points(trajectory, points)
        found = label_active(linked, tracker.active, chosen.value)
        separated[index] = is_separated(linked, found, chosen.value, weights=weights)
        if separated[0] or separated[index]:
            labels[index] = tracker.advance(index, linked, found)
        else:
            tracker.restart()
        masses = cluster_masses(found, weights)
        components[index], largest[index] = masses.size, masses.max()
        effective[index] = 1.0 / np.square(masses).sum()
    if not separated[0]:
        labels[: np.flatnonzero(~separated)[-1] + 1] = -1
    counts = known_counts(components, separated)
    last_alone = frames > 1 and int(components[-2] - components[-1]) == 1  # of several merges, others came before it
    changes = changes._replace(exact_end=changes.exact_end and last_alone)
    known = np.isfinite(counts)
    largest, effective = np.where(known, largest, np.nan), np.where(known, effective, np.nan)
    spans = tuple(spans_without_count(times, counts, changes))
    tree = MergeTree(chosen.value, tracker.births, tracker.merges, tracker.resolution, spans)
    return ClusterTrack(chosen, times, labels, components, counts, largest, effective, tree, changes)


def _ends_at_a_merge(trajectory: "Trajectory", threshold: float) -> bool:
    """Whether the last frame is the very moment of a merge at this threshold: the event that ended the run."""
    statistics = trajectory.metadata.get("statistics")
    end = statistics.get("end time") if isinstance(statistics, Mapping) else None
    stopped = trajectory.status == Status.STOPPED and trajectory.facts.event == "merged"
    distance = trajectory.facts.linking_distance or 0.0  # of the event; the threshold leaves room for its tolerance
    same = abs(threshold - distance) <= 2 * EVENT_SLACK * distance
    return stopped and same and end == float(trajectory.times[-1])


def _empty_labels(frames: int, count: int) -> NDArray[np.int32]:
    """An array (T, N): beyond 64 MB in a temporary file, of which only the frames in use are in memory.

    The file has no name where the system allows that, and is deleted with the array.
    """
    if 4 * frames * count <= _IN_MEMORY:
        return np.empty((frames, count), dtype=np.int32)
    from tempfile import TemporaryFile

    with TemporaryFile() as file:
        return np.asarray(np.memmap(file, dtype=np.int32, mode="w+", shape=(frames, count)))


class _Tracker:
    """The state between two frames: every particle's component, every component's label, mass and size."""

    def __init__(self, threshold: float, weights: FloatArray, times: FloatArray, changes: ChangeTimes):
        """Begin before the first frame, without clusters."""
        self.threshold, self.weights, self.times, self.changes = threshold, weights, times, changes
        self.active = weights > 0
        self.restart()

    def restart(self) -> None:
        """Forget all clusters so far; the next frame is the first one."""
        self.births: list[Birth] = []
        self.merges: list[Merge] = []
        self.resolution = 0.0
        self.points = np.empty((0, 0))
        self.component = np.empty(0, dtype=np.int64)
        self.names = np.empty(0, dtype=np.int64)
        self.masses = np.empty(0)
        self.sizes = np.empty(0, dtype=np.int64)

    def advance(self, index: int, points: FloatArray, found: IntArray) -> IntArray:
        """Take one more frame and return the labels of its particles.

        points: (N, d); found: (N,), the clusters of the particles with mass at the threshold, −1 for the others.
        """
        points, component = points[self.active], found[self.active]
        weights = self.weights[self.active]
        masses = np.bincount(component, weights=weights).astype(np.float64)
        sizes = np.bincount(component)
        if not self.births:
            names = self._first_names(index, masses, sizes)
        else:
            names = self._next_names(index, points, component, masses, sizes)
        self.points, self.component, self.names, self.masses, self.sizes = points, component, names, masses, sizes
        labels = np.full(self.active.size, -1, dtype=np.int64)
        labels[self.active] = names[component]
        return labels

    def _first_names(self, index: int, masses: FloatArray, sizes: IntArray) -> IntArray:
        """Name the clusters of the first frame 0, 1, … from the heaviest on; equal masses by their first particle."""
        order = np.argsort(-masses, kind="stable")
        names = np.empty(masses.size, dtype=np.int64)
        names[order] = np.arange(masses.size)
        time = float(self.times[index])
        for label, cluster in enumerate(order):
            self.births.append(Birth(label, index, time, -1, float(masses[cluster]), int(sizes[cluster])))
        return names

    def _next_names(
        self, index: int, points: FloatArray, component: IntArray, masses: FloatArray, sizes: IntArray
    ) -> IntArray:
        """Name the clusters of a frame after those of the frame before: inherit, merge, or split off."""
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
        """Record the merges of one interval in time order and name the clusters that come out of them.

        Only particles that move with their cluster into its heir can touch; clusters that are joined by particles from
        other clusters merge at the end of the interval.
        """
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
        """Apply touches in time order; return, for every cluster named in them, the one that carries its label on.

        At each touch the two groups become one of mass m_a + m_b, under the label of the heavier; of equal masses the
        older, that is the smaller, label stays. A touch inside a group changes nothing.
        """
        between = bracket_of(self.times, index, self.changes._replace(exact_end=False))
        touched = {p for contact in contacts for p in (contact.first, contact.second)}
        leader, group = {p: p for p in touched}, {p: [p] for p in touched}
        mass, size = {p: float(self.masses[p]) for p in touched}, {p: int(self.sizes[p]) for p in touched}
        for contact in contacts:
            pair = {leader[contact.first], leader[contact.second]}
            if len(pair) == 1:
                continue
            keep, lose = sorted(pair, key=lambda p: (-mass[p], self.names[p]))
            absorbed_mass = mass[lose]
            mass[keep] += mass[lose]
            size[keep] += size[lose]
            names = int(self.names[keep]), int(self.names[lose])
            self.merges.append(Merge(between, index, *names, mass[keep], size[keep], absorbed_mass))
            leader |= dict.fromkeys(group[lose], keep)
            group[keep] += group.pop(lose)
        if self.changes.exact_end and index == self.times.size - 1 and self.merges:
            self.merges[-1] = self.merges[-1]._replace(between=Bracket(between.after, between.after))
        return leader


def _match(before: IntArray, after: IntArray, weights: FloatArray) -> tuple[IntArray, IntArray]:
    """Return, by largest shared mass m(c, c') = Σ_{i ∈ c ∩ c'} w_i, every cluster's heir and every cluster's origin.

    before, after: (n,) the cluster of each particle in two frames, all with mass. Of equal shares the cluster with the
    smaller number, the one whose first particle comes first, is taken.
    """
    clusters = int(after.max()) + 1
    pair = before * clusters + after
    number = distinct(pair)
    key = np.empty(int(number.max()) + 1, dtype=np.int64)
    key[number] = pair
    shared = np.bincount(number, weights=weights)
    old, new = key // clusters, key % clusters
    heir = np.empty(int(before.max()) + 1, dtype=np.int64)
    origin = np.empty(clusters, dtype=np.int64)
    # Assignment keeps the last of repeated indices, so the largest share must come last.
    order = np.lexsort((-new, shared))
    heir[old[order]] = new[order]
    order = np.lexsort((-old, shared))
    origin[new[order]] = old[order]
    return heir, origin
