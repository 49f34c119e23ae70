"""The drawn merge tree against trees that are known."""

import matplotlib as mpl

mpl.use("Agg")

from typing import Any

import numpy as np
import pytest

import particleflow
from particleflow.analysis import track_clusters
from particleflow.errors import ShapeError
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view.plots.time.tree_plot import Leaves, branches_and_leaves, check_merges, find_leaves, tree_segments

view: Any = particleflow.view  # the drawn artists are read by names that type stubs do not know


def planted(frames=41):
    """On a line, particles 0 and 1 meet at t = 1, 3 and 4 at t = 2, both pairs at t = 3; 2 stays away."""
    times = np.linspace(0, 4, frames)
    start = np.array([0.0, 1.0, 100.0, 10.0, 12.0])
    first, second, last = (np.clip(times / end, 0, 1)[:, None] for end in (1, 2, 3))
    offset = np.array([0, -1.0, 0, 0, 0]) * first + np.array([0, 0, 0, 0, -2.0]) * second
    offset = offset + np.array([0, 0, 0, -10.0, -10.0]) * last
    return Trajectory.from_arrays(times, (start + offset)[..., None], metadata={"geometry": "euclidean"})


MERGES = np.array([[0, 1, 1.0, 2], [3, 4, 2.0, 2], [0, 3, 3.0, 4]])


def test_merges_are_sorted_by_time():
    assert check_merges(MERGES[::-1]).tolist() == MERGES.tolist()


def test_branches_of_the_planted_tree():
    leaves = Leaves(np.zeros(5), np.ones(5), np.arange(5.0), np.eye(5)[:, :3])
    segments, colors, sizes, _ = tree_segments(MERGES, leaves, np.linspace(0, 4, 9))
    places = [branch.place for branch in branches_and_leaves(MERGES, leaves, 0.0, 4.0)[0][:5]]
    assert sorted(places) == [0, 1, 2, 3, 4]
    drawn = {
        (tuple(np.round(first, 9)), tuple(np.round(last, 9))): size
        for (first, last), size in zip(segments, sizes, strict=True)
    }
    for leaf, end in enumerate([1, 1, 4, 2, 2]):
        assert drawn[(0, places[leaf]), (end, places[leaf])] == 1
    low, high = (places[0] + places[1]) / 2, (places[3] + places[4]) / 2
    assert drawn[(1, low), (3, low)] == drawn[(2, high), (3, high)] == 2
    assert drawn[(3, (low + high) / 2), (4, (low + high) / 2)] == 4
    assert len(segments) == 2 * 5 - 2 + 3 + 0  # nodes (5 leaves + 3 made) and bars (3)
    np.testing.assert_allclose(colors[-1], np.eye(5)[[0, 1, 3, 4], :3].mean(axis=0))


def test_tree_of_the_analysis_shows_the_planted_merge_times():
    run = planted()
    track = track_clusters(run, 0.5)
    ax = view.merge_tree(run, track.tree, labels=track.labels)
    segments = np.array(ax.collections[0].get_segments())
    bars = np.unique(segments[segments[:, 0, 1] == segments[:, 1, 1]][:, 0, 1])
    # pairs that close a gap g at time T are within 0.5 of each other at T (1 − 0.5 / g); the last gap is 10
    np.testing.assert_allclose(bars, [1 - 0.5, 2 * (1 - 0.5 / 2), 3 * (1 - 0.5 / 10)], atol=0.05 + 1e-9)
    assert ax.get_ylim() == (0, 4)


def test_leaves_are_born_in_their_first_frame_with_their_size():
    run = planted(5)
    labels = np.array([[0, 0, 1, 1, 1], [0, 0, 1, 1, 2], [0, 0, 1, 1, 2], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
    leaves = find_leaves(run, labels)
    np.testing.assert_allclose(leaves.births, [0, 0, 1])
    np.testing.assert_allclose(leaves.sizes, [2, 3, 1])
    np.testing.assert_allclose(leaves.along, [0.5, 122 / 3, 12])


def test_tree_stands_beside_the_trajectories_with_one_time_axis():
    run = planted()
    axes = view.kymograph_with_tree(run, MERGES)
    axes[0].figure.canvas.draw()
    assert axes[0].get_ylim() == axes[1].get_ylim() == (0, 4)
    line = axes[0].collections[0].get_segments()[2]
    np.testing.assert_allclose(line[:, 0], 100.0)
    sideways = view.merge_tree(run, MERGES, vertical=False)
    assert sideways.get_xlim() == (0, 4)


def test_trees_that_make_no_sense_are_refused():
    run = planted()
    with pytest.raises(ShapeError, match="not two separate clusters"):
        view.merge_tree(run, [(0, 1, 1.0, 2), (1, 0, 2.0, 2)])
    with pytest.raises(ShapeError, match=r"\(a, b, time, size\)"):
        view.merge_tree(run, np.zeros((3, 2)))


@pytest.mark.parametrize("vertical", [True, False])
def test_the_tree_of_a_dense_start_begins_where_it_is_separated_and_says_so(vertical):
    """80 places, evenly on [−1, 1], that go to four as e^(−t)."""
    start = np.linspace(-1, 1, 80)
    end = (np.floor(2 * np.clip(start, -1, 0.999)) + 0.5) / 2
    times = np.linspace(0, 6, 16)
    run = Trajectory.from_arrays(times, (end + np.exp(-times)[:, None] * (start - end))[:, :, None])
    track = track_clusters(run, 0.03)
    begin = int(np.flatnonzero(np.isfinite(track.counts))[0])
    rows = [[0, 1, times[-1], 40]]  # a merge, so that there is something to draw
    assert begin > 0
    for merges in (rows, track.tree):
        ax = view.merge_tree(run, merges, labels=track.labels, vertical=vertical)
        side = 1 if vertical else 0
        ends = np.concatenate([line[:, side] for line in ax.collections[0].get_segments()])
        assert ends.min() == times[begin]
    (band,) = [patch for patch in ax.patches if patch.get_hatch()]
    box = band.get_extents().transformed(ax.transData.inverted())
    np.testing.assert_allclose((box.intervaly if vertical else box.intervalx)[1], (times[begin - 1] + times[begin]) / 2)
    (words,) = ax.texts
    assert words.get_text().split() == ["chains,", "not", "separated"]
    if vertical:  # beside the axes, where no branch is
        ax.figure.canvas.draw()
        beside, room = words.get_window_extent(), ax.get_window_extent()
        assert beside.x0 > room.x1
        assert room.y0 <= beside.y0 < beside.y1 <= room.y1
        assert beside.x1 <= ax.figure.bbox.x1


def test_branches_that_begin_late_are_explained_where_there_are_some():
    """One of two clusters splits at t = 2; a tree whose branches all begin together says nothing."""
    places = np.array([[0, 0, 9, 9], [0, 0, 9, 9], [0, 4, 9, 9], [9, 9, 9, 9]], float)
    for frames, said in ((slice(None), True), (slice(2), False)):
        run = Trajectory.from_arrays(np.arange(4.0)[frames], places[frames][..., None])
        track = track_clusters(run, 1.0)
        for figure in (
            view.merge_tree(run, track.tree, labels=track.labels).figure,
            view.kymograph_with_tree(run, track.tree, labels=track.labels)[0].figure,
        ):
            assert ("split off" in figure.get_supxlabel()) is said
