"""Clusters at all thresholds at once: the single-linkage tree and the H0 persistence diagram.

Both are the minimum spanning tree of the cloud. Its N − 1 edge lengths are the thresholds at which two components
become one, that is the deaths of the H0 diagram (every component is born at 0, one never dies): with edge lengths
ℓ_1 ≤ … ≤ ℓ_{N−1} there are N − #{k : ℓ_k ≤ r} clusters at the threshold r. On the sphere the lengths are chordal.

Particles of weight zero are left out, and N counts the others; weights do not matter otherwise.
"""

import numpy as np
from numpy.typing import ArrayLike

from particleflow.analysis.clusters.spanning_tree import spanning_tree_edges
from particleflow.analysis.reading import FloatArray, IntArray, Progress, as_points, with_mass
from particleflow.errors import ArgumentError

_PAIRS_LIMIT = 4096  # up to it SciPy's linkage, which holds N²/2 distances; above it Prim's algorithm, which does not


def single_linkage(
    points: ArrayLike, *, weights: ArrayLike | None = None, progress: Progress | None = None
) -> FloatArray:
    """Return the single-linkage tree as a SciPy linkage array (N − 1, 4): node, node, distance, size.

    points: (N, d); leaf k is the k-th particle that has mass. Time O(N² d) and, beyond 4,096 particles, memory O(N d).
    weights: (N,); progress(done, total) is called now and then beyond that size.
    """
    from scipy.cluster.hierarchy import linkage

    array, _ = with_mass(as_points(points), weights)
    if array.shape[0] == 1:
        return np.empty((0, 4))
    if array.shape[0] <= _PAIRS_LIMIT:
        return linkage(array, method="single")
    edges, lengths = _spanning_tree(array, progress)
    return _linkage_from_edges(edges, lengths)


def persistence_diagram(
    points: ArrayLike, *, weights: ArrayLike | None = None, progress: Progress | None = None
) -> FloatArray:
    """Return the H0 persistence diagram, (N, 2) rows (birth 0, death), sorted by death; the last death is infinite.

    points: (N, d); weights: (N,), particles of weight zero are left out.
    """
    deaths = np.append(single_linkage(points, weights=weights, progress=progress)[:, 2], np.inf)
    return np.stack([np.zeros_like(deaths), deaths], axis=1)


def counts_by_threshold(points: ArrayLike, thresholds: ArrayLike, *, weights: ArrayLike | None = None) -> IntArray:
    """Return the number of clusters at each threshold: N − #{spanning-tree edges ≤ threshold}.

    points: (N, d); thresholds: (k,) in any order; weights: (N,), particles of weight zero are left out.
    """
    lengths = single_linkage(points, weights=weights)[:, 2]
    return lengths.size + 1 - np.searchsorted(lengths, np.asarray(thresholds, dtype=np.float64), side="right")


def largest_gap(
    points: ArrayLike, *, weights: ArrayLike | None = None, lengths: FloatArray | None = None
) -> tuple[int, float, float]:
    """Return the cluster count that lasts over the widest range of thresholds, and that range (low, high).

    The width is measured as the ratio high / low of consecutive spanning-tree edges. Edges below 1e-12 times the
    longest count as that long, so that differences between rounding errors do not decide; the range below the shortest
    edge, where every particle is alone, counts for two particles only. Needs two. lengths: sorted edge lengths, third
    column of `single_linkage`, if they are known already. points: (N, d); weights: (N,), particles of weight zero are
    left out.
    """
    array, _ = with_mass(as_points(points), weights)
    if array.shape[0] < 2:
        raise ArgumentError("`largest_gap` needs at least two particles with mass, but got one.")
    lengths = single_linkage(array)[:, 2] if lengths is None else lengths
    if lengths[-1] == 0:
        return 1, 0.0, float("inf")
    if lengths.size == 1:
        return 2, 0.0, float(lengths[0])
    place = int(np.argmax(np.diff(np.log(np.maximum(lengths, 1e-12 * lengths[-1]))))) + 1
    return array.shape[0] - place, float(lengths[place - 1]), float(lengths[place])


def _spanning_tree(points: FloatArray, progress: Progress | None) -> tuple[IntArray, FloatArray]:
    """Return the edges (N − 1, 2) of the minimum spanning tree and their lengths, in the order in which it grows."""
    count = points.shape[0]
    edges, lengths = np.empty((count - 1, 2), dtype=np.int64), np.empty(count - 1)

    def squared(point: FloatArray, others: FloatArray) -> FloatArray:
        """Squared distances: the same tree as distances, without a root for every pair."""
        return np.square(others - point).sum(axis=1)

    for step, (inside, outside, length) in enumerate(spanning_tree_edges(points, squared)):
        edges[step], lengths[step] = (inside, outside), np.sqrt(length)
        if progress is not None and (step % 1024 == 0 or step == count - 2):
            progress(step + 1, count - 1)
    return edges, lengths


def _linkage_from_edges(edges: IntArray, lengths: FloatArray) -> FloatArray:
    """Turn spanning-tree edges into linkage rows, joining components in the order of the edges' lengths."""
    count = lengths.size + 1
    parent = np.arange(2 * count - 1)
    size = np.ones(2 * count - 1)
    rows = np.empty((count - 1, 4))
    for step, edge in enumerate(np.argsort(lengths, kind="stable")):
        first, second = sorted(_root(parent, int(end)) for end in edges[edge])
        node = count + step
        parent[first] = parent[second] = node
        size[node] = size[first] + size[second]
        rows[step] = (first, second, lengths[edge], size[node])
    return rows


def _root(parent: IntArray, node: int) -> int:
    """Follow parents up to the node that has none, halving the path on the way."""
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = int(parent[node])
    return node
