"""Attention in R^d seen in the frame z = e^{−tV}x: polytopes, Boolean attention, hyperplanes; repulsion to 0."""

import numpy as np
import pytest
from scipy.linalg import expm

import flows_oracles as oracle
import particleflow as pf
from particleflow import geometry, kernels, observables


def rescaled_flow(value, beta=1.0):
    return pf.Flow(pf.Attend(kernels.Attention(beta=beta), value=value), geometry=geometry.Rescaled(value))


@pytest.mark.slow
def test_rescaled_frame_is_the_euclidean_flow():
    value = np.array([[0.6, 0.3], [-0.2, 0.4]])
    start = np.random.default_rng(0).normal(size=(6, 2))
    times = np.linspace(0.0, 1.0, 3)
    run = pf.simulate(rescaled_flow(value), start, times, rtol=1e-11, atol=1e-12)
    expected = oracle.solve(oracle.attention_field(1.0, value=value), start, times)
    for time, frame, points in zip(times, run.points, expected, strict=True):
        assert np.max(np.abs(frame @ expm(time * value).T - points)) < 1e-8


@pytest.mark.slow
def test_convex_hull_shrinks():
    start = np.random.default_rng(1).normal(size=(20, 2))
    run = pf.simulate(rescaled_flow(1.0), start, np.linspace(0.0, 5.0, 26), rtol=1e-9, atol=1e-11)
    angles = np.linspace(0, 2 * np.pi, 64, endpoint=False)
    support = np.max(np.asarray(run.points) @ oracle.circle(angles).T, axis=1)
    assert np.max(np.diff(support, axis=0)) < 1e-8
    # The limit is a polytope: nearly all tokens are at few corners.
    assert np.max(np.abs(run.points[-1] - run.points[-2])) < 2e-2


@pytest.mark.slow
def test_attention_on_the_line_becomes_boolean():
    """n = 40 on the line: at T = 8 the attention matrix has rank 2 and is Boolean far below rounding."""
    start = np.random.default_rng(3).normal(size=(40, 1))
    run = pf.simulate(
        rescaled_flow(1.0), start, [0.0, 4.0, 8.0], rtol=1e-8, atol=1e-10, observe=[observables.attention_rank]
    )
    points = np.exp(8.0) * run.points[-1]
    weights = oracle.attention_weights(points, 1.0, 1.0, 1.0)
    best = np.argmax(weights, axis=1)
    rest = weights.copy()
    rest[np.arange(40), best] = 0.0
    assert len(np.unique(best)) == 2
    assert rest.sum(axis=1).max() < 1e-30
    assert run.observables["attention_rank"][-1] == 2
    assert np.linalg.matrix_rank(weights) == 2


@pytest.mark.slow
def test_simple_leading_eigenvalue_gives_three_hyperplanes():
    value = np.diag([1.0, 0.3])
    start = np.random.default_rng(4).normal(size=(30, 2))
    run = pf.simulate(rescaled_flow(value), start, [0.0, 5.0, 10.0], rtol=1e-8, atol=1e-10)
    heights = np.sort(run.points[-1][:, 0])
    assert 1 + np.sum(np.diff(heights) > 1e-2) <= 3


@pytest.mark.slow
def test_repulsion_shrinks_like_the_root_of_time():
    """V = −1: the variance is 1/(2βt) in the end, so |x| ~ t^{−1/2}."""
    start = np.random.default_rng(5).normal(size=(16, 1))
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=1.0), value=-1.0))
    times = np.array([0.0, 100.0, 1000.0, 10000.0])
    run = pf.simulate(flow, start, times, rtol=1e-8, atol=1e-12)
    sizes = np.max(np.abs(run.points[1:]), axis=(1, 2))
    slopes = np.diff(np.log(sizes)) / np.diff(np.log(times[1:]))
    assert np.max(np.abs(slopes + 0.5)) < 0.01
    assert abs(np.var(run.points[-1]) * 2 * times[-1] - 1) < 0.01
