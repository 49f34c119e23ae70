"""Metadata are found out once and parsed once, for a trajectory, its slices and its runs together."""

import matplotlib as mpl

mpl.use("Agg")

from typing import Any

import numpy as np
import pytest

from particleflow import view
from particleflow.analysis import summarize, track_clusters
from particleflow.trajectory import Trajectory, run_record
from particleflow.trajectory.facts import parse_facts

KERNEL = {"kind": "attention", "form": "inner", "beta": 2.0, "query": 1.0, "key": 1.0}
ROW = {"kernel": KERNEL, "normalization": "row", "positional": None, "data": False, "value": 1.0}
METADATA = {"space": {"kind": "sphere", "radius": 1.0, "sees_stored": True}, "interactions": [ROW], "seed": 7}


def circle(runs: int | None = None, frames: int = 5) -> np.ndarray:
    angles = np.linspace(0.0, 1.0, 6) * np.linspace(1.0, 0.01, frames)[:, None]
    points = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    return points if runs is None else np.repeat(points[:, None], runs, axis=1)


@pytest.fixture
def parsed(monkeypatch) -> list[Any]:
    """The metadata of every parse from now on."""
    calls: list[Any] = []

    def counting(metadata: Any, dimension: int) -> Any:
        calls.append(metadata)
        return parse_facts(metadata, dimension)

    monkeypatch.setattr(run_record, "parse_facts", counting)
    return calls


@pytest.mark.slow
def test_figures_and_summary_of_an_ensemble_parse_the_metadata_once(parsed, tmp_path):
    points = circle(3)
    energy = points[..., 0].sum(axis=-1)
    run = Trajectory.from_arrays(np.arange(5.0), points, observables={"energy": energy}, metadata=METADATA)
    written = view.figures(run, tmp_path, only="all", analysis=track_clusters(run.run(0)), dpi=40)
    assert {"snapshots", "attention", "staircase"} <= {path.stem for path in written}
    summarize(run)
    assert parsed == [METADATA]


def test_slices_share_facts_whoever_comes_first(parsed):
    run = Trajectory.from_arrays(np.arange(5.0), circle(), metadata=METADATA)
    assert run[1:3][::-1].facts is run.facts
    assert run.facts is run[:0].facts
    assert len(parsed) == 1


def test_runs_that_differ_have_facts_of_their_own_and_others_share_them(parsed):
    alike = Trajectory.from_arrays(np.arange(5.0), circle(3), metadata=METADATA)
    assert alike.run(2).facts is alike.facts
    differ = METADATA | {
        "space": {"kind": "sphere", "radius": {"runs": [1.0, 2.0, 3.0]}},
        "temperature": {"runs": [0.0, 0.5, 0.25]},
        "common temperature": {"runs": [0.125, 0.0, 0.0]},
    }
    many = Trajectory.from_arrays(np.arange(5.0), circle(3), metadata=differ)
    assert [many.run(run).facts.space.radius for run in (0, 1, 2, 1)] == [1.0, 2.0, 3.0, 2.0]
    assert [many.run(run).facts.temperature for run in range(3)] == [0.0, 0.5, 0.25]
    assert [many.run(run).facts.common_temperature for run in range(3)] == [0.125, 0.0, 0.0]
    assert (many.facts.temperature, many.facts.common_temperature) == (0.5, 0.125)
    assert many.run(1)[2:].facts.interactions[0].beta == 2.0
    assert many.facts.space.radius is None
    assert len(parsed) == 5


def test_metadata_that_must_be_found_out_are_so_once():
    calls = []

    def find() -> dict[str, Any]:
        calls.append(1)
        return dict(METADATA)

    run = Trajectory.from_arrays(np.arange(5.0), circle(), metadata=find)
    part = run[2:]
    assert not calls
    assert part.metadata["seed"] == 7
    assert part.facts is run.facts
    assert len(calls) == 1
