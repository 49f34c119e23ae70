"""A run that is killed, interrupted or starved of disk goes on, and ends in the same bits."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from particleflow.trajectory.trajectory import Trajectory

SCRIPT = Path(__file__).parents[1] / "helpers" / "killed_run.py"


def start(path: Path, *options: str) -> subprocess.Popen[str]:
    """Start the run in a process of its own; without XLA's log, which would fill the pipe before it is read."""
    command = [sys.executable, str(SCRIPT), str(path), *options]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def complete(path: Path, *options: str) -> None:
    """Run to the end."""
    process = start(path, *options)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors


def stop_after(process: subprocess.Popen[str], frames: int, number: int) -> None:
    """Send a signal as soon as the run has acknowledged some frames."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip().isdigit() and int(line) >= frames:
            break
    process.send_signal(number)
    process.communicate(timeout=300)


def assert_same(first: Path, second: Path) -> None:
    """Both files hold the same bits."""
    one, other = Trajectory.open(first), Trajectory.open(second)
    assert one.status == other.status == "finished"
    np.testing.assert_array_equal(one.times, other.times)
    np.testing.assert_array_equal(one.steps, other.steps)
    np.testing.assert_array_equal(np.asarray(one.points), np.asarray(other.points))
    for name in one.observables:
        np.testing.assert_array_equal(np.asarray(one.observables[name]), np.asarray(other.observables[name]))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nobody disturbs."""
    path = tmp_path_factory.mktemp("whole") / "run.h5"
    complete(path)
    return path


@pytest.mark.slow
def test_two_kills_and_an_interrupt_change_no_bit(uninterrupted: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    stop_after(start(path), 30, signal.SIGKILL)
    assert Trajectory.open(path).status == "killed"
    stop_after(start(path, "--resume"), 90, signal.SIGINT)
    assert Trajectory.open(path).status == "interrupted"
    stop_after(start(path, "--resume"), 150, signal.SIGKILL)
    complete(path, "--resume")
    assert_same(uninterrupted, path)


@pytest.mark.slow
def test_full_disk_keeps_what_was_acknowledged(uninterrupted: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    whole = uninterrupted.stat().st_size
    process = start(path, f"--limit={int(0.8 * whole)}")
    _, errors = process.communicate(timeout=300)
    assert process.returncode != 0
    assert "space" in errors
    kept = Trajectory.open(path)
    assert 0 < len(kept) < 241
    np.testing.assert_array_equal(
        np.asarray(kept.points), np.asarray(Trajectory.open(uninterrupted).points[: len(kept)])
    )
    complete(path, "--resume")
    assert_same(uninterrupted, path)


@pytest.mark.slow
def test_thirty_kills_at_random_times(uninterrupted: Path, tmp_path: Path) -> None:
    chance = random.Random(5)
    for attempt in range(30):
        path = tmp_path / f"run{attempt}.h5"
        stop_after(start(path), chance.randrange(3, 235), signal.SIGKILL)
        complete(path, "--resume")
        assert_same(uninterrupted, path)
