"""Figures and movies that another process draws: the same ones, whole or not at all, and its errors are ours."""

import matplotlib as mpl

mpl.use("Agg")

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import particleflow
from figure_oracles import make
from particleflow.app.runs import drawing_process, run_outputs
from particleflow.app.runs.drawing_process import DrawingProcesses
from particleflow.app.runs.run_outputs import Outcome, make_products
from particleflow.errors import StoreError

TOKENS = """
title = "A few tokens"
initial = { kind = "uniform_sphere", dim = 3, count = 8 }
geometry = { kind = "sphere" }
[[drift]]
kind = "attend"
kernel = { kind = "attention", beta = 4.0 }
[time]
end = 1.0
frames = 4
rtol = 1e-3
atol = 1e-3
"""


@pytest.fixture
def run(tmp_path):
    """A stored run of two particles and one frame, which has few figures."""
    path = tmp_path / "trajectory.h5"
    make(2, sphere=True, frames=1, count=2).save(path)
    return path


def track(run):
    """The clusters of a stored run."""
    with particleflow.Trajectory.open(run) as trajectory:
        return particleflow.analysis.track_clusters(trajectory)


def test_from_python_everything_is_drawn_in_the_process_that_asks(run, monkeypatch):
    monkeypatch.delattr(drawing_process, "DrawingProcesses")
    outcome = Outcome(run.parent, "finished")
    with particleflow.Trajectory.open(run) as trajectory:
        make_products(run.parent, trajectory, {"summary": False, "movie": False}, outcome)
    assert outcome.failures == {}
    assert outcome.products == {"figures": "figures", "page": "viewer.html"}


@pytest.mark.slow
def test_another_process_draws_what_this_one_draws(run):
    drawing = DrawingProcesses(run, run.parent / "figures")
    drawing.begin(track(run))
    assert not (run.parent / "figures").exists()
    told: list[tuple[int, int]] = []
    drawing.finish(lambda done, total: told.append((done, total)))
    drawing.stop()
    with particleflow.Trajectory.open(run) as trajectory:
        expected = particleflow.view.figures(trajectory, run.parent / "here", analysis=track(run))
    assert {path.name for path in (run.parent / "figures").iterdir()} == {path.name for path in expected}
    assert told[-1] == (len(expected), len(expected))
    assert told == sorted(set(told))
    for path in expected:
        assert (run.parent / "figures" / path.name).read_bytes() == path.read_bytes()
    assert sorted(path.name for path in run.parent.iterdir()) == ["figures", "here", "trajectory.h5"]


@pytest.mark.slow
def test_its_movie_is_the_one_drawn_here(run):
    """Bit by bit, and there before the figures are."""
    drawing = DrawingProcesses(run, run.parent / "figures", run.parent / "movie.mp4")
    drawing.begin(track(run), np.ones(1, int))
    told: list[tuple[int, int]] = []
    drawing.finish_movie(lambda done, total: told.append((done, total)))
    assert told[-1] == (240, 240)
    assert told == sorted(set(told))
    with particleflow.Trajectory.open(run) as trajectory:
        told_with = {"counts": np.ones(1, int), "threshold": track(run).threshold.value}
        here = particleflow.view.animate(trajectory, run.parent / "here.mp4", **told_with)
    assert (run.parent / "movie.mp4").read_bytes() == here.read_bytes()
    drawing.finish()
    drawing.stop()
    assert sorted(path.name for path in run.parent.iterdir()) == ["figures", "here.mp4", "movie.mp4", "trajectory.h5"]
    assert not list((run.parent / "figures").glob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize("movie", [None, pytest.param("movie.mp4", marks=pytest.mark.slow)])
def test_its_error_is_ours_and_nothing_is_left(run, movie):
    drawing = DrawingProcesses(run, run.parent / "figures", *([run.parent / movie] if movie else []))
    wrong = np.ones(5, int)
    drawing.begin(replace(track(run), counts=wrong), *([wrong] if movie else []))
    for finish in (*([drawing.finish_movie] if movie else []), drawing.finish):
        with pytest.raises(StoreError, match="counts"):
            finish()
    drawing.stop()
    assert [path.name for path in run.parent.iterdir()] == ["trajectory.h5"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_process_that_is_stopped_leaves_nothing(run, begun):
    drawing = DrawingProcesses(run, run.parent / "figures", run.parent / "movie.mp4")
    if begun:
        drawing.begin(track(run), np.ones(1, int))
    start = time.perf_counter()
    drawing.stop()
    assert time.perf_counter() - start < 2
    assert [path.name for path in run.parent.iterdir()] == ["trajectory.h5"]


@pytest.mark.slow
def test_a_process_that_dies_is_an_error_and_the_other_one_goes_on(run):
    drawing = DrawingProcesses(run, run.parent / "figures", run.parent / "movie.mp4")
    worker = drawing._workers["movie"]
    assert worker._pipe.poll(60)
    worker._process.kill()
    drawing.begin(track(run), np.ones(1, int))
    with pytest.raises(StoreError, match=r"The process that draws the movie ended with exit code -9\."):
        drawing.finish_movie()
    drawing.finish()
    drawing.stop()
    assert sorted(path.name for path in run.parent.iterdir()) == ["figures", "trajectory.h5"]


@pytest.mark.slow
def test_what_a_process_that_never_began_should_draw_is_drawn_here(run, monkeypatch):
    """As under a script without `if __name__ == "__main__"` that ends when it is imported."""
    monkeypatch.setattr(run_outputs, "is_command_line", lambda: True)
    monkeypatch.setattr(drawing_process, "cores", lambda: 2)
    monkeypatch.setattr(drawing_process, "_work", _ended)
    outcome = Outcome(run.parent, "finished")
    with particleflow.Trajectory.open(run) as trajectory:
        make_products(run.parent, trajectory, {"summary": False, "movie": False}, outcome)
    assert outcome.failures == {}
    assert outcome.products == {"figures": "figures", "page": "viewer.html"}


def _ended(pipe, product):
    """A process that has ended before it could take its task."""


@pytest.mark.slow
def test_a_script_without_a_guard_runs_once_and_makes_everything(tmp_path):
    """The command line called as by a script of one's own, which a spawned process imports once more."""
    (tmp_path / "tokens.toml").write_text(TOKENS)
    command = ["run", "tokens.toml", "--no-movie", "--output", "run", "--json"]
    (tmp_path / "script.py").write_text(
        "import sys\nfrom particleflow.app.cli import main\n"
        f"sys.argv[1:] = {command!r}\nprint('begun', flush=True)\nsys.exit(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(particleflow.__file__).parents[1])}
    run = subprocess.run(
        [sys.executable, "script.py"], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert run.returncode == 0, run.stderr
    made = json.loads(run.stdout[run.stdout.index("{") :])
    assert made["failures"] == {}
    assert set(made["products"]) == {"summary", "figures", "page"}
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["run"]


@pytest.mark.slow
def test_ctrl_c_while_processes_draw_leaves_none_of_them(tmp_path):
    """Nothing of the products stays either, and the run does."""
    psutil = pytest.importorskip("psutil")
    environment = {**os.environ, "PYTHONPATH": str(Path(particleflow.__file__).parents[1])}
    (tmp_path / "tokens.toml").write_text(TOKENS)
    command = [sys.executable, "-m", "particleflow", "run", "tokens.toml", "--output", "run"]
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=said, stderr=said)
        drawn, deadline = [], time.monotonic() + 240
        while len(drawn) < 2 and time.monotonic() < deadline:
            children = psutil.Process(process.pid).children(recursive=True)
            drawn = [each for each in children if "spawn_main" in " ".join(each.cmdline())]
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    gone, alive = psutil.wait_procs(drawn, timeout=10)
    assert len(gone) == 2
    assert alive == []
    assert "Traceback" not in (tmp_path / "said").read_text()
    assert not {path.name for path in (tmp_path / "run").iterdir()} & {"figures", "movie.mp4", "viewer.html"}
    assert not [path.name for path in (tmp_path / "run").iterdir() if "partial" in path.name]


@pytest.mark.slow
def test_products_are_the_same_in_two_processes(run, monkeypatch):
    monkeypatch.setattr(run_outputs, "is_command_line", lambda: True)
    monkeypatch.setattr(drawing_process, "cores", lambda: 2)
    begun = []

    class Watched(DrawingProcesses):
        def __init__(self, *arguments):
            begun.append(arguments)
            super().__init__(*arguments)

    monkeypatch.setattr(drawing_process, "DrawingProcesses", Watched)
    outcome = Outcome(run.parent, "finished")
    told: dict[str, list[tuple[int, int]]] = {}
    with particleflow.Trajectory.open(run) as trajectory:
        wanted = {"summary": False, "movie": False}
        make_products(
            run.parent, trajectory, wanted, outcome, lambda name, *reached: told.setdefault(name, []).append(reached)
        )
    assert outcome.failures == {}
    assert set(told) == {"clusters", "figures", "page"}
    for reached in told.values():  # every phase ends at 100 %
        assert reached[0] == (0, 0)
        assert reached[-1][0] == reached[-1][1] > 0
    assert outcome.products == {"figures": "figures", "page": "viewer.html"}
    assert len(list((run.parent / "figures").iterdir())) >= 3
    assert len(begun) == 1
    assert not any(Path(path).name.startswith(".") for path in run.parent.iterdir())
