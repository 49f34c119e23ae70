"""Sweeps one can open: a figure without being asked, any run as a full one, nothing made before all is right."""

import json
import shutil
import tomllib
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

import particleflow as pf
from particleflow import scenario
from particleflow.app.cli import main
from particleflow.app.scenario.schema.sweep_table import PhaseTable
from particleflow.app.sweep import Manifest, member_scenario, plan_sweep, start_sweep
from particleflow.app.sweep import sweep_figures as figures
from particleflow.app.sweep.results import ERROR, table
from particleflow.app.sweep.series_figure import series_figure

LAYERS = """
# What to look for.
title = "A small sweep of layers"
seed = 5
initial = { kind = "gaussian", dim = 2, count = 4 }
[[drift]]
kind = "linear"
matrix = -0.5
[time]
end = 2.0
frames = 3
step = 1.0
solver = "map"
[record]
observables = ["diameter"]
[output]
figures = false
movie = false
"""
SEEDS = "seed = { count = 3 }\n"
MATRICES = '"drift.0.matrix" = [-0.5, -0.25, 0.5]\n'


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A finished sweep of nine runs: three matrices and three seeds."""
    root = tmp_path_factory.mktemp("sweep")
    (root / "layers.toml").write_text(f"{LAYERS}[sweep]\n{MATRICES}{SEEDS}", encoding="utf-8")
    assert main(["sweep", str(root / "layers.toml"), "--output", str(root / "out"), "--quiet"]) == 0
    return root / "out"


@pytest.fixture
def sweep(swept, tmp_path):
    """A copy of it."""
    return shutil.copytree(swept, tmp_path / "out")


@pytest.fixture
def kept(monkeypatch):
    """The figures that are drawn, instead of their files."""
    drawn = []
    monkeypatch.setattr(figures, "_saved", lambda figure, manifest, name, look: drawn.append(figure) or name)
    return drawn


def row(number, state="done", **values):
    return {"run": number, "state": state, "message": None, **values}


@pytest.mark.slow
def test_a_sweep_draws_what_it_found(swept, kept):
    assert (swept / "figures" / "sweep.png").stat().st_size > 5000
    manifest = Manifest.open(swept)
    assert figures.draw_sweep(manifest) == "sweep"
    axes = [ax for ax in kept[0].axes if ax.get_visible()]
    assert [ax.get_ylabel() for ax in axes] == ["clusters", "diameter"]
    rows = table(manifest)
    for ax, name in zip(axes, ("clusters", "diameter"), strict=True):
        line = ax.lines[0]
        expected = [np.median([r[name] for r in rows if r["drift.0.matrix"] == each]) for each in (-0.5, -0.25, 0.5)]
        assert np.allclose(line.get_xdata(), [-0.5, -0.25, 0.5])
        assert np.allclose(line.get_ydata(), expected)
    # x ← x + A x twice: diameters are (1 + A)² of those at the start, whatever the seed.
    shares = [r["diameter"] / s["diameter"] for r, s in zip(rows[3:6], rows[:3], strict=True)]
    assert np.allclose(shares, (0.75 / 0.5) ** 2)
    assert "of 3 runs" in kept[0].get_suptitle()


@pytest.mark.parametrize(
    ("keys", "varied", "axes"),
    [
        (["a", "seed"], {"a": [1.0, 2.0, 1.0, 2.0], "seed": [1, 1, 2, 2]}, ["a"]),
        (["seed"], {"seed": [1, 2, 3, 4]}, ["seed"]),
        (["a", "b"], {"a": [1, 1, 2, 2], "b": ["x", "y", "x", "y"]}, ["a", "b"]),
        (["a", "b"], {"a": [1, 1, 1, 1], "b": [{"kind": "x"}, {"kind": "y"}] * 2}, ["b"]),
        (["a"], {"a": [1, 1, 1, 1]}, []),
        (["a", "b", "c"], {"a": [1, 1, 2, 2], "b": [1, 2, 1, 2], "c": [1, 2, 2, 1]}, ["a", "b", "c"]),
        (["a", "b"], {"a": [0.1, 0.7, 0.4, 0.9], "b": [3.0, 2.0, 9.0, 4.0]}, ["a", "b"]),
    ],
)
def test_axes_are_what_differs(keys, varied, axes, tmp_path, kept, monkeypatch):
    rows = [row(n, **{key: varied[key][n] for key in keys}, clusters=n + 1, end_time=2.0) for n in range(4)]
    rows.append(row(4, "failed", **dict.fromkeys(keys, 99)))
    assert figures.swept_axes(keys, rows[:4]) == axes
    assert figures.drawn_values(keys, rows[:4]) == ["clusters"]
    monkeypatch.setattr(figures, "table", lambda manifest: rows)
    made = figures.draw_sweep(Manifest(tmp_path, "t", keys, [], []))
    assert made == ("sweep" if 1 <= len(axes) <= 2 else None)
    if made:
        labels = [kept[0].axes[0].get_xlabel(), kept[0].axes[0].get_ylabel()]
        assert labels == (axes if len(axes) == 2 else [*axes, "clusters"])


def test_two_axes_are_cells_of_means(tmp_path, kept, monkeypatch):
    places = [(b, v, s) for b in (1.0, 2.0) for v in (0.5, 1.0, 2.0) for s in (0, 1)]
    rows = [row(n, beta=b, v=v, seed=s, energy=100 * b + 10 * v + s) for n, (b, v, s) in enumerate(places)]
    monkeypatch.setattr(figures, "table", lambda manifest: rows)
    assert figures.draw_sweep(Manifest(tmp_path, "t", ["beta", "v", "seed"], [], [])) == "sweep"
    ax = kept[0].axes[0]
    expected = [[100 * b + 10 * v + 0.5 for b in (1.0, 2.0)] for v in (0.5, 1.0, 2.0)]
    assert np.allclose(ax.collections[0].get_array().reshape(3, 2), expected)
    assert ax.get_xlabel() == "β"
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["0.5", "1", "2"]


@pytest.mark.slow
def test_a_run_of_a_sweep_becomes_a_full_one(sweep, capsys):
    rows = table(Manifest.open(sweep))
    assert main(["replay", str(sweep), "4"]) == 0
    captured = capsys.readouterr()
    folder = sweep / "4"
    assert captured.out == f"{folder}\n"
    assert f"open {folder / 'viewer.html'}" in captured.err
    assert {each.name for each in folder.iterdir()} >= {"scenario.toml", "trajectory.h5", "summary.json", "viewer.html"}
    with pf.Trajectory.open(folder) as run:
        assert run.metadata["title"] == "A small sweep of layers, run 4"
        assert run.metadata["seed"] == rows[4]["seed"] == 6
        assert float(run.observables["diameter"][-1]) == pytest.approx(rows[4]["diameter"], rel=1e-12)
    text = (folder / "scenario.toml").read_text(encoding="utf-8")
    assert "[sweep]" not in text
    assert "matrix = -0.25" in text
    stamp = (folder / "trajectory.h5").stat().st_mtime_ns
    (folder / "viewer.html").unlink()
    assert main(["replay", str(sweep), "4", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["products"]["page"] == "viewer.html"
    assert (folder / "trajectory.h5").stat().st_mtime_ns == stamp
    assert main(["resume", str(sweep), "--quiet"]) == 0  # the sweep does not mind
    capsys.readouterr()
    assert main(["info", str(sweep), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["replayed"] == ["4"]
    assert facts["products"] == ["results.csv", "results.h5", "figures/sweep.png", "figures/series.png"]


def test_commands_open_a_run_of_a_sweep(sweep, capsys):
    last = np.load(sweep / "groups" / "00000.npz")["last_points"]
    assert main(["export", str(sweep / "7"), "--to", "npz"]) == 0
    assert capsys.readouterr().out == f"{sweep / '7' / 'trajectory.npz'}\n"
    assert np.allclose(np.load(sweep / "7" / "trajectory.npz")["points"][-1], last[7], rtol=1e-12)
    assert main(["analyze", str(sweep / "7"), "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["particles"] == 4
    assert not (sweep / "7" / "viewer.html").exists()
    assert main(["view", str(sweep / "7"), "--no-open", "--quiet"]) == 0
    assert (sweep / "7" / "viewer.html").is_file()
    assert main(["info", str(sweep / "7")]) == 0


def test_a_sweep_is_drawn_again_with_another_look(sweep, tmp_path, capsys):
    """Ticks are the three matrices that were swept, and a picture for print has no title."""
    look = ["--theme", "print", "--format", "svg", "--output", str(tmp_path / "drawn")]
    assert main(["plot", str(sweep), *look]) == 0
    made = [tmp_path / "drawn" / f"{name}.svg" for name in ("sweep", "series")]
    assert capsys.readouterr().out == f"{made[0]}\n{made[1]}\n"
    text = made[0].read_text(encoding="utf-8")
    assert "A small sweep of layers" not in text
    assert all(f">{value}</text>" in text for value in ("−0.5", "−0.25", "0.5"))
    assert main(["plot", str(sweep), "--size", "5", "4", "--dpi", "50", "--json"]) == 0
    path, _ = json.loads(capsys.readouterr().out)["paths"]
    assert imread(path).shape[:2] == (200, 250)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replay", "SWEEP", "9"], "must be from 0 to 8"),
        (["replay", "SWEEP/figures", "0"], "holds no sweep"),
        (["plot", "SWEEP/9"], "must be from 0 to 8"),
        (["plot", "SWEEP/figures/1"], "There is no run at"),
        (["analyze", "SWEEP"], "is its first run"),
        (["plot", "SWEEP", "--only", "gram"], "--only is for the figures of one run"),
        (["plot", "SWEEP", "--size", "0", "3"], "`size`"),
        (["info", "SWEEP/8"], "particleflow replay SWEEP 8"),
    ],
)
def test_runs_that_there_are_not(arguments, message, sweep, capsys):
    assert main([each.replace("SWEEP", str(sweep)) for each in arguments]) == 2
    assert message.replace("SWEEP", str(sweep)) in capsys.readouterr().err
    assert not any(each.name.isdecimal() for each in sweep.iterdir())


@pytest.mark.slow
def test_a_run_over_files_needs_nothing_but_the_sweep(tmp_path, capsys):
    np.save(tmp_path / "a.npy", -0.5 * np.eye(2))
    np.save(tmp_path / "b.npy", np.array([[0.0, 1.0], [-1.0, 0.0]]))
    text = f'{LAYERS}[sweep]\n"drift.0.matrix" = ["a.npy", "b.npy"]\n'
    (tmp_path / "files.toml").write_text(text, encoding="utf-8")
    assert main(["sweep", str(tmp_path / "files.toml"), "--output", str(tmp_path / "out"), "--quiet"]) == 0
    (tmp_path / "b.npy").unlink()
    last = np.load(tmp_path / "out" / "groups" / "00000.npz")["last_points"][1]
    assert main(["replay", str(tmp_path / "out"), "1", "--quiet"]) == 0
    with pf.Trajectory.open(tmp_path / "out" / "1") as run:
        assert np.allclose(np.asarray(run.points[-1]), last, rtol=1e-12)


@pytest.mark.parametrize(
    ("sweep", "points", "matrices"),
    [
        ('"initial.frame" = [0, 2]', [10.0, 12.0], [-0.5, -0.5]),
        ('"initial.path" = ["a.npz", "b.npz"]', [1.0, 2.0], [-0.5, -0.5]),
        ('"initial.path" = ["a.npz", "run.h5"]\n"initial.frame" = [1]', [1.0, 11.0], [-0.5, -0.5]),
        ('initial = [{ kind = "from_file", path = "b.npz" }]', [2.0], [-0.5]),
        ('"drift.0" = [{ kind = "linear", matrix = "q.npy" }]', [12.0], [3.0]),
        ('"drift.0.matrix" = ["q.npy", -0.5, "q.npy"]', [12.0] * 3, [3.0, -0.5, 3.0]),
    ],
    ids=["frame", "path", "both", "cloud", "table", "array"],
)
def test_replay_and_resume_read_the_files_that_the_sweep_read(sweep, points, matrices, tmp_path):
    """The files are copied, but for a run, which is never overwritten."""
    for name, value in (("a", 1.0), ("b", 2.0)):
        np.savez(tmp_path / f"{name}.npz", points=np.full((4, 2), value))
    np.save(tmp_path / "q.npy", 3.0 * np.eye(2))
    frames = np.full((3, 4, 2), [[[10.0]], [[11.0]], [[12.0]]])
    pf.Trajectory.from_arrays(np.arange(3.0), frames).save(tmp_path / "run.h5")
    text = LAYERS.replace('kind = "gaussian", dim = 2, count = 4', 'kind = "from_file", path = "run.h5"')
    (tmp_path / "files.toml").write_text(f"{text}[sweep]\n{sweep}\n", encoding="utf-8")
    folder = tmp_path / "out"
    folder.mkdir()
    start_sweep(plan_sweep(scenario.load(tmp_path / "files.toml")), folder)
    for file in (*tmp_path.glob("*.npz"), *tmp_path.glob("*.npy")):
        file.unlink()
    resumed = plan_sweep(scenario.load(folder / "scenario.toml")).builder
    for number, (point, matrix) in enumerate(zip(points, matrices, strict=True)):
        values = Manifest.open(folder).runs[number]["values"]
        for setup in (member_scenario(folder, number).build(check=False), resumed.setup(values)):
            assert np.unique(setup.start.points).tolist() == [point]
            drift: Any = setup.flow.drift
            assert np.asarray(drift.matrix).ravel()[0] == matrix


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ('"drift.0.matrx" = [1.0]\n', "did you mean 'matrix'?"),
        ("seed = 3\n", "must be a list of values"),
        (SEEDS + '[event]\nkind = "merged"\nmerges = 9\ndistance = 0.1\n', "`merges` must be less than"),
    ],
)
def test_nothing_is_made_before_a_sweep_is_known_to_be_right(sweep, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.toml").write_text(f"{LAYERS}[sweep]\n{sweep}", encoding="utf-8")
    assert main(["sweep", "wrong.toml"]) == 2
    assert message in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["wrong.toml"]


@pytest.mark.slow
def test_where_one_run_can_begin_the_others_fail_alone(tmp_path, capsys):
    merged = '[event]\nkind = "merged"\nmerges = 5\ndistance = 0.1\n'
    text = f'{LAYERS}{merged}[sweep]\n"initial.count" = [4, 8]\n"drift.0.matrix" = [-0.5, "x", 0.5]\n'
    (tmp_path / "half.toml").write_text(text, encoding="utf-8")
    assert main(["sweep", str(tmp_path / "half.toml"), "--output", str(tmp_path / "out"), "--quiet"]) == 1
    runs = Manifest.open(tmp_path / "out").runs
    assert [run["state"] for run in runs] == ["failed"] * 3 + ["done", "failed", "done"]
    assert "must be a number" in runs[4]["message"]


def test_a_sweep_says_what_it_does_from_the_beginning(swept, tmp_path, capsys):
    assert main(["sweep", str(swept.parent / "layers.toml"), "--output", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().err.splitlines()
    words = [line.split()[0] for line in lines]
    assert words.index("planning") < words.index("into") < words.index("sweeping")
    assert "0 %" in lines[words.index("sweeping")]
    assert lines[-2:] == [f"open {tmp_path / 'out' / 'figures' / name}" for name in ("sweep.png", "series.png")]


@pytest.mark.parametrize(
    ("sweep", "chosen"), [(SEEDS, {"rtol": 1e-6, "atol": 1e-8}), ('"time.step" = [0.5, 0.25]\n', {})]
)
def test_what_runs_may_choose_for_themselves_is_left_to_them(sweep, chosen, tmp_path):
    """Steps that are swept over go with no tolerances, so that a sweep must not write down those of its scenario."""
    text = LAYERS.replace('step = 1.0\nsolver = "map"\n', "")
    (tmp_path / "open.toml").write_text(f"{text}[sweep]\n{sweep}", encoding="utf-8")
    (tmp_path / "out").mkdir()
    start_sweep(plan_sweep(scenario.load(tmp_path / "open.toml")), tmp_path / "out")
    frozen = tomllib.loads((tmp_path / "out" / "scenario.toml").read_text(encoding="utf-8"))
    assert {name: frozen["time"].get(name) for name in ("rtol", "atol") if name in frozen["time"]} == chosen
    first = member_scenario(tmp_path / "out", 0).document.time
    assert (first.step, first.rtol) == ((None, 1e-6) if chosen else (0.5, None))


def test_doubled_values_are_evenly_spaced_in_a_phase_diagram(tmp_path, kept, monkeypatch):
    counts, gammas = np.array([8.0, 16.0, 32.0, 64.0]), np.array([0.0, 0.5, 1.0])
    monkeypatch.setattr(figures, "phase_values", lambda *asked: (gammas, counts, np.ones((4, 3))))
    monkeypatch.setattr(figures, "repetitions", lambda *asked: None)
    phase = PhaseTable(x="gamma", y="initial.count", value="energy")
    assert figures.draw_phase_diagram(Manifest(tmp_path, "t", [], [], []), phase) == "phase_diagram"
    ax = kept[0].axes[0]
    assert (ax.get_xscale(), ax.get_yscale()) == ("linear", "log")
    places = ax.transData.transform(np.column_stack([np.zeros(4), counts]))[:, 1]
    np.testing.assert_allclose(np.diff(places), np.diff(places)[0])


@pytest.mark.parametrize(("energies", "scale"), [([1.8, 401.0, 5.2e14], "log"), ([1.8, 40.0, 400.0], "linear")])
def test_values_of_many_decades_do_not_hide_each_other(energies, scale, tmp_path, kept, monkeypatch):
    rows = [row(n, beta=float(n), energy=each) for n, each in enumerate(energies)]
    monkeypatch.setattr(figures, "table", lambda manifest: rows)
    assert figures.draw_sweep(Manifest(tmp_path, "t", ["beta"], [], [])) == "sweep"
    assert kept[0].axes[0].get_yscale() == scale
    times = np.linspace(0.0, 1.0, 3)
    along = [
        {"beta": float(n), "runs": 2, "times": times, "energy": 1.0 + each * times, f"energy{ERROR}": 0.0 * times}
        for n, each in enumerate(energies)
    ]
    assert series_figure(along, ["beta"], "").axes[0].get_yscale() == scale
