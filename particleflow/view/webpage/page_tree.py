"""The merge tree of the page: the largest merges, as arrays of one entry a branch."""

import numpy as np

from particleflow.analysis.clusters.tree_layout import (
    TreeBranch,
    grow_branches,
    largest_merges,
    place_branches,
    roots_of,
)
from particleflow.errors import ShapeError

Births = dict[int, tuple[float, float]]


def _linkage_leaves(rows: np.ndarray, count: int) -> int | None:
    """Number of leaves if the rows are in SciPy's numbering, else None.

    There merge i creates cluster leaves + i, and every cluster is merged at most once; a whole tree of M merges has
    M + 1 leaves, a forest one leaf for every particle.
    """
    pairs = rows[:, :2].astype(int)
    if len(np.unique(pairs)) < pairs.size:
        return None
    for leaves in (len(rows) + 1, count):
        known = leaves + np.arange(len(rows))[:, None]
        if (pairs < known).all() and (pairs >= leaves).any():
            return leaves
    return None


def _leaf_sizes(branches: list[TreeBranch]) -> None:
    """Set leaves of unknown size to their parent's size minus that of its known child, and to at least 1."""
    for branch in branches:
        leaves = [branches[child] for child in branch.children if branches[child].size == 0.0]
        known = sum(branches[child].size for child in branch.children)
        share = (branch.size - known) / len(leaves) if leaves else 0.0
        for leaf in leaves:
            leaf.size = max(1.0, share)


def _leaves_in_order(branches: list[TreeBranch], drawn: set[int]) -> list[int]:
    """The drawn branches of which no child is drawn, depth first, so that those of a cluster follow each other."""
    found: list[int] = []
    ahead = [number for number in roots_of(branches) if number in drawn]
    while ahead:
        number = ahead.pop()
        below = [child for child in branches[number].children if child in drawn]
        found += [] if below else [number]
        ahead.extend(below)
    return found


def layout_merge_tree(
    merge_tree: np.ndarray, *, leaves: int, begin: float, end: float, births: Births | None = None, limit: int = 40
) -> dict[str, np.ndarray]:
    """Return, by branch of a merge tree, its height y in [0, 1], birth, death, size, label, and its parent's height.

    Parameters: rows (a, b, time, size) in SciPy's linkage numbering or with a the surviving label; the number of
    particles; the first and last time; per label its birth time and size, if known; how many merges to draw. Returns
    arrays of one entry per drawn branch; the parent's height of a branch without a parent is NaN.
    """
    rows = np.asarray(merge_tree, np.float64)
    if rows.ndim != 2 or rows.shape[1] != 4:
        raise ShapeError(f"`merge_tree` must have rows (a, b, time, size), shape (M, 4), but has shape {rows.shape}.")
    linked = _linkage_leaves(rows, leaves)
    rows = rows if linked is not None else rows[np.argsort(rows[:, 2], kind="stable")]
    count = int(rows[:, :2].max(initial=-1)) + 1 if linked is None else linked
    known = {} if linked is not None or births is None else births
    given = np.array([known.get(leaf, (begin, 0.0)) for leaf in range(count)]).reshape(-1, 2)
    branches = grow_branches(rows, given[:, 0], given[:, 1], begin=begin, end=end)
    _leaf_sizes(branches)
    drawn = largest_merges(branches, limit)
    order = _leaves_in_order(branches, drawn)
    place_branches(branches, order, drawn)
    heights = [(branch.place + 0.5) / max(len(order), 1) for branch in branches]
    parent = {child: number for number, branch in enumerate(branches) for child in branch.children}
    shown = [branches[number] for number in sorted(drawn)]
    columns = {name: [getattr(each, name) for each in shown] for name in ("birth", "death", "size")}
    columns["label"] = [-1 if linked is not None else each.label for each in shown]
    columns["y"] = [heights[number] for number in sorted(drawn)]
    columns["join"] = [heights[parent[number]] if number in parent else np.nan for number in sorted(drawn)]
    return {name: np.array(columns[name], np.float64) for name in ("y", "birth", "death", "size", "label", "join")}
