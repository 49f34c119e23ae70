"""Rates, plateaus, collapse times and convergence in N, against planted answers."""

import numpy as np
import pytest
from scipy.stats import linregress

from particleflow.analysis import (
    better_law,
    collapse_time,
    convergence_slope,
    find_plateaus,
    first_real_merge,
    fit_exponential,
    fit_line,
    fit_power_law,
)
from particleflow.errors import ArgumentError, ShapeError


def test_line_is_scipys():
    generator = np.random.default_rng(0)
    x = np.sort(generator.uniform(size=30))
    y = 2 - 3 * x + 0.1 * generator.normal(size=30)
    fit = fit_line(x, y, ordered=False)
    slope, intercept, correlation, _, error = tuple(linregress(x, y))
    assert fit.slope == pytest.approx(slope)
    assert fit.intercept == pytest.approx(intercept)
    assert fit.standard_error == pytest.approx(error)
    assert fit.r_squared == pytest.approx(correlation**2)


def test_exact_rates_come_back_exactly():
    times = np.linspace(0.5, 4, 80)
    decay = fit_exponential(times, 5 + 3 * np.exp(-1.7 * times), limit=5)
    assert decay.rate == pytest.approx(-1.7, abs=1e-10)
    assert decay.amplitude == pytest.approx(3, rel=1e-9)
    assert decay.low <= -1.7 + 1e-9
    assert decay.high >= -1.7 - 1e-9
    power = fit_power_law(times, 4 * times**-2.0)
    assert (power.law, power.rate) == ("power", pytest.approx(-2))
    assert better_law(times, np.exp(0.3 * times)).law == "exponential"
    assert better_law(times, times**1.5).rate == pytest.approx(1.5)


def test_window_is_used_and_stated():
    times = np.linspace(0, 10, 101)
    values = np.where(times < 5, np.exp(-times), np.exp(-5 + 2 * (times - 5)))
    fit = fit_exponential(times, values, window=(5.0, 10.0))
    assert fit.rate == pytest.approx(2)
    assert fit.window == (5.0, 10.0)
    assert fit.points == 51


@pytest.mark.parametrize(("memory", "lowest"), [(0.0, 0.92), (0.8, 0.85)])
def test_intervals_cover_the_truth_as_often_as_they_say(memory, lowest):
    # 400 noisy decays with independent or correlated noise; without the correction the second covers about 50 %.
    generator = np.random.default_rng(1)
    times = np.linspace(0, 5, 200)
    inside = 0
    for _ in range(400):
        noise = 0.1 * generator.normal(size=200)
        for k in range(1, 200):
            noise[k] += memory * noise[k - 1]
        fit = fit_exponential(times, np.exp(-0.5 * times + noise))
        inside += fit.low <= -0.5 <= fit.high
    assert lowest <= inside / 400 <= 0.985


def test_rates_say_what_is_wrong():
    with pytest.raises(ArgumentError, match="time 1"):
        fit_exponential([0, 1, 2], [1.0, 0.0, 1.0])
    with pytest.raises(ArgumentError, match="holds 1"):
        fit_exponential([0, 1, 2], [1.0, 2.0, 1.0], window=(0.5, 1.5))
    with pytest.raises(ArgumentError, match="positive times"):
        fit_power_law([-1, 0], [1.0, 2.0])
    with pytest.raises(ShapeError, match="one length"):
        fit_exponential([0, 1], [1.0, 2.0, 3.0])
    with pytest.raises(ArgumentError, match="must not decrease"):
        fit_exponential([1, 0], [1.0, 2.0])
    assert np.isnan(fit_line([0.0, 1.0], [0.0, 2.0]).low)


def staircase(ruler: np.ndarray, jumps: list[float], levels: list[float]) -> np.ndarray:
    return np.array(levels)[np.searchsorted(jumps, ruler, side="right")]


def test_planted_plateaus_in_log_time():
    times = np.logspace(0, 8, 401)
    decades = np.log10(times)
    counts = staircase(decades, [1, 3, 6.5], [40, 5, 3, 1])
    energy = staircase(decades, [1, 3, 6.5], [0.0, 1.0, 1.5, 2.0])
    plateaus = find_plateaus(times, counts, energy)
    assert [plateau.count for plateau in plateaus] == [5, 3, 1]
    np.testing.assert_allclose(np.array([plateau.decades for plateau in plateaus], float), [2, 3.5, 1.5], atol=0.03)
    np.testing.assert_allclose(np.array([plateau.energy for plateau in plateaus], float), [1, 1.5, 2])
    assert plateaus[1].dwell == pytest.approx(10**6.5 - 10**3, rel=0.06)
    assert [plateau.open_end for plateau in plateaus] == [False, False, True]
    assert not any(plateau.open_start for plateau in plateaus)


def test_energy_alone_has_plateaus_where_it_is_flat_and_divides_no_tread_of_the_count():
    times = np.linspace(0, 10, 501)
    energy = np.where(times < 4, 0.0, np.where(times < 6, (times - 4) / 2, 1.0))
    plateaus = find_plateaus(times, energy=energy)
    np.testing.assert_allclose([(p.start, p.end) for p in plateaus], [(0, 4), (6, 10)], atol=0.021)
    assert plateaus[0].decades is None
    (whole,) = find_plateaus(times, np.ones(501, dtype=int), energy)
    assert (whole.start, whole.end, whole.count, whole.open_start, whole.open_end) == (0, 10, 1, True, True)
    assert whole.energy == pytest.approx(energy.mean())


@pytest.mark.parametrize(
    ("counts", "begin", "treads"),
    [
        ([51, 51, 52, 52, 51, 49, 51, 50, 50, 30, 9, 5, 5, 5, 4, 4], 9, [5, 4]),  # chains of the start come and go
        ([9, 9, 4, 4, 4, 6, 6, 6, 2, 2], 2, [4, 6, 2]),  # a split after the merge is a tread of its own
        ([7, 7, 8, 8, 7, 7], None, []),
        ([3, 3, 3], None, [3]),
        ([2, 1], 1, []),
        ([5], None, []),
    ],
)
def test_treads_begin_with_the_first_real_merge(counts, begin, treads):
    assert first_real_merge(counts) == begin
    by_definition = [k for k in range(1, len(counts)) if max(counts[k:]) < min(counts[:k])]
    assert by_definition[:1] == ([] if begin is None else [begin])
    assert [plateau.count for plateau in find_plateaus(np.arange(len(counts)), counts)] == treads


CLOUD = float("nan")  # in place of a count: clusters are not separated


@pytest.mark.parametrize(
    ("counts", "begin", "treads"),
    [
        ([CLOUD, CLOUD, CLOUD, 17, 17, 11, 6, 4, 4, 4], 3, [17, 4]),  # a dense cloud, then stragglers are absorbed
        ([CLOUD, CLOUD, 3, 3, 3], 2, [3]),
        ([9, 9, 8, CLOUD, CLOUD, 5, 5, 5, 4, 4], 2, [5, 4]),  # it becomes one in between
        ([7, 7, 8, 8, CLOUD, 8, 7], None, []),
        ([1, 1, 3, 3, 3], None, []),  # one cluster that breaks up is no cloud
        ([3, 3, CLOUD, CLOUD], None, []),
        ([CLOUD, CLOUD], None, []),
    ],
)
def test_treads_leave_out_frames_without_a_count(counts, begin, treads):
    assert first_real_merge(counts) == begin
    sides = {k: [[c for c in side if c == c] for side in (counts[:k], counts[k:])] for k in range(1, len(counts))}
    by_definition = [
        k for k, (before, after) in sides.items() if counts[k] == counts[k] and max(after) < min(before, default=np.inf)
    ]
    assert by_definition[:1] == ([] if begin is None else [begin])
    assert [plateau.count for plateau in find_plateaus(np.arange(len(counts)), counts)] == treads


def test_short_pauses_are_not_plateaus():
    times = np.linspace(0, 1, 1001)
    counts = staircase(times, [0.5, 0.52], [3, 2, 1])
    assert [plateau.count for plateau in find_plateaus(times, counts)] == [1]
    assert [plateau.count for plateau in find_plateaus(times, counts, minimum=0.01)] == [2, 1]
    assert find_plateaus([0.0], [1]) == []
    with pytest.raises(ArgumentError, match="counts"):
        find_plateaus(times)


def test_collapse_time_waits_for_the_last_split():
    assert collapse_time([0, 1, 2, 3, 4], [3, 1, 2, 1, 1]) == (2, 3)
    assert collapse_time([0, 1], [1, 1]) == (0, 0)
    assert collapse_time([0, 1], [1, 2]) is None
    assert collapse_time([0, 1, 2], [5, 2, 2], target=2) == (0, 1)


def test_convergence_slope_of_sample_means_is_a_half():
    generator = np.random.default_rng(3)
    counts = 50 * 2 ** np.arange(7)
    errors = np.array([generator.uniform(-1, 1, size=(200, n)).mean(axis=1) for n in counts])
    fit = convergence_slope(counts, errors)
    assert fit.low <= -0.5 <= fit.high
    assert abs(fit.slope + 0.5) < 0.03
    assert fit.high - fit.low < 0.1
    assert fit.prefactor == pytest.approx(np.sqrt(1 / 3), rel=0.15)
    single = convergence_slope(counts, 7.0 / counts)
    assert (single.slope, single.method) == (pytest.approx(-1), "student")
    with pytest.raises(ArgumentError, match="N = 100"):
        convergence_slope([50, 100], [1.0, 0.0])
