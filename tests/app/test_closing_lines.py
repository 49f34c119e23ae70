"""What commands say at the end, and what `info` and `runs` say of folders: against runs whose clusters are known."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import particleflow as pf
from folders_oracles import TIMES, merging_points, save_run
from particleflow._support.text import plural
from particleflow.app.cli import main
from particleflow.app.cli.closing_lines import clusters_line

MAP = """
# What to look for.
title = "Layers"
seed = 4
initial = { kind = "grid", sides = [4], low = 0.0, high = 3.0 }
[[drift]]
kind = "linear"
matrix = -1.0
[time]
end = 4.0
frames = 5
step = 1.0
solver = "map"
"""


def summarized(points, times=TIMES, **options):
    return pf.analysis.summarize(pf.Trajectory.from_arrays(times, points), **options)


def two_runs():
    return np.stack([merging_points(), merging_points()[:1].repeat(9, axis=0)], axis=1)


@pytest.mark.parametrize(
    ("summary", "line"),
    [
        (lambda: summarized(merging_points()), "9 → 5 clusters; 5 since t = 4–5"),
        (lambda: summarized(merging_points()[:2], TIMES[:2]), "9 clusters from the first frame to the last"),
        (lambda: summarized(np.zeros((3, 1, 2)), TIMES[:3]), "1 cluster from the first frame to the last"),
        (lambda: summarized(merging_points() * np.linspace(1, 0, 9)[:, None, None]), "9 → 1 cluster; 5 until t = 7–8"),
        (lambda: summarized(two_runs()), "2 runs with 5 to 9 clusters at the end, 7 on average"),
        (lambda: None, None),
        (lambda: {"clusters": None}, None),
        (lambda: {"clusters": {"initial_count": "many"}}, None),
        (lambda: {"runs": [], "aggregate": []}, None),
        (lambda: {"clusters": [1, 2], "plateaus": 3}, None),
    ],
)
def test_the_clusters_in_one_line(summary, line):
    assert clusters_line(summary()) == line


def test_one_is_singular():
    assert [plural(number, "frame") for number in (0, 1, 2)] == ["0 frames", "1 frame", "2 frames"]


def test_a_run_ends_with_what_a_person_wants(tmp_path, capsys):
    """x ← x − x: four particles on a line are one after the first of four steps."""
    (tmp_path / "map.toml").write_text(MAP, encoding="utf-8")
    folder = tmp_path / "run"
    arguments = ["run", str(tmp_path / "map.toml"), "--output", str(folder), "--no-movie", "--no-figures"]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{folder}\n"
    lines = captured.err.splitlines()[-3:]
    assert lines[0] == "4 → 1 cluster; 1 since step 1"
    assert lines[1].startswith("step 4 after 5 frames, 4 steps, ")
    assert lines[2] == f"open {folder / 'viewer.html'}"
    assert (folder / "viewer.html").is_file()
    assert main(["analyze", str(folder)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{folder / 'summary.json'}\n"
    lines = captured.err.splitlines()[-3:]
    assert lines[0] == "4 → 1 cluster; 1 since step 1"
    assert lines[1].startswith("linked at euclidean distance 0.05 (sqrt(0.002) times")  # √0.002 · √1.25
    assert lines[2] == f"open {folder / 'viewer.html'}"
    assert main(["analyze", str(folder), "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["analyze", str(folder), "--threshold", "2.5"]) == 0
    lines = capsys.readouterr().err.splitlines()[-4:]
    assert lines[0] == "viewer.html: made at another distance; `plot`, `animate` and `view` make them again"
    assert lines[1:3] == ["1 cluster from the first frame to the last", "linked at euclidean distance 2.5 (given)"]
    assert lines[3] == f"`particleflow view {folder}` makes the page again, which is at another distance"


def test_info_shows_parameters_clusters_and_products(tmp_path, capsys):
    interactions = [{"kernel": {"kind": "attention", "form": "inner", "beta": 2.5}, "normalization": "row"}]
    chosen = {"time.frames": 9, "time.rtol": float("nan")}
    folder = save_run(
        tmp_path / "run", seed=7, solver="tsit5", rtol=1e-6, atol=1e-8, step=0.0, interactions=interactions,
        chosen=chosen,
    )  # fmt: skip
    assert main(["analyze", str(folder), "--quiet"]) == 0
    capsys.readouterr()
    assert main(["info", str(folder)]) == 0
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for line in (
        "kernel attention, β = 2.5, normalization row",
        "n, d 9, 1",
        "seed 7",
        "geometry euclidean",
        "solver tsit5, rtol = 1e-06, atol = 1e-08",
        "chosen time.frames = 9, time.rtol = nan",
        "clusters 9 → 5 clusters; 5 since t = 4–5",
        "products summary.json",
    ):
        assert line in said
    assert main(["info", str(folder), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["parameters"]["kernels"][0]["beta"] == 2.5
    assert (facts["clusters"]["initial_count"], facts["clusters"]["final_count"]) == (9, 5)
    assert facts["products"] == {"summary": "summary.json"}


def test_info_counts_equal_kernels(tmp_path, capsys):
    soft, sharp = ({"kernel": {"kind": "attention", "form": "inner", "beta": beta}} for beta in (1.0, 4.0))
    folder = save_run(tmp_path / "run", interactions=[soft, sharp, soft, soft])
    assert main(["info", str(folder)]) == 0
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "kernel 3 × attention, β = 1; attention, β = 4" in said


@pytest.mark.parametrize("content", ["", "[1, 2]", "{", '{"clusters": 3}', "[" * 100_000])
def test_a_summary_of_somebody_else_is_as_good_as_none(content, tmp_path, capsys):
    folder = save_run(tmp_path / "run")
    (folder / "summary.json").write_text(content, encoding="utf-8")
    assert main(["info", str(folder)]) == 0
    assert "clusters" not in capsys.readouterr().out
    assert main(["view", str(folder), "--no-open", "--quiet"]) == 0


@pytest.fixture
def outputs(tmp_path):
    """outputs/<scenario>/<run>: three runs, one of them damaged, a sweep with a run of its own, and other things."""
    root = tmp_path / "outputs"
    save_run(root / "line" / "001", status="finished")
    save_run(root / "line" / "002", title="Second \x1b[31m", points=merging_points()[:1], times=TIMES[:1])
    save_run(root / "torn" / "001")
    (root / "torn" / "001" / "trajectory.h5").write_bytes(b"no trajectory")
    save_run(root / "sweep" / "001" / "0")
    manifest = {"title": "Many", "keys": [], "groups": [[0, 1]], "runs": [{"state": "done"}, {"state": "failed"}]}
    (root / "sweep" / "001" / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (root / "gallery").mkdir()
    (root / ".hidden").mkdir()
    return root


@pytest.mark.parametrize("command", ["runs", "info"])
def test_runs_of_a_folder_are_listed(command, outputs, capsys):
    assert main([command, str(outputs), "--json"]) == 0
    found = {Path(each["path"]).relative_to(outputs).as_posix(): each for each in json.loads(capsys.readouterr().out)}
    assert sorted(found) == ["line/001", "line/002", "sweep/001", "torn/001"]
    assert [found[name]["frames"] for name in ("line/001", "line/002", "torn/001")] == [9, 1, None]
    assert found["line/001"]["title"] == "Nine on a line"
    assert found["torn/001"]["status"] == "damaged"
    assert found["sweep/001"]["status"] == "sweep: 1 done, 1 failed"
    assert main([command, str(outputs / "line")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [str(outputs / "line" / name) for name in ("001", "002")]
    assert "9 frames" in lines[0]
    assert "1 frame " in lines[1]
    assert "\x1b" not in "".join(lines)


def test_runs_are_those_of_outputs_if_nothing_is_named(outputs, capsys, monkeypatch):
    monkeypatch.chdir(outputs.parent)
    assert main(["runs"]) == 0
    assert capsys.readouterr().out.startswith("outputs/line/001")
    monkeypatch.chdir(outputs)
    assert main(["runs"]) == 2
    assert "There is no run at outputs" in capsys.readouterr().err
    assert main(["runs", "gallery"]) == 0
    assert "There is no run in gallery" in capsys.readouterr().err


@pytest.mark.slow
def test_lists_do_not_import_jax(outputs):
    heavy = "sorted({'jax', 'matplotlib', 'scipy'} & set(sys.modules))"
    program = f"import sys; from particleflow.app.cli import main; main(sys.argv[1:]); print({heavy})"
    environment = {**os.environ, "PYTHONPATH": str(Path(pf.__file__).parents[1])}
    assert main(["analyze", str(outputs / "line" / "001"), "--quiet"]) == 0
    for arguments in (["runs", str(outputs)], ["info", str(outputs / "line" / "001")]):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True, env=environment, check=True
        )
        assert done.stdout.splitlines()[-1] == "[]"


def test_a_folder_that_cannot_be_made_is_named_with_the_reason(tmp_path, capsys):
    (tmp_path / "map.toml").write_text(MAP, encoding="utf-8")
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert main(["run", str(tmp_path / "map.toml"), "--output", str(tmp_path / "file" / "run")]) == 2
    said = capsys.readouterr().err
    assert "cannot be made" in said
    assert "Not a directory" in said
    assert str(tmp_path / "file") in said


@pytest.mark.parametrize("kind", ["from_file", "text_tokens", "image_patches"])
def test_a_file_that_is_missing_is_named_as_a_text(kind, tmp_path, capsys):
    initial = f'initial = {{ kind = "{kind}", path = "nothing.npy" }}\n'
    text = "".join(initial if line.startswith("initial") else f"{line}\n" for line in MAP.splitlines())
    (tmp_path / "file.toml").write_text(text, encoding="utf-8")
    assert main(["check", str(tmp_path / "file.toml")]) == 2
    said = capsys.readouterr().err
    assert "initial.path = '" in said
    assert "nothing.npy" in said
    assert "PosixPath" not in said
