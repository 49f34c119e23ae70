"""Time moves a state: what a user adds in thirty lines goes through everything, and runs know what they are."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flows_oracles as oracle
import particleflow as pf
from moving_weights import FLOW, OPTIONS, POINTS, RATES, RUNS, START, TIMES, WEIGHTS, Cylinder, exact, system
from particleflow import drifts, events, geometry, kernels, observables
from particleflow.errors import ArgumentError

TOLERANCES: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-11}


@pytest.mark.slow
def test_weights_that_move_in_memory_in_a_file_in_a_stream_and_resumed(tmp_path):
    expected = np.stack([exact(time) for time in TIMES])
    assert np.array_equal(pf.Present.of(FLOW, POINTS).measure.points, POINTS)
    run = pf.simulate(FLOW, START, TIMES, **OPTIONS)
    stored = pf.simulate(FLOW, START, TIMES, **OPTIONS, store=tmp_path / "weights.h5")
    for each in (run, stored):
        assert np.max(np.abs(np.asarray(each.masses) - expected)) < 1e-8
        assert np.array_equal(each.points[4], POINTS)
        assert np.max(np.abs(np.asarray(each.observables["centre"]) - expected @ POINTS)) < 1e-8
    assert np.array_equal(np.asarray(run.masses), np.asarray(stored.masses))
    with h5py.File(tmp_path / "weights.h5") as file:
        group: Any = file["particles/trajectory"]
        assert group["position"].shape == (6, 3)
        assert group["mass/value"].shape == (11, 6)
        assert np.allclose(group["mass/time"], TIMES, atol=0)
    frames = list(pf.stream(FLOW, START, TIMES, **OPTIONS))
    assert np.array_equal(np.concatenate([each.fields["masses"] for each in frames]), np.asarray(run.masses))

    def stop(frames):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pf.simulate(FLOW, START, TIMES, **OPTIONS, store=tmp_path / "cut.h5", progress=stop)
    resumed = pf.simulate(FLOW, START, TIMES, **OPTIONS, store=tmp_path / "cut.h5", resume=True)
    assert resumed.status == "finished"
    assert np.array_equal(np.asarray(resumed.masses), np.asarray(run.masses))
    assert np.array_equal(resumed.observables["centre"], run.observables["centre"])
    again = pf.initial.FromFile(tmp_path / "weights.h5").start(jax.random.key(0)).measure
    assert np.max(np.abs(np.exp(again.log_weights) - expected[-1])) < 1e-8


@pytest.mark.slow
def test_weights_that_move_stop_at_an_event():
    event = events.Reached(observables.order_parameter, 0.5)
    run = pf.simulate(FLOW, START, TIMES, **OPTIONS, event=events.Reached(first_mass, 0.32))
    assert run.status == "stopped by event"
    assert abs(np.asarray(run.masses)[-1, 0] - 0.32) < 1e-8
    assert abs(exact(float(run.times[-1]))[0] - 0.32) < 1e-7
    assert event.describe().startswith("order_parameter")


def first_mass(present):
    return jnp.exp(present.measure.log_weights[0])


@pytest.mark.slow
def test_weights_that_move_in_an_ensemble():
    other = np.array([0.1, 0.1, 0.1, 0.3, 0.2, 0.2])
    flows = [pf.Flow(drifts.Linear(factor * RATES)) for factor in (1.0, -0.5)]
    both = pf.simulate(flows, [START, pf.Measure.weighted(POINTS, other)], TIMES, **OPTIONS)
    for run, (factor, start) in enumerate(((1.0, WEIGHTS), (-0.5, other))):
        expected = np.stack([exact(time, start, factor * RATES) for time in TIMES])
        assert np.max(np.abs(np.asarray(both.run(run).masses) - expected)) < 1e-8
        assert np.array_equal(both.run(run).points[0], POINTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_what_a_user_adds_survives_a_kill(name, tmp_path):
    path, (flow, start, options) = tmp_path / "killed.h5", system(name)
    code = "import moving_weights as m; "
    code += f"m.run_and_die({str(path)!r}, {name!r})"
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr
    assert pf.Trajectory.open(path).status == "killed"
    resumed = pf.simulate(flow, start, TIMES, **options, store=path, resume=True)
    whole = pf.simulate(flow, start, TIMES, **options)
    assert resumed.status == "finished"
    assert np.array_equal(np.asarray(resumed.masses), np.asarray(whole.masses))
    assert np.array_equal(np.asarray(resumed.points), np.asarray(whole.points))
    assert resumed.fields.keys() == whole.fields.keys()
    for field in whole.fields:
        assert np.array_equal(np.asarray(resumed.fields[field]), np.asarray(whole.fields[field]))
    assert resumed.observables.keys() == whole.observables.keys()
    for seen in whole.observables:
        assert np.array_equal(np.asarray(resumed.observables[seen]), np.asarray(whole.observables[seen]))


@pytest.mark.slow
def test_a_geometry_a_kernel_and_a_summation_of_a_user(tmp_path):
    flow, start, options = system("geometry, kernel and summation")
    unobserved: dict[str, Any] = options | {"observe": ()}
    run = pf.simulate(flow, start, TIMES, **unobserved, store=tmp_path / "cylinder.h5")

    def field(time, points):
        points = np.concatenate([oracle.on_sphere(points[:, :2]), points[:, 2:]], axis=1)
        moved = oracle.attention_weights(points, 0.5, 1.0, 1.0) @ points
        return np.concatenate([oracle.tangent(points[:, :2], moved[:, :2]), moved[:, 2:]], axis=1)

    expected = oracle.solve(field, start, TIMES)
    assert np.max(np.abs(np.asarray(run.points) - expected)) < 1e-7
    assert run.metadata["geometry"] == "cylinder"
    assert "ByForm" in run.metadata["statistics"]["chosen summation"]
    with pytest.raises(ArgumentError, match="does not say how noise acts"):
        pf.simulate(pf.Flow(flow.drift, Cylinder(), 0.1), start, [0.0, 1.0], step=0.1, key=jax.random.key(0))


@pytest.mark.slow
def test_a_geometry_a_kernel_and_a_summation_of_a_user_in_streams_ensembles_and_with_events():
    flow, start, options = system("geometry, kernel and summation")
    run = pf.simulate(flow, start, TIMES, **options)
    streamed = np.concatenate([each.fields["points"] for each in pf.stream(flow, start, TIMES, **options)])
    assert np.array_equal(streamed, np.asarray(run.points))
    both = pf.simulate([flow, flow], start, TIMES, **options)
    assert np.max(np.abs(np.asarray(both.run(1).points) - np.asarray(run.points))) < 1e-7
    level = float(np.mean(run.observables["energy"][4:6]))
    stopped = pf.simulate(flow, start, TIMES, **options, event=events.EnergyReached(level))
    assert stopped.status == "stopped by event"
    assert TIMES[4] < stopped.times[-1] < TIMES[5]
    assert abs(stopped.observables["energy"][-1] - level) < 1e-8


def gaussian(kernel, *, normalization: Any = "row", value=1.0):
    return pf.Flow(pf.Attend(kernel, value, normalization), geometry=pf.Sphere())


OTHERS = {
    "kernel": gaussian(kernels.Laplace(0.5)),
    "static field": gaussian(kernels.Gaussian(0.5), normalization="none"),
    "geometry": pf.Flow(pf.Attend(kernels.Gaussian(0.5)), geometry=geometry.Ngpt(1.0)),
    "drift": pf.Flow(pf.MeanShift(kernels.Gaussian(0.5)), geometry=pf.Sphere()),
}


@pytest.mark.slow
def test_a_run_is_not_resumed_as_another_class(tmp_path):
    start, store = oracle.random_sphere(1, 5, 3), tmp_path / "run.h5"

    def stop(frames):
        raise KeyboardInterrupt

    options: dict[str, Any] = {"step": 0.1, "solver": "map", "window": 2, "store": store}
    with pytest.raises(KeyboardInterrupt):
        pf.simulate(gaussian(kernels.Gaussian(0.5)), start, TIMES, **options, progress=stop)
    for other in OTHERS.values():
        with pytest.raises(ArgumentError, match="made with other settings"):
            pf.simulate(other, start, TIMES, **options, resume=True)


def height(flow, time, measure):
    """An observable of three arguments, as they were in version 1."""
    return measure.points[:, 2] + time


@pytest.mark.slow
def test_an_ensemble_keeps_the_weights_and_positions_of_every_run_and_takes_old_observables(tmp_path):
    rng = np.random.default_rng(2)
    starts = [
        pf.Measure.weighted(
            oracle.random_sphere(seed, 5, 3), rng.uniform(0.1, 1, 5), positions=rng.permutation(np.arange(5.0))
        )
        for seed in range(3)
    ]
    flow = pf.Flow(pf.Attend(kernels.Attention(beta=1.0), positional=kernels.Causal()), geometry=pf.Sphere())
    for options in ({}, {"store": tmp_path / "ensemble.h5"}):
        both = pf.simulate(flow, starts, TIMES, step=0.1, solver="map", observe=[height], **options)
        for run, start in enumerate(starts):
            weights = np.exp(np.asarray(start.log_weights))
            assert np.max(np.abs(both.run(run).weights - weights / weights.sum())) < 1e-15
            assert np.array_equal(np.asarray(both.run(run).positions), np.asarray(start.positions))
            heights = np.asarray(both.run(run).points)[:, :, 2] + TIMES[:, None]
            assert np.allclose(both.run(run).observables["height"], heights, atol=1e-15)


@pytest.mark.slow
def test_plain_transformations_take_flows():
    """Everything with strings, integers or functions in it, as one flow."""
    start = jnp.asarray(oracle.random_sphere(3, 5, 3))
    drift = drifts.Sum(
        [
            pf.Attend(kernels.Attention(beta=2.0), positional=kernels.Causal(), normalization="none"),
            drifts.Varying(pf.Attend(kernels.Attention(beta=2.0)), drifts.Ramp(1.0, 3.0, 1.0), "kernel.beta"),
            drifts.Layers([pf.Attend(kernels.Attention(beta=b)) for b in (1.0, 2.0)], 0.25),
            0.5 * pf.MeanShift(kernels.Symmetrised(kernels.Gaussian(0.5))),
            drifts.RandomFeedForward(3, 8, activation="gelu_exact"),
        ]
    )
    flow = pf.Flow(drift, geometry=pf.Sphere())

    def end(flow):
        return jnp.sum(pf.evolve(flow, start, 0.5, step=0.25, solver="euler", max_steps=4).points[:, 0])

    value, slope = jax.jit(jax.value_and_grad(end))(flow)
    assert jax.tree.structure(slope) == jax.tree.structure(flow)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))
    moved = eqx.tree_at(lambda f: f.drift.drifts[0].kernel.beta, flow, 2.0 + 1e-6)
    many = jax.jit(jax.vmap(end))(jax.tree.map(lambda a, b: jnp.stack([a, b]), flow, moved))
    assert abs(many[0] - value) < 1e-12
    assert abs((many[1] - many[0]) / 1e-6 - slope.drift.drifts[0].kernel.beta) < 1e-6


@pytest.mark.slow
def test_runs_of_before_open_and_are_not_resumed(tmp_path):
    """A file as version 1 wrote it: no fields, no facts, no format of runs."""
    store = tmp_path / "old.h5"

    def stop(frames):
        raise KeyboardInterrupt

    options: dict[str, Any] = {"step": 0.1, "solver": "map", "window": 2, "store": store}
    flow, start = gaussian(kernels.Gaussian(0.5)), oracle.random_sphere(1, 5, 3)
    with pytest.raises(KeyboardInterrupt):
        pf.simulate(flow, start, TIMES, **options, progress=stop)
    for checkpoint in (tmp_path / "old.h5.checkpoints").glob("*.npz"):
        as_before(checkpoint)
    with pytest.raises(ArgumentError, match=r"begun by another version of particleflow.*cannot be resumed"):
        pf.simulate(flow, start, TIMES, **options, resume=True)
    assert len(pf.Trajectory.open(store)) == 2


def as_before(checkpoint: Path) -> None:
    from particleflow.trajectory.store import load_checkpoint, save_checkpoint

    loaded = load_checkpoint(checkpoint.parent)
    loaded.path.unlink()
    info = {name: value for name, value in loaded.info.items() if name != "run format"}
    save_checkpoint(checkpoint.parent, {"state": loaded.arrays["state.0"]}, info)
