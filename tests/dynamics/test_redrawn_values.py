"""Value matrices drawn anew along depth: layers by hand, moments in closed form, and both limits of small layers."""

import jax
import numpy as np
import pytest

import particleflow as pf
from particleflow import drifts, kernels
from particleflow.errors import ArgumentError

SIZE, VALUE, SPREAD = 0.05, 0.6, 0.5
START = np.array([[1.0, -0.5], [0.3, 0.8], [-0.7, 0.2]])


def redrawn(count: int, size: float = SIZE, *, scaled: bool = True) -> drifts.RedrawnValues:
    return drifts.RedrawnValues(kernels.Attention(1.5), 2, count, size, VALUE, SPREAD, scaled=scaled, seed=3)


@pytest.mark.slow
def test_layers_by_hand():
    """x ← x + h V_k m(x) with the matrices of the drift, which are normal with the mean and spread that were asked."""
    drift = redrawn(6)
    run = pf.simulate(pf.Flow(drift), START, SIZE * np.arange(7), solver="map", step=SIZE)
    x = START
    for layer, value in enumerate(np.asarray(drift.values)):
        kernel = np.exp(1.5 * x @ x.T)
        x = x + SIZE * (kernel / kernel.sum(axis=1, keepdims=True)) @ x @ value.T
        np.testing.assert_allclose(run.points[layer + 1], x, atol=1e-13)
    many = np.asarray(redrawn(4000).values)
    noise = (many - VALUE * np.eye(2)) * np.sqrt(SIZE) / SPREAD
    assert np.max(np.abs(noise.mean(axis=0))) < 4 / np.sqrt(4000)
    assert np.max(np.abs(np.cov(noise.reshape(-1, 4).T) - np.eye(4))) < 4 * np.sqrt(2 / 4000)
    assert np.max(np.abs(np.mean(noise[1:] * noise[:-1], axis=0))) < 4 / np.sqrt(4000)
    with pytest.raises(ArgumentError, match="count"):
        redrawn(0)


@pytest.mark.slow
@pytest.mark.parametrize("scaled", [True, False])
def test_mean_and_second_moment_of_one_token(scaled):
    """For one token m = x: E X = (1 + hv)ⁿ x and E|X|² = ((1 + hv)² + d h² s²)ⁿ |x|², s the spread of the entries.

    With s = spread/√h the second tends to e^{(2v + d spread²) t} |x|², that of dX = v X dt + spread dB X; with
    s = spread to e^{2vt} |x|², that of the mean.
    """
    layers, runs = 20, 2000
    entries = SPREAD / np.sqrt(SIZE) if scaled else SPREAD
    values = np.asarray(redrawn(layers * runs, scaled=scaled).values).reshape(runs, layers, 2, 2)
    flows = pf.Flow(redrawn(layers, scaled=scaled))
    x = np.repeat(START[:1], runs, axis=0)
    for layer in range(layers):
        x = x + SIZE * np.einsum("rab,rb->ra", values[:, layer], x)
    mean, squares = (1 + SIZE * VALUE) ** layers, ((1 + SIZE * VALUE) ** 2 + 2 * (SIZE * entries) ** 2) ** layers
    found = np.sum(x**2, axis=1) / np.sum(START[0] ** 2)
    assert np.max(np.abs(x.mean(axis=0) - mean * START[0])) < 4 * np.max(x.std(axis=0)) / np.sqrt(runs)
    assert abs(found.mean() - squares) < 4 * found.std() / np.sqrt(runs)
    limit = np.exp(2 * VALUE * SIZE * layers + (2 * SPREAD**2 * SIZE * layers if scaled else 0.0))
    assert abs(squares / limit - 1) < 0.1  # of order h
    run = pf.evolve(flows, START[:1], SIZE * layers, solver="map", step=SIZE)
    first = np.asarray(redrawn(layers, scaled=scaled).values)
    by_hand = START[0]
    for value in first:
        by_hand = by_hand + SIZE * value @ by_hand
    np.testing.assert_allclose(run.points[0], by_hand, atol=1e-12)


@pytest.mark.slow
def test_unscaled_layers_average_out():
    """The distance from the flow of the mean matrix falls like √h: over 16 times smaller layers about 4 times."""
    flow = pf.Flow(pf.Attend(kernels.Attention(1.5), value=VALUE))
    exact = pf.evolve(flow, START, 1.0, rtol=1e-10, atol=1e-12).points
    apart = []
    for layers in (64, 1024):
        found = []
        for seed in range(8):
            drift = drifts.RedrawnValues(
                kernels.Attention(1.5), 2, layers, 1 / layers, VALUE, SPREAD, scaled=False, seed=seed
            )
            end = pf.evolve(pf.Flow(drift), START, 1.0, solver="map", step=1 / layers).points
            found.append(np.sqrt(np.mean(np.square(np.asarray(end - exact)))))
        apart.append(np.sqrt(np.mean(np.square(found))))
    assert 2.5 < apart[0] / apart[1] < 6.5


@pytest.mark.slow
def test_an_adaptive_solver_stops_at_every_draw():
    """Within a layer of one token ẋ = V_k x: the run is the product of matrix exponentials."""
    drift = redrawn(5, 0.2)
    run = pf.evolve(pf.Flow(drift), START[:1], 1.0, rtol=1e-10, atol=1e-12)
    x = START[0]
    for value in np.asarray(drift.values):
        x = np.asarray(jax.scipy.linalg.expm(0.2 * value)) @ x
    np.testing.assert_allclose(run.points[0], x, atol=1e-8)
