"""What no other table multiplies: single precision × geometry × event, blocks × ensembles × resume, layers × events.

Heads and blends, which networks are made of, meet all of these, and noise.
"""

from typing import Any

import jax
import numpy as np
import pytest

import flows_oracles
import particleflow as pf
import system_oracles as oracle
from particleflow import drifts, events, geometry, kernels, observables

DIMENSION = 4
SPACES = oracle.spaces(DIMENSION)
CLOUD = np.random.default_rng(6).normal(size=(6, DIMENSION))
WEIGHTS = np.linspace(0.1, 0.3, len(CLOUD))
TOLERANCES: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-11}


def attend(beta: float, dtype: Any = np.float64) -> pf.Attend:
    return pf.Attend(kernels.Attention(beta=dtype(beta)))


def heads(beta: float) -> drifts.MultiHead:
    """Two heads of two dimensions, with biases and a causal mask."""
    rng = np.random.default_rng(7)
    matrices, biases = 0.5 * rng.normal(size=(4, DIMENSION, DIMENSION)), 0.3 * rng.normal(size=(4, DIMENSION))
    return drifts.MultiHead.of_matrices(2, *matrices, *biases, scale=beta, positional=kernels.Causal())


# Of one number each, so that an ensemble can go through it.
NETWORKS: dict[str, Any] = {
    "heads": heads,
    "heads that look at data": lambda beta: drifts.MultiHead(
        [pf.Attend(kernels.AffineAttention(beta, query_bias=bias), 0.5) for bias in (0.2, -0.4)],
        data=pf.Measure.uniform(CLOUD[::-1] + 0.3),
    ),
    "near and far": lambda beta: drifts.near_and_far(2.5, beta=beta, weights=(0.7, 0.4)),
    "causal near and far": lambda beta: drifts.near_and_far(
        2.5, ["softplus"], beta, weights=(0.7, 0.4), positional=kernels.Causal()
    ),
    "linearised": lambda beta: pf.Attend(kernels.LinearisedAttention("elu", beta, 1.2)),
}
by_network = pytest.mark.parametrize("name", NETWORKS)


def placed(points: np.ndarray) -> pf.Measure:
    """Points of a sequence, of unequal weights."""
    return pf.Measure.weighted(points, WEIGHTS, positions=np.arange(float(len(points))))


@pytest.mark.parametrize("name", SPACES)
def test_the_velocity_of_single_precision_is_the_formula_on_every_geometry(name):
    """Within 1e-5 of the largest velocity, and no array of it is promoted."""
    space, time = SPACES[name].given(WEIGHTS), 0.5
    both = pf.Flow(attend(1.5), geometry=space.build()), placed(space.retract(CLOUD))

    @jax.jit
    def moving(flow, start):
        state = pf.geometry.lifted(pf.geometry.for_weights(flow.geometry, start.log_weights), start.points, {})
        return state, flow.velocity(np.float32(time), state, start)

    state, velocity = map(np.asarray, moving(*jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), both)))
    assert state.dtype == velocity.dtype == np.float32
    seen = space.seen(state.astype(float), time)
    expected = space.move(state.astype(float), oracle.shares(1.5 * seen @ seen.T, WEIGHTS) @ seen, time)
    assert np.max(np.abs(velocity - expected)) < 1e-5 * np.max(np.abs(expected))


@pytest.mark.slow
@pytest.mark.parametrize("name", SPACES)
def test_single_precision_stays_single_on_every_geometry(name):
    check_single_precision(attend(1.5), SPACES[name])


@pytest.mark.slow
@by_network
@pytest.mark.parametrize("space", ["sphere", "residual_stream"])
def test_networks_stay_single(name, space):
    check_single_precision(NETWORKS[name](1.5), SPACES[space])


def check_single_precision(drift: drifts.AbstractDrift, space: oracle.Space) -> None:
    """The run of float32 is that of float64 to single precision, its event included, and no array changes its type."""
    times, start = np.linspace(0.0, 1.0, 5), placed(space.given(WEIGHTS).retract(CLOUD))
    flow = pf.Flow(drift, geometry=space.build())
    double = pf.simulate(flow, start, times, **TOLERANCES, observe=[observables.speed])
    level = float(np.mean(np.asarray(double.observables["speed"])[1:3]))

    def single(**options: Any) -> pf.Trajectory:
        halved, begun = jax.tree.map(lambda leaf: leaf.astype(np.float32), (flow, start))
        # at 1e-5 a dozen steps may jump over a change of leaders, in double precision as well: up to 3e-3 in flat space
        return pf.simulate(halved, begun, times, rtol=3e-6, atol=3e-7, **options)

    run = single(observe=[observables.speed])
    assert run.points.dtype == np.float32
    assert all(np.asarray(values).dtype == np.float32 for values in run.fields.values())
    assert np.max(np.abs(np.asarray(run.points) - double.points)) < 2e-4 * max(1.0, np.max(np.abs(double.points)))
    event = events.Reached(observables.speed, level)
    stopped = single(event=event)
    wanted = pf.simulate(flow, start, times, **TOLERANCES, event=event)
    assert stopped.status == wanted.status
    assert abs(stopped.times[-1] - wanted.times[-1]) < 1e-3


class StopError(Exception):
    """Ends a run between two windows."""


@pytest.mark.slow
@pytest.mark.parametrize("where", [geometry.PreNorm, geometry.PostNorm])
def test_an_ensemble_of_blocks_is_its_single_runs_and_resumes_bit_for_bit(where, tmp_path):
    feed = drifts.FeedForward.random(jax.random.key(0), DIMENSION, 8, "gelu_exact")
    flows = [
        pf.Flow(drifts.Block([attend(beta), feed], [where(geometry.LayerNorm(1.1, 0.2, 1e-5))] * 2))
        for beta in (0.7, 2.0)
    ]
    check_ensemble(flows, pf.Measure.uniform(CLOUD), np.arange(7.0), tmp_path, 1e-12, step=1.0, solver="map")


@pytest.mark.slow
@by_network
@pytest.mark.parametrize("temperature", [0.0, 0.05])
def test_an_ensemble_of_networks_is_its_single_runs_and_resumes_bit_for_bit(name, temperature, tmp_path):
    flows = [pf.Flow(NETWORKS[name](beta), geometry=pf.Sphere(), temperature=temperature) for beta in (0.7, 2.0)]
    start, times = placed(flows_oracles.on_sphere(CLOUD)), np.linspace(0.0, 1.2, 7)
    if temperature:  # every member has noise of its own, and no single run has the same
        check_ensemble(flows, start, times, tmp_path, None, step=0.1, key=jax.random.key(5))
    else:
        check_ensemble(flows, start, times, tmp_path, 1e-9, **TOLERANCES)


@pytest.mark.slow
@by_network
def test_networks_see_weights_not_numbers(name):
    """Every particle as two of half its weight moves alike."""
    start, flow = placed(flows_oracles.on_sphere(CLOUD)), pf.Flow(NETWORKS[name](1.0), geometry=pf.Sphere())
    twice = pf.Measure.weighted(
        np.repeat(start.points, 2, axis=0),
        np.repeat(np.exp(start.log_weights), 2) / 2,
        positions=np.repeat(np.arange(6.0), 2),
    )
    once, doubled = (pf.evolve(flow, each, 1.0, **TOLERANCES).points for each in (start, twice))
    assert np.max(np.abs(np.asarray(doubled)[::2] - once)) < 1e-8


def check_ensemble(
    flows: list[pf.Flow], start: pf.Measure, times: np.ndarray, folder: Any, error: float | None, **given: Any
) -> None:
    """An ensemble in one program is its single runs, to an error, and has the same bits after it was cut off."""
    options = {**given, "window": 2}
    whole = pf.simulate(flows, start, times, **options, store=folder / "whole.h5")
    for number, flow in enumerate(flows if error else []):
        single = pf.simulate(flow, start, times, **options)
        assert np.max(np.abs(whole.run(number).points[-1] - single.points[-1])) < error

    def stop(frames: Any) -> None:
        raise StopError

    cut: dict[str, Any] = {**options, "store": folder / "cut.h5"}
    with pytest.raises(StopError):
        pf.simulate(flows, start, times, **cut, progress=stop)
    resumed = pf.simulate(flows, start, times, **cut, resume=True)
    assert resumed.status == "finished"
    assert np.array_equal(np.asarray(resumed.points), np.asarray(whole.points))


@pytest.mark.slow
def test_an_event_is_located_behind_changes_of_layer():
    """The level is crossed in the third of four layers; SciPy goes from change to change."""
    betas, duration = (0.5, 4.0, 1.0, 6.0), 0.4
    start = flows_oracles.on_sphere(CLOUD)

    def similarity(points: np.ndarray) -> float:
        cosines = points @ points.T
        return float((cosines.sum() - len(points)) / (len(points) * (len(points) - 1)))

    def at(time: float) -> float:
        points, begun = start, 0.0
        for beta in betas:
            end = min(time, begun + duration)
            if end > begun:
                field = flows_oracles.attention_field(beta, sphere=True)
                points = flows_oracles.on_sphere(flows_oracles.solve(field, points, [begun, end])[-1])
            begun += duration
        return similarity(points)

    level = at(1.03)
    exact = flows_oracles.root(lambda time: at(time) - level, 0.9, 1.15)
    flow = pf.Flow(drifts.Layers([attend(beta) for beta in betas], duration), geometry=pf.Sphere())
    event = events.Reached(observables.mean_similarity, level)
    run = pf.simulate(flow, start, np.linspace(0.0, 1.6, 5), **TOLERANCES, event=event)
    assert run.status == "stopped by event"
    assert abs(run.times[-1] - exact) < 1e-7
