"""Instants of an animation against closed forms: by motion and merges, even in time, in log time and in arc length."""

import numpy as np
import pytest

from particleflow import view
from particleflow.errors import ArgumentError, ShapeError
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view.movie.clock import clock_texts, progress_shares
from particleflow.view.resampling import interpolate, log_coordinate, resample


def run_of(times, points=None):
    times = np.asarray(times, float)
    points = np.zeros((len(times), 2, 2)) if points is None else points
    return Trajectory.from_arrays(times, points)


def position(instants):
    return instants.lower + instants.fraction


def test_linear_spacing_of_linear_times_is_even_in_frames():
    instants = resample(run_of(np.linspace(0, 8, 33)), 65, "linear")
    np.testing.assert_allclose(position(instants), np.linspace(0, 32, 65), atol=1e-12)
    np.testing.assert_allclose(instants.times, np.linspace(0, 8, 65), atol=1e-12)


def test_log_spacing_of_log_times_is_even_in_frames():
    times = np.geomspace(1e-3, 1e12, 61)
    instants = resample(run_of(times), 31, "log")
    np.testing.assert_allclose(position(instants), 2.0 * np.arange(31), atol=1e-9)
    np.testing.assert_allclose(instants.times, times[::2], rtol=1e-12)


def test_log_spacing_of_linear_times_follows_the_closed_form():
    step, last, count = 0.25, 400, 50
    instants = resample(run_of(step * np.arange(last + 1)), count, "log")
    # t = 0 sits one factor of two before the first positive time, so t_j = (step / 2) (2 last)^(j / (count - 1))
    expected = step / 2 * (2 * last) ** (np.arange(count) / (count - 1))
    late = expected >= step
    np.testing.assert_allclose(instants.times[late], expected[late], rtol=1e-9)
    np.testing.assert_array_equal(instants.lower[late][:-1], np.floor(expected[late] / step + 1e-9)[:-1])
    assert np.all(instants.times[~late] < step)


def test_zero_time_is_one_step_before_the_first_positive():
    np.testing.assert_allclose(log_coordinate(np.array([0.0, 1.0, 10.0, 1000.0])), np.log([0.1, 1, 10, 1000]))
    with pytest.raises(ArgumentError, match="no saved time is positive"):
        log_coordinate(np.zeros(3))


def test_arc_spacing_gives_frames_to_motion_not_to_rest():
    times = np.arange(101.0)
    place = np.where(times < 90, 0.0, times - 90)  # at rest for 90 % of the time, then a steady walk
    run = run_of(times, place[:, None, None] * np.ones((1, 3, 1)))
    instants = resample(run, 11, "arc")
    np.testing.assert_allclose(position(instants)[1:], np.arange(91, 101), atol=1e-9)
    assert instants.lower[0] <= 90


def walk(times, steps, metadata=None):
    """Three particles that go the same way on a line, by `steps` from frame to frame."""
    places = np.concatenate([[0.0], np.cumsum(steps)])
    return Trajectory.from_arrays(times, places[:, None, None] * np.ones((1, 3, 1)), metadata=metadata)


def test_a_rest_takes_its_part_of_a_fifth_of_the_movie_however_long_it_is():
    """At rest for nine tenths of the time, then ten equal steps: .18 of the movie for the rest, .082 for each step."""
    run = walk(np.arange(101.0), np.arange(100) >= 90)
    times = resample(run, 1001).times
    index = np.arange(1001)
    np.testing.assert_allclose(times, np.where(index <= 180, index / 2, 90 + (index - 180) / 82), atol=1e-9)


def test_a_merge_is_shown_slower_and_a_growing_number_of_clusters_is_not():
    """Steady motion, eight clusters become four half way: .15 of the movie more for .015 + .005 + .015 of the way."""
    run = walk(np.arange(201.0), np.ones(200))
    counts = np.where(np.arange(201) <= 98, 8, 4)
    target = np.linspace(0, 1, 501)
    knots = [0.0, 0.475, 0.51, 1.0]
    passed = [0.0, 0.85 * 0.475, 0.85 * 0.51 + 0.15, 1.0]
    expected = np.interp(target, passed, knots)
    np.testing.assert_allclose(position(resample(run, 501, counts=counts)) / 200, expected, atol=1e-12)
    np.testing.assert_allclose(position(resample(run, 501, counts=counts[::-1])) / 200, target, atol=1e-12)


def test_merges_weigh_by_the_ratio_of_the_counts():
    """16 → 8 clusters and 8 → 1: one and three halvings share what merges are given."""
    run = walk(np.arange(201.0), np.ones(200))
    counts = np.select([np.arange(201) <= 48, np.arange(201) <= 148], [16, 8], 1)
    shown = position(resample(run, 20001, counts=counts)) / 200
    spent = [np.mean((shown > begin) & (shown < begin + 0.035)) for begin in (0.225, 0.725)]
    np.testing.assert_allclose(spent, [0.85 * 0.035 + 0.15 / 4, 0.85 * 0.035 + 0.15 * 3 / 4], atol=2e-4)


def test_what_happens_between_two_saved_frames_takes_little_of_the_movie():
    """Nearly all motion lies in one of a hundred intervals: as in one of twenty, it is a straight line all the same."""
    run = walk(np.arange(101.0), np.where(np.arange(100) == 50, 99.0, 1 / 99))
    inside = np.mean(resample(run, 4001).lower == 50)
    assert inside == pytest.approx(0.8 * 0.05 / (0.05 + 0.01) + 0.2 * 0.01, abs=1e-3)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("merges", "most"), [(False, 0.2 / 0.92), (True, (0.15 + 0.85 * 0.2) / (1 - 0.1 * 0.85 * 0.8))]
)
def test_few_frames_of_any_run_stand_still(seed, merges, most):
    """Of runs that rest for three quarters of their frames: those with less than a tenth of the mean motion."""
    generator = np.random.default_rng(seed)
    steps = generator.uniform(0.5, 1.0, 200) * np.repeat(generator.permutation(20) < 5, 10)
    times = np.cumsum(generator.exponential(size=201))
    counts = np.maximum(100 - np.cumsum(generator.integers(0, 3, 201)), 1) if merges else None
    instants = resample(walk(times, steps), 2001, counts=counts)
    way = np.interp(position(instants), np.arange(201), np.concatenate([[0.0], np.cumsum(steps)]))
    moved = np.diff(way)
    assert np.mean(moved < 0.1 * moved.mean()) <= most + 1 / 200
    assert np.all(np.diff(instants.times) >= 0)


def test_steady_motion_is_even_in_time_or_in_log_time_as_it_was_saved():
    linear = resample(walk(np.linspace(0, 5, 50), np.ones(49)), 99)
    np.testing.assert_allclose(linear.times, np.linspace(0, 5, 99), atol=1e-12)
    times = np.geomspace(1e-2, 1e6, 200)
    np.testing.assert_allclose(position(resample(walk(times, np.ones(199)), 399)), np.linspace(0, 199, 399), atol=1e-9)


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"step": 1.0}, "step {:.0f}"),
        ({"step": 1.0, "drift": "trained_layers"}, "layer {:.0f}"),
        ({"step": 1.0, "drift": "layers", "changes": [1.0, 2.0]}, "layer {:.0f}"),
        ({"step": 1.0, "drift": "layers", "changes": [4.0, 8.0]}, "step {:.0f}"),  # four steps a layer
        ({"step": 0.5, "drift": "trained_layers"}, "t = {:#.3g}"),
    ],
)
@pytest.mark.parametrize("pictures", [24, 96])
def test_a_map_is_shown_at_its_steps_alone_in_the_words_of_figures(metadata, words, pictures):
    run = walk(np.arange(11.0), np.ones(10), {"solver": "map", **metadata})
    instants = resample(run, pictures)
    np.testing.assert_array_equal(position(instants), np.rint(np.linspace(0, 10, pictures)))
    np.testing.assert_array_equal(instants.times, position(instants))
    expected = [words.format(step).removesuffix(".") if step else words.format(0.0) for step in instants.times]
    expected = [text.replace("t = 0.00", "t = 0") for text in expected]
    assert clock_texts(run, instants) == expected
    assert view.similarity(run).get_xlabel() == (words.split()[0] if "t =" not in words else "time $t$")


def test_progress_is_a_share_of_the_axis_that_is_drawn():
    times = np.array([0.0, 1.0, 10.0, 100.0])
    np.testing.assert_allclose(progress_shares(times, np.array([0.0, 25.0, 100.0]), log=False), [0, 0.25, 1])
    ends = np.log([0.5, 100.0])  # a first frame at 0 is drawn at half the first positive time
    expected = (np.log([0.5, 1.0, 10.0, 100.0]) - ends[0]) / (ends[1] - ends[0])
    np.testing.assert_allclose(progress_shares(times, times, log=True), expected)
    np.testing.assert_array_equal(progress_shares(times[:1], times[:1], log=False), [1.0])


@pytest.mark.parametrize("spacing", ["motion", "linear", "log", "arc"])
def test_first_and_last_frames_are_shown_and_order_is_kept(spacing):
    generator = np.random.default_rng(0)
    times = np.sort(generator.exponential(size=40)).cumsum()
    run = run_of(times, generator.normal(size=(40, 5, 3)).cumsum(axis=0))
    instants = resample(run, 97, spacing)
    assert position(instants)[0] == pytest.approx(0)
    assert position(instants)[-1] == pytest.approx(39)
    assert np.all(np.diff(position(instants)) >= -1e-12)
    assert np.all(np.diff(instants.times) >= -1e-12)
    assert np.all((instants.fraction >= 0) & (instants.fraction <= 1))
    np.testing.assert_array_equal(instants.nearest, np.rint(position(instants)).astype(int))


def test_one_frame_and_motionless_runs():
    one = resample(run_of([3.0]), 4)
    np.testing.assert_array_equal(one.lower, 0)
    np.testing.assert_array_equal(one.fraction, 0)
    np.testing.assert_array_equal(one.times, 3.0)
    still = resample(run_of(np.arange(5)), 9, "arc")
    np.testing.assert_allclose(position(still), np.linspace(0, 4, 9))


def test_wrong_arguments_are_named():
    with pytest.raises(ArgumentError, match="'cubic'"):
        resample(run_of([0, 1]), 3, "cubic")
    with pytest.raises(ArgumentError, match="at least 1"):
        resample(run_of([0, 1]), 0)
    with pytest.raises(ShapeError, match="counts"):
        resample(run_of([0, 1]), 3, counts=[1, 2, 3])


def test_interpolation_on_the_sphere_bisects_the_arc():
    before, after = np.array([[2.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 2.0], [-1.0, 0.0]])
    middle = interpolate(before, after, 0.5, spherical=True)
    np.testing.assert_allclose(middle[0], [np.sqrt(2), np.sqrt(2)])
    np.testing.assert_allclose(np.linalg.norm(middle, axis=-1), [2, 1])
    np.testing.assert_allclose(interpolate(before, after, 0.25), 0.75 * before + 0.25 * after)
