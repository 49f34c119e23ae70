"""Instants of an animation against closed forms: even in time, in log time and in arc length."""

import numpy as np
import pytest

from particleflow.errors import ArgumentError
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view.resampling import choose_spacing, interpolate, log_coordinate, resample


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
    assert choose_spacing(run) == "arc"


def test_auto_chooses_by_the_saved_times_and_the_motion():
    assert choose_spacing(run_of(np.concatenate([[0], np.geomspace(1e-2, 1e6, 200)]))) == "log"
    steady = np.linspace(0, 1, 50)[:, None, None] * np.ones((1, 4, 2))
    assert choose_spacing(run_of(np.linspace(0, 5, 50), steady)) == "linear"
    assert choose_spacing(run_of([0.0])) == "linear"


@pytest.mark.parametrize("spacing", ["linear", "log", "arc", "auto"])
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
    one = resample(run_of([3.0]), 4, "auto")
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


def test_interpolation_on_the_sphere_bisects_the_arc():
    before, after = np.array([[2.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 2.0], [-1.0, 0.0]])
    middle = interpolate(before, after, 0.5, spherical=True)
    np.testing.assert_allclose(middle[0], [np.sqrt(2), np.sqrt(2)])
    np.testing.assert_allclose(np.linalg.norm(middle, axis=-1), [2, 1])
    np.testing.assert_allclose(interpolate(before, after, 0.25), 0.75 * before + 0.25 * after)
