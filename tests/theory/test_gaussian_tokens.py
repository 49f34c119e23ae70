"""Gaussians stay Gaussian: closed equations for mean and variance against quantiles; blow-up; cubic blurring."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import exp1
from scipy.stats import norm

import flows_oracles as oracle
import particleflow as pf
from particleflow import events, kernels, observables

COUNT = 1000
QUANTILES = norm.ppf((np.arange(COUNT) + 0.5) / COUNT)[:, None]
OBSERVE = [observables.centre, observables.covariance]


def scaled_quantiles(mean, variance):
    return mean + np.sqrt(variance) * QUANTILES / QUANTILES.std()


@pytest.mark.slow
@pytest.mark.parametrize("value", [1.0, -1.0])
def test_softmax_attention_of_a_gaussian_on_the_line(value):
    """s' = 2V a s², a point mass of mean m' = V(1 + a s) m; for V = 1 the Gaussian blows up at 1/(2 a s0)."""
    rate, variance, mean = 0.5, 0.4, 0.3
    end = 0.25 / (2 * rate * variance) if value > 0 else 2.0
    times = np.array([0.0, end / 2, end])
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=rate), value=value))
    run = pf.simulate(flow, scaled_quantiles(mean, variance), times, rtol=1e-8, atol=1e-10, observe=OBSERVE)
    exact = variance / (1 - 2 * value * rate * variance * times)
    assert np.max(np.abs(np.asarray(run.observables["covariance"])[:, 0, 0] / exact - 1)) < 1e-3
    path = oracle.solve(
        lambda t, y: value * (1 + rate * variance / (1 - 2 * value * rate * variance * t)) * y, np.array([mean]), times
    )
    assert np.max(np.abs(np.asarray(run.observables["centre"]) / path - 1)) < 1e-3
    quantile = np.interp(0.3, (np.arange(COUNT) + 0.5) / COUNT, np.sort(run.points[-1][:, 0]))
    assert abs(quantile - path[-1, 0] - np.sqrt(exact[-1]) * norm.ppf(0.3)) < 2e-3


@pytest.mark.slow
def test_mean_shift_of_a_gaussian():
    """log(σ/σ0) + (β/2)(σ² − σ0²) = −t."""
    beta, sigma = 1.5, 0.8
    times = np.array([0.0, 0.5, 1.0])
    flow = pf.Flow(pf.MeanShift(kernels.Gaussian(beta**-0.5)))
    run = pf.simulate(flow, scaled_quantiles(0.0, sigma**2), times, rtol=1e-8, atol=1e-10, observe=OBSERVE)
    for time, found in zip(times[1:], np.sqrt(np.asarray(run.observables["covariance"])[1:, 0, 0]), strict=True):
        exact = oracle.root(lambda s, t=time: np.log(s / sigma) + beta / 2 * (s**2 - sigma**2) + t, 1e-6, sigma)
        assert abs(found / exact - 1) < 1e-3


@pytest.mark.slow
def test_sinkhorn_attention_of_a_gaussian():
    """Under the kernel e^{axy} the velocity is c x with c = (√(1 + 4a²s²) − 1)/(2as)."""
    rate, variance = 0.7, 0.9
    points = scaled_quantiles(0.0, variance)[::4]
    variance = points.var()
    drift = pf.Attend(kernels.Attention(beta=rate), normalization="sinkhorn")
    measure = pf.Measure.uniform(points)
    velocity = np.asarray(drift(0.0, measure.sites, measure))[:, 0]
    exact = (np.sqrt(1 + 4 * rate**2 * variance**2) - 1) / (2 * rate * variance)
    slope = points[:, 0] @ velocity / (points[:, 0] @ points[:, 0])
    assert abs(slope / exact - 1) < 2e-3


def blow_up_time(beta, first, last=np.inf):
    """One particle under ẋ = e^{βx²} x: from |x| = first to last in ½(E₁(β first²) − E₁(β last²))."""
    return 0.5 * (exp1(beta * first**2) - (exp1(beta * last**2) if np.isfinite(last) else 0.0))


SELF = pf.Flow(pf.Attend(kernels.Attention(beta=1.0), normalization="none"))


@pytest.mark.slow
def test_blow_up_event_is_located():
    run = pf.simulate(SELF, [[0.5]], [0.0, 1.0], rtol=1e-11, atol=1e-12, event=events.BlewUp(2.0))
    assert run.status == "stopped by event"
    assert abs(run.times[-1] - blow_up_time(1.0, 0.5, 2.0)) < 1e-8
    assert abs(abs(run.points[-1, 0, 0]) - 2.0) < 1e-8


def hermite_gaussian(sigma, nodes=64):
    """A weighted cloud that integrates polynomials like N(0, σ²)."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    keep = weights > 1e-30
    return pf.Measure.weighted(sigma * points[keep, None], weights[keep] / weights[keep].sum())


def deviation(run, frame):
    return np.sqrt(run.weights @ run.points[frame, :, 0] ** 2)


@pytest.mark.slow
def test_blurring_mean_shift_is_cubic():
    """One hard step takes σ to σ³/(σ² + 1/β); towards fixed data the step is linear."""
    beta, sigma = 2.0, 0.5
    flow = pf.Flow(pf.MeanShift(kernels.Gaussian(beta**-0.5)))
    run = pf.simulate(flow, hermite_gaussian(sigma), [0.0, 1.0, 2.0, 3.0], step=1.0, solver="map")
    found = [deviation(run, frame) for frame in range(4)]
    for before, after in pairwise(found):
        assert abs(after / (before**3 / (before**2 + 1 / beta)) - 1) < 1e-9
    assert abs(np.log(found[3] / found[2]) / np.log(found[2] / found[1]) - 3) < 0.06
    fixed = pf.Flow(pf.MeanShift(kernels.Gaussian(beta**-0.5), data=hermite_gaussian(sigma)))
    plain = pf.simulate(fixed, hermite_gaussian(sigma), [0.0, 1.0, 2.0, 3.0], step=1.0, solver="map")
    ratios = [deviation(plain, frame + 1) / deviation(plain, frame) for frame in range(3)]
    assert np.max(np.abs(np.array(ratios) - sigma**2 / (sigma**2 + 1 / beta))) < 1e-9
