"""compare: how two scenarios differ, and one picture of what both recorded."""

import json

import numpy as np
import pytest

from folders_oracles import TIMES, merging_points, save_run
from particleflow._support import toml
from particleflow.app.cli import main
from particleflow.app.runs.comparison import run_names, scenario_differences

FIRST = """
title = "First"
seed = 1
drift = [{ kind = "attend", kernel = { kind = "attention", beta = 9.0 } }, { kind = "linear", matrix = [1.0, 2.0] }]
"""
SECOND = """
title = "First"
drift = [{ kind = "attend", kernel = { kind = "attention", beta = 4.0 }, value = -1.0 }]
temperature = 0.5
"""


def test_documents_differ_where_they_do():
    gone = toml.REMOVED
    first = {"a": 1, "b": [{"c": [1, 2], "d": 1}], "e": {"f": True}, "g": [1, 2]}
    second = {"a": 1.0, "b": [{"c": [1, 3], "d": 1}, {"h": 0}], "e": {"f": True}, "g": [1, 2], "i": float("nan")}
    found = {key: (a, b) for key, a, b in toml.differences(first, second)}
    assert found.keys() == {"a", "b.0.c", "b.1", "i"}
    assert (found["a"], found["b.0.c"], found["b.1"]) == ((1, 1.0), ([1, 2], [1, 3]), (gone, {"h": 0}))
    assert list(toml.differences(second, second)) == []


@pytest.fixture
def runs(tmp_path):
    energy = np.linspace(0.0, 1.0, 9)
    one = save_run(
        tmp_path / "circle" / "001",
        scenario=FIRST,
        observables={"energy": energy, "own": energy, "centre": np.ones((9, 3))},
    )
    other = save_run(
        tmp_path / "circle" / "002", points=merging_points()[:5], times=TIMES[:5] * 3, scenario=SECOND,
        observables={"energy": energy[:5] ** 2, "centre": np.ones((5, 3))},
    )  # fmt: skip
    return one, other


@pytest.fixture
def drawn(monkeypatch):
    """What the panels are asked to draw: observables by name, or the counts."""
    from particleflow import view

    compare, asked = view.compare, []

    def noting(named, name="energy", *, counts=None, **options):
        asked.append((list(named), name if counts is None else [row.counts.tolist() for row in counts]))
        return compare(named, name, counts=counts, **options)

    monkeypatch.setattr(view, "compare", noting)
    return asked


def test_differences_and_a_picture_of_what_is_shared(runs, drawn, capsys):
    assert main(["compare", *map(str, runs)]) == 0
    lines = capsys.readouterr().out.splitlines()
    picture = runs[0] / "comparisons" / "circle-002.png"
    assert lines[-1] == str(picture)
    assert picture.stat().st_size > 5000
    assert [line.split()[0] for line in lines[1:-1]] == [
        "seed", "drift.0.kernel.beta", "drift.0.value", "drift.1", "temperature",
    ]  # fmt: skip
    assert lines[0].split() == ["circle/001", "circle/002"]
    assert lines[2].split() == ["drift.0.kernel.beta", "9.0", "4.0"]
    assert [each for _, each in drawn] == [[[9, 9, 7, 7, 7, 5, 5, 5, 5], [9, 9, 7, 7, 7]], "energy"]
    assert drawn[0][0] == ["circle/001", "circle/002"]
    assert not (runs[0] / "figures").exists()


def test_as_json_into_a_file_of_ones_own(runs, tmp_path, capsys):
    assert main(["compare", *map(str, runs), "--output", str(tmp_path / "both.svg"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["path"] == str(tmp_path / "both.svg")
    assert {"key": "seed", "first": "1", "second": ""} in facts["differences"]
    assert (tmp_path / "both.svg").read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize("name", ["both.foo", "both"])
def test_a_picture_has_a_known_ending(name, runs, tmp_path, capsys):
    assert main(["compare", *map(str, runs), "--output", str(tmp_path / name)]) == 2
    said = capsys.readouterr().err
    assert f"'{name}'" in said
    assert all(ending in said for ending in (".png", ".svg", ".pdf"))
    assert not list(tmp_path.glob("*both*"))


def test_a_run_with_itself(runs, capsys):
    assert main(["compare", str(runs[0]), str(runs[0] / "trajectory.h5")]) == 0
    captured = capsys.readouterr()
    assert "The scenarios are the same." in captured.err
    assert len(captured.out.splitlines()) == 1


@pytest.mark.slow
def test_runs_without_a_scenario_and_ensembles(runs, tmp_path, drawn, capsys):
    """An ensemble has no count of its own, but its observables become bands."""
    ensemble = save_run(
        tmp_path / "many", np.stack([merging_points()] * 2, axis=1), observables={"energy": np.ones((9, 2))},
        scenario="\x00 no TOML",
    )  # fmt: skip
    assert main(["compare", str(runs[0]), str(ensemble)]) == 0
    assert [each for _, each in drawn] == ["energy"]
    bare = save_run(tmp_path / "bare" / "001", np.stack([merging_points()] * 2, axis=1))
    assert main(["compare", str(ensemble), str(bare)]) == 2
    assert "nothing in common" in capsys.readouterr().err
    assert not (ensemble / "comparisons").exists()
    assert main(["compare", str(ensemble), str(ensemble)]) == 0
    assert "Neither run has a scenario." in capsys.readouterr().err
    assert main(["compare", str(runs[0]), str(tmp_path / "nowhere")]) == 2
    (bare / "comparisons").symlink_to(tmp_path)
    assert main(["compare", str(bare), str(runs[0])]) == 1
    assert "leads elsewhere" in capsys.readouterr().err


def test_runs_that_noise_keeps_apart_have_no_counts_and_no_gaps(tmp_path, drawn, capsys):
    cloud = np.random.default_rng(0).uniform(0.0, 1.0, (9, 60, 2))  # at most times chains, which are no clusters
    noisy = [
        save_run(tmp_path / name, cloud, observables={"energy": np.ones(9)}, temperature=0.5) for name in ("a", "b")
    ]
    assert main(["compare", *map(str, noisy), "--output", str(tmp_path / "both.svg")]) == 0
    assert [each for _, each in drawn] == ["energy"]
    assert "gaps" not in (tmp_path / "both.svg").read_text(encoding="utf-8")


BASE = {"title": "One", "output": {"movie": True}, "drift": [{"kind": "attend", "kernel": {"kind": "attention"}}]}


def with_kernel(**kernel):
    return {**BASE, "title": "Another", "output": {}, "drift": [{"kind": "attend", "kernel": kernel}]}


def test_what_is_made_of_a_run_is_no_difference():
    assert scenario_differences(BASE, {**BASE, "output": {"page": False}}) == []
    assert [key for key, *_ in scenario_differences(BASE, {**BASE, "seed": 3})] == ["seed"]


@pytest.mark.parametrize(
    ("scenarios", "names"),
    [
        ([with_kernel(kind="attention", beta=4.0), with_kernel(kind="attention", beta=9.0)], ["β = 4", "β = 9"]),
        (
            [with_kernel(kind="gaussian", width=0.5), with_kernel(kind="laplace", width=0.5)],
            ["gaussian", "laplace"],
        ),
        ([BASE, {**BASE, "seed": 1}, {**BASE, "seed": 2}], ["without seed", "seed = 1", "seed = 2"]),
        ([BASE, {**BASE, "geometry": {"kind": "sphere"}}], ["without geometry", "geometry = sphere"]),
        ([BASE, {**BASE, "initial": {"text": "$x"}}], ["without initial", r'initial = { text = "\$x" }']),
        ([BASE, BASE], ["a/0", "a/1"]),
        ([BASE, {**BASE, "seed": 1, "precision": "float32", "temperature": 0.1}], ["a/0", "a/1"]),
        ([BASE, {**BASE, "initial": {"text": "so many words that they would fill a legend"}}], ["a/0", "a/1"]),
    ],
)
def test_runs_are_named_by_what_tells_them_apart(scenarios, names, tmp_path):
    assert run_names([tmp_path / "a" / str(place) for place in range(len(scenarios))], scenarios) == names


def test_a_picture_names_runs_by_what_differs(tmp_path, drawn, capsys):
    first, second = (
        save_run(tmp_path / "circle" / name, scenario=FIRST.replace("9.0", beta), observables={"energy": np.ones(9)})
        for name, beta in (("001", "9.0"), ("002", "4.0"))
    )
    assert main(["compare", str(first), str(second)]) == 0
    assert drawn[0][0] == ["β = 9", "β = 4"]
    assert main(["plot", str(first), str(second)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("over-circle-002.png")


def test_a_table_in_a_pipe_is_whole(tmp_path, capsys, monkeypatch):
    words = "word " * 30
    runs = [
        str(save_run(tmp_path / name, scenario=FIRST.replace("First", name + words), observables={"e": np.ones(9)}))
        for name in ("a", "b")
    ]
    assert main(["compare", *runs]) == 0
    assert "b" + words in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["compare", *runs]) == 0
    said = capsys.readouterr().out
    assert "b" + words not in said
    assert "…" in said


def test_inputs_of_one_name_with_other_contents_are_a_difference(runs, tmp_path, capsys):
    for run, text in zip(runs, ("one", "other"), strict=True):
        (run / "inputs").mkdir()
        (run / "inputs" / "initial.npz").write_text(text)
        (run / "inputs" / "same.npz").write_text("same")
    main(["compare", *map(str, runs), "--json"])
    found = {
        each["key"]: (each["first"], each["second"]) for each in json.loads(capsys.readouterr().out)["differences"]
    }
    first, second = found["inputs/initial.npz"]
    assert first.startswith("contents ")
    assert first != second
    assert "inputs/same.npz" not in found
