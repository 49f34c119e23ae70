"""Where the branches of a merge tree are drawn: leaves in an order without crossings, parents at their mean height."""

from dataclasses import dataclass, field

import numpy as np

from particleflow.errors import ShapeError

Births = dict[int, tuple[float, float]]


@dataclass
class Branch:
    """One cluster from its birth to the merge that ends it, at height y ∈ [0, 1]."""

    birth: float
    death: float
    size: float
    label: int
    children: tuple[int, ...] = ()
    y: float = field(default=0.0)


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


def _grow(rows: np.ndarray, leaves: int | None, begin: float, end: float, births: Births) -> list[Branch]:
    """Branches from rows (a, b, time, size), merges in order of time; a survives as a, or as cluster leaves + i."""
    branches: list[Branch] = []
    current: dict[int, int] = {}

    def branch_of(label: int) -> int:
        if label not in current:
            current[label] = len(branches)
            born, size = births.get(label, (begin, 0.0))
            branches.append(Branch(born, end, size, -1 if leaves is not None else label))
        return current[label]

    for number, (a, b, time, size) in enumerate(rows):
        pair = branch_of(int(a)), branch_of(int(b))
        for child in pair:
            branches[child].death = float(time)
        current[int(a) if leaves is None else leaves + number] = len(branches)
        branches.append(Branch(float(time), end, float(size), int(a) if leaves is None else -1, pair))
    return branches


def _leaf_sizes(branches: list[Branch]) -> None:
    """Give leaves of unknown size what their parent reports and their sibling does not explain, and at least 1."""
    for branch in branches:
        leaves = [branches[child] for child in branch.children if branches[child].size == 0.0]
        known = sum(branches[child].size for child in branch.children)
        share = (branch.size - known) / len(leaves) if leaves else 0.0
        for leaf in leaves:
            leaf.size = max(1.0, share)


def _prune(branches: list[Branch], limit: int) -> set[int]:
    """Numbers of the branches to draw: the children of the merges whose smaller side is among the largest."""
    merges = [number for number, branch in enumerate(branches) if branch.children]
    weight = {number: min(branches[child].size for child in branches[number].children) for number in merges}
    # of equally large merges the latest are kept: they are the ones a person watches
    kept = set(sorted(merges, key=lambda number: (weight[number], branches[number].birth))[-limit:])
    drawn: set[int] = set()
    children = {child for number in merges for child in branches[number].children}
    queue = [number for number in range(len(branches)) if number not in children]
    while queue:
        number = queue.pop()
        drawn.add(number)
        below = branches[number].children
        if number not in kept and below:
            # the small side is left out, and the branch begins where its large side does
            below = (max(below, key=lambda child: branches[child].size),)
        queue.extend(below)
    return drawn


def _place(branches: list[Branch], drawn: set[int]) -> None:
    """Heights: leaves evenly spaced in depth-first order, parents at the mean of their children weighted by size."""
    children = {child for branch in branches for child in branch.children}
    order: list[int] = []
    stack = [number for number in sorted(drawn) if number not in children]
    while stack:
        number = stack.pop()
        order.append(number)
        stack.extend(child for child in branches[number].children if child in drawn)
    leaves = [number for number in order if not any(child in drawn for child in branches[number].children)]
    for rank, number in enumerate(leaves):
        branches[number].y = (rank + 0.5) / len(leaves)
    for number in reversed(order):
        below = [branches[child] for child in branches[number].children if child in drawn]
        if below:
            total = sum(child.size for child in below)
            branches[number].y = sum(child.y * child.size for child in below) / total


def layout_merge_tree(
    merge_tree: np.ndarray, *, leaves: int, begin: float, end: float, births: Births | None = None, limit: int = 40
) -> dict[str, np.ndarray]:
    """Segments of a merge tree: per branch its height, birth, death, size, label and the height of its parent.

    Parameters: rows (a, b, time, size) in SciPy's linkage numbering or with a the surviving label; the number of
    particles; the first and last time; per label its birth time and size, if known; how many merges to draw. Returns
    arrays of one entry per drawn branch.
    """
    rows = np.asarray(merge_tree, np.float64)
    if rows.ndim != 2 or rows.shape[1] != 4:
        raise ShapeError(f"`merge_tree` must have rows (a, b, time, size), shape (M, 4), but has shape {rows.shape}.")
    linked = _linkage_leaves(rows, leaves)
    rows = rows if linked is not None else rows[np.argsort(rows[:, 2], kind="stable")]
    branches = _grow(rows, linked, begin, end, births or {})
    _leaf_sizes(branches)
    drawn = _prune(branches, limit)
    _place(branches, drawn)
    parent = {child: number for number, branch in enumerate(branches) for child in branch.children}
    chosen = sorted(drawn)
    join = [branches[parent[number]].y if number in parent else np.nan for number in chosen]
    table = [(branches[n].y, branches[n].birth, branches[n].death, branches[n].size, branches[n].label) for n in chosen]
    columns = np.array(table, np.float64).reshape(-1, 5)
    names = ("y", "birth", "death", "size", "label")
    return {name: columns[:, i] for i, name in enumerate(names)} | {"join": np.array(join, np.float64)}
