"""Two processes on one folder: the second is refused with a sentence, and the first ends as if it had been alone."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import particleflow as pf
from particleflow.app.runs.run_folder import SCENARIO_FILE, discard_if_empty, new_folder
from particleflow.errors import UserError
from particleflow.trajectory.store.file_access import is_being_written

SCENARIO = """
# What to look for.
initial = { kind = "uniform_sphere", dim = 3, count = 40 }
geometry = { kind = "sphere" }
[[drift]]
kind = "attend"
kernel = { kind = "attention", beta = 3.0 }
[time]
end = 20.0
frames = 401
step = 0.05
solver = "map"
window = 4
[record]
observables = ["energy"]
[output]
figures = false
movie = false
page = false
summary = false
[sweep]
"drift.0.kernel.beta" = [1.0, 2.0]
keep = "trajectories"
"""


def test_a_folder_that_two_processes_find_empty_is_that_of_the_first(tmp_path):
    (tmp_path / "out").mkdir()
    assert new_folder("any", tmp_path / "out") == tmp_path / "out"
    with pytest.raises(UserError, match="is in use"):
        new_folder("any", tmp_path / "out")
    discard_if_empty(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert new_folder("any", None, tmp_path).name == "001"
    assert new_folder("any", None, tmp_path).name == "002"


def test_a_folder_taken_between_a_look_and_a_step_is_in_use(tmp_path, monkeypatch):
    """The other process writes its file after this one has looked into the folder."""
    real = Path.mkdir

    def taken(path, *given, **named):
        real(path, *given, **named)
        (path / SCENARIO_FILE).write_text("of the other")

    monkeypatch.setattr(Path, "mkdir", taken)
    with pytest.raises(UserError, match="is in use"):
        new_folder("any", tmp_path / "out")
    assert (tmp_path / "out" / SCENARIO_FILE).read_text() == "of the other"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "particleflow", *arguments, *(["--quiet"] if arguments[0] != "recover" else [])]


@contextmanager
def stopped(arguments: list[str], begun: Callable[[], bool]) -> Iterator[subprocess.Popen]:
    """A process that stands still as soon as it has `begun`, and goes on after the block."""
    with subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, text=True) as process:
        try:
            while not begun() and process.poll() is None:
                time.sleep(0.002)
            process.send_signal(signal.SIGSTOP)
            yield process
            process.send_signal(signal.SIGCONT)
            assert process.wait(120) == 0, process.stderr.read() if process.stderr else ""
        finally:
            process.kill()


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(folder: Path, *arguments: str) -> tuple[int, str]:
    before = contents(folder)
    ended = subprocess.run(command(*arguments), capture_output=True, text=True, check=False, timeout=120)
    assert contents(folder) == before
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    assert "fault" not in ended.stderr
    return ended.returncode, ended.stderr


@pytest.mark.slow
def test_a_run_that_another_process_writes_is_left_alone(tmp_path):
    scenario, out, alone = str(tmp_path / "a.toml"), tmp_path / "out", tmp_path / "alone"
    (tmp_path / "a.toml").write_text(SCENARIO)
    with stopped(["run", scenario, "--output", str(out)], (out / "trajectory.h5.checkpoints").exists):
        code, said = refused(out, "run", scenario, "--output", str(out))
        assert code == 2
        assert "is in use" in said
        for name in ("resume", "recover"):
            code, said = refused(out, name, str(out))
            assert code == 1
            assert "is being written by another process (process " in said
    subprocess.run(command("run", scenario, "--output", str(alone)), check=True, capture_output=True)
    with pf.Trajectory.open(out) as run, pf.Trajectory.open(alone) as expected:
        assert run.status == "finished"
        np.testing.assert_array_equal(run.points, expected.points)
    assert {path.name for path in out.iterdir()} == {path.name for path in alone.iterdir()}


@pytest.mark.slow
def test_a_killed_run_is_resumed_by_one_process_only(tmp_path):
    scenario, out = str(tmp_path / "a.toml"), tmp_path / "out"
    (tmp_path / "a.toml").write_text(SCENARIO)
    with subprocess.Popen(command("run", scenario, "--output", str(out))) as process:
        while not (out / "trajectory.h5.checkpoints").exists():
            time.sleep(0.002)
        process.kill()
    (out / "trajectory.h5.lock").unlink()
    with stopped(["resume", str(out)], partial(is_being_written, out / "trajectory.h5")):
        for name in ("resume", "recover"):
            code, said = refused(out, name, str(out))
            assert code == 1
            assert "is being written by another process (process " in said
    with pf.Trajectory.open(out) as run:
        assert (run.status, len(run)) == ("finished", 401)


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True], ids=["sweep", "sweep resume"])
def test_a_sweep_that_another_process_runs_is_left_alone(tmp_path, again):
    scenario, out = str(tmp_path / "a.toml"), tmp_path / "out"
    (tmp_path / "a.toml").write_text(SCENARIO)
    if again:  # a sweep whose runs all wait once more
        subprocess.run(command("sweep", scenario, "--output", str(out)), check=True, capture_output=True)
        manifest = json.loads((out / "manifest.json").read_text())
        for run in manifest["runs"]:
            run["state"] = "waiting"
        (out / "manifest.json").write_text(json.dumps(manifest))
    first = ["resume", str(out)] if again else ["sweep", scenario, "--output", str(out)]
    with stopped(first, partial(is_being_written, out / "manifest.json")):
        code, said = refused(out, "sweep", scenario, "--output", str(out))
        assert code == 2
        assert "is in use" in said
        code, said = refused(out, "resume", str(out))
        assert code == 1
        assert "is being written by another process (process " in said
    assert [run["state"] for run in json.loads((out / "manifest.json").read_text())["runs"]] == ["done", "done"]
    assert not [path for path in out.rglob("*") if path.suffix == ".lock" or "partial" in path.name]
