"""Sweeps: what is run, that grouping changes nothing, and that a sweep survives being killed."""

# pyright: reportAttributeAccessIssue=false, reportFunctionMemberAccess=false

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import particleflow as pf
from particleflow import scenario
from particleflow.app.cli import main
from particleflow.app.sweep import Manifest, plan_groups, plan_sweep, run_sweep, start_sweep, write_results
from particleflow.app.sweep.groups import save_group
from particleflow.app.sweep.results import phase_values, table
from particleflow.errors import UserError

BASE = """
# What to look for.
title = "A small sweep"
seed = 5
initial = { kind = "uniform_sphere", dim = 3, count = 8 }
geometry = { kind = "sphere" }
[[drift]]
kind = "attend"
kernel = { kind = "attention", beta = 1.0 }
[time]
end = 2.0
frames = 5
rtol = 1e-8
atol = 1e-10
[record]
observables = ["energy", "pair_fraction"]
[sweep]
"""
LAYERS = BASE.replace("rtol = 1e-8\natol = 1e-10", 'step = 0.5\nsolver = "map"')


@pytest.fixture
def load(tmp_path):
    def load(sweep, text=LAYERS):
        path = tmp_path / "sweep.toml"
        path.write_text(text + sweep, encoding="utf-8")
        return scenario.load(path)

    return load


def swept(loaded, folder):
    """A sweep, run to its end in a new folder."""
    folder.mkdir()
    plan, manifest = start_sweep(plan_sweep(loaded), folder)
    run_sweep(plan, manifest)
    return manifest


def test_grid_zip_and_random(load):
    grid = plan_sweep(load('"drift.0.kernel.beta" = [1.0, 2.0]\nseed = { count = 3 }')).runs
    assert grid == tuple({"drift.0.kernel.beta": beta, "seed": seed} for beta in (1.0, 2.0) for seed in (5, 6, 7))
    zipped = plan_sweep(load('mode = "zip"\n"drift.0.kernel.beta" = [1.0, 2.0]\nseed = [8, 9]')).runs
    assert zipped == ({"drift.0.kernel.beta": 1.0, "seed": 8}, {"drift.0.kernel.beta": 2.0, "seed": 9})
    spread = '"drift.0.kernel.beta" = { start = 1e-2, stop = 1e2, spacing = "log" }'
    random = [run["drift.0.kernel.beta"] for run in plan_sweep(load(f'mode = "random"\ncount = 400\n{spread}')).runs]
    assert len(random) == 400
    assert min(random) >= 1e-2
    assert max(random) <= 1e2
    assert abs(np.mean(np.log10(random))) < 0.2  # evenly in the logarithm
    even = plan_sweep(load('"drift.0.kernel.beta" = { start = 0.1, stop = 0.5, count = 5 }')).runs
    assert [run["drift.0.kernel.beta"] for run in even] == [0.1, 0.2, 0.3, 0.4, 0.5]


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("", "must name at least one key"),
        ('"drift.0.kernel.bta" = [1.0]', "did you mean 'beta'?"),
        ('"drift.0.kernel.beta" = [1.0, "x"]', "must be a number"),
        ('"drift.0.kernel.beta" = 3.0', "must be a list of values"),
        ('mode = "zip"\n"drift.0.kernel.beta" = [1.0]\nseed = [1, 2]', "equally many"),
        ('mode = "random"\nseed = [1]', "sweep.count: is missing"),
        ("seed = { count = 0 }", "greater than or equal to 1"),
        ("seed = { count = 2000, stop = 3 }", "start"),
        (
            'seed = { count = 2000 }\n"drift.0.kernel.beta" = { start = 0.0, stop = 1.0, count = 2000 }',
            "runs, more than",
        ),
        ('seed = [1]\nphase = { x = "time", y = "nothing", value = "energy" }', "must be a swept key"),
        ('seed = [1]\nphase = { x = "time", y = "seed", value = "speed" }', "must be recorded"),
        ('seed = [1]\nphase = { x = "time", y = "seed", value = "clusters" }', "in every frame to be drawn over time"),
        ('seed = [1]\nphase = { x = "time", y = "time", value = "energy" }', "must be another key than x"),
        (
            'seed = [1]\ngeometry = ["sphere"]\nphase = { x = "seed", y = "geometry", value = "energy" }',
            "must be a key all of whose values are numbers",
        ),
    ],
)
def test_wrong_sweeps_say_what_is_wrong(load, sweep, message):
    with pytest.raises(UserError) as caught:
        plan_sweep(load(sweep))
    assert message in str(caught.value)


@pytest.mark.slow
def test_an_ensemble_gives_what_single_runs_give(load, tmp_path):
    loaded = load('"drift.0.kernel.beta" = [1.0, 4.0]\nseed = { count = 2 }')
    folder = tmp_path / "out"
    folder.mkdir()
    plan, manifest = start_sweep(plan_sweep(loaded), folder)
    assert manifest.groups == [[0, 1, 2, 3]]
    run_sweep(plan, manifest)
    assert manifest.states() == {"waiting": 0, "running": 0, "done": 4, "failed": 0}
    write_results(manifest)
    rows = list(csv.DictReader((folder / "results.csv").read_text().splitlines()))
    for row in rows[::3]:
        values = {"drift.0.kernel.beta": float(row["drift.0.kernel.beta"]), "seed": int(row["seed"])}
        setup = loaded.with_values(values).build()
        alone = pf.simulate(setup.flow, setup.start, setup.times, **setup.arguments)
        assert float(row["energy"]) == pytest.approx(float(alone.observables["energy"][-1]), rel=1e-9)
    with h5py.File(folder / "results.h5") as file:
        assert file["table/energy"].shape == (4,)
        assert file["groups/00000/observable.energy"].shape == (4, 5)


@pytest.mark.slow
def test_runs_of_different_structure_go_in_groups_of_their_own(load, tmp_path):
    loaded = load('"initial.count" = [8, 6]\n"drift.0.normalization" = ["row", "none"]\nseed = { count = 2 }')
    folder = tmp_path / "out"
    folder.mkdir()
    _, manifest = start_sweep(plan_sweep(loaded), folder)
    assert sorted(map(tuple, manifest.groups)) == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_a_value_that_is_wrong_is_a_group_of_its_own(load):
    plan = plan_sweep(load('"drift.0.kernel.beta" = [1.0, "x", 4.0]'))
    assert plan_groups(plan) == [[0, 2], [1]]


@pytest.mark.parametrize("total", [0.0, -1000.0])
def test_clusters_of_weights_of_any_sum(total, tmp_path):
    """Two pairs at one place each, one of them without mass; the sum of the weights is far below the least float."""
    manifest = Manifest.create(tmp_path, "t", ["seed"], [{"seed": 1}], [[0]])
    manifest.mark([0], "done")
    (tmp_path / "groups").mkdir()
    save_group(
        tmp_path / "groups" / "00000.npz",
        {
            "times": np.zeros(1), "end_times": np.zeros(1), "thresholds": np.array([0.1]),
            "last_points": np.array([[[0.0], [0.0], [1.0], [2.0], [2.0]]]),
            "log_weights": total + np.array([[0.0, 0.0, -5.0, -np.inf, -np.inf]]),
        },
    )  # fmt: skip
    write_results(manifest)
    assert table(manifest)[0]["clusters"] == 2


@pytest.mark.slow
def test_noise_belongs_to_the_seed_and_not_to_the_group(load, tmp_path):
    noisy = BASE.replace("rtol = 1e-8\natol = 1e-10", "step = 0.1").replace("seed = 5", "seed = 5\ntemperature = 0.1")
    loaded = load("seed = { count = 3 }", noisy)
    manifest = swept(loaded, tmp_path / "out")
    setup = loaded.with_values({"seed": 6}).build()
    alone = pf.simulate(setup.flow, setup.start, setup.times, **setup.arguments)
    assert table(manifest)[1]["energy"] == pytest.approx(float(alone.observables["energy"][-1]), rel=1e-10)


@pytest.mark.slow
def test_a_failing_run_does_not_stop_the_others(load, tmp_path):
    free = BASE.replace('geometry = { kind = "sphere" }', "").replace("end = 2.0", "end = 4.0\nmax_steps = 200")
    loaded = load('"drift.0.value" = [-1.0, 1e150, -0.5]', free)
    manifest = swept(loaded, tmp_path / "out")
    assert [run["state"] for run in manifest.runs] == ["done", "failed", "done"]
    assert "particle" in manifest.runs[1]["message"]
    assert np.isfinite(table(manifest)[2]["energy"])


@pytest.mark.slow
def test_trajectories_are_kept_on_request(load, tmp_path):
    loaded = load('keep = "trajectories"\nseed = { count = 2 }', BASE)
    manifest = swept(loaded, tmp_path / "out")
    with pf.Trajectory.open(tmp_path / "out" / "groups" / "00000.h5") as runs:
        assert runs.points.shape == (5, 2, 8, 3)
        expected = table(manifest)[1]["energy"]
        assert float(runs.observables["energy"][-1][1]) == pytest.approx(expected, rel=1e-15)
    # nothing is left of how they were made: partial files, locks and checkpoints
    assert sorted(each.name for each in (tmp_path / "out" / "groups").iterdir()) == ["00000.h5", "00000.npz"]


@pytest.fixture(scope="module")
def commanded(tmp_path_factory):
    """The file of a sweep of two β and three seeds, the folder into which the command has run it, and what it said."""
    root = tmp_path_factory.mktemp("sweep")
    phase = 'phase = { x = "time", y = "drift.0.kernel.beta", value = "energy" }'
    path, folder = root / "sweep.toml", root / "out"
    path.write_text(f'{LAYERS}"drift.0.kernel.beta" = [1.0, 4.0]\nseed = {{ count = 3 }}\n{phase}', encoding="utf-8")
    with redirect_stdout(io.StringIO()) as said:
        assert main(["sweep", str(path), "--output", str(folder), "--json", "--quiet"]) == 0
    return path, folder, json.loads(said.getvalue())


@pytest.mark.slow
def test_phase_values_are_means_over_seeds(commanded):
    manifest = Manifest.open(commanded[1])
    times, betas, values = phase_values(manifest, "time", "drift.0.kernel.beta", "energy")
    assert np.allclose(times, np.linspace(0, 2, 5))
    assert betas.tolist() == [1.0, 4.0]
    rows = table(manifest)
    expected = np.mean([row["energy"] for row in rows if row["drift.0.kernel.beta"] == 4.0])
    assert values[1, -1] == pytest.approx(expected, rel=1e-12)
    flipped = phase_values(manifest, "drift.0.kernel.beta", "time", "energy")[2]
    assert np.array_equal(flipped, values.T)
    xs, ys, grid = phase_values(manifest, "seed", "drift.0.kernel.beta", "energy")
    assert grid.shape == (len(ys), len(xs)) == (2, 3)
    clusters = phase_values(manifest, "seed", "drift.0.kernel.beta", "clusters")[2]
    assert clusters.ravel().tolist() == [row["clusters"] for row in rows]


def test_the_equiangular_time_solves_the_equation():
    published = {
        0.1: 5.192,
        1: 5.270,
        2: 5.458,
        3: 5.898,
        4: 6.954,
        5: 9.544,
        6: 15.995,
        7: 32.233,
        8: 73.446,
        9: 178.731,
    }
    for beta, expected in published.items():
        assert pf.analysis.equiangular_time(beta, 32) == pytest.approx(expected, abs=6e-4)

    def slope(_, rho):
        return 2 * np.exp(3 * rho) * (1 - rho) * (31 * rho + 1) / (np.exp(3) + 31 * np.exp(3 * rho))

    def reached(_, rho):
        return rho[0] - 0.999

    reached.terminal = True
    solution = solve_ivp(slope, (0, 20), [0.0], events=reached, rtol=1e-10, atol=1e-12)
    assert pf.analysis.equiangular_time(3.0, 32) == pytest.approx(solution.t_events[0][0], rel=1e-7)


@pytest.mark.slow
def test_the_command_writes_tables_and_a_diagram(commanded, capsys):
    path, folder, facts = commanded
    assert facts["done"] == 6
    for name in ("results.csv", "results.h5", "figures/phase_diagram.png", "manifest.json", "scenario.toml"):
        assert (folder / name).exists()
    assert main(["info", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 6
    assert main(["sweep", str(path), "--output", str(folder)]) == 2


def test_spreadsheets_see_no_formulas(load, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    manifest = Manifest.create(folder, "t", ["title"], [{"title": '=cmd|"/c calc"!A1'}], [[0]])
    write_results(manifest)
    row = next(csv.DictReader((folder / "results.csv").read_text().splitlines()))
    assert row["title"].startswith("'=")


@pytest.mark.slow
def test_a_killed_sweep_goes_on(load, tmp_path):
    """Kill a sweep of many groups after its first one; resume it; compare with one that was left alone."""
    layers = BASE.replace("rtol = 1e-8\natol = 1e-10", 'step = 0.25\nsolver = "map"').replace('"energy", ', "")
    load('"initial.count" = [4, 5, 6]\nseed = { count = 2 }', layers)
    environment = {**os.environ, "PYTHONPATH": str(Path(pf.__file__).parents[1])}
    folder = tmp_path / "killed"
    command = [sys.executable, "-m", "particleflow", "sweep", str(tmp_path / "sweep.toml"), "--quiet", "--output"]
    process = subprocess.Popen([*command, str(folder)], env=environment)
    deadline = time.monotonic() + 240
    while not list(folder.glob("groups/*.npz")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = Manifest.open(folder)
    assert 0 < before.states()["waiting"] <= 6
    done = [number for number, run in enumerate(before.runs) if run["state"] == "done"]
    stamps = {path: path.stat().st_mtime_ns for path in folder.glob("groups/*.npz")}
    assert main(["resume", str(folder), "--quiet"]) == 0
    after = Manifest.open(folder)
    assert after.states()["done"] == 6
    assert after.groups == before.groups
    kept = {after.groups.index(group) for group in after.groups if set(group) <= set(done)}
    for index in kept:
        path = folder / "groups" / f"{index:05d}.npz"
        assert path.stat().st_mtime_ns == stamps[path]
    assert main([*command[3:], str(tmp_path / "whole")]) == 0
    assert (folder / "results.csv").read_text() == (tmp_path / "whole" / "results.csv").read_text()


def test_the_published_phase_diagram_is_one_sweep():
    plan = plan_sweep(scenario.load("phase_diagram"))
    assert len(plan.runs) == 1440
    betas = sorted({run["drift.0.kernel.beta"] for run in plan.runs})
    assert betas == [round(0.1 * number, 1) for number in range(1, 91)]
    assert {run["seed"] for run in plan.runs} == set(range(16))
