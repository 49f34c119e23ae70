"""Theory through densities in cells: Gaussians under every attention, a hard step, clusters out of uniform noise."""

# pyright: reportArgumentType=false

from itertools import pairwise
from typing import Any

import jax
import numpy as np
import pytest
from scipy.signal import find_peaks

import flows_oracles as oracle
import particleflow as pf
import volumes_oracles as volumes
from particleflow import initial, kernels, summation
from particleflow.discretization import FiniteVolumes

QUERY, KEY = np.array([[0.9, 0.3], [-0.2, 0.7]]), np.array([[0.8, -0.1], [0.4, 0.6]])
VALUE = np.array([[0.5, 0.6], [-0.4, 0.3]])
PLANE = np.array([0.4, -0.3]), np.array([[0.5, 0.15], [0.15, 0.4]])
BETA = 0.6


def softmax(value: Any, rates: Any) -> Any:
    """ȧ = V(1 + SA)a, Ṡ = VSAS + (VSAS)ᵀ with A = βKᵀQ: mean velocity and B of v = u + Bξ."""
    return lambda mean, spread: (value @ (mean + spread @ rates @ mean), value @ spread @ rates)


def squared_distance(mean: np.ndarray, spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L2, kernel e^{−|Qx − Ky|²}: v = V C(S⁻¹a + 2KᵀQx), C = (S⁻¹ + 2KᵀK)⁻¹."""
    narrow = np.linalg.inv(np.linalg.inv(spread) + 2 * KEY.T @ KEY)
    slope = 2 * VALUE @ narrow @ KEY.T @ QUERY
    return VALUE @ narrow @ np.linalg.solve(spread, mean) + slope @ mean, slope


def sinkhorn(mean: np.ndarray, spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Kernel e^{βxy} on the line: v = c x with c = (√(1 + 4β²s²) − 1)/(2βs)."""
    slope = (np.sqrt(1 + 4 * BETA**2 * spread**2) - 1) / (2 * BETA * spread)
    return slope @ mean, slope


def law_at(field: Any, mean: np.ndarray, spread: np.ndarray, end: float) -> tuple[np.ndarray, np.ndarray]:
    """ȧ = u, Ṡ = BS + SBᵀ by SciPy."""

    def rate(time: float, state: np.ndarray) -> np.ndarray:
        velocity, slope = field(state[0], state[1:])
        return np.concatenate([velocity[None], slope @ state[1:] + state[1:] @ slope.T])

    state = oracle.solve(rate, np.concatenate([mean[None], spread]), [0.0, end])[-1]
    return state[0], state[1:]


ONE = np.eye(1)
LINE = np.array([0.3]), 0.4 * ONE
ATTENTION, TURNED = kernels.Attention(BETA), kernels.Attention(BETA, QUERY, KEY)
# The drift, its closed equation, the first law, the end, half the width of the box, and two numbers of cells an axis.
LAWS: dict[str, Any] = {
    "softmax attracts": (pf.Attend(ATTENTION), softmax(ONE, BETA * ONE), LINE, 0.5, 6.0, (80, 160)),
    "softmax repels": (pf.Attend(ATTENTION, -1.0), softmax(-ONE, BETA * ONE), LINE, 1.0, 5.0, (80, 160)),
    "softmax, matrices": (pf.Attend(TURNED, VALUE), softmax(VALUE, BETA * KEY.T @ QUERY), PLANE, 0.7, 4.5, (32, 64)),
    "squared distances": (
        pf.Attend(kernels.SquaredDistanceAttention(1.0, QUERY, KEY), VALUE), squared_distance,
        PLANE, 0.7, 4.5, (32, 64),
    ),
    "sinkhorn": (
        pf.Attend(ATTENTION, normalization="sinkhorn"), sinkhorn, (np.zeros(1), 0.5 * ONE), 0.7, 6.0, (80, 160),
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", LAWS)
def test_a_gaussian_density_stays_the_gaussian_of_its_equation(name):
    """Gaussians stay Gaussian, the matrix case and L2 too: the masses of all cells, to second order in their size."""
    drift, field, (mean, spread), end, width, sizes = LAWS[name]
    flow, errors = pf.Flow(drift), []
    last = law_at(field, mean, spread, end)
    for cells in sizes:
        how = FiniteVolumes(cells ** len(mean), -width, width)
        found = volumes.stepped(how, flow, volumes.normal(mean, spread), end, cells // 2)
        errors.append(float(np.abs(found - volumes.masses_of(how, flow, volumes.normal(*last))).sum()))
        assert abs(found.sum() - 1) < 1e-12
    assert volumes.order_of(errors) > 1.85, errors
    assert errors[-1] < 2e-2


@pytest.mark.slow
def test_a_hard_step_moves_the_cells_of_a_density():
    """A map pushes a density forward, and cells with their masses, moved as particles, are that image.

    Cells that stay cannot make a hard step, which moves mass by any distance at once; of a Gaussian density one takes
    σ to σ³/(σ² + 1/β), to second order in the size of cells.
    """
    beta, flow = 2.0, pf.Flow(pf.MeanShift(kernels.Gaussian(2.0**-0.5)))
    cells = FiniteVolumes(160, -4.0, 4.0).project(flow, initial.Gaussian(1, 0.5))
    run = pf.simulate(flow, cells, [0.0, 1.0, 2.0, 3.0], step=1.0, solver="map")
    found = [float(np.sqrt(run.weights @ points[:, 0] ** 2)) for points in np.asarray(run.points)]
    for before, after in pairwise(found):
        assert abs(after / (before**3 / (before**2 + 1 / beta)) - 1) < 1e-5
    assert abs(np.log(found[3] / found[2]) / np.log(found[2] / found[1]) - 3) < 0.06


@pytest.mark.slow
def test_twenty_thousand_random_tokens_and_their_density_make_the_same_three_clusters():
    """Three clusters emerge: USA, β = 5, N = 20,000 uniform tokens; and the density that they are counted into."""
    count, times = 20_000, np.linspace(0.0, 0.4, 41)
    start = np.asarray(initial.UniformCircle().sample(jax.random.key(7), count))
    fast = summation.Spectral(tolerance=1e-8)
    attend = [
        pf.Attend(kernels.Attention(5.0), normalization="none", summation=how) for how in (fast, summation.Auto())
    ]
    tokens = pf.simulate(pf.Flow(attend[0], pf.Sphere()), start, times, rtol=1e-6, atol=1e-8)
    how = FiniteVolumes(512)
    density = pf.simulate(pf.Flow(attend[1], pf.Sphere()), start, times, discretization=how, rtol=1e-4, atol=1e-6)
    circle = np.asarray(tokens.points) @ np.array([1.0, 1j])
    third = np.abs(np.mean(circle**3, axis=1)), np.abs(np.fft.rfft(np.asarray(density.masses), axis=1)[:, 3])
    for order in third:
        ramp = (order < 0.15) & (times > 0.02)
        assert 17 < np.polyfit(times[ramp], np.log(order[ramp]), 1)[0] < 19.5
    counted = [
        np.bincount(how.mesh(pf.Flow(attend[1], pf.Sphere()), 2).containing(points), minlength=512) / count
        for points in np.asarray(tokens.points)
    ]
    standing = int(np.argmax(np.max(np.asarray(density.masses), axis=1) > 10 / 512))
    assert 0 < standing < 40
    places = [_peaks(each[standing]) for each in (counted, np.asarray(density.masses))]
    assert [len(each) for each in places] == [3, 3]
    assert np.max(np.abs(np.exp(1j * places[0]) - np.exp(1j * places[1]))) < 0.05


def _peaks(masses: np.ndarray) -> np.ndarray:
    """The angles of all peaks, smoothed over a few cells, that stand out."""
    cells = len(masses)
    waves = np.fft.rfft(masses) * np.exp(-0.5 * (np.arange(cells // 2 + 1) * 0.05) ** 2)
    smooth = np.tile(np.fft.irfft(waves), 2)
    found = np.unique(find_peaks(smooth, height=2 / cells, prominence=1 / cells)[0] % cells)
    return 2 * np.pi * found / cells
