"""The layout of a merge tree against trees that are known, and SciPy's dendrogram."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import dendrogram, linkage

from particleflow.analysis.clusters.tree_layout import (
    TreeBranch,
    grow_branches,
    largest_merges,
    order_leaves,
    place_branches,
    roots_of,
)
from particleflow.errors import ShapeError

MERGES = np.array([[0, 1, 1.0, 2], [3, 4, 2.0, 2], [0, 3, 3.0, 4]])
NUMBERED = np.array([[0, 1, 1.0, 2], [3, 4, 2.0, 2], [5, 6, 3.0, 4]])


def grown(rows: np.ndarray, count: int, end: float = 4.0) -> list[TreeBranch]:
    return grow_branches(rows, np.zeros(count), np.ones(count), begin=0.0, end=end)


@pytest.mark.parametrize("rows", [MERGES, NUMBERED], ids=["leaf names", "branch numbers"])
def test_branches_of_both_ways_to_name_clusters(rows):
    branches = grown(rows, 5)
    assert [branch.children for branch in branches[5:]] == [(0, 1), (3, 4), (5, 6)]
    assert [branch.birth for branch in branches] == [0] * 5 + [1, 2, 3]
    assert [branch.death for branch in branches] == [1, 1, 4, 2, 2, 3, 3, 4]
    assert roots_of(branches) == [2, 7]
    assert sorted(order_leaves(branches, np.arange(5.0))[-1]) == [0, 1, 3, 4]
    assert [branch.label for branch in branches[5:]] == ([0, 3, 0] if rows is MERGES else [-1] * 3)


def test_a_leaf_in_a_cluster_names_it_to_the_end():
    branches = grown(np.array([[0, 1, 1.0, 2], [1, 2, 2.0, 3], [0, 3, 9.0, 4]]), 4)
    assert [branch.children for branch in branches[4:]] == [(0, 1), (4, 2), (5, 3)]
    assert (branches[6].birth, branches[5].death) == (4, 4)  # at the edge of what is shown


def test_leaf_order_does_not_cross_as_in_a_scipy_dendrogram():
    points = np.random.default_rng(0).normal(size=(40, 2))
    rows = linkage(points, "single")
    branches = grown(rows, 40, end=float(rows[-1, 2]))
    inside = order_leaves(branches, points[:, 0])
    place_branches(branches, inside[-1].tolist(), range(len(branches)))
    places = np.array([branch.place for branch in branches])
    assert sorted(places[:40]) == list(range(40))
    # a dendrogram's clusters are intervals of its leaf order, and so must ours be
    for number in range(40, len(branches)):
        assert np.ptp(places[inside[number]]) == len(inside[number]) - 1
        parts = list(branches[number].children)
        assert places[number] == pytest.approx(np.average(places[parts], weights=[branches[p].size for p in parts]))
    bars = sorted(heights[1] for heights in dendrogram(rows, no_plot=True)["dcoord"])
    np.testing.assert_allclose([branch.birth for branch in branches[40:]], bars)


def test_the_largest_merges_are_drawn_and_the_large_sides_of_others():
    rows = np.array([[0, 1, 1.0, 11], [2, 3, 2.0, 2], [0, 2, 3.0, 13], [0, 4, 3.5, 14]])
    branches = grow_branches(rows, np.zeros(6), np.array([10.0, 1, 1, 1, 1, 7]), begin=0.0, end=4.0)
    assert largest_merges(branches, 9) == set(range(10)) - {5}  # number 5 never merges
    # of the four, the only merge with two particles on its smaller side is that of 0 … 3
    assert largest_merges(branches, 1) == {9, 8, 6, 0, 7, 2}
    assert largest_merges(branches, 0) == {9, 8, 6, 0}  # one line, that of the largest sides


def test_rows_that_do_not_join_two_clusters_are_refused():
    for rows in ([[0, 1, 1.0, 2], [1, 0, 2.0, 2]], [[0, 9, 1.0, 2]], [[0, 1, 1.0, 2], [2, 0, 2.0, 2], [3, 5, 3.0, 2]]):
        with pytest.raises(ShapeError, match="not two separate clusters"):
            grown(np.array(rows), 3)
