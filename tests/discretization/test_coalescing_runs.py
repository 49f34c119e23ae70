"""Particles that have come together are carried by one point: the same run, within the bound that its card states."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import pdist

import flows_oracles as oracle
import particleflow as pf
from coalescing_runs import (
    BETWEEN,
    COUNT,
    EPSILON,
    EQUAL,
    FEW,
    HEAVY,
    OPTIONS,
    PLANE,
    ROUND,
    SPHERE,
    THREE,
    TIMES,
    TRACED,
    WEIGHTS,
    cloud,
    log_energy,
    weighted_field,
)
from particleflow import drifts, events, kernels, scenario
from particleflow.discretization.particles.coalescing import padded_size

SYSTEMS = {
    "sphere": (SPHERE, ROUND, 8.0, EQUAL, True),
    "plane": (PLANE, HEAVY, 1 / 0.49, WEIGHTS[:FEW], False),
    "weighted sphere": (SPHERE, pf.Measure.weighted(ROUND, WEIGHTS), 8.0, WEIGHTS, True),
    "uniform plane": (PLANE, cloud(3, 2), 1 / 0.49, EQUAL, False),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_run_stays_within_its_bound_and_shows_every_particle(name, tmp_path):
    flow, start, beta, weights, sphere = SYSTEMS[name]
    TRACED.clear()
    run = pf.simulate(flow, start, TIMES, **OPTIONS, store=tmp_path / "run.h5")
    said = run.metadata["statistics"]
    points = np.asarray(run.points)
    assert points.shape == (17, *np.shape(getattr(start, "points", start)))
    assert said["points left"] == oracle.cluster_count(points[-1], 1e-2)
    count = len(weights)
    assert said["particles merged"] == count - said["points left"] > count // 2
    assert 0 < said["moved by merging"] < 10 * EPSILON
    assert "points left" in str(run)
    # One program for each of two sizes, though eight windows: each is looked at a few times while it is made, and not
    # at all where another system of this table, in the same process, has made it.
    assert set(TRACED) <= {count, 16}
    assert len(TRACED) <= 2 + 5 * len(set(TRACED))
    exact = oracle.solve(weighted_field(beta, weights, sphere=sphere), points[0], TIMES)
    exact = oracle.on_sphere(exact) if sphere else exact
    assert np.max(np.abs(points - exact)) < said["moved by merging"]
    bound, energy = said["log-energy bound of merging"], log_energy(exact, beta, weights, sphere=sphere)
    assert bound < 0.1
    assert np.max(np.abs(np.asarray(run.observables["watched"]) - energy)) < bound
    assert np.max(np.abs(log_energy(points, beta, weights, sphere=sphere) - energy)) < bound
    pairs = np.outer(weights, weights) * (1 - np.eye(count))
    units = [p / np.linalg.norm(p, axis=1, keepdims=True) for p in points]
    similar = [np.sum(pairs * (u @ u.T)) / pairs.sum() for u in units]
    assert np.max(np.abs(np.asarray(run.observables["mean_similarity"]) - similar)) < 1e-12
    track = pf.analysis.track_clusters(run, threshold=1e-2)
    assert track.counts[-1] == said["points left"]


def assert_whole(resumed: Any) -> None:
    """The run on the sphere has the bits of one that nobody has disturbed."""
    whole = pf.simulate(SPHERE, ROUND, TIMES, **OPTIONS)
    assert resumed.status == "finished"
    assert np.array_equal(np.asarray(resumed.points), np.asarray(whole.points))
    assert np.array_equal(np.asarray(resumed.observables["watched"]), np.asarray(whole.observables["watched"]))
    for name in ("points left", "moved by merging", "log-energy bound of merging", "field evaluations"):
        assert resumed.metadata["statistics"][name] == whole.metadata["statistics"][name]


@pytest.mark.slow
@pytest.mark.parametrize("merged", [1, 18])
def test_an_interrupted_run_goes_on_bit_for_bit_across_merges(tmp_path, merged):
    def stop(frames: Any) -> None:
        if COUNT - int(frames.progress.state.carrying[0]) >= merged:
            raise KeyboardInterrupt

    options: dict[str, Any] = {**OPTIONS, "store": tmp_path / "run.h5"}
    with pytest.raises(KeyboardInterrupt):
        pf.simulate(SPHERE, ROUND, TIMES, **options, progress=stop)
    assert_whole(pf.simulate(SPHERE, ROUND, TIMES, **options, resume=True))


@pytest.mark.slow
def test_a_killed_run_goes_on_bit_for_bit_across_merges(tmp_path):
    path = tmp_path / "killed.h5"
    here = "import coalescing_runs as t; "
    for merged in (1, 18):
        code = here + f"t.run_and_die({str(path)!r}, {merged})"
        killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert killed.returncode == -9, killed.stderr
        assert pf.Trajectory.open(path).status == "killed"
    assert_whole(pf.simulate(SPHERE, ROUND, TIMES, **OPTIONS, store=path, resume=True))


@pytest.mark.slow
@pytest.mark.parametrize("event", [None, events.Clustered(0.01)], ids=["to the end", "event"])
def test_an_ensemble_has_one_size_and_every_run_is_its_own(event):
    starts = np.stack([ROUND, oracle.random_sphere(9, COUNT, 3)])
    flows = [SPHERE, pf.Flow(pf.Attend(kernels.Attention(beta=1.0)), geometry=pf.Sphere())]
    last: list[Any] = []
    both = pf.simulate(flows, starts, TIMES, **OPTIONS, event=event, progress=last.append)
    state = last[-1].progress.state
    single = pf.simulate(SPHERE, ROUND, TIMES, **OPTIONS)
    assert int(state.carrying[0]) == single.metadata["statistics"]["points left"]
    assert state.moving.shape[1] == padded_size(int(state.carrying.max()), COUNT)
    assert np.max(np.abs(np.asarray(both.run(0).points) - np.asarray(single.points))) < 1e-9
    if event is None:
        assert state.moving.shape[1] == 16
        return
    # The other run has met its event, and stands still with the points that it had.
    assert int(state.carrying[1]) > 1
    end = float(both.observables["event_time"][-1, 1])
    exact = oracle.solve(weighted_field(1.0, EQUAL, sphere=True), starts[1], [0.0, end])[-1]
    assert abs(pdist(oracle.on_sphere(exact)).max() - 0.01) < 1e-5


@pytest.mark.slow
def test_an_event_that_a_merge_would_step_over_is_found():
    times = np.concatenate([[0.0], 1e-3 + np.linspace(0.0, 1.0, 5)])
    run = pf.simulate(pf.Flow(drifts.Linear(-0.01)), THREE, times, **BETWEEN, event=events.Merged(2, 2e-3))
    assert run.status == "stopped by event"
    assert abs(float(run.times[-1]) - np.log(2.0001 / 2.0) / 0.01) < 1e-6


@pytest.mark.slow
def test_explicit_layers_in_single_precision():
    """x ← N(x + h m(x)), against the same in NumPy."""
    flow = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), SPHERE)
    how = pf.Particles(coalesce=1e-3)
    run = pf.simulate(
        flow, ROUND.astype(np.float32), TIMES, solver="map", step=0.5, window=8, discretization=how
    )  # fmt: skip
    exact = [ROUND]
    for _ in range(32):
        mean = oracle.attention_weights(exact[-1], 8.0, 1.0, 1.0) @ exact[-1]
        exact.append(oracle.on_sphere(exact[-1] + 0.5 * mean))
    said = run.metadata["statistics"]
    assert said["points left"] <= 8
    assert np.asarray(run.points).dtype == np.float32
    assert np.max(np.abs(np.asarray(run.points) - np.stack(exact)[::2])) < said["moved by merging"] < 3e-3


@pytest.mark.slow
def test_noise_that_all_share_does_not_part_them():
    flow = pf.Flow(SPHERE.drift, pf.Sphere(), common_temperature=0.02)
    options: dict[str, Any] = {"step": 0.05, "key": jax.random.key(3), "window": 4}
    ways = (pf.Particles(), OPTIONS["discretization"])
    every, few = (pf.simulate(flow, ROUND, TIMES, **options, discretization=how) for how in ways)
    assert few.metadata["statistics"]["points left"] <= 8
    assert np.max(np.abs(np.asarray(every.points) - np.asarray(few.points))) < 10 * EPSILON


TOML = """
# Clusters become single particles.
initial = { kind = "uniform_sphere", dim = 2, count = 200 }
geometry = "sphere"
discretization = { kind = "particles", coalesce = 1e-9 }
[[drift]]
kind = "attend"
kernel = { kind = "attention", beta = 30.0 }
[time]
end = 1e12
frames = 60
spacing = "log"
first = 0.1
[record]
observables = ["energy"]
"""


@pytest.mark.slow
def test_a_scenario_says_it(tmp_path):
    path = tmp_path / "long.toml"
    path.write_text(TOML, encoding="utf-8")
    setup = scenario.load(path).build()
    assert repr(setup.arguments["discretization"]) == "Particles(coalesce=1e-09)"
    assert setup.plan.choices["solver"] == "tsit5, kvaerno5 in windows of many steps and for the last 32 points"
    more = replace(setup, start=pf.Measure.uniform(np.tile(setup.start.points, (4, 1))))
    plan = more.plan
    assert plan.choices["solver"] == "tsit5, kvaerno5 in windows of many steps and for the last 32 points"
    assert plan.window == 4


@pytest.mark.slow
def test_a_long_run_with_all_its_products(tmp_path):
    path = tmp_path / "long.toml"
    path.write_text(TOML, encoding="utf-8")
    run = pf.run(path, set={"initial.count": 800}, output=tmp_path / "run", movie=False)
    said = run.metadata["statistics"]
    assert run.status == "finished"
    assert said["points left"] < 8
    assert said["field evaluations"] < 20_000  # explicit steps alone would take 10¹² of them
    assert np.all(np.diff(np.asarray(run.observables["energy"])) > -1e-9 * run.observables["energy"][-1])
    assert {each.name for each in (tmp_path / "run").iterdir()} >= {"summary.json", "figures", "viewer.html"}
    again = pf.Trajectory.open(tmp_path / "run")
    assert np.array_equal(np.asarray(again.points), np.asarray(run.points))
    assert oracle.cluster_count(np.asarray(run.points[-1]), 1e-3) == said["points left"]
