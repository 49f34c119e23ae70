"""Distances between measures against POT and SciPy, modes against closed forms and sums over pairs."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import eval_legendre

from particleflow.analysis import (
    energy_distance,
    fourier_amplitudes,
    growth_rates,
    growth_window,
    harmonic_amplitudes,
    mode_amplitudes,
    sliced_wasserstein2,
    symmetry_errors,
    wasserstein1,
    wasserstein2,
)
from particleflow.errors import ArgumentError, ShapeError
from particleflow.trajectory.trajectory import Trajectory


def clouds(first: int, second: int, dimension: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(first + 7 * second + dimension)
    x, y = generator.normal(size=(first, dimension)), 0.5 + generator.normal(size=(second, dimension))
    a, b = generator.dirichlet(np.ones(first)), generator.dirichlet(np.ones(second))
    return x, y, a, b


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_w2_by_assignment_is_pots(dimension):
    import ot  # takes most of a second

    x, y, _, _ = clouds(60, 60, dimension)
    uniform = np.full(60, 1 / 60)
    assert wasserstein2(x, y) ** 2 == pytest.approx(ot.emd2(uniform, uniform, ot.dist(x, y)), rel=1e-9)


@pytest.mark.parametrize(("first", "second", "dimension"), [(40, 40, 3), (30, 50, 2), (30, 50, 1), (1, 20, 2)])
def test_weighted_w2_is_pots(first, second, dimension):
    import ot  # takes most of a second

    x, y, a, b = clouds(first, second, dimension)
    expected = ot.emd2(a, b, ot.dist(x, y))
    assert wasserstein2(x, y, x_weights=a, y_weights=b) ** 2 == pytest.approx(expected, rel=1e-6)


def test_w2_of_shifts_and_on_the_circle():
    x = np.random.default_rng(0).normal(size=(100, 3))
    assert wasserstein2(x, x + np.array([3.0, 0.0, 4.0])) == pytest.approx(5)
    angles = np.array([0.3, 1.0])
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert wasserstein2(points[:1], points[1:], metric="geodesic") == pytest.approx(0.7)
    assert wasserstein2(points[:1], points[1:]) == pytest.approx(2 * np.sin(0.35))
    with pytest.raises(ArgumentError, match="unit vectors"):
        wasserstein2(2 * points, points, metric="geodesic")


def test_w2_refuses_what_is_too_large():
    with pytest.raises(ArgumentError, match="sliced_wasserstein2"):
        wasserstein2(np.zeros((6000, 2)), np.zeros((6000, 2)))
    with pytest.raises(ArgumentError, match="1000000 pairs"):
        wasserstein2(np.zeros((2000, 2)), np.zeros((1000, 2)))
    with pytest.raises(ShapeError, match="one dimension"):
        wasserstein2(np.zeros((2, 2)), np.zeros((2, 3)))


def test_sliced_w2_is_pots_on_the_same_directions():
    import ot  # takes most of a second

    x, y, a, b = clouds(80, 120, 4)
    directions = np.random.default_rng(11).normal(size=(4, 64))
    directions /= np.linalg.norm(directions, axis=0)
    expected = np.asarray(ot.sliced_wasserstein_distance(x, y, a, b, projections=directions)).item()
    found = sliced_wasserstein2(x, y, x_weights=a, y_weights=b, seed=11, directions=64)
    assert found == pytest.approx(expected, rel=1e-9)


def test_sliced_w2_of_a_shift_is_its_length_over_root_d():
    x = np.random.default_rng(0).normal(size=(50, 3))
    shifted = sliced_wasserstein2(x, x + np.array([0.0, 3.0, 0.0]), seed=0, directions=20_000)
    assert shifted == pytest.approx(3 / np.sqrt(3), rel=0.02)


def test_energy_distance_is_scipys_on_a_line_and_a_double_sum_elsewhere():
    x, y, a, b = clouds(1500, 1100, 1)
    expected = stats.energy_distance(x[:, 0], y[:, 0], a, b)
    assert energy_distance(x, y, x_weights=a, y_weights=b) == pytest.approx(expected, rel=1e-9)
    x, y, a, b = clouds(30, 40, 3)
    mean = [
        sum(u * v * np.linalg.norm(p - q) for p, u in zip(s, us, strict=True) for q, v in zip(t, vs, strict=True))
        for s, us, t, vs in ((x, a, y, b), (x, a, x, a), (y, b, y, b))
    ]
    assert energy_distance(x, y, x_weights=a, y_weights=b) ** 2 == pytest.approx(2 * mean[0] - mean[1] - mean[2])
    assert energy_distance(x, x) == 0.0


def test_fourier_amplitudes_of_polygons_and_points():
    angles = 0.4 + 2 * np.pi * np.arange(5) / 5
    np.testing.assert_allclose(fourier_amplitudes(angles, 10), [0, 0, 0, 0, 1] * 2, atol=1e-13)
    points = 3.0 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    np.testing.assert_allclose(fourier_amplitudes(points, 10), fourier_amplitudes(angles, 10), atol=1e-13)
    pair = fourier_amplitudes([0.0, np.pi], 3, weights=[0.75, 0.25])
    np.testing.assert_allclose(pair, [0.5, 1.0, 0.5], atol=1e-15)


def test_harmonic_amplitudes_are_legendre_sums_over_pairs():
    generator = np.random.default_rng(2)
    points = generator.normal(size=(40, 3))
    weights = generator.dirichlet(np.ones(40))
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    cosine = unit @ unit.T
    expected = [np.sqrt(weights @ eval_legendre(degree, cosine) @ weights) for degree in range(1, 9)]
    np.testing.assert_allclose(harmonic_amplitudes(points, 8, weights=weights), expected, rtol=1e-10)
    np.testing.assert_allclose(harmonic_amplitudes([[0.0, 0.6, -0.8]], 4), 1.0)


def test_growth_rate_of_a_planted_mode_and_its_window():
    # θ_j = 2πj/N + ε e^{0.7 t} sin(3·2πj/N) has |c_3| = J_1(3 ε e^{0.7 t}) ≈ 1.5 ε e^{0.7 t}, to 2 % of rate at most.
    times = np.linspace(0, 20, 400)
    grid = 2 * np.pi * np.arange(120) / 120
    angles = grid + np.minimum(1e-5 * np.exp(0.7 * times), 0.8)[:, None] * np.sin(3 * grid)
    run = Trajectory.from_arrays(times, np.stack([np.cos(angles), np.sin(angles)], axis=2))
    amplitudes = mode_amplitudes(run, 4)
    fits = growth_rates(times, amplitudes)
    assert fits[2] is not None
    assert fits[2].rate == pytest.approx(0.7, rel=1e-3)
    assert fits[2].window[0] == 0.0
    assert fits[0] is None  # rounding only
    window = growth_window(amplitudes[:, 2])
    assert window is not None
    assert amplitudes[window[1], 2] <= 0.05 < amplitudes[window[1] + 1, 2]


def test_modes_that_only_follow_others_have_no_rate_of_their_own():
    """Mode 1 grows at 0.35; mode 2, stable by itself, is driven by its square, and mode 3 by both; mode 4 is free."""
    times = np.linspace(0, 12, 240)
    first = 1e-3 * np.exp(0.35 * times)
    fits = growth_rates(times, np.stack([first, 0.6 * first**2, 0.4 * first**3, 2e-4 * np.exp(0.2 * times)], axis=1))
    assert [fit is None for fit in fits] == [False, True, True, False]
    assert fits[0] is not None
    assert fits[0].rate == pytest.approx(0.35)
    assert fits[3] is not None
    assert fits[3].rate == pytest.approx(0.2)


def test_decay_is_fitted_down_to_rounding_and_short_windows_are_refused():
    times = np.linspace(0, 50, 300)
    fit = growth_rates(times, (0.03 * np.exp(-times) + 1e-17)[:, None])[0]
    assert fit is not None
    assert fit.rate == pytest.approx(-1, abs=1e-3)
    assert growth_window([0.5, 0.04, 0.03, 0.5]) is None


def test_modes_refuse_what_they_are_not_made_for():
    with pytest.raises(ShapeError, match="circle"):
        fourier_amplitudes(np.zeros((3, 4)), 2)
    with pytest.raises(ShapeError, match=r"\(N, 3\)"):
        harmonic_amplitudes(np.zeros((3, 2)), 2)
    with pytest.raises(ArgumentError, match="origin"):
        harmonic_amplitudes(np.zeros((3, 3)), 2)
    with pytest.raises(ArgumentError, match="d is 4"):
        mode_amplitudes(Trajectory.from_arrays([0], np.zeros((1, 2, 4))))


def test_w1_on_a_line_on_a_circle_and_in_space():
    """Closed forms and the linear programs of SciPy and POT."""
    import ot  # takes most of a second

    random = np.random.default_rng(2)
    x, y = random.normal(size=(30, 1)), random.normal(size=(20, 1))
    v, w = random.uniform(size=30), random.uniform(size=20)
    expected = stats.wasserstein_distance(x[:, 0], y[:, 0], v, w)
    assert wasserstein1(x, y, x_weights=v, y_weights=w) == pytest.approx(expected, rel=1e-12)
    angles = [random.uniform(0, 2 * np.pi, 30), random.uniform(0, 1.0, 20)]
    circles = [2.0 * np.stack([np.cos(each), np.sin(each)], axis=1) for each in angles]
    apart = np.abs(angles[0][:, None] - angles[1][None, :])
    cost = 2.0 * np.minimum(apart, 2 * np.pi - apart)
    expected = ot.emd2(v / v.sum(), w / w.sum(), cost)
    found = wasserstein1(*circles, x_weights=v, y_weights=w, metric="geodesic", radius=2.0)
    assert found == pytest.approx(expected, rel=1e-9)
    chords = np.linalg.norm(circles[0][:, None] - circles[1][None], axis=2)
    expected = ot.emd2(v / v.sum(), w / w.sum(), chords)
    assert wasserstein1(*circles, x_weights=v, y_weights=w) == pytest.approx(expected, rel=1e-7)


def test_modes_that_a_symmetric_start_forbids_are_errors():
    """A density of modes 2 and 4 under attention cannot have odd modes; that of modes 2 and 3 has all."""
    angles = 2 * np.pi * np.arange(60) / 60
    points = np.stack([np.stack([np.cos(angles), np.sin(angles)], axis=1)] * 2)
    attention = {"kernel": {"kind": "attention", "form": "inner", "beta": 5.0}, "value": 1.0, "normalization": "row"}

    def errors(masses: np.ndarray, **changes) -> list[int]:
        masses = np.stack([masses, np.roll(masses, 7)]) / 60
        metadata = {"geometry": "sphere", "driven by interactions": True, "interactions": [attention], **changes}
        run = Trajectory.from_arrays([0.0, 1.0], points, fields={"masses": masses}, metadata=metadata)
        return (1 + np.flatnonzero(symmetry_errors(run, 8))).tolist()

    even = 1 + 0.5 * np.cos(2 * angles) + 0.25 * np.cos(4 * angles)
    assert errors(even) == [1, 3, 5, 7]
    assert errors(1 + 0.5 * np.cos(3 * angles)) == [1, 2, 4, 5, 7, 8]
    assert errors(np.ones(60)) == list(range(1, 9))
    assert errors(even + 1e-6 * np.cos(3 * angles)) == []
    assert errors(even, **{"driven by interactions": False}) == []  # something else may have a special place
    assert errors(even, interactions=[attention | {"value": [[1.0, 0.0], [0.0, 2.0]]}]) == []
