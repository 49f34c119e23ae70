"""Flow maps: a residual network moves points, a transformer moves measures; small layers become a flow."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import flows_oracles as oracle
import particleflow as pf
from particleflow import drifts, geometry, kernels
from particleflow.discretization import FiniteVolumes
from particleflow.dynamics.initial import DensityFunction

RESIDUAL = drifts.FeedForward(
    np.array([[1.5], [-2.0], [0.7]]), np.array([0.2, 0.5, -1.0]), np.array([[0.8, 0.5, -0.9]])
)
ATTENTION = pf.Attend(kernels.Attention(1.0), -1.0)
POINTS = np.linspace(-1.0, 3.0, 9)[:, None]
FEW, MORE = np.where(np.arange(9) < 5, 0.2, 0.0), np.full(9, 1 / 9)  # the weights of a cloud, and of one that goes on
TIMES = np.linspace(0.0, 2.0, 5)


def paths(drift: Any, weights: np.ndarray) -> np.ndarray:
    start = pf.Measure.weighted(POINTS, weights)
    run = pf.simulate(pf.Flow(drift), start, TIMES, rtol=1e-9, atol=1e-11)
    return np.asarray(run.points)[:, weights > 0, 0]


def residual_path(x: np.ndarray) -> np.ndarray:
    """One point at a time, by SciPy."""
    layer = RESIDUAL
    weight, bias, out = (np.asarray(each) for each in (layer.weight, layer.bias, layer.output))
    return oracle.solve(lambda t, y: out @ np.tanh(weight @ y + bias), x, TIMES)[:, 0]


@pytest.mark.slow
def test_a_residual_network_moves_points_and_attention_moves_measures():
    """A point that two clouds share goes one way under a network, and two ways under attention.

    On the line the flow map of points is increasing whatever the cloud; that of attention is increasing, too, but
    another one for every measure, so that the paths of one cloud cross those of another.
    """
    few, more = paths(RESIDUAL, FEW), paths(RESIDUAL, MORE)
    assert np.max(np.abs(few - more[:, :5])) < 1e-7
    assert np.max(np.abs(more - np.stack([residual_path(x) for x in POINTS], axis=1))) < 1e-7
    assert (np.diff(more, axis=1) > 0).all()
    few, more = paths(ATTENTION, FEW), paths(ATTENTION, MORE)
    assert np.max(np.abs(few - more[:, :5])) > 0.5
    assert (np.diff(few, axis=1) > 0).all()
    assert (np.diff(more, axis=1) > 0).all()
    gaps = few[:, :, None] - more[:, None, :]
    assert ((gaps[0] > 0) & (gaps[-1] < 0)).any() or ((gaps[0] < 0) & (gaps[-1] > 0)).any()


def bump(centre: float) -> Any:
    return lambda points: np.exp(-0.5 * ((points[:, 0] - centre) / 0.5) ** 2) / (0.5 * np.sqrt(2 * np.pi))


@pytest.mark.slow
@pytest.mark.parametrize("cells", [200, 400])
def test_only_a_network_moves_a_mixture_as_it_moves_its_parts(cells):
    """Without a measure in the velocity the continuity equation is linear: S(½μ + ½ν) = ½Sμ + ½Sν, as densities."""
    parts = [bump(-1.5), bump(1.5)]
    starts = [*parts, lambda points: 0.5 * (parts[0](points) + parts[1](points))]
    how, found = FiniteVolumes(cells, -6.0, 6.0), {}
    for name, drift in (("network", RESIDUAL), ("attention", ATTENTION)):
        ends = [
            pf.evolve(pf.Flow(drift), DensityFunction(each, 1, "flat"), 1.0, discretization=how, rtol=1e-4, atol=1e-6)
            for each in starts
        ]
        first, second, mixed = (np.exp(np.asarray(each.log_weights)) for each in ends)
        found[name] = float(np.abs(mixed - 0.5 * (first + second)).sum())
    assert found["network"] < 400 / cells * 1e-3
    assert found["attention"] > 0.3


START = oracle.random_sphere(4, 12, 3)
GAIN, BIAS = np.array([1.3, 0.8, 1.1]), np.array([0.1, -0.2, 0.0])
HEADS: Any = pf.Attend(kernels.Attention(2.0)) + 0.5 * drifts.FeedForward(np.eye(3)[::-1], 0.1)
SPACES: dict[str, Any] = {
    "sphere": pf.Sphere(),
    "pre-norm": geometry.PreNorm(),
    "pre-norm with gains": geometry.PreNorm(pf.LayerNorm(GAIN, BIAS)),
    "peri-norm": geometry.PeriNorm(),
    "ngpt": geometry.Ngpt(0.5),
    "layer norm": pf.LayerNorm(),
    "normalised set": geometry.SetNorm(),
    "flat": geometry.Euclidean(),
}


def layered(flow: pf.Flow, start: np.ndarray, steps: int) -> np.ndarray:
    """Time 1 in so many layers."""
    return np.asarray(pf.simulate(flow, start, [0.0, 1.0], step=1 / steps, solver="map").points)[-1]


@pytest.mark.slow
@pytest.mark.parametrize("name", SPACES)
def test_layers_come_to_the_flow_at_first_order(name):
    """Depth L with steps 1/L: the error of all particles at time 1 falls like 1/L."""
    space = SPACES[name]
    flow = pf.Flow(HEADS, space)
    start = np.asarray(pf.geometry.retracted(space, jnp.asarray(START)))
    exact = np.asarray(pf.evolve(flow, start, 1.0, rtol=1e-10, atol=1e-12).points)
    depths = [8, 16, 32, 64]
    errors = [np.max(np.abs(layered(flow, start, depth) - exact)) for depth in depths]
    slope = np.polyfit(np.log(depths), np.log(errors), 1)[0]
    assert abs(slope + 1) < 0.1, (slope, errors)


@pytest.mark.slow
def test_post_norm_layers_with_gains_have_no_limit():
    """x ← N(x + h f(x)) with a gain in N: as h → 0 a layer moves x to N(x), not to x.

    So 1/h layers are 1/h iterations of N, whatever f is: two drifts end in one place, and none of them is a flow.
    """
    space = geometry.PostNorm(pf.LayerNorm(GAIN, BIAS))
    flows = [pf.Flow(drift, space) for drift in (HEADS, drifts.Linear(-0.5))]

    def layer_norm(points: np.ndarray) -> np.ndarray:
        centred = points - points.mean(axis=1, keepdims=True)
        return GAIN * centred / np.sqrt(np.mean(centred**2, axis=1, keepdims=True)) + BIAS

    for size in (1e-1, 1e-2, 1e-3):
        one = np.asarray(pf.simulate(flows[0], START, [0.0, size], step=size, solver="map").points)[-1]
        assert np.max(np.abs(one - START)) > 1.0  # where a layer of a flow moves by its size times the velocity
        assert np.max(np.abs(one - layer_norm(START))) < 10 * size
    plain = START
    for _ in range(4096):
        plain = layer_norm(plain)
    errors = [[np.max(np.abs(layered(flow, START, depth) - plain)) for depth in (64, 512, 4096)] for flow in flows]
    assert np.max(np.array(errors)[:, -1]) < 0.05, errors
