"""Exact single-linkage components at one threshold, without the N²/2 pairs of a collapsed cloud.

Two particles are linked when |x − y| ≤ r, and a cluster is a connected component of the links. When thousands of
particles sit on one point, listing links is quadratic. So particles are first put into groups whose members are
certainly in one cluster, because any two of them are within r:

    cells  of a grid of side r/√d, whose diagonal is r                        (d ≤ 3)
    balls  of radius r/2 around some of the particles                         (d > 3)

Only pairs of groups are then compared. Let p, q be their representatives and ρ_p, ρ_q the distances of the farthest
members from them. By the triangle inequality

    |p − q| ≤ r                  joins the two groups at once,
    |p − q| > r + ρ_p + ρ_q      keeps every pair of members apart,

and in between the closest members decide, unless another way has joined the two already. The answer is exactly that of
listing all links. In more than eight dimensions pairs are looked for in the few coordinates of largest variance, since
a projection never lengthens a distance, or by |x − y|² = |x|² + |y|² − 2⟨x, y⟩ in blocks with a margin for rounding.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

CELL_DIMENSION = 3  # above it a cell of diagonal r, of side r/√d, splits a cluster of that size into singletons
TREE_DIMENSION = 8  # above it a k-d tree visits nearly every node, and is built on a projection instead
_SHADOW_DIMENSION = 5  # coordinates of the projection
_CHUNK = 1 << 20  # pairs of particles, or coordinates, that are copied at once
_CROWDED = 4  # particles from which on a cell is treated as one
_TABLE = 4  # entries of a table for each number looked up in it
_SMALL_TABLE = 1 << 14  # so many are always faster than sorting
_SHRINK = 1.0 - 1e-3  # keeps rounding in `floor(x / side)` from putting two particles farther than r into one cell


_Pairs = tuple[IntArray, IntArray, FloatArray]  # first group, second group, distance of their representatives


@dataclass(frozen=True)
class _Groups:
    """A partition of the particles: members in `order`, from `start[g]` on, `size[g]` of them."""

    points: FloatArray
    order: IntArray
    start: IntArray
    size: IntArray
    representative: IntArray
    radius: FloatArray

    def members(self, group: int) -> FloatArray:
        """The points of the members of one group."""
        return self.points[self.order[self.start[group] : self.start[group] + self.size[group]]]


def components(points: FloatArray, threshold: float) -> IntArray:
    """Label the single-linkage clusters at distance ≤ threshold, 0, 1, … in the order of their first particle."""
    count, dimension = points.shape
    if count == 1:
        return np.zeros(1, dtype=np.int64)
    if dimension == 1:
        return _in_order_of_appearance(_line_components(points[:, 0], threshold))
    group_of = (_cells if dimension <= CELL_DIMENSION else _balls)(points, threshold)
    groups = _group(points, group_of)
    first, second, distance = (_tree_pairs if dimension <= TREE_DIMENSION else _projected_pairs)(groups, threshold)
    return _in_order_of_appearance(_join(groups, first, second, distance, threshold)[group_of])


def linked_labels(first: IntArray, second: IntArray, count: int) -> IntArray:
    """Label the connected components of an undirected graph given by its edges."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    # sorted rows of int32, as SciPy uses them: converting others takes twice as long as the search itself
    starts = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(np.bincount(first, minlength=count), out=starts[1:])
    columns = second[np.argsort(first, kind="stable")].astype(np.int32)
    edges = csr_array((np.ones(first.size), columns, starts), shape=(count, count))
    return connected_components(edges, directed=False)[1].astype(np.int64)


def distinct(keys: NDArray[np.integer]) -> IntArray:
    """Number the distinct rows of an integer array (N, d), or of a vector: 0, 1, …, one number per row."""
    if keys.ndim == 1:
        return _numbered(keys)
    keys = keys - keys.min(axis=0)
    extent = [int(e) + 1 for e in keys.max(axis=0)]
    if np.prod([float(e) for e in extent]) < 2.0**62:
        flat = np.zeros(keys.shape[0], dtype=np.int64)
        for column, size in enumerate(extent):
            flat = flat * size + keys[:, column]
        return _numbered(flat)
    return np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)


def squared_norms(vectors: FloatArray) -> FloatArray:
    """|v|² of every row, several times faster than a sum of squares where rows are short."""
    return np.einsum("ij,ij->i", vectors, vectors)


def _numbered(keys: NDArray[np.integer]) -> IntArray:
    """Number distinct integers in their order: by a table where they lie close together, else by sorting."""
    low = int(keys.min())
    span = int(keys.max()) - low + 1
    if span > max(_TABLE * keys.size, _SMALL_TABLE):
        return np.unique(keys, return_inverse=True)[1]
    places = keys - low
    found = np.zeros(span, dtype=np.int64)
    found[places] = 1
    return (np.cumsum(found) - 1)[places]


def cell_numbers(points: FloatArray, side: float) -> IntArray:
    """Number the occupied cells of a cubic grid; a side too small for the grid leaves only equal points together."""
    lower = points.min(axis=0)
    extent = float((points.max(axis=0) - lower).max())
    if side <= 0 or extent / side > 2.0**40:
        return np.unique(points, axis=0, return_inverse=True)[1].reshape(-1)
    return distinct(np.floor((points - lower) / side).astype(np.int64))


def _line_components(coordinates: FloatArray, threshold: float) -> IntArray:
    """Cut the sorted coordinates wherever two neighbours are farther apart than r."""
    order = np.argsort(coordinates, kind="stable")
    labels = np.empty(order.size, dtype=np.int64)
    labels[order] = np.concatenate([[0], np.cumsum(np.diff(coordinates[order]) > threshold)])
    return labels


def _in_order_of_appearance(labels: IntArray) -> IntArray:
    """Number labels 0, 1, … by the first particle that has them."""
    number = _numbered(labels)
    first = np.empty(int(number.max()) + 1, dtype=np.int64)
    first[number[::-1]] = np.arange(labels.size - 1, -1, -1)  # the last assignment, that of the first particle, stays
    rank = np.empty(first.size, dtype=np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    return rank[number]


def _cells(points: FloatArray, threshold: float) -> IntArray:
    """Group by the cells ⌊x / side⌋ of a grid with side r/√d, hence diagonal r.

    Cells with few particles are cheaper one particle at a time.
    """
    cell_of = cell_numbers(points, _SHRINK * threshold / np.sqrt(points.shape[1]))
    alone = np.bincount(cell_of)[cell_of] < _CROWDED
    if not alone.any():
        return cell_of
    group_of = np.where(alone, cell_of.size + np.arange(cell_of.size), cell_of)
    return distinct(group_of)


def _balls(points: FloatArray, threshold: float) -> IntArray:
    """Group by up to 64 balls of radius r/2 around particles; the rest, and spread clouds, stay single.

    Whatever order the particles are taken in, the clusters that come out are the same.
    """
    group_of = np.arange(points.shape[0])
    remaining = np.random.default_rng(0).permutation(points.shape[0])
    misses = 0
    for _ in range(64):
        if remaining.size == 0 or misses == 4:
            break
        leader = remaining[0]
        inside = np.linalg.norm(points[remaining] - points[leader], axis=1) <= 0.5 * _SHRINK * threshold
        inside[0] = True
        group_of[remaining[inside]] = leader
        misses = misses + 1 if inside.sum() < 8 else 0
        remaining = remaining[~inside]
    return distinct(group_of)


def _group(points: FloatArray, group_of: IntArray) -> _Groups:
    """Sort the particles by group, and give each group a representative p and its radius ρ = max |x − p|."""
    size = np.bincount(group_of)
    keys = group_of.astype(np.uint16) if size.size <= 2**16 else group_of  # short numbers are sorted by their digits
    order = np.argsort(keys, kind="stable")
    start = np.concatenate([[0], np.cumsum(size)[:-1]])
    if size.size == points.shape[0]:
        return _Groups(points, order, start, size, order, np.zeros(size.size))
    sorted_points, sorted_group = points[order], group_of[order]
    centre = np.add.reduceat(sorted_points, start, axis=0) / size[:, None]
    # The member nearest to the centre makes the radius, and so the number of pairs to look at, small.
    away = squared_norms(sorted_points - centre[sorted_group])
    nearest = np.flatnonzero(away == np.minimum.reduceat(away, start)[sorted_group])
    central = order[nearest[np.searchsorted(nearest, start)]]  # of equals the first
    offset = np.sqrt(squared_norms(sorted_points - points[central][sorted_group]))
    return _Groups(points, order, start, size, central, np.maximum.reduceat(offset, start))


def _tree_pairs(groups: _Groups, threshold: float) -> _Pairs:
    """List the pairs of groups in reach of each other by a k-d tree of the representatives."""
    return _measured(groups, *_pairs_in_reach(groups.points[groups.representative], groups.radius, threshold))


def _projected_pairs(groups: _Groups, threshold: float) -> _Pairs:
    """List pairs in reach as seen in the few widest coordinates, where no distance is longer than it really is.

    If the cloud is crowded there, so that this settles little, the blocks of a matrix product are cheaper.
    """
    from scipy.spatial import KDTree

    centres = groups.points[groups.representative]
    shadows = centres[:, np.argsort(centres.var(axis=0))[-_SHADOW_DIMENSION:]]
    sample = shadows[:: max(1, shadows.shape[0] // 64)]
    reach = threshold + 2.0 * float(groups.radius.max())
    neighbours = KDTree(shadows, balanced_tree=False).query_ball_point(sample, reach, return_length=True)
    if np.mean(neighbours) > 20 + shadows.shape[0] // 50:
        return _block_pairs(groups, threshold)
    return _measured(groups, *_pairs_in_reach(shadows, groups.radius, threshold))


def _pairs_in_reach(places: FloatArray, radius: FloatArray, threshold: float) -> tuple[IntArray, IntArray]:
    """List pairs of groups in reach: single particles within r, and crowded groups within r plus both radii.

    Singles and groups have a tree each, since the largest radius would otherwise widen the search for all.
    """
    from scipy.spatial import KDTree

    single, crowded = np.flatnonzero(radius == 0), np.flatnonzero(radius > 0)
    found = [np.empty((0, 2), dtype=np.int64)]
    trees = [KDTree(places[chosen], balanced_tree=False) if chosen.size else None for chosen in (single, crowded)]
    reach = threshold * (1 + 1e-12)
    if trees[0] is not None:
        found.append(single[trees[0].query_pairs(reach, output_type="ndarray")])
    if trees[1] is not None:
        reach += float(radius.max()) * (1 + 1e-12)
        found.append(crowded[trees[1].query_pairs(reach + float(radius.max()), output_type="ndarray")])
    if trees[0] is not None and trees[1] is not None:
        near = trees[1].sparse_distance_matrix(trees[0], reach, output_type="coo_matrix")
        found.append(np.stack([crowded[near.row], single[near.col]], axis=1))
    first, second = np.concatenate(found).T
    return first, second


def _measured(groups: _Groups, first: IntArray, second: IntArray) -> _Pairs:
    """Add the distances between representatives, in chunks that keep the copies of points small."""
    centres = groups.points[groups.representative]
    distance = np.empty(first.size)
    chunk = max(1, _CHUNK // centres.shape[1])
    for start in range(0, first.size, chunk):
        place = slice(start, start + chunk)
        distance[place] = np.sqrt(np.square(centres[first[place]] - centres[second[place]]).sum(axis=1))
    return first, second, distance


def _block_pairs(groups: _Groups, threshold: float) -> _Pairs:
    """List the pairs with |p − q|² ≤ (r + ρ_p + ρ_q)² from |p|² + |q|² − 2⟨p, q⟩, 512 rows at a time.

    The cloud is centred first, and the limit is raised by what rounding may do to the sum; exact distances follow.
    """
    centres = groups.points[groups.representative]
    centred = centres - centres.mean(axis=0)
    square = np.square(centred).sum(axis=1)
    slack = 1e-12 * max(float(square.max()), np.finfo(float).tiny)  # rounding of |x|² + |y|² − 2⟨x,y⟩
    reach = threshold + groups.radius
    found: list[NDArray[np.int64]] = []
    for start in range(0, centres.shape[0], 512):
        rows = slice(start, start + 512)
        squared = centred[rows] @ centred[start:].T
        squared *= -2.0
        squared += square[rows, None]
        squared += square[None, start:]
        limit = reach[rows, None] + groups.radius[None, start:] if groups.radius.any() else threshold
        row, column = np.nonzero(squared <= np.square(limit) + slack)
        found.append(np.stack([row, column])[:, column > row] + start)
    return _measured(groups, *np.concatenate(found, axis=1))


def _join(groups: _Groups, first: IntArray, second: IntArray, distance: FloatArray, threshold: float) -> IntArray:
    """Label the groups, comparing members only where representatives do not settle a pair.

    In three rounds, each of which leaves out what the rounds before have joined: |p − q| ≤ r; then small pairs, member
    by member; then large pairs.
    """
    count = groups.size.size
    sure = distance <= threshold
    edges_a, edges_b = first[sure], second[sure]
    labels = linked_labels(edges_a, edges_b, count)
    near = ~sure & (distance <= (threshold + groups.radius[first] + groups.radius[second]) * (1 + 1e-12))
    near &= labels[first] != labels[second]
    first, second = first[near], second[near]
    if first.size == 0:
        return labels
    products = groups.size[first] * groups.size[second]
    small = products <= 4096
    touching = _touching_members(groups, first[small], second[small], threshold)
    edges_a = np.concatenate([edges_a, first[small][touching]])
    edges_b = np.concatenate([edges_b, second[small][touching]])
    labels = linked_labels(edges_a, edges_b, count)
    large = [(a, b) for a, b in zip(first[~small], second[~small], strict=True) if labels[a] != labels[b]]
    joined = [pair for pair in large if _touching_large(groups, *pair, threshold)]
    if not joined:
        return labels
    more = np.array(joined).T
    return linked_labels(np.concatenate([edges_a, more[0]]), np.concatenate([edges_b, more[1]]), count)


def _touching_members(groups: _Groups, first: IntArray, second: IntArray, threshold: float) -> NDArray[np.bool_]:
    """Tell which pairs of groups have members with |x − y| ≤ r, by comparing all of them.

    For many small pairs of groups at once, in chunks of about a million pairs of particles: the k-th pair of particles
    of a pair of groups of sizes m × n is (k // n, k mod n).
    """
    products = groups.size[first] * groups.size[second]
    touching = np.zeros(first.size, dtype=bool)
    chunk_of = np.cumsum(products) // _CHUNK
    for chunk in range(int(chunk_of[-1]) + 1 if first.size else 0):
        chosen = np.flatnonzero(chunk_of == chunk)
        pair = np.repeat(chosen, products[chosen])
        local = np.arange(pair.size) - np.repeat(np.cumsum(products[chosen]) - products[chosen], products[chosen])
        width = groups.size[second[pair]]
        left = groups.points[groups.order[groups.start[first[pair]] + local // width]]
        right = groups.points[groups.order[groups.start[second[pair]] + local % width]]
        touching[pair[np.sqrt(np.square(left - right).sum(axis=1)) <= threshold]] = True
    return touching


def _touching_large(groups: _Groups, first: int, second: int, threshold: float) -> bool:
    """Tell whether the closest members of two large groups are within r of each other.

    A member x can only be if |x − q| ≤ r + ρ_q for the other group's representative q and radius ρ_q; the others are
    dropped, and so are repeated points, before a k-d tree finds the closest pair.
    """
    from scipy.spatial import KDTree

    near = []
    for own, other in ((first, second), (second, first)):
        centre = groups.points[groups.representative[other]]
        members = groups.members(own)
        reach = (threshold + groups.radius[other]) * (1 + 1e-12)
        near.append(np.unique(members[np.linalg.norm(members - centre, axis=1) <= reach], axis=0))
    if not near[0].size or not near[1].size:
        return False
    gap = KDTree(near[0]).query(near[1], k=1)[0]
    return bool(np.min(gap) <= threshold)
