"""Noise: the laws of Ornstein–Uhlenbeck and of Brownian motion on the sphere; one path however it is saved."""

import jax
import numpy as np
import pytest

import flows_oracles as oracle
import particleflow as pf
from particleflow import drifts, kernels

KEY = jax.random.key(7)
SPHERE = pf.Flow(pf.Attend(kernels.Attention(beta=2.0)), geometry=pf.Sphere(), temperature=0.1)
START = oracle.random_sphere(1, 5, 3)


def ornstein_uhlenbeck(count, solver=None):
    """dX = −X dt + √(2·0.5) dW from X = 2: mean 2e^{−t}, variance 0.5(1 − e^{−2t})."""
    flow = pf.Flow(drifts.Linear(-1.0), temperature=0.5)
    times = np.array([0.0, 0.5, 1.0])
    run = pf.simulate(flow, np.full((count, 2), 2.0), times, step=1 / 64, key=KEY, solver=solver)
    return np.asarray(run.points), times


@pytest.mark.slow
@pytest.mark.parametrize("solver", [None, "euler"])
def test_ornstein_uhlenbeck(solver):
    count = 5_000
    points, times = ornstein_uhlenbeck(count, solver)
    for frame, time in zip(points[1:], times[1:], strict=True):
        variance = 0.5 * (1 - np.exp(-2 * time))
        bias = 0.02 if solver == "euler" else 2e-4  # Euler's own error at this step, of order one
        error = 4.5 / np.sqrt(2 * count)
        assert abs(frame.mean() - 2 * np.exp(-time)) < error * np.sqrt(variance) + bias
        assert abs(frame.var() / variance - 1) < error * np.sqrt(2) + bias
        assert abs(np.corrcoef(frame.T)[0, 1]) < 4.5 / np.sqrt(count)
    increments = points[2] - np.exp(-0.5) * points[1]
    assert abs(np.corrcoef(increments.ravel(), points[1].ravel())[0, 1]) < 4.5 / np.sqrt(2 * count)


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [2, 5])
def test_brownian_motion_on_the_sphere(dimension):
    """dX = √(2T) dW on S^{d−1}: E⟨X_t, X_0⟩ = e^{−(d−1)Tt}, for d = 2 also the variance."""
    temperature, count, time = 0.4, 20_000, 1.0
    flow = pf.Flow(drifts.Linear(0.0), geometry=pf.Sphere(), temperature=temperature)
    start = np.zeros((count, dimension))
    start[:, 0] = 1.0
    run = pf.simulate(flow, start, [0.0, time], step=1 / 64, key=KEY)
    heights = run.points[-1][:, 0]
    assert (
        abs(heights.mean() - np.exp(-(dimension - 1) * temperature * time))
        < 4.5 * heights.std() / np.sqrt(count) + 1e-3
    )
    # The second Legendre-type function decays at 2d: E[x² − 1/d] = (1 − 1/d) e^{−2dTt}.
    second = heights**2 - 1 / dimension
    exact = (1 - 1 / dimension) * np.exp(-2 * dimension * temperature * time)
    assert abs(second.mean() - exact) < 4.5 * second.std() / np.sqrt(count) + 2e-3
    assert oracle.norm_error(run.points) < 1e-9


@pytest.mark.slow
def test_radius_of_the_sphere_sets_the_speed_of_brownian_motion():
    """On radius r the generator is T Δ/r²: E⟨X_t, X_0⟩/r² = e^{−(d−1)Tt/r²}."""
    count, radius = 20_000, 2.0
    flow = pf.Flow(drifts.Linear(0.0), geometry=pf.Sphere(radius), temperature=0.8)
    start = np.zeros((count, 3))
    start[:, 0] = radius
    run = pf.simulate(flow, start, [0.0, 1.0], step=1 / 64, key=KEY)
    heights = run.points[-1][:, 0] / radius
    assert abs(heights.mean() - np.exp(-0.4)) < 4.5 * heights.std() / np.sqrt(count) + 1e-3


def simulate_sphere(times, **options):
    return pf.simulate(SPHERE, START, times, step=0.01, key=KEY, **options)


@pytest.mark.slow
@pytest.mark.parametrize("window", [7, pytest.param(None, marks=pytest.mark.slow)])
def test_path_does_not_know_how_it_is_saved(window):
    """The same bits at common times, for other times and other windows."""
    full = simulate_sphere(0.01 * np.arange(101), window=window)
    every = np.asarray(full.points)
    sparse = simulate_sphere(0.01 * np.arange(0, 101, 10), window=7)
    assert (np.asarray(sparse.points) == every[::10]).all()
    uneven = np.array([0, 3, 4, 50, 99])
    assert (np.asarray(simulate_sphere(0.01 * uneven, window=7).points) == every[uneven]).all()
    if window is None:
        cut = simulate_sphere(0.01 * np.arange(101), window=7)
        assert (np.asarray(cut.points) == every).all()
    assert oracle.norm_error(every) < 1e-9


@pytest.mark.slow
def test_noise_is_reproducible_from_its_key():
    times = 0.01 * np.arange(0, 101, 10)
    one, same = (np.asarray(simulate_sphere(times, window=7).points) for _ in range(2))
    assert (one == same).all()
    other = np.asarray(pf.simulate(SPHERE, START, times, step=0.01, key=jax.random.key(8), window=7).points)
    assert np.max(np.abs(other - one)) > 0.05


@pytest.mark.slow
def test_particles_have_independent_noise():
    flow = pf.Flow(drifts.Linear(0.0), temperature=0.5)
    run = pf.simulate(flow, np.zeros((2, 4000)), [0.0, 1.0], step=0.5, key=KEY)
    assert abs(np.corrcoef(run.points[-1])[0, 1]) < 4.5 / np.sqrt(4000)
    assert abs(run.points[-1].var() - 1.0) < 4.5 * np.sqrt(2 / 8000)


@pytest.mark.slow
def test_common_noise_moves_all_particles_alike():
    flow = pf.Flow(drifts.Linear(0.0), common_temperature=0.5)
    run = pf.simulate(flow, np.array([[0.0] * 4000, [1.0] * 4000]), [0.0, 1.0], step=0.5, key=KEY)
    assert np.max(np.abs(run.points[-1][1] - run.points[-1][0] - 1.0)) < 1e-12
    assert abs(run.points[-1][0].var() - 1.0) < 4.5 * np.sqrt(2 / 4000)


@pytest.mark.slow
def test_no_temperature_is_no_noise():
    """Temperature tends to 0 without a jump: tiny noise is the deterministic flow."""
    times = 0.005 * np.arange(0, 101, 10)  # as above, so that the program is the same
    quiet = pf.Flow(pf.Attend(kernels.Attention(beta=2.0)), geometry=pf.Sphere(), temperature=1e-20)
    run = pf.simulate(quiet, START, times, step=0.005, key=KEY, window=7)
    expected = oracle.on_sphere(oracle.solve(oracle.attention_field(2.0, sphere=True), START, times))
    assert np.max(np.abs(run.points - expected)) < 1e-5


@pytest.mark.slow
def test_heun_converges_weakly_at_a_coarse_step():
    """Halving the step leaves the mean height of Brownian motion on the sphere where it is, within its error bar."""
    count = 200_000
    flow = pf.Flow(drifts.Linear(0.0), geometry=pf.Sphere(), temperature=0.4)
    start = np.tile([[1.0, 0.0, 0.0]], (count, 1))
    for step in (1 / 16, 1 / 32):
        heights = np.asarray(pf.simulate(flow, start, [0.0, 1.0], step=step, key=KEY).points)[-1][:, 0]
        assert abs(heights.mean() - np.exp(-0.8)) < 4.5 * heights.std() / np.sqrt(count) + 0.1 * step
