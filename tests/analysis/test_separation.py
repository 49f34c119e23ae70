"""Whether components are clusters or chains, against brute force, and what is said of a run that begins as a cloud."""

import json
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from particleflow.analysis import (
    ClusterTrack,
    cluster_count,
    cluster_counts,
    cluster_labels,
    cluster_reaches,
    collapse_time,
    find_plateaus,
    is_separated,
    summarize,
    track_clusters,
)
from particleflow.app.cli.closing_lines import clusters_line
from particleflow.errors import ArgumentError, ShapeError
from particleflow.trajectory.trajectory import Trajectory

TURN = 2 * np.pi * np.arange(400) / 400
CIRCLE = np.column_stack([np.cos(TURN), np.sin(TURN)])
SPHERE = np.random.default_rng(0).normal(size=(3000, 3))
SPHERE /= np.linalg.norm(SPHERE, axis=1, keepdims=True)


def brute_force(points: np.ndarray, threshold: float, weights: np.ndarray) -> tuple[bool, list[set[int]]]:
    """Whether a frame is separated, and its components: a search along links, one particle and one pair at a time."""
    left, components = {i for i, w in enumerate(weights) if w > 0}, []
    while left:
        ahead = [left.pop()]
        found = set(ahead)
        while ahead:
            place = ahead.pop()
            near = {j for j in left if np.linalg.norm(points[place] - points[j]) <= threshold}
            left -= near
            found |= near
            ahead += near
        components.append(found)
    chained = 0.0
    for each in components:
        mass = sum(weights[i] for i in each)
        centre = sum(weights[i] / mass * points[i] for i in each)
        if max(np.linalg.norm(points[i] - centre) for i in each) > 3 * threshold:
            chained += mass
    return bool(chained <= 0.5 * sum(weights)), components


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(k, marks=pytest.mark.slow) for k in range(3, 100))])
def test_separation_and_reaches_are_those_of_brute_force(seed):
    generator = np.random.default_rng(seed)
    count, dimension = int(generator.integers(1, 80)), int(generator.integers(1, 5))
    points = generator.normal(size=(count, dimension)) * generator.choice([0.1, 1.0, 4.0])
    weights = generator.dirichlet(np.ones(count)) * (generator.random(count) < 0.9)
    weights[0] = 1.0
    threshold = float(generator.choice([0.05, 0.2, 0.5]))
    labels = cluster_labels(points, threshold, weights=weights)
    separated, components = brute_force(points, threshold, weights)
    assert is_separated(points, labels, threshold, weights=weights) == separated
    assert cluster_count(points, threshold, weights=weights) == (len(components) if separated else None)
    reaches = cluster_reaches(points, labels, weights=weights)
    for each in components:
        mine = points[sorted(each)]
        diameter = max((np.linalg.norm(a - b) for a, b in combinations(mine, 2)), default=0.0)
        reach = reaches[labels[min(each)]]
        assert diameter / 2 <= reach * (1 + 1e-12) + 1e-15
        assert reach <= diameter * (1 + 1e-12) + 1e-15


def test_a_reach_is_taken_from_the_centre_of_mass_and_bears_any_size():
    points, weights = np.array([[0.0], [1.0], [5.0]]), [3.0, 1.0, 0.0]
    np.testing.assert_allclose(cluster_reaches(points, [0, 0, -1], weights=weights), [0.75])
    np.testing.assert_allclose(cluster_reaches(1e200 * points, [0, 0, 1]), [5e199, 0.0])
    with pytest.raises(ShapeError, match=r"`labels` must have shape \(3,\), but has \(2,\)"):
        cluster_reaches(points, [0, 0])
    with pytest.raises(ArgumentError, match="`threshold` must be non-negative"):
        is_separated(points, [0, 0, 0], -1.0)


@pytest.mark.parametrize(
    ("points", "threshold", "count"),
    [
        (np.linspace(0, 1, 301)[:, None], 0.02, None),  # a line that is a chain: it reaches 25 thresholds
        (CIRCLE, 0.05, None),
        (CIRCLE, 0.32, None),
        (CIRCLE, 0.34, 1),  # three thresholds are more than the radius: nothing on it is far wider
        (SPHERE, 0.2, None),
        (SPHERE, 0.36, 1),
        (1e-3 * CIRCLE, 0.05, 1),
        (np.concatenate([1e-3 * CIRCLE, 1e-3 * CIRCLE + 1]), 0.05, 2),
        (np.concatenate([1e-3 * CIRCLE, CIRCLE[:399:2]]), 0.05, 2),  # the chain has a third of the mass
        (CIRCLE[::10], 0.05, 40),  # far apart: each is a cluster of its own
        (np.zeros((5, 2)), 0.0, 1),
        (np.full((10, 2), 0.1), 0.0, 1),  # the mean of equal numbers is off by rounding
    ],
)
def test_what_is_a_chain(points, threshold, count):
    assert cluster_count(points, threshold) == count
    labels = cluster_labels(points, threshold)
    twice = np.concatenate([points, points[:1]])  # the first particle split in two at its place: nothing changes
    weights = np.full(len(twice), 1.0)
    weights[[0, -1]] = 0.5
    assert cluster_count(twice, threshold, weights=weights) == count
    assert is_separated(points * 1e-150, labels, threshold * 1e-150) == (count is not None)


def parties(frames: int = 16) -> Trajectory:
    """80 opinions, evenly on [−1, 1], that go to four places as e^(−t): one chain of dense particles at first."""
    start = np.linspace(-1, 1, 80)
    places = np.array([-0.75, -0.25, 0.25, 0.75])
    end = places[np.abs(start[:, None] - places).argmin(axis=1)]
    times = np.linspace(0, 6, frames)
    return Trajectory.from_arrays(times, (end + np.exp(-times)[:, None] * (start - end))[:, :, None])


def tails(frames: int = 61) -> Trajectory:
    """Singles that form two atoms, at 0 and 30, by t = 2; the heavier has a tail that goes over to the other one.

    Particle j = 1 … 12 of the tail is at 0.9 j, linked to its neighbours at the distance 1; those with j > 3 leave one
    after the other, the last one first, at a speed of 1.5: every one is a component of its own on its way.
    """
    number = np.arange(1, 13)
    start = 10.0 * np.arange(100)  # far from one another
    leaves = np.where(number > 3, 16.0 - number, np.inf)
    times, points = np.linspace(0, 40, frames), np.empty((frames, 100, 1))
    for k, t in enumerate(times):
        gathered = min(t / 2, 1.0)
        tail = np.minimum(0.9 * number + 1.5 * np.maximum(t - leaves, 0), 30)
        points[k, :, 0] = (1 - gathered) * start + gathered * np.concatenate([np.repeat([0.0, 30.0], [60, 28]), tail])
    return Trajectory.from_arrays(times, points)


def components_of(run: Trajectory, threshold: float) -> list[int]:
    """How many components there are in each frame on a line: one more than gaps that are wider than the threshold."""
    places = np.sort(np.asarray(run.points)[..., 0], axis=1)
    return (1 + (np.diff(places, axis=1) > threshold).sum(axis=1)).tolist()


def test_a_dense_start_has_no_clusters_until_it_is_separated():
    run, r = parties(), 0.03
    separated = [brute_force(np.asarray(frame), r, np.ones(80))[0] for frame in run.points]
    begin = separated.index(True)
    assert 0 < begin < len(run)
    assert all(separated[begin:])
    assert components_of(run[:1], r) == [1]
    track = track_clusters(run, r)
    np.testing.assert_array_equal(track.counts, [np.nan] * begin + [4] * (len(run) - begin))
    np.testing.assert_array_equal(cluster_counts(run, r), track.counts)
    assert track.components.tolist() == components_of(run, r)
    assert (track.labels[:begin] == -1).all()
    assert [birth.time for birth in track.tree.births] == [run.times[begin]] * 4
    assert track.tree.merges == []
    assert np.isnan(track.largest_mass[:begin]).all()
    np.testing.assert_allclose(track.effective_count[begin:], 4, rtol=1e-12)
    assert f"not separated → 4, unchanged since t = {run.times[begin - 1]:g}–{run.times[begin]:g}" in repr(track)
    again = ClusterTrack.from_arrays(track.arrays())
    np.testing.assert_array_equal(again.counts, track.counts)
    assert again.tree == track.tree
    (plateau,) = find_plateaus(track.times, track.counts)
    assert (plateau.count, plateau.first, plateau.open_start) == (4, begin, False)


def test_the_summary_and_the_last_line_say_since_when_clusters_are_separated():
    run = parties()
    summary = json.loads(json.dumps(summarize(run, threshold=0.03), allow_nan=False))
    clusters = summary["clusters"]
    begin = clusters["counts"].index(4)
    between = [run.times[begin - 1], run.times[begin]]
    assert (clusters["initial_count"], clusters["final_count"]) == (None, 4)
    assert clusters["not_separated"] == {"from": None, "until": between}
    assert summary["thresholds"]["chain_reach"] == pytest.approx(0.09)
    assert summary["merge_tree"]["births"] == 4
    assert clusters_line(summary) == f"not separated until t = {between[0]:.4g}–{between[1]:.4g}, then 4 clusters"


@pytest.mark.parametrize("frames", [slice(0, 2), slice(None, None, -1)])
def test_a_run_that_ends_as_a_cloud_has_no_final_clusters(frames):
    """The start of the parties, which is never separated, and their way backwards, which ends so."""
    points = np.asarray(parties().points)[frames]
    run = Trajectory.from_arrays(np.arange(float(len(points))), points)
    track = track_clusters(run, 0.03)
    summary = json.loads(json.dumps(summarize(run, threshold=0.03, track=track), allow_nan=False))
    assert summary["clusters"]["final_count"] is None
    assert summary["clusters"]["final_masses"] == []
    assert summary["agreement"]["silhouette"] is None
    assert summary["collapse"]["time"] is None
    if len(run) == 2:
        assert np.isnan(track.counts).all()
        assert (track.tree.births, track.tree.linkage(complete_at=5.0).shape) == ([], (0, 4))
        assert str(clusters_line(summary)).startswith("clusters are not separated at any time")
    else:
        first = int(np.isfinite(track.counts).sum())
        assert track.counts[:first].tolist() == [4] * first
        said = f"4 clusters at first, not separated since t = {first - 1}–{first}; 1 chain at the end holds"
        assert str(clusters_line(summary)).startswith(said)
        assert f"4 → not separated since t = {first - 1}–{first}" in repr(track)


def test_two_strings_are_two_chains_and_no_clusters():
    """Of 200 particles 120 are on one line and 60 on another, each near to the next; 20 are alone."""
    strings = np.concatenate([np.linspace(0, 12, 120), np.linspace(100, 106, 60), 200 + 50 * np.arange(20)])
    scattered = 1e3 * np.arange(200.0)
    run = Trajectory.from_arrays([0.0, 1.0], np.stack([scattered, strings])[..., None])
    summary = json.loads(json.dumps(summarize(run, threshold=0.5)))
    assert summary["clusters"]["final_count"] is None
    np.testing.assert_allclose(summary["clusters"]["final_chains"], [0.6, 0.3], rtol=1e-12)
    said = "200 clusters at first, not separated since t = 0–1; 2 chains at the end hold 60 %, 30 %"
    assert clusters_line(summary) == said


def test_a_count_is_not_thrown_about_by_tails():
    """Single linkage counts 100, 2 and up to 9 again, as the bridges of a tail break; that stretch has no number."""
    run, r = tails(), 1.0
    linked = components_of(run, r)
    lowest = int(np.argmin(linked))
    assert linked[0] == 100
    assert max(linked[lowest:]) > linked[lowest]  # the pieces of the tail: what was counted before
    counts = cluster_counts(run, r)
    known = counts[np.isfinite(counts)]
    assert (np.diff(known) <= 0).all()
    assert counts[-1] == 2
    gap = np.flatnonzero(np.isnan(counts))
    assert gap.size > 0
    assert np.array_equal(gap, np.arange(gap[0], gap[-1] + 1))
    assert track_clusters(run, r).tree.not_separated == (
        ((run.times[gap[0] - 1] + run.times[gap[0]]) / 2, (run.times[gap[-1]] + run.times[gap[-1] + 1]) / 2),
    )


def test_a_cloud_has_not_collapsed():
    times, cloud = np.arange(5.0), np.nan
    assert collapse_time(times, [cloud, cloud, 1, 1, 1]) == (1.0, 2.0)
    assert collapse_time(times, [4, 1, cloud, 1, 1]) == (2.0, 3.0)
    assert collapse_time(times, [4, 1, 1, 1, cloud]) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "values", "last"),
    [
        ("bounded_confidence", {}, 4),
        ("million_tokens", {"initial.count": 20_000}, 4),
        ("set_norm_moons", {}, 8),
    ],
)
def test_the_counts_of_scenarios_that_begin_or_become_chains_only_fall(name, values: dict[str, Any], last):
    import particleflow as pf

    setup = pf.scenario.load(name).with_values(values).build()
    run = pf.simulate(setup.flow, setup.start, setup.times, **setup.arguments)
    track = track_clusters(run)
    known = track.counts[np.isfinite(track.counts)]
    assert known[-1] == last
    assert (np.diff(known) <= 0).all()
    assert np.isnan(track.counts).any()
    assert np.ptp(track.components[np.isnan(track.counts)]) > 2  # which was told as a number of clusters
    if name != "set_norm_moons":
        assert np.isnan(track.counts[0])
        assert {birth.frame for birth in track.tree.births} == {int(np.flatnonzero(np.isfinite(track.counts))[0])}
