"""The merge tree of a run: which cluster was absorbed by which, and when.

Two clusters merge when their closest particles come within the threshold r. Frames tell between which two of them that
happened (see `brackets`), and no more. Several merges between two frames are put in order by taking the distance of a
pair of particles as linear in time: the pair that is at D₀ > r in one frame and at D₁ ≤ r in the next touches at the
fraction (D₀ − r) / (D₀ − D₁) of the interval, and clusters merge at their first touch. The heavier cluster keeps its
label (equal masses: the older label).

The first touches that join several clusters within one interval are the minimum spanning forest of the graph whose
nodes are the clusters and whose edge lengths are their touching times: an edge that closes a cycle joins nothing new.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from particleflow._support.single_linkage import cell_numbers, distinct, squared_norms
from particleflow._support.text import plural
from particleflow.analysis.clusters.brackets import Bracket
from particleflow.analysis.clusters.spanning_tree import spanning_tree_edges
from particleflow.analysis.reading import FloatArray, IntArray
from particleflow.errors import ArgumentError

_CONTACTS_LIMIT = 2_000_000  # pairs within the threshold that are listed
_FEW = 64  # particles that are compared with all others without a k-d tree
_COARSEST = 1.0 / 16.0  # of the threshold: the largest cell that particles are thinned to


class Merge(NamedTuple):
    """One merge: `between` the frame before and `frame`, `absorbed` became part of `survivor`.

    `mass` and `size` (number of particles) are those of the two together, `absorbed_mass` that of the absorbed one.
    """

    between: Bracket
    frame: int
    survivor: int
    absorbed: int
    mass: float
    size: int
    absorbed_mass: float

    @property
    def time(self) -> float:
        """The middle of the bracket."""
        return self.between.middle

    def to_dict(self) -> dict[str, Any]:
        """Return the merge as a table for JSON."""
        return self.between.to_dict() | {name: value for name, value in self._asdict().items() if name != "between"}


class Birth(NamedTuple):
    """A label's first frame; `parent` is the label it split off from, or −1 in the first frame."""

    label: int
    frame: int
    time: float
    parent: int
    mass: float
    size: int


@dataclass(frozen=True, repr=False)
class MergeTree:
    """Births and merges of a run at one threshold; labels are 0, 1, … in the order of birth.

    `resolution` is 0 where all contacts were compared, and otherwise the size, as a fraction of the threshold, of the
    cells to which particles were thinned because two crowds met: the distances by which merges within one interval are
    put in order are then right to twice that. `not_separated` are the stretches of time, from and until, in which
    components are chains and no clusters (see `separation`).
    """

    threshold: float
    births: list[Birth] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)
    resolution: float = 0.0
    not_separated: tuple[tuple[float, float], ...] = ()

    @property
    def times(self) -> FloatArray:
        """The times of all merges, in order (M,): the middles of their brackets."""
        return np.array([merge.time for merge in self.merges])

    @property
    def roots(self) -> list[int]:
        """The labels that were never absorbed: the clusters of the last frame."""
        absorbed = {merge.absorbed for merge in self.merges}
        return [birth.label for birth in self.births if birth.label not in absorbed]

    def span(self) -> str:
        """How many merges there were, and when the first and the last."""
        if not self.merges:
            return "none"
        ends = dict.fromkeys(str(self.merges[place].between) for place in (0, -1))
        return f"{len(self.merges)}, t = {' to '.join(ends)}"

    def __repr__(self) -> str:
        """A card of at most five lines: what the tree joins, when, and which merge was the weightiest."""
        splits = sum(birth.parent >= 0 for birth in self.births)
        roots = self.roots
        began = plural(len(self.births), "cluster")
        lines = [
            f"MergeTree from {began} to {len(roots)} at the threshold {self.threshold:.4g}",
            f"  merges     {self.span()}",
            f"  splits     {splits or 'none'}",
            f"  remaining  {', '.join(map(str, roots[:12])) or 'none'}{', …' if len(roots) > 12 else ''}",
        ]
        if self.merges:
            most = max(self.merges, key=lambda merge: merge.absorbed_mass)
            lines.append(
                f"  weightiest {most.absorbed} into {most.survivor} at t = {most.between}, "
                f"{most.absorbed_mass:.1%} of the mass to make {most.mass:.1%}"
            )
        return "\n".join(lines)

    def linkage(self, *, sizes: str = "leaves", complete_at: float | None = None) -> FloatArray:
        """Return the tree in the form of a SciPy linkage: rows (node a, node b, time, size), a < b.

        Leaves are the labels; row k makes node L + k. `sizes`: "leaves" counts labels, as SciPy's dendrogram needs it,
        "particles" counts particles. A run that ends with several clusters is a forest; `complete_at` joins what is
        left at that time, so that SciPy accepts the array.
        """
        if sizes not in ("leaves", "particles"):
            raise ArgumentError(f'Argument `sizes` must be "leaves" or "particles", but is {sizes!r}.')
        leaves = len(self.births)
        node = list(range(leaves))
        size = [1 if sizes == "leaves" else birth.size for birth in self.births]
        rows: list[tuple[float, float, float, float]] = []

        def join(survivor: int, absorbed: int, time: float, total: int) -> None:
            """Add a row, and let the survivor stand for the node that it makes."""
            low, high = sorted((node[survivor], node[absorbed]))
            rows.append((low, high, time, total))
            node[survivor], size[survivor] = leaves + len(rows) - 1, total

        for merge in self.merges:
            together = size[merge.survivor] + size[merge.absorbed] if sizes == "leaves" else merge.size
            join(merge.survivor, merge.absorbed, merge.time, together)
        if complete_at is not None and self.births:
            first, *others = self.roots
            for other in others:
                join(first, other, complete_at, size[first] + size[other])
        return np.array(rows, dtype=np.float64).reshape(-1, 4)

    def to_dict(self, maximum: int = 1000) -> dict[str, Any]:
        """Return the tree for JSON; at most `maximum` merges are listed, those of the heaviest absorbed clusters."""
        order = sorted(range(len(self.merges)), key=lambda k: -self.merges[k].absorbed_mass)[:maximum]
        return {
            "threshold": self.threshold,
            "interpolation_resolution": self.resolution,
            "births": len(self.births),
            "splits": sum(birth.parent >= 0 for birth in self.births),
            "merges": len(self.merges),
            "roots": self.roots[:maximum],
            "listed_merges": [self.merges[k].to_dict() for k in sorted(order)],
        }


class Contact(NamedTuple):
    """First touch of two clusters within a frame interval, as a fraction of it."""

    fraction: float
    first: int
    second: int


def first_contacts(
    before: FloatArray, after: FloatArray, owner: IntArray, crowd: IntArray, threshold: float
) -> tuple[list[Contact], float]:
    """Return, in time order, the first touches that join clusters between two frames, and the thinning used.

    before, after: (n, d) the particles of all clusters that merge in this interval; owner: (n,) their cluster before;
    crowd: (n,) the index of the largest cluster among those they merge with. Only pairs with at least one
    particle outside the largest cluster are compared. The touches form a forest: no touch inside a joined group.
    """
    from scipy.spatial import KDTree

    minor = np.flatnonzero(owner != crowd)
    if minor.size <= _FEW:
        return _listed(_few_touches(before, after, owner, minor, threshold)), 0.0
    keep, minor, resolution, many = _thin_crowds(after, owner, minor, threshold)
    if many:
        touches = _forest_of_many(before[keep], after[keep], owner[keep], threshold)
    else:
        trees = [KDTree(after[chosen], balanced_tree=False) for chosen in (minor, keep)]
        near = trees[0].sparse_distance_matrix(trees[1], threshold, output_type="coo_matrix")
        left, right = minor[near.row], keep[near.col]
        different = owner[left] != owner[right]
        left, right, closest = left[different], right[different], near.data[different]
        earlier = np.sqrt(np.square(before[left] - before[right]).sum(axis=1))
        touches = _forest(owner[left], owner[right], _fraction(earlier, closest, threshold))
    return _listed(touches), resolution


class _Touches(NamedTuple):
    """Touches of pairs of clusters, at fractions of the interval."""

    first: IntArray
    second: IntArray
    fraction: FloatArray


def _listed(touches: _Touches) -> list[Contact]:
    """The touches as `Contact`s, in their order."""
    rows = zip(touches.fraction.tolist(), touches.first.tolist(), touches.second.tolist(), strict=True)
    return [Contact(*row) for row in rows]


def _few_touches(before: FloatArray, after: FloatArray, owner: IntArray, minor: IntArray, threshold: float) -> _Touches:
    """The first touch of every cluster by each of a few particles, found by comparing these with all particles.

    One particle that merges with a cluster of a million touches all of it: a list of touches would be long, and a k-d
    tree slow to build.
    """
    found = [_Touches(owner[:0], owner[:0], after[:0, 0])]
    number = distinct(owner)
    name = np.empty(int(number.max()) + 1, dtype=np.int64)
    name[number] = owner
    for particle in minor.tolist():
        closest = np.sqrt(squared_norms(after - after[particle]))
        near = np.flatnonzero((closest <= threshold) & (owner != owner[particle]))
        earlier = np.sqrt(squared_norms(before[near] - before[particle]))
        first = np.full(name.size, np.inf)
        np.minimum.at(first, number[near], _fraction(earlier, closest[near], threshold))
        touched = np.flatnonzero(first < np.inf)
        found.append(_Touches(np.full(touched.size, owner[particle]), name[touched], first[touched]))
    return _forest(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _fraction(earlier: FloatArray, closest: FloatArray, threshold: float) -> FloatArray:
    """Return where in the interval pairs touch, (D₀ − r) / (D₀ − D₁) in [0, 1], for pairs with D₁ = closest ≤ r."""
    return np.clip((earlier - threshold) / np.maximum(earlier - closest, np.finfo(float).tiny), 0.0, 1.0)


def _thin_crowds(
    points: FloatArray, owner: IntArray, minor: IntArray, threshold: float
) -> tuple[IntArray, IntArray, float, bool]:
    """Keep one particle for each cell and cluster while two large clusters would make too many contacts.

    Return the kept particles, those of them outside the largest clusters, the size of the cells as a fraction of the
    threshold, and whether there are still too many contacts to list.
    """
    from scipy.spatial import KDTree

    keep, resolution = np.arange(points.shape[0]), 0.0
    clusters = np.unique(owner).size
    while minor.size * keep.size > _CONTACTS_LIMIT:
        trees = [KDTree(points[chosen], balanced_tree=False) for chosen in (minor, keep)]
        if trees[0].count_neighbors(trees[1], threshold) <= _CONTACTS_LIMIT:
            break
        if resolution >= _COARSEST or keep.size < 2 * clusters:  # thinning further would cost more than it saves
            return keep, minor, resolution, True
        resolution = 2.0 * resolution if resolution else 1.0 / 64.0
        cell = cell_numbers(points, resolution * threshold / np.sqrt(points.shape[1]))
        keep = np.sort(np.unique(owner * (int(cell.max()) + 1) + cell, return_index=True)[1])
        minor = np.intersect1d(minor, keep, assume_unique=True)
    return keep, minor, resolution, False


def _forest(first: IntArray, second: IntArray, fraction: FloatArray) -> _Touches:
    """Reduce touches to the earliest ones that still join everything, in time order: a minimum spanning forest."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import minimum_spanning_tree

    if fraction.size == 0:
        return _Touches(first, second, fraction)
    low, high = np.minimum(first, second), np.maximum(first, second)
    count = int(high.max()) + 1
    by_time = np.argsort(fraction)
    # The first of equal pairs in time order is the earliest touch of the two clusters.
    order = by_time[np.unique((low * count + high)[by_time], return_index=True)[1]]
    weight = 1.0 + fraction[order]  # a stored zero would mean "no edge"
    graph = coo_array((weight, (low[order], high[order])), shape=(count, count)).tocsr()
    tree = minimum_spanning_tree(graph).tocoo()
    by_time = np.argsort(tree.data, kind="stable")
    rows, columns = (side[by_time].astype(np.int64) for side in (tree.row, tree.col))
    return _Touches(rows, columns, tree.data[by_time] - 1.0)


def _forest_of_many(before: FloatArray, after: FloatArray, owner: IntArray, threshold: float) -> _Touches:
    """Find the same forest where the touches are too many to list: O(n²) time, O(n) memory.

    It is the part between clusters of the minimum spanning tree of all particles, where two particles of one cluster
    are joined from the start, at the fraction −1, and two that never touch at inf: neither is a touch to record.
    """
    dimension = before.shape[1]

    def touching_times(row: FloatArray, others: FloatArray) -> FloatArray:
        """The fractions of the interval at which one particle touches others; −1 in its own cluster, inf for never."""
        squares = np.square(others[:, :-1] - row[:-1])
        earlier, closest = (np.sqrt(part.sum(axis=1)) for part in (squares[:, :dimension], squares[:, dimension:]))
        times = np.where(closest <= threshold, _fraction(earlier, closest, threshold), np.inf)
        times[others[:, -1] == row[-1]] = -1.0
        return times

    rows = np.concatenate([before, after, owner[:, None].astype(np.float64)], axis=1)
    edges = spanning_tree_edges(rows, touching_times)
    found = [(int(owner[a]), int(owner[b]), fraction) for a, b, fraction in edges if 0.0 <= fraction <= 1.0]
    found.sort(key=lambda touch: touch[2])
    ends = np.array([touch[:2] for touch in found], dtype=np.int64).reshape(-1, 2)
    return _Touches(ends[:, 0], ends[:, 1], np.array([touch[2] for touch in found], dtype=np.float64))
