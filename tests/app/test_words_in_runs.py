"""Words through runs: ensembles, some of the particles, a kill, a start from another run, commands, sweeps."""

# pyright: reportOptionalMemberAccess=false

import json
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest

import particleflow as pf
from particleflow import scenario
from particleflow.app.cli import main
from particleflow.errors import ShapeError
from particleflow.trajectory.store import TrajectoryWriter, recover
from particleflow.trajectory.trajectory import Trajectory

WORDS = ["the", "naïve", "字", "\x1b[31m", ""]
POINTS = np.random.default_rng(0).normal(size=(5, 2))
MAP: dict[str, Any] = {"times": 0.1 * np.arange(4), "step": 0.1, "solver": "map"}
FLOW = pf.Flow(pf.drifts.Linear(-1.0))


def hdf5(path: Path) -> Any:
    """A file opened by h5py, whose own annotations cannot tell a group from a dataset."""
    return h5py.File(path)


@pytest.mark.slow
@pytest.mark.parametrize("runs", [pytest.param(None, marks=pytest.mark.slow), 2])
def test_a_run_keeps_its_words_in_memory_and_in_its_file(tmp_path, runs):
    start = POINTS if runs is None else np.stack([POINTS, 2 * POINTS])
    words = WORDS if runs is None else [WORDS, WORDS[::-1]]
    in_memory = pf.simulate(FLOW, start, words=words, **MAP)
    np.testing.assert_array_equal(in_memory.words, np.array(words))
    kept = pf.simulate(FLOW, start, words=words, particles=[3, 0, 4], store=tmp_path / "run.h5", **MAP)
    np.testing.assert_array_equal(kept.words, np.array(words)[..., [3, 0, 4]])
    np.testing.assert_array_equal(kept[1:].words, kept.words)
    if runs is not None:
        assert [kept.run(run).words.tolist() for run in range(2)] == kept.words.tolist()
        shared = pf.simulate(FLOW, start, words=WORDS, **MAP)
        assert shared.words.tolist() == shared.run(1).words.tolist() == WORDS
    with pytest.raises(ShapeError, match="one word for each of the 5 particles"):
        pf.simulate(FLOW, start, words=WORDS[1:], store=tmp_path / "other.h5", **MAP)
    assert not (tmp_path / "other.h5").exists()


def test_a_run_without_words_has_none(tmp_path):
    assert pf.simulate(FLOW, POINTS, store=tmp_path / "run.h5", **MAP).words is None
    with hdf5(tmp_path / "run.h5") as file:
        assert "words" not in file["particleflow"]


def test_a_start_from_another_run_takes_its_words_along(tmp_path):
    pf.simulate(FLOW, POINTS, words=WORDS, store=tmp_path / "run.h5", **MAP)
    start = pf.initial.FromFile(tmp_path / "run.h5").start(jax.random.key(0))
    assert start.words is not None
    assert start.words.tolist() == WORDS
    again = pf.simulate(FLOW, start.measure, words=start.words, **MAP)
    np.testing.assert_array_equal(again.points[0], Trajectory.open(tmp_path / "run.h5").points[-1])


def test_what_is_left_of_a_killed_run_has_its_words(tmp_path):
    """A file that nobody closed is copied into a new one."""
    writer = TrajectoryWriter.create(tmp_path / "run.h5", count=5, dimension=2, words=WORDS, fsync=False)
    writer.append([0.0, 1.0], [0, 1], np.stack([POINTS, POINTS]))
    (tmp_path / "killed.h5").write_bytes((tmp_path / "run.h5").read_bytes())
    writer.close()
    assert Trajectory.open(tmp_path / "killed.h5").words.tolist() == WORDS
    assert recover(tmp_path / "killed.h5").written
    with Trajectory.open(tmp_path / "killed.h5") as rebuilt:
        assert rebuilt.words.tolist() == WORDS
    with hdf5(tmp_path / "killed.h5") as file:  # other programs read them as text
        assert file["particleflow/words"].asstr()[...].tolist() == WORDS


def test_the_words_of_a_text_are_its_tokens():
    start = pf.initial.TextTokens("The cat, the MAT", dim=4).start(jax.random.key(0))
    assert start.words.tolist() == ["the", "cat", ",", "the", "mat"]
    assert start.labels.tolist() == [0, 1, 2, 0, 3]


TEXT = """
title = "A text"
initial = {{ kind = "text_tokens", path = "text.txt", dim = 2 }}
drift = {{ kind = "linear", matrix = -1.0 }}
time = {{ end = 2.0, frames = 3, step = 1.0, solver = "map" }}
output = {{ figures = false, movie = false, page = false }}
{more}
"""


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A scenario of the tokens of a text, which a map moves to one place in one step."""
    (tmp_path / "text.txt").write_text("the cat and the \x1b[2J dog", encoding="utf-8")
    (tmp_path / "text.toml").write_text(TEXT.format(more=""), encoding="utf-8")
    return tmp_path / "text.toml"


@pytest.mark.slow
def test_commands_say_which_words_became_one(text, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["run", str(text), "--output", str(folder)]) == 0
    said = capsys.readouterr().err.splitlines()
    line = next(line for line in said if " words in 1 cluster: first " in line)
    assert line.startswith("7 words in 1 cluster")  # with "[", "2j" and the control character itself
    assert line.isprintable()
    text.with_name("text.txt").unlink()  # the run has its own copy, words and all
    frozen = scenario.load(folder / "scenario.toml").build(check=False)
    run = Trajectory.open(folder)
    assert frozen.words.tolist() == run.words.tolist() == ["the", "cat", "and", "the", "\x1b", "[", "2j", "dog"]
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["words"]
    assert (summary["tokens"], summary["different"]) == (8, 7)
    assert summary["final_clusters"][0]["words"][0] == "the"
    assert main(["analyze", str(folder)]) == 0
    assert line in capsys.readouterr().err.splitlines()
    assert main(["info", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert [row.split(maxsplit=1)[1] for row in shown.splitlines() if row.split()[0] == "words"] == [
        "the, cat, and, ␣, [, 2j, dog",
        line,
    ]
    assert "\x1b" not in shown
    assert main(["info", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["words"] == ["the", "cat", "and", "\x1b", "[", "2j", "dog"]


@pytest.mark.slow
def test_the_trajectories_of_a_sweep_keep_their_words(text, tmp_path):
    swept = TEXT.format(more='[sweep]\nkeep = "trajectories"\nseed = { count = 2 }')
    text.write_text(swept, encoding="utf-8")
    folder = tmp_path / "sweep"
    assert main(["sweep", str(text), "--output", str(folder), "--quiet"]) == 0
    (stored,) = folder.glob("groups/*.h5")
    run = Trajectory.open(stored)
    assert run.runs == 2
    assert run.run(1).words.tolist() == ["the", "cat", "and", "the", "\x1b", "[", "2j", "dog"]


@pytest.mark.slow
def test_the_sentence_ends_as_its_title_and_its_comment_say():
    setup = scenario.load("sentence").build()
    run = pf.simulate(setup.flow, setup.start, setup.times, words=setup.words, **setup.arguments)
    track = pf.analysis.track_clusters(run)
    assert track.counts[-1] == 1
    merges = pf.analysis.word_merges(track, run.words)
    assert 2.0 < track.tree.times[track.tree.times < 4].max() < 2.2  # equal words are one
    assert sorted(merges[-1].absorbed.words) == ["cat", "mat", "rug", "the"]
    assert 31 < merges[-1].time < 33
    assert merges[-2].time < 6
