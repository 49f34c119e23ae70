"""Attention with normalisation of the whole set: a Gaussian is a fixed point, and V = 1 leaves it, V = −1 comes to it.

On the line with variance one the density N(0, 1)(1 + ε He_k) gives G = β²x²/2 + ε (βx)^k, so that beside the affine
part, which the normalisation takes off, the velocity is V ε k β^{k−1} x^{k−1}: mode k grows at the rate V k β^{k−1}.
"""

from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import particleflow as pf
from particleflow import geometry, kernels, observables
from particleflow.discretization import Gaussian

BETA, STEP = 0.5, 0.1
SET = geometry.SetNorm("full")
OBSERVE = [observables.excess_kurtosis, observables.gaussian_distance]


def on_set(measure: pf.Measure) -> pf.Measure:
    return measure.with_points(SET.for_weights(measure.log_weights).retract(measure.points))


def flow(value: float, beta: float = BETA) -> pf.Flow:
    return pf.Flow(pf.Attend(kernels.Attention(beta), value=value), SET)


def layers(which: Any, start: pf.Measure, steps: Any, **options: Any) -> pf.Trajectory:
    asked = {"step": STEP, "solver": "map", "observe": OBSERVE, **options}
    return pf.simulate(which, on_set(start), STEP * np.asarray(steps, float), **asked)


def quantiles(law: Any = "gaussian", count: int = 400) -> pf.Measure:
    return pf.initial.Quantiles(law).start(jax.random.key(0), count).measure


def kurtosis(run: Any) -> np.ndarray:
    return np.asarray(run.observables["excess_kurtosis"])


@pytest.mark.slow
def test_modes_grow_or_decay_at_the_rates_of_the_linear_theory():
    """A layer multiplies mode k with 1 + h V k β^{k−1}/(1 + h V β)."""
    grid = pf.initial.GaussHermite(1, 40).start(jax.random.key(0)).measure
    nodes, weights = np.asarray(grid.points)[:, 0], np.exp(np.asarray(grid.log_weights))
    bent = pf.Measure.weighted(nodes[:, None], weights * (1 + 1e-7 * (nodes**4 - 6 * nodes**2 + 3)))
    both = layers([flow(1.0), flow(-1.0)], bent, [0, 10], observe=OBSERVE[:1])
    for run, value in enumerate((1.0, -1.0)):
        found = kurtosis(both.run(run))
        assert abs(found[0] - 24e-7) < 1e-12
        factor = 1 + STEP * value * 4 * BETA**3 / (1 + STEP * value * BETA)
        assert abs(found[1] / found[0] - factor**10) < 1e-5 * factor**10


@pytest.mark.slow
def test_quantiles_of_a_gaussian_drift_to_two_atoms():
    """As probed before the first solver was written: −.058, −.362, −1.382, −1.981 after 0, 50, 200, 1000 layers."""
    run = layers(flow(1.0), quantiles(), [0, 50, 200, 1000])
    assert np.max(np.abs(kurtosis(run) - [-0.058, -0.362, -1.382, -1.981])) < 5e-4
    assert run.observables["gaussian_distance"][-1] > 0.6
    halves = np.abs(np.asarray(run.points)[-1])
    assert abs(np.median(halves) - 1.02) < 0.01


@pytest.mark.slow
def test_a_quadrature_stays_gaussian_until_rounding_has_grown():
    """The law itself stays; a quadrature leaves, from what rounding has put there: 3e-15, later 4e-9, measured."""
    start = pf.initial.GaussHermite(1, 40).start(jax.random.key(0)).measure
    law = layers(flow(1.0), start, [0, 1000], discretization=Gaussian())
    assert np.max(np.abs(kurtosis(law))) < 1e-12
    run = np.abs(kurtosis(layers(flow(1.0), start, [0, 100, 400])))
    assert np.max(run[:2]) < 1e-13
    assert 1e-11 < run[2] < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("law", ["uniform", "gaussian"])
def test_repulsion_comes_to_the_gaussian(law):
    """V = −1: a uniform start ends as near to a Gaussian as 400 atoms that are its quantiles are."""
    run = layers(flow(-1.0), quantiles(law), [0, 700])
    assert abs(kurtosis(run)[-1]) < 0.06
    assert run.observables["gaussian_distance"][-1] < 0.04


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [1, 2])
def test_samples_end_as_one_atom_more_than_dimensions(dimension):
    """Independent samples of a Gaussian, V = 1: d + 1 atoms of unequal weight, the corners of a simplex."""
    from scipy.cluster.hierarchy import fcluster, linkage

    start = pf.initial.Gaussian(dimension).start(jax.random.key(5), 300).measure
    end = np.asarray(layers(flow(1.0), start, [0, 1000]).points)[-1]
    assert fcluster(linkage(end, "single"), 0.1, "distance").max() == dimension + 1


@pytest.mark.slow
def test_uniform_starts_leave_with_attraction():
    run = layers(flow(1.0), quantiles("uniform"), [0, 1000])
    assert abs(kurtosis(run)[0] + 1.2) < 1e-3
    assert kurtosis(run)[-1] < -1.95


@pytest.mark.slow
def test_observables_of_gaussianity_against_scipy():
    """Two atoms, equal and weighted points: moments by NumPy, W₂ by SciPy's quantiles on a fine grid."""
    from scipy.stats import norm

    levels = (np.arange(100_000) + 0.5) / 100_000
    rng, still = np.random.default_rng(2), pf.Flow(pf.drifts.Linear(0.0))
    asked = eqx.filter_jit(lambda measure: [each(still, 0.0, measure) for each in OBSERVE])
    for points, weights in (
        (np.repeat([-1.0, 1.0], 8), np.full(16, 1 / 16)),
        (rng.normal(size=16), np.full(16, 1 / 16)),
        (rng.normal(size=16), rng.dirichlet(np.ones(16))),
    ):
        mean = weights @ points
        standard = (points - mean) / np.sqrt(weights @ (points - mean) ** 2)
        found, away = asked(pf.Measure.weighted(points[:, None], weights))
        assert abs(found - (weights @ standard**4 - 3)) < 1e-12
        order = np.argsort(standard)
        inverse = standard[order][np.searchsorted(np.cumsum(weights[order]) - 1e-12, levels).clip(max=len(points) - 1)]
        distance = np.sqrt(np.mean((inverse - norm.ppf(levels)) ** 2))
        assert abs(away - distance) < 2e-4
    cloud = rng.normal(size=(50, 3)) @ rng.normal(size=(3, 3))
    white = (cloud - cloud.mean(0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(cloud.T, bias=True))).T
    found, _ = asked(pf.Measure.uniform(cloud))
    assert abs(found - (np.mean(np.sum(white**2, axis=1) ** 2) - 15)) < 1e-10
