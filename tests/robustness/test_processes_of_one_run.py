"""One run by several processes: the bits of one device, and the end of all when one is killed, stopped or misled."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from test_two_processes import SCENARIO

import particleflow as pf
from particleflow.errors import StoreError
from same_files import datasets

pytestmark = pytest.mark.slow

PATIENCE = 600  # seconds for a run on a busy machine
IN_TIME = 30.0  # in which a lost process must have ended all others


def free_port() -> int:
    """A port that nothing listens at."""
    with socket.create_server(("", 0)) as free:
        return free.getsockname()[1]


def started(arguments: list[str], folder: Path, name: str, **variables: str) -> subprocess.Popen[bytes]:
    """The command line as a process of its own, with its messages in a file."""
    with (folder / f"{name}.err").open("wb") as errors, (folder / f"{name}.out").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "particleflow", *arguments], stdout=output, stderr=errors,
            env={**os.environ, **variables},
        )  # fmt: skip


class Together:
    """The processes of one run, with the options of each; killed at the end of a test."""

    def __init__(self, folder: Path, count: int, command: list[str], own: dict[int, list[str]] | None = None):
        self.folder, port = folder, free_port()
        self.processes = [
            started(
                [*command, "--coordinator", f"127.0.0.1:{port}", "--processes", str(count), "--process", str(index),
                 *(own or {}).get(index, [])],
                folder, f"process{index}",
            )
            for index in range(count)
        ]  # fmt: skip

    def __enter__(self) -> "Together":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def codes(self, seconds: float = PATIENCE, but: int | None = None) -> list[int]:
        """The exit codes of all, or all `but` one, once they have ended, in so many seconds."""
        end = time.monotonic() + seconds
        waited = [each for index, each in enumerate(self.processes) if index != but]
        return [each.wait(max(0.1, end - time.monotonic())) for each in waited]

    def said(self, index: int) -> str:
        """What a process has written to stderr."""
        return (self.folder / f"process{index}.err").read_text()

    def until_frames(self, file: Path, count: int) -> None:
        """Wait until a file holds so many frames."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            assert all(each.poll() is None for each in self.processes), [self.said(0), self.said(1)]
            if file.exists():
                try:
                    with pf.Trajectory.open(file) as found:
                        if len(found) >= count:
                            return
                except (OSError, StoreError):
                    pass
            time.sleep(0.05)
        raise AssertionError("no frames in time")


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a hundred windows, whose particles two processes cannot share evenly."""
    path = tmp_path_factory.mktemp("scenario") / "run.toml"
    text = SCENARIO[: SCENARIO.index("[sweep]")].replace("count = 40", "count = 250")
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def whole(scenario: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The datasets of the same run by one process on one device."""
    folder = tmp_path_factory.mktemp("whole")
    assert started(["run", str(scenario), "--devices", "1", "--output", str(folder / "out")], folder, "one").wait() == 0
    return datasets(folder / "out" / "trajectory.h5")


def test_two_processes_store_the_bits_of_one_and_stdout_is_the_folder(scenario, whole, tmp_path):
    out = tmp_path / "out"
    with Together(tmp_path, 2, ["run", str(scenario), "--output", str(out)]) as two:
        assert two.codes() == [0, 0], two.said(0)
    assert datasets(out / "trajectory.h5") == whole
    assert (tmp_path / "process0.out").read_text() == f"{out}\n"
    assert (tmp_path / "process1.out").read_text() == ""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_is_lost_or_stuck_ends_the_run_and_another_number_goes_on(
    scenario, whole, tmp_path, victim, number
):
    out = tmp_path / "out"
    with Together(tmp_path, 2, ["run", str(scenario), "--output", str(out)]) as two:
        two.until_frames(out / "trajectory.h5", 9)
        two.processes[victim].send_signal(number)
        assert two.codes(IN_TIME, but=victim) == [1]
        said = two.said(1 - victim)
    what = "is lost" if number == signal.SIGKILL else "has given no sign of life for 15 s"
    assert f"Error: Process {victim} {what}" in said
    assert "`particleflow resume` goes on from its last window." in said
    again: dict[str, Any] = {"XLA_FLAGS": "--xla_force_host_platform_device_count=3"}
    assert started(["resume", str(out), "--devices", "3"], tmp_path, "again", **again).wait(PATIENCE) == 0
    assert datasets(out / "trajectory.h5") == whole


def test_a_run_of_one_process_goes_on_with_two(scenario, whole, tmp_path):
    out = tmp_path / "out"
    one = started(["run", str(scenario), "--devices", "1", "--output", str(out)], tmp_path, "process0")
    begun = Together(tmp_path, 0, [])
    begun.processes = [one]
    with begun:
        begun.until_frames(out / "trajectory.h5", 9)
    with Together(tmp_path, 2, ["resume", str(out)]) as two:
        assert two.codes() == [0, 0], two.said(0)
    assert datasets(out / "trajectory.h5") == whole


def test_a_signal_to_one_process_stops_all_after_a_window(scenario, whole, tmp_path):
    out = tmp_path / "out"
    with Together(tmp_path, 2, ["run", str(scenario), "--output", str(out)]) as two:
        two.until_frames(out / "trajectory.h5", 9)
        two.processes[1].send_signal(signal.SIGTERM)
        codes = two.codes()
    assert codes[0] == 130
    assert "Interrupted after" in two.said(0)


def test_processes_with_unlike_scenarios_are_refused(scenario, tmp_path):
    own = {1: ["--set", "drift.0.kernel.beta=2"]}
    with Together(tmp_path, 2, ["run", str(scenario), "--output", str(tmp_path / "out")], own) as two:
        assert two.codes() == [2, 2]
    for index in (0, 1):
        assert "The processes of this run do not agree: `flow` differs among them." in two.said(index)
    assert not (tmp_path / "out").exists()


def test_a_process_that_fails_ends_the_others_with_its_reason(scenario, tmp_path):
    own = {1: ["--set", "time.step=-1"]}
    with Together(tmp_path, 2, ["run", str(scenario), "--output", str(tmp_path / "out")], own) as two:
        assert two.codes() == [1, 2]
    assert "Error: Process 1 has ended: " in two.said(0)
    assert "step" in two.said(0)
