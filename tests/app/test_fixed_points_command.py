"""fixed-points: the command, its pictures, and what it refuses."""

import json
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from scipy.optimize import brentq

import particleflow as pf
from folders_oracles import save_run
from particleflow import view
from particleflow.app.cli import main
from particleflow.errors import ShapeError

MAGNETS = """
title = "Magnets"
initial = { kind = "from_file", path = "start.npy" }
drift = [{ kind = "feed_forward", weight = [[1.7]] }, { kind = "linear", matrix = -1.0 }]
time = { end = 1.0, frames = 3 }
"""
POINTS = np.array([[[0.1], [0.2], [-0.1]], [[0.8], [0.801], [0.8]], [[0.85], [0.85], [0.1]]])
SIZE: Any = brentq(lambda m: np.tanh(1.7 * m) - m, 0.1, 1.0, xtol=1e-15)


def make_run(folder, text: str = MAGNETS, points: np.ndarray = POINTS, **metadata):
    save_run(folder, points, times=np.arange(len(points), dtype=float), title="Magnets", **metadata)
    np.save(folder / "start.npy", points[0])
    (folder / "scenario.toml").write_text(text, encoding="utf-8")
    return str(folder)


def asked(capsys, *arguments: str) -> dict:
    assert main(["fixed-points", *arguments, "--json", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


@pytest.mark.slow
def test_the_fixed_point_near_a_frame(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    found = asked(capsys, run, "--time", "1.2")
    assert (found["frame"], found["found"], found["sizes"], found["path"]) == (1, True, [3], None)
    np.testing.assert_allclose(found["points"], np.full((3, 1), SIZE), rtol=1e-9)
    np.testing.assert_allclose(found["eigenvalues"], [[1.7 * (1 - SIZE**2) - 1, 0.0]] * 2, rtol=1e-8)
    assert sorted(found["multiplicities"]) == [1, 2]
    assert found["nature"]["kind"] == "stable"
    assert main(["fixed-points", run, "--frame", "1", "--plot"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0] == "Fixed point"
    assert any(line.split()[:3] == ["nature", "stable:", "3"] for line in lines)
    assert "near frame 1" in captured.err
    with Image.open(lines[-1]) as picture:
        assert picture.size[0] > 2 * picture.size[1] * 0.9


@pytest.mark.slow
def test_frames_that_are_counted_from_the_end(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    last, alone = asked(capsys, run), asked(capsys, run, "--frame", "-1", "--no-merge")
    assert last["frame"] == alone["frame"] == 2
    assert (last["sizes"], alone["sizes"]) == ([2, 1], [1, 1, 1])
    assert last["nature"]["kind"] == "saddle"
    assert asked(capsys, run, "--threshold", "10")["sizes"] == [3]
    assert asked(capsys, run, "--tolerance", "5", "--frame", "0")["nature"]["neutral"] == 3


NOISE = MAGNETS.replace("time =", "temperature = 0.1\ntime = { end = 1.0, frames = 3, step = 0.5 }\n#")
CAUSAL = """
initial = { kind = "from_file", path = "start.npy" }
drift = [{ kind = "attend", kernel = { kind = "gaussian", width = 1.0 }, positional = { kind = "causal" } },
         { kind = "linear", matrix = -1.0 }]
time = { end = 1.0, frames = 3, step = 0.5, solver = "map" }
"""


@pytest.mark.slow
def test_particles_with_positions_are_searched_one_by_one_and_layers_have_multipliers(tmp_path, capsys):
    run = make_run(tmp_path / "run", CAUSAL)
    assert main(["fixed-points", run, "--frame", "1"]) == 0
    captured = capsys.readouterr()
    assert "Every particle by itself" in captured.err
    assert "positions" in captured.err
    assert "multipliers" in captured.out
    assert "a layer of size 0.5" in captured.out


REFUSED = {
    "noise": (NOISE, [], "temperature"),
    "a frame that is not there": (MAGNETS, ["--frame", "7"], "There is no frame 7"),
    "a time that is not there": (MAGNETS, ["--time", "7"], "`time`"),
    "both": (MAGNETS, ["--time", "1", "--frame", "1"], "not both"),
    "no scenario": (None, [], "its flow is not known"),
    "a broken scenario": ("drift = 3", [], "drift"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_searched_is_refused(tmp_path, capsys, name):
    text, arguments, words = REFUSED[name]
    run = make_run(tmp_path / "run", text or "")
    if text is None:
        (tmp_path / "run" / "scenario.toml").unlink()
    assert main(["fixed-points", run, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert "Traceback" not in captured.err


def still(points: np.ndarray) -> pf.Trajectory:
    return pf.Trajectory.from_arrays([1.0], points[None], metadata={"title": "Standing"})


def test_eigenvalues_are_drawn_where_they_are():
    """One dot an eigenvalue, its area by multiplicity, right of the axis what grows; orders of magnitude show."""
    values, times = np.array([0.5 + 0.2j, 0.5 - 0.2j, 0.0, -1.0]), [1, 1, 1, 9]
    ax: Any = view.eigenvalues(values, times, tolerance=1e-9)
    drawn = np.concatenate([np.asarray(each.get_offsets()) for each in ax.collections])
    assert sorted(map(tuple, drawn)) == sorted((each.real, each.imag) for each in values.tolist())
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["grows (2)", "neutral (1)", "shrinks (9)"]
    assert ax.collections[-1].get_sizes()[0] > ax.collections[0].get_sizes()[0]
    assert ax.get_xscale() == "linear"
    assert view.eigenvalues([1e-4, 0.0, -1.0], tolerance=1e-9).get_xscale() == "symlog"
    with pytest.raises(ShapeError, match="multiplicities"):
        view.eigenvalues([1.0, 2.0], [1])


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [1, 2, 3, 5])
@pytest.mark.parametrize("layers", [False, True])
def test_a_fixed_point_is_particles_beside_eigenvalues(dimension, layers, tmp_path):
    points = np.random.default_rng(0).normal(size=(7, dimension))
    figure = view.fixed_point(still(points), [0.3, -0.2 + 1j, -0.2 - 1j], layers=layers)
    assert isinstance(figure, Figure)
    assert len(figure.axes) == 2
    figure.savefig(tmp_path / "picture.png")
    assert figure.get_suptitle() == "Standing"
