"""What `check` and runs say of a start: cells of a density, points that were moved, a seed that decides nothing."""

import inspect
import json
import warnings
from pathlib import Path

import numpy as np
import pytest

import particleflow as pf
from particleflow import scenario
from particleflow.app.cli import main
from particleflow.app.scenario.schema import Registry
from particleflow.errors import ArgumentError, StartMoved, UserError

REST = """
drift = [{ kind = "attend", kernel = "attention" }]
time = { end = 0.1, frames = 2 }
"""
OFF, ON = np.array([[3.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.array([[1.0, 0.0], [0.6, 0.8], [0.70711, 0.70711]])


@pytest.fixture
def from_file(tmp_path):
    def write(points, more="", kind="sphere"):
        np.save(tmp_path / "points.npy", points)
        start = f'initial = {{ kind = "from_file", path = "points.npy"{more} }}\ngeometry = "{kind}"'
        (tmp_path / "own.toml").write_text(start + REST, encoding="utf-8")
        return str(tmp_path / "own.toml")

    return write


@pytest.mark.slow
def test_check_counts_the_cells_of_a_density_and_the_particles_of_a_cloud(capsys):
    assert main(["check", "density_circle"]) == 0
    assert "is fine: 510 cells in dimension 2" in capsys.readouterr().err
    assert main(["check", "kuramoto"]) == 0
    assert "particles in dimension 2" in capsys.readouterr().err


def test_points_of_a_file_that_are_moved_are_told_once(from_file, capsys):
    assert main(["check", from_file(OFF)]) == 0
    said = capsys.readouterr().err
    assert said.count("Warning: initial: 2 of the 3 points of the file are not on the geometry sphere") == 1
    assert "`simulate`" in said
    assert "retract = false" in said
    assert main(["check", from_file(OFF), "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_python_is_told_too_and_simulate_refuses_the_points(from_file):
    with pytest.warns(StartMoved, match="2 of the 3 points"):
        setup = scenario.load(from_file(OFF)).build()
    assert np.allclose(np.linalg.norm(setup.start.points, axis=1), 1)
    with pytest.raises(ArgumentError, match="must be on the geometry"):
        pf.simulate(setup.flow, OFF, [0.0, 0.1], rtol=1e-6, atol=1e-8)
    with pytest.raises(UserError, match="must be on the geometry"):
        scenario.load(from_file(OFF, ", retract = false")).build()


@pytest.mark.parametrize(("points", "kind"), [(ON, "sphere"), (OFF, "euclidean")])
def test_points_that_stay_need_no_word(points, kind, from_file):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scenario.load(from_file(points, kind=kind)).build()


def seed_of(text):
    return scenario.from_document({**text, "seed": 7}, "own", Path()).build().facts["seed"]


CLOUD = {"kind": "gaussian", "dim": 2, "count": 4}
LINEAR = {"initial": CLOUD, "drift": [{"kind": "linear", "matrix": -1.0}], "time": {"end": 0.1, "frames": 2}}
EVEN = LINEAR | {"initial": {"kind": "equiangular", "count": 4}}


@pytest.mark.parametrize(
    ("document", "seed"),
    [
        (LINEAR, 7),
        (EVEN, None),
        (EVEN | {"drift": [{"kind": "linear", "matrix": {"random": "normal", "shape": [4, 4]}}]}, 7),
        (EVEN | {"drift": [{"kind": "linear", "matrix": {"random": "normal", "shape": [4, 4], "seed": 1}}]}, None),
        (EVEN | {"temperature": 0.1, "time": {"end": 0.1, "step": 0.05, "frames": 2}}, 7),
        (LINEAR | {"initial": {"kind": "uniform_circle", "count": 4}}, 7),
        pytest.param(LINEAR | {"initial": {"kind": "quantiles", "count": 4}}, None, marks=pytest.mark.slow),
        (LINEAR | {"initial": {"kind": "grid", "sides": [2], "low": 0.0, "high": 1.0}}, None),
        pytest.param(
            LINEAR
            | {
                "initial": {"kind": "uniform_box", "low": [0.0], "high": [1.0]},
                "discretization": {"kind": "finite_volumes", "cells": 8, "low": [0.0], "high": [1.0]},
            },
            None,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_seed_that_decides_nothing_is_not_told(document, seed):
    assert seed_of(document) == seed


def test_check_says_the_seed_in_json(from_file, capsys):
    assert main(["check", from_file(ON), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seed"] is None


def test_clouds_of_a_size_of_their_own_are_not_random():
    """What `counted = False` promises: the rule by which a seed counts as unused."""
    for kind in Registry().kinds("initial").values():
        if not kind.counted:
            assert "jax.random" not in inspect.getsource(kind)


def test_lines_in_a_pipe_are_whole(capsys):
    assert main(["kinds", "drift"]) == 0
    assert "…" not in capsys.readouterr().out
