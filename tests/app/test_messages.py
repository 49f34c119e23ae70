"""Whatever is odd about numbers, texts, the terminal or the machine: one sentence, the right exit code, no fault."""

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import particleflow as pf
from full_disk import largest_file
from particleflow.app.cli import main
from particleflow.app.runs.run_folder import SCENARIO_FILE
from particleflow.app.sweep import Manifest
from particleflow.trajectory.store import TrajectoryWriter

SMALL = """
# What to look for.
title = "A small run"
initial = { kind = "uniform_circle", count = 4 }
[[drift]]
kind = "attend"
kernel = { kind = "attention", beta = 4.0 }
[time]
end = 2.0
frames = 3
step = 1.0
solver = "map"
"""


@pytest.fixture
def scenario(tmp_path):
    def write(more=""):
        path = tmp_path / "small.toml"
        path.write_text(SMALL + more, encoding="utf-8")
        return str(path)

    return write


def call(*arguments, **environment):
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "particleflow", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(pf.__file__).parents[1]), **environment},
        timeout=60,
        check=False,
    )


def stored(folder, points, **observables):
    """A run folder with these points (T, N, d)."""
    frames, count, dimension = points.shape
    writer = TrajectoryWriter.create(
        folder / "trajectory.h5", count=count, dimension=dimension, dtype="float64", provenance={"title": "A run"},
        observables=dict.fromkeys(observables, ()),
    )  # fmt: skip
    writer.append(np.arange(float(frames)), np.arange(frames), points, observables, {})
    writer.set_status("finished", None, {})
    writer.close()


def ended_sweep(folder, title="A sweep"):
    """The folder of a sweep whose only run failed by itself, so that nothing is left to run."""
    folder.mkdir()
    (folder / SCENARIO_FILE).write_text(SMALL + "[sweep]\nseed = [1]\n", encoding="utf-8")
    manifest = Manifest.create(folder, title, ["seed"], [{"seed": 1}], [[0]])
    manifest.mark([0], "done", {0: "not finite"})
    return folder


def contents(folder):
    """All files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.slow
def test_a_device_that_is_not_there_is_a_sentence(scenario):
    ended = call("check", scenario(), JAX_PLATFORMS="cuda", CUDA_VISIBLE_DEVICES="")
    assert ended.returncode == 2
    assert ended.stderr.startswith(
        "Error: JAX finds no device of the kind 'cuda', which JAX_PLATFORMS requests. Set it"
    )
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        ("[1, 2.5]", '"seed" = 2.5: must be a whole number'),
        ("[1, 2.5, 3]", '"seed" = 2.5: must be a whole number'),
        ("[1, true, 3]", '"seed" = True: must be a whole number'),
        ("[1, -1, 3]", '"seed" = -1: must be greater than or equal to 0'),
        ("[1, 99999999999999999999, 3]", "must be less than"),
        ("{ start = 0.0, stop = 1.0, count = 3 }", "must be a whole number"),
    ],
)
def test_every_seed_of_a_sweep_is_a_whole_number(seed, message, scenario, capsys):
    assert main(["check", scenario(f"[sweep]\nseed = {seed}\n")]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "fault" not in said


@pytest.mark.parametrize("seed", ["-1", "2.5", "nan", "[1]"])
def test_the_seed_of_a_run_is_a_whole_number(seed, scenario, capsys):
    assert main(["check", scenario(), "--set", f"seed={seed}"]) == 2
    assert "  seed = " in capsys.readouterr().err


def test_letters_that_the_terminal_lacks_are_escaped(tmp_path, monkeypatch):
    folder = ended_sweep(tmp_path / "β", "β → ∞")
    terminal = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(terminal, encoding="ascii"))
    assert main(["info", str(folder)]) == 0
    lines = terminal.getvalue().decode("ascii").splitlines()
    assert lines[0] == r"\u03b2 \u2192 \u221e"
    assert lines[1].endswith(r"\u03b2")


@pytest.mark.parametrize("columns", ["0", pytest.param("1", marks=pytest.mark.slow)])
def test_help_comes_to_an_end_on_a_terminal_without_columns(columns):
    ended = call("run", "--help", COLUMNS=columns)
    assert ended.returncode == 0
    assert "Usage:" in ended.stdout


def test_texts_that_are_no_unicode_are_refused_or_shown(scenario, tmp_path, capsys):
    assert main(["check", scenario(), "--set", 'title="a \udcff b"']) == 2
    assert "--set takes text in UTF-8" in capsys.readouterr().err
    folder = ended_sweep(tmp_path / "sweep", "a \ud800 b")
    assert main(["info", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("a   b\n")
    assert main(["info", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "a \ud800 b"


@pytest.mark.parametrize("command", [["analyze"], ["plot"], ["animate"], ["view", "--no-open"]], ids=lambda c: c[0])
def test_points_without_distances_are_refused(command, tmp_path, capsys):
    points = np.random.default_rng(0).normal(size=(4, 6, 2)) * np.array([1, 1e50, 1e120, 1e300])[:, None, None]
    stored(tmp_path, points)
    assert main([command[0], str(tmp_path), *command[1:]]) == 2
    said = capsys.readouterr().err
    assert f"The points of {tmp_path / 'trajectory.h5'} reach {np.abs(points).max():.3g} by time 3" in said
    assert "particleflow export" in said
    assert [path.name for path in tmp_path.iterdir()] == ["trajectory.h5"]


@pytest.mark.slow
def test_large_numbers_are_analysed_and_drawn(tmp_path):
    """Just below the limit, and with observables far beyond it."""
    points = np.random.default_rng(0).normal(size=(4, 6, 3)) * 1e149
    stored(tmp_path, points, energy=np.array([1.0, -1e300, 1e300, 0.0]), other=np.array([1e300, 1e-300, 1, -1]))
    for command in (["analyze"], ["plot"], ["animate", "--frames", "2"], ["view", "--no-open"]):
        assert main([command[0], str(tmp_path), *command[1:]]) == 0
    assert json.loads((tmp_path / "summary.json").read_text())


def test_a_sweep_resumed_on_a_full_disk(tmp_path, capsys):
    folder = ended_sweep(tmp_path / "sweep")
    before = contents(folder)
    with largest_file(100):  # enough for the lock and the small table, but not for the other one
        assert main(["resume", str(folder), "--quiet"]) == 1
    said = capsys.readouterr().err
    assert str(folder) in said
    assert os.strerror(errno.EFBIG) in said
    assert "Free some space" in said
    assert "fault" not in said
    after = contents(folder)
    after.pop("results.csv", None)
    assert after == before


def test_a_sweep_resumed_in_a_folder_that_is_read_only(tmp_path, capsys, monkeypatch):
    folder = ended_sweep(tmp_path / "sweep")
    real = Path.open

    def refused(path, mode="r", *given, **named):
        if mode != "r" and mode != "rb":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, mode, *given, **named)

    monkeypatch.setattr(Path, "open", refused)
    assert main(["resume", str(folder), "--quiet"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("Error: Cannot write ")
    assert str(folder) in said
    assert "Read-only file system" in said
    assert "fault" not in said


def test_what_a_run_left_is_no_scenario_and_a_sentence_says_what_to_type(tmp_path, capsys):
    folder = tmp_path / "run"
    folder.mkdir()
    stored(folder, np.zeros((2, 3, 1)))
    (folder / SCENARIO_FILE).write_text(SMALL, encoding="utf-8")
    for given, kind in ((folder / "trajectory.h5", "an HDF5 file"), (folder, "the folder of a run")):
        for command in ("run", "check", "sweep"):
            assert main([command, str(given)]) == 2
            said = capsys.readouterr().err
            assert f"{given} is {kind}" in said
            assert f"`particleflow info {given}`" in said
            assert f"`particleflow resume {folder}`" in said
    (tmp_path / "cloud.npy").write_bytes(b"\x93NUMPY")
    assert main(["run", str(tmp_path / "cloud.npy")]) == 2
    assert "is no text, but a scenario is a TOML file" in capsys.readouterr().err
