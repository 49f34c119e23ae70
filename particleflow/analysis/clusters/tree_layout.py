"""The layout of a merge tree: which branches there are, in what order their leaves stand, and where each is drawn.

A branch is a cluster from its birth to the merge that ends it, drawn as a line along time at its `place`; a merge is a
bar across the places of the two branches that it ends. Leaves stand at 0, 1, 2, … in an order in which the leaves of
every cluster are next to each other, so that no bar crosses another branch; a merged cluster stands at the mean place
of its two parts, weighted by their sizes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from particleflow.analysis.reading import FloatArray, IntArray
from particleflow.errors import ShapeError

_LEAST_WEIGHT = 1e-12  # of a part without size, so that two of them still have a mean


@dataclass
class TreeBranch:
    """One cluster from its `birth` to its `death`: the merge that ends it, or the end of the run.

    `size`: in particles; `label`: its name in the merges, −1 where these name clusters by numbers; `children`: the
    numbers of the two branches that it was made of, none of a leaf; `place`: where its line is drawn across time, in
    units of one leaf.
    """

    birth: float
    death: float
    size: float
    label: int = -1
    children: tuple[int, ...] = ()
    place: float = 0.0


def grow_branches(
    merges: FloatArray, births: FloatArray, sizes: FloatArray, *, begin: float, end: float
) -> list[TreeBranch]:
    """Return the branches of a tree: its leaves 0 … L − 1, and as number L + i the one that the i-th merge makes.

    merges: (M, 4) rows (a, b, time, size) in time order; a and b are numbers of branches, as in SciPy's linkage, or
    each is any leaf inside its cluster: numbers are meant if one of them is L or larger. births, sizes: (L,) of the
    leaves. begin, end: the times that the picture shows; what lies outside is drawn at its edge.
    """
    count = len(births)
    given = zip(births.tolist(), sizes.tolist(), strict=True)
    branches = [TreeBranch(max(birth, begin), end, size, leaf) for leaf, (birth, size) in enumerate(given)]
    numbered = merges.size > 0 and merges[:, :2].max() >= count
    above = list(range(count))  # union-find: a branch that contains each one; its own number before it has merged

    def now(name: float) -> int | None:
        """The number of the cluster that a row names; None if there is none, or if it has merged already."""
        number = int(name)
        if not 0 <= number < (len(branches) if numbered else count):
            return None
        if numbered:
            return number if above[number] == number else None
        while above[number] != number:
            above[number] = above[above[number]]
            number = above[number]
        return number

    for index, (first, second, time, size) in enumerate(merges.tolist()):
        a, b = now(first), now(second)
        if a is None or b is None or a == b:
            raise ShapeError(
                f"Row {index} of `merges` joins {first:g} and {second:g}, which are not two separate clusters."
            )
        time = float(np.clip(time, begin, end))
        branches[a].death = branches[b].death = time
        above[a] = above[b] = len(branches)
        above.append(len(branches))
        branches.append(TreeBranch(time, end, size, -1 if numbered else int(first), (a, b)))
    return branches


def roots_of(branches: Sequence[TreeBranch]) -> list[int]:
    """Return the numbers of the branches that never merge, in increasing order."""
    merged = {child for branch in branches for child in branch.children}
    return [number for number in range(len(branches)) if number not in merged]


def order_leaves(branches: list[TreeBranch], along: FloatArray) -> list[IntArray]:
    """Order the children of every branch, and return the leaves inside every branch in the order that follows.

    along: (L,), a coordinate of the leaves: of two parts, that of the smaller mean coordinate comes first.
    """
    inside = [np.array([number]) for number, branch in enumerate(branches) if not branch.children]
    for branch in branches[len(inside) :]:
        first, second = sorted(branch.children, key=lambda child: float(along[inside[child]].mean()))
        branch.children = (first, second)
        inside.append(np.concatenate([inside[first], inside[second]]))
    return inside


def largest_merges(branches: Sequence[TreeBranch], limit: int) -> set[int]:
    """Return the branches to draw where only the `limit` largest merges are shown, by the size of the smaller side.

    Where a merge is left out, its smaller side is, too, and its branch begins where its larger side does. Of equally
    large merges the latest are kept. Leaves that never merge are left out.
    """
    merges = [number for number, branch in enumerate(branches) if branch.children]
    weight = {number: min(branches[child].size for child in branches[number].children) for number in merges}
    ranked = sorted(merges, key=lambda number: (weight[number], branches[number].birth))
    kept = set(ranked[max(len(ranked) - limit, 0) :])
    drawn: set[int] = set()
    ahead = [number for number in roots_of(branches) if branches[number].children]
    while ahead:
        number = ahead.pop()
        drawn.add(number)
        below = branches[number].children
        if number not in kept and below:
            below = (max(below, key=lambda child: branches[child].size),)
        ahead.extend(below)
    return drawn


def place_branches(branches: Sequence[TreeBranch], leaves: Iterable[int], drawn: Iterable[int]) -> None:
    """Set the places: 0, 1, 2, … for `leaves` in order, and for other branches the mean place of the drawn children.

    leaves: the drawn branches of which no child is drawn; drawn: all that are drawn.
    """
    for rank, number in enumerate(leaves):
        branches[number].place = float(rank)
    shown = set(drawn)
    for number in sorted(shown):  # children have smaller numbers than what they make
        below = [branches[child] for child in branches[number].children if child in shown]
        if below:
            weights = np.maximum([child.size for child in below], _LEAST_WEIGHT)
            branches[number].place = float(np.average([child.place for child in below], weights=weights))
