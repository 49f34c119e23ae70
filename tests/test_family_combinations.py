"""What no other table multiplies: single precision × geometry × event, blocks × ensembles × resume, layers × events."""

from typing import Any

import family_oracles as oracle
import flows_oracles
import jax
import numpy as np
import pytest
from shares import by_default

import particleflow as pf
from particleflow import drifts, events, geometry, kernels, observables

DIMENSION = 4
SPACES = oracle.spaces(DIMENSION)
CLOUD = np.random.default_rng(6).normal(size=(6, DIMENSION))
TOLERANCES: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-11}


def attend(beta: float, dtype: Any = np.float64) -> pf.Attend:
    return pf.Attend(kernels.Attention(beta=dtype(beta)))


@pytest.mark.parametrize("name", by_default(SPACES, []))
def test_single_precision_stays_single_on_every_geometry(name):
    """The run of float32 is that of float64 to single precision, its event included, and no array changes its type."""
    space, times = SPACES[name], np.linspace(0.0, 1.0, 5)
    start = space.retract(CLOUD)
    flow = pf.Flow(attend(1.5), geometry=space.build())
    double = pf.simulate(flow, start, times, **TOLERANCES, observe=[observables.speed])
    level = float(np.mean(np.asarray(double.observables["speed"])[1:3]))

    def single(**options: Any) -> pf.Trajectory:
        halved = jax.tree.map(lambda leaf: leaf.astype(np.float32), flow)
        return pf.simulate(halved, start.astype(np.float32), times, rtol=1e-5, atol=1e-6, **options)

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


@pytest.mark.parametrize("where", by_default([geometry.PreNorm, geometry.PostNorm], [geometry.PostNorm]))
def test_an_ensemble_of_blocks_is_its_single_runs_and_resumes_bit_for_bit(where, tmp_path):
    feed = drifts.FeedForward.random(jax.random.key(0), DIMENSION, 8, "gelu_exact")
    flows = [
        pf.Flow(drifts.Block([attend(beta), feed], [where(geometry.LayerNorm(1.1, 0.2, 1e-5))] * 2))
        for beta in (0.7, 2.0)
    ]
    options: dict[str, Any] = {"step": 1.0, "solver": "map", "window": 2}
    times = np.arange(7.0)
    whole = pf.simulate(flows, CLOUD, times, **options, store=tmp_path / "whole.h5")
    for number, flow in enumerate(flows):
        single = pf.simulate(flow, CLOUD, times, **options)
        assert np.max(np.abs(whole.run(number).points[-1] - single.points[-1])) < 1e-12

    def stop(frames: Any) -> None:
        raise StopError

    cut: dict[str, Any] = {**options, "store": tmp_path / "cut.h5"}
    with pytest.raises(StopError):
        pf.simulate(flows, CLOUD, times, **cut, progress=stop)
    resumed = pf.simulate(flows, CLOUD, times, **cut, resume=True)
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
