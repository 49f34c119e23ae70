"""Times of merges are the two saved times around them, and one pair of times everywhere it is stated or drawn."""

import json

import matplotlib as mpl

mpl.use("Agg")

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.cbook import pts_to_poststep

import particleflow
from particleflow.analysis import Bracket, ClusterTrack, find_plateaus, summarize, track_clusters, word_merges
from particleflow.analysis.clusters.brackets import bracket_after, bracket_of
from particleflow.app.cli.closing_lines import clusters_line, words_line
from particleflow.trajectory.trajectory import Trajectory

view: Any = particleflow.view  # the drawn artists are read by names that type stubs do not know

TRUTH = (3.3, 3.4, 17.9, 6693.567)  # when one of five particles jumps to the first


def merging(times) -> Trajectory:
    """Five particles on a line with words; the k-th jumps onto the first at TRUTH[k]: nothing is seen before."""
    places = np.arange(5) * (np.asarray(times)[:, None] < [np.inf, *TRUTH])
    return Trajectory.from_arrays(times, 10.0 * places[..., None], words=list("abcde"))


FRAMES = {
    "even": np.linspace(0, 10_000, 40_001)[::37],
    "logarithmic": np.concatenate([[0.0], np.geomspace(0.01, 1e4, 300)]),
    "uneven": np.sort(np.append(np.random.default_rng(3).uniform(0, 1e4, 400), [0.0, 3.35, 9.0, 20.0, 1e4])),
}


def around(times, truth) -> Bracket:
    """The saved times next to a time, by comparing it with all of them."""
    return next(Bracket(a, b) for a, b in pairwise(np.asarray(times).tolist()) if a < truth <= b)


@pytest.mark.parametrize("frames", FRAMES)
def test_treads_merges_words_and_summary_state_the_saved_times_around_the_truth(frames):
    times = FRAMES[frames]
    run, known = merging(times), [around(times, truth) for truth in TRUTH]
    track = track_clusters(run, 1.0)
    assert [merge.between for merge in track.tree.merges] == known
    assert [merge.between for merge in word_merges(track, run.words)] == known
    ends = [each.end_between for each in find_plateaus(track.times, track.counts) if not each.open_end]
    assert known[-1] in ends
    assert set(ends) <= set(known)
    summary = json.loads(json.dumps(summarize(run, threshold=1.0)))
    stated = [*summary["merge_tree"]["listed_merges"], *summary["words"]["listed_merges"], summary["collapse"]]
    for found, truth, bracket in zip(stated, [*TRUTH, *TRUTH, TRUTH[-1]], [*known, *known, known[-1]], strict=True):
        assert found["between"] == list(bracket)
        assert abs(found["time"] - truth) <= found["half_width"] == (bracket.after - bracket.before) / 2
    (last,) = (each for each in summary["plateaus"]["listed"] if each["count"] == 2)
    assert (last["end_between"], last["end"]) == (list(known[-1]), stated[-1]["time"])
    assert f"unchanged since t = {known[-1]}" in repr(track)
    assert f"t = {known[0]} to {known[-1]}" in repr(track)


@pytest.mark.parametrize("old", [False, True])
def test_lines_of_new_and_of_old_summaries_print_brackets(old):
    """An old summary has interpolated times of merges, and nothing else that says when they were."""
    times = [0.0, 3.0, 6.0, 15.0, 20.0, 6588.581861506815, 6900.9, 1e4]
    summary = json.loads(json.dumps(summarize(merging(times), threshold=1.0)))
    if old:
        for each in summary["words"]["listed_merges"]:
            del each["between"], each["half_width"]
            each["time"] = 6886.715192639835
    assert clusters_line(summary) == "5 → 1 cluster; 2 until t = 6589–6901"
    expected = "a with b (t = 3–6), a, b with c (t = 3–6), …, last a, b, c +1 with e (t = 6589–6901)"
    assert words_line(summary) == f"5 words in 1 cluster: first {expected}"


def test_merges_between_the_same_frames_share_their_bracket_and_keep_their_order():
    run = Trajectory.from_arrays([0.0, 1.0], np.array([[0.0, 6, 9], [0.0, 0.0, 0.0]])[:, :, None])
    merges = track_clusters(run, 1.0).tree.merges
    assert [merge.between for merge in merges] == [(0.0, 1.0), (0.0, 1.0)]
    assert [(merge.survivor, merge.absorbed) for merge in merges] == [(1, 2), (1, 0)]  # 9 is at 6 before 6 is at 0


@pytest.mark.parametrize("frames", FRAMES)
def test_tree_staircase_and_treads_change_at_the_same_times(frames):
    times = FRAMES[frames]
    run = merging(times)
    track = track_clusters(run, 1.0)
    middles = [around(times, truth).middle for truth in TRUTH]
    tree = view.merge_tree(run, track.tree, labels=track.labels, log=False)
    segments = np.array(tree.collections[0].get_segments())
    bars = segments[segments[:, 0, 1] == segments[:, 1, 1]][:, 0, 1]
    np.testing.assert_allclose(np.unique(bars), np.unique(middles), rtol=1e-12)
    boxes = [path.vertices[:, 1] for path in tree.collections[1].get_paths()]
    np.testing.assert_allclose(sorted((box.min(), box.max()) for box in boxes), [around(times, t) for t in TRUTH])
    plateaus = find_plateaus(track.times, track.counts)
    steps = view.cluster_count(run, track.counts, plateaus=plateaus, log=False)
    corners = pts_to_poststep(*steps.lines[0].get_data())
    changes = corners[0][1:][np.diff(corners[1]) != 0]
    np.testing.assert_allclose(changes, np.unique(middles), rtol=1e-12)
    edges = np.array([(box.get_x(), box.get_x() + box.get_width()) for box in steps.patches])
    inner = edges[(edges > times[0]) & (edges < times[-1])]
    assert np.isclose(inner[:, None], middles).any(axis=1).all()
    assert np.isclose(inner, middles[-1]).any()


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((6588.581861506815, 6900.93), "6589–6901"),
        ((0, 0.25), "0–0.25"),
        ((1000.12, 1000.14), "1000.12–1000.14"),
        ((9550, 10_000), "9550–1e+04"),
        ((3.0, 3.0), "3"),
    ],
)
def test_a_bracket_has_the_digits_that_its_frames_can_tell_apart(ends, text):
    assert str(Bracket(*ends)) == text


def test_changes_at_the_ends_of_a_run_have_the_time_of_that_frame():
    assert [bracket_of([1.0, 2.0, 4.0], frame) for frame in range(4)] == [(1, 1), (1, 2), (2, 4), (4, 4)]
    assert bracket_after([1.0, 2.0, 4.0], [True, False, False]) == (1, 2)
    assert bracket_after([1.0, 2.0, 4.0], [False] * 3) == (1, 1)
    assert bracket_after([1.0, 2.0, 4.0], [False, False, True]) is None


def drawn_changes(ax) -> np.ndarray:
    """The times at which the drawn staircase of axes changes."""
    times, counts = pts_to_poststep(*ax.lines[0].get_data())
    return times[1:][np.diff(counts) != 0]


@pytest.mark.parametrize(("stride", "changed", "treads"), [(1, [2.0, 4.0], [2.0, 4.0]), (3, [2.0, 5.0], [5.0])])
def test_a_run_of_whole_steps_changes_at_steps_in_treads_staircase_tree_and_words(stride, changed, treads):
    """Three particles on a line; the second jumps to the first in step 2, the third in step 4."""
    times = np.arange(10.0)[::stride]
    points = np.stack([0 * times, 10.0 * (times < 2), 20.0 * (times < 4)], axis=1)[..., None]
    run = Trajectory.from_arrays(times, points, metadata={"solver": "map", "step": 1.0})
    track, summary = track_clusters(run, 1.0), json.loads(json.dumps(summarize(run, threshold=1.0)))
    assert [merge.time for merge in track.tree.merges] == changed
    assert track.changes.whole
    stated = [each["start"] for each in summary["plateaus"]["listed"]]
    ax = view.staircase(run, track, plateaus=find_plateaus(times, track.counts, changes=track.changes))
    np.testing.assert_array_equal(drawn_changes(ax), changed)
    np.testing.assert_array_equal([box.get_x() for box in ax.patches], treads)
    assert stated == treads
    last = Bracket(changed[1] - (stride - 1) / 2, changed[1] + (stride - 1) / 2)
    assert summary["collapse"]["between"] == list(last)


@pytest.mark.parametrize("stopped", [True, False])
def test_a_run_that_its_merge_ended_knows_that_time_exactly(stopped):
    times = [0.0, 1.0, 2.5, 4.0]
    gaps = np.array([[5.0, 9.0], [4.0, 8.0], [0.5, 7.0], [0.4, 1.0]])  # merges between 1 and 2.5, and at 4
    points = np.stack([np.zeros(4), gaps[:, 0], gaps[:, 0] + gaps[:, 1]], axis=1)[..., None]
    metadata = {"event": "merged", "linking distance": 1.0, "status": "stopped by event" if stopped else "finished"}
    run = Trajectory.from_arrays(times, points, metadata={**metadata, "statistics": {"end time": 4.0}})
    last = Bracket(4.0, 4.0) if stopped else Bracket(2.5, 4.0)
    for track in (track_clusters(run), ClusterTrack.from_arrays(track_clusters(run).arrays())):
        assert [merge.between for merge in track.tree.merges] == [Bracket(1.0, 2.5), last]
        assert f"unchanged since t = {last}" in repr(track)
    summary = json.loads(json.dumps(summarize(run)))
    assert summary["collapse"]["between"] == list(last)
    assert clusters_line(summary) == f"3 → 1 cluster; 1 since t = {last}"
    np.testing.assert_array_equal(drawn_changes(view.staircase(run, track_clusters(run))), [1.75, last.middle])
    assert track_clusters(run, 2.0).tree.merges[-1].between == Bracket(2.5, 4.0)  # another distance than the event's
    assert track_clusters(run[:3], 1.0).tree.merges[-1].between == Bracket(1.0, 2.5)  # a part of the run
