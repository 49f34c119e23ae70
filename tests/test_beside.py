"""Figures and movies that another process draws: the same ones, whole or not at all, and its errors are ours."""

import matplotlib as mpl

mpl.use("Agg")

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from figure_oracles import make

import particleflow
from particleflow import beside
from particleflow.beside import DrawnBeside
from particleflow.errors import StoreError
from particleflow.products import Outcome, make_products


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


def test_another_process_draws_what_this_one_draws(run):
    drawing = DrawnBeside(run, run.parent / "figures")
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
    drawing = DrawnBeside(run, run.parent / "figures", run.parent / "movie.mp4")
    drawing.begin(track(run), np.ones(1, int))
    told: list[tuple[int, int]] = []
    drawing.finish_movie(lambda done, total: told.append((done, total)))
    assert told[-1] == (240, 240)
    assert told == sorted(set(told))
    with particleflow.Trajectory.open(run) as trajectory:
        here = particleflow.view.animate(trajectory, run.parent / "here.mp4", counts=np.ones(1, int))
    assert (run.parent / "movie.mp4").read_bytes() == here.read_bytes()
    drawing.finish()
    drawing.stop()
    assert sorted(path.name for path in run.parent.iterdir()) == ["figures", "here.mp4", "movie.mp4", "trajectory.h5"]
    assert not list((run.parent / "figures").glob(".*"))


def test_its_error_is_ours_and_nothing_is_left(run):
    drawing = DrawnBeside(run, run.parent / "figures", run.parent / "movie.mp4")
    wrong = np.ones(5, int)
    drawing.begin(replace(track(run), counts=wrong), wrong)
    for finish in (drawing.finish_movie, drawing.finish):
        with pytest.raises(StoreError, match="counts"):
            finish()
    drawing.stop()
    assert [path.name for path in run.parent.iterdir()] == ["trajectory.h5"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_process_that_is_stopped_leaves_nothing(run, begun):
    drawing = DrawnBeside(run, run.parent / "figures", run.parent / "movie.mp4")
    if begun:
        drawing.begin(track(run), np.ones(1, int))
    start = time.perf_counter()
    drawing.stop()
    assert time.perf_counter() - start < 2
    assert [path.name for path in run.parent.iterdir()] == ["trajectory.h5"]


@pytest.mark.parametrize("cores", [1, 2])
def test_products_are_the_same_on_one_core_and_on_two(run, cores, monkeypatch):
    monkeypatch.setattr(beside, "cores", lambda: cores)
    begun = []
    popen = subprocess.Popen

    def watched(command, *arguments, **options):
        begun.append(command[0])
        return popen(command, *arguments, **options)

    monkeypatch.setattr(beside.subprocess, "Popen", watched)
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
    assert begun == [sys.executable] * (cores - 1)
    assert not any(Path(path).name.startswith(".") for path in run.parent.iterdir())
