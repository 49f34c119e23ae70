"""A run folder that release 0.1.0 wrote opens, and its summary comes out as it was written then."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from particleflow.analysis import summarize
from particleflow.app.scenario import load
from particleflow.trajectory import Trajectory

WRITTEN = Path(__file__).parent / "written_by_0_1_0"


@pytest.fixture
def folder(tmp_path) -> Path:
    return Path(shutil.copytree(WRITTEN, tmp_path / "run"))


def numbers(value: Any, path: str = "") -> dict[str, Any]:
    """The leaves of a document by their places."""
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if rows is None:
        return {path: value}
    return {name: leaf for key, each in rows for name, leaf in numbers(each, f"{path}/{key}").items()}


def test_the_trajectory_opens(folder):
    with Trajectory.open(folder) as run:
        assert (run.points.shape, run.points.dtype, run.status) == ((5, 8, 2), np.float64, "finished")
        assert run.times.tolist() == [0.0, 5.0, 10.0, 15.0, 20.0]
        np.testing.assert_allclose(np.linalg.norm(run.points, axis=-1), 1.0, atol=1e-12)
        assert not run.damaged_frames()
        assert (run.facts.space.kind, run.facts.space.radius, run.facts.interacts_only) == ("sphere", 1.0, False)
        head = run.facts.interactions[0]
        assert (head.beta, head.positional, head.value) == (9.0, "causal", 1.0)
        assert head.positions is not None
        assert head.positions.is_causal
        assert (run.metadata["versions"]["particleflow"], run.metadata["seed"]) == ("0.1.0", 0)


RENAMED = ("/collapse/bracket", "/thresholds/merge_time_interpolation")  # which 0.1.0 wrote
TIMES = ("/merge_tree/listed_merges", "/plateaus", "/collapse")  # which are between two frames today


def test_its_summary_is_the_same_today(folder):
    """But for times between two frames: they were frames or interpolated, and lie within today's brackets."""
    then = numbers(json.loads((folder / "summary.json").read_text(encoding="utf-8")))
    with Trajectory.open(folder) as run:
        now = numbers(json.loads(json.dumps(summarize(run))))
        gap = 1e-9 + np.diff(run.times).max()
    kept = {name: value for name, value in then.items() if not name.startswith(RENAMED)}
    assert kept.keys() <= now.keys()
    for name, value in kept.items():
        allowed = gap if name.startswith(TIMES) else 1e-12
        assert now[name] == (pytest.approx(value, rel=1e-9, abs=allowed) if isinstance(value, float) else value), name


def test_its_scenario_still_loads(folder):
    with Trajectory.open(folder) as run:
        assert run.metadata["scenario"] == (folder / "scenario.toml").read_text(encoding="utf-8")
    assert load(folder / "scenario.toml").title == "Written by 0.1.0"
