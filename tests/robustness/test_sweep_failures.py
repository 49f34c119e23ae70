"""A sweep outlives full disks, second processes, damaged files and signals, and says what happened."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import particleflow as pf
from particleflow._support import signals
from particleflow.app.cli import main
from particleflow.app.sweep import Manifest, execute, group_simulation
from particleflow.app.sweep.results import table
from particleflow.trajectory.store.file_access import WriterLock
from shares import by_default

LAYERS = """
# What to look for.
title = "A small sweep of layers"
seed = 5
initial = { kind = "uniform_sphere", dim = 3, count = 4 }
[[drift]]
kind = "attend"
kernel = { kind = "attention", beta = 1.0 }
[time]
end = 2.0
frames = 5
step = 0.5
solver = "map"
window = 2
[record]
observables = ["order_parameter"]
[sweep]
"""
SEEDS = "seed = { count = 3 }\n"


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Run a sweep into a folder of its own, each run as a group; returns exit code and folder."""
    monkeypatch.setattr(execute, "_MOST_RUNS", 1)

    def begin(sweep, name="out"):
        path = tmp_path / "sweep.toml"
        path.write_text(LAYERS + sweep, encoding="utf-8")
        folder = tmp_path / name
        return main(["sweep", str(path), "--output", str(folder), "--quiet"]), folder

    return begin


def states(folder):
    return [run["state"] for run in Manifest.open(folder).runs]


def finals(folder):
    return [row.get("order_parameter") for row in table(Manifest.open(folder))]


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def after(calls, function, otherwise):
    """`function` for so many calls, then `otherwise`."""
    left = iter(range(calls))
    return lambda *given, **named: (function if next(left, None) is not None else otherwise)(*given, **named)


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["observables", "trajectories"])
def test_a_full_disk_stops_a_sweep_that_resume_completes(kept, begin, monkeypatch, capsys):
    code, whole = begin(f'keep = "{kept}"\n{SEEDS}', "whole")
    assert code == 0
    with monkeypatch.context() as disk:
        if kept == "observables":
            disk.setattr(np, "savez", after(1, np.savez, no_space))
        else:
            disk.setattr(
                group_simulation, "trajectories_beside", after(1, group_simulation.trajectories_beside, no_space)
            )
        code, folder = begin(f'keep = "{kept}"\n{SEEDS}')
    assert code == 1
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert f"1 of 3 runs done; `particleflow resume {folder}` goes on" in said
    assert "fault" not in said
    assert states(folder) == ["done", "failed", "waiting"]
    assert [run.get("transient") for run in Manifest.open(folder).runs[:2]] == [False, True]
    assert main(["resume", str(folder), "--quiet"]) == 0
    assert states(folder) == ["done"] * 3
    assert finals(folder) == finals(whole)
    names = {path.relative_to(folder) for path in folder.rglob("*")}
    assert names == {path.relative_to(whole) for path in whole.rglob("*")}


@pytest.mark.slow
def test_a_disk_that_is_full_within_a_trajectory_leaves_nothing_behind(begin, monkeypatch, capsys):
    with monkeypatch.context() as disk:
        disk.setattr(os, "posix_fallocate", no_space)
        code, folder = begin(f'keep = "trajectories"\n{SEEDS}')
    assert code == 1
    assert "No space to write" in capsys.readouterr().err
    assert list((folder / "groups").iterdir()) == []
    assert states(folder) == ["failed", "waiting", "waiting"]
    assert main(["resume", str(folder), "--quiet"]) == 0
    with pf.Trajectory.open(folder / "groups" / "00002.h5") as run:
        assert run.status == "finished"


@pytest.mark.slow
def test_what_failed_by_itself_is_run_again_only_on_wish(begin, monkeypatch, capsys):
    monkeypatch.setattr(execute, "_MOST_RUNS", 2)
    code, folder = begin('"drift.0.value" = [1.0, 1e200]')
    assert code == 1
    assert states(folder) == ["done", "failed"]
    manifest = Manifest.open(folder)
    assert manifest.groups == [[0, 1]]
    assert not manifest.runs[1]["transient"]
    manifest.runs[1]["message"] = "an old reason"
    manifest.save()
    assert main(["resume", str(folder)]) == 1
    assert f"resume {folder} --retry failed" in capsys.readouterr().err
    assert Manifest.open(folder).runs[1]["message"] == "an old reason"
    before = finals(folder)
    with monkeypatch.context() as disk:  # a retry that the disk stops keeps what was done
        disk.setattr(np, "savez", no_space)
        assert main(["resume", str(folder), "--retry", "failed", "--quiet"]) == 1
    assert states(folder) == ["done", "failed"]
    assert Manifest.open(folder).runs[1]["transient"]
    assert finals(folder) == before
    assert main(["resume", str(folder), "--retry", "failed", "--quiet"]) == 1
    assert Manifest.open(folder).runs[1]["message"] not in (None, "an old reason")
    assert not Manifest.open(folder).runs[1]["transient"]
    assert finals(folder) == before


def test_retry_is_for_sweeps(tmp_path, capsys):
    assert main(["resume", str(tmp_path), "--retry", "failed"]) == 2
    assert "--retry is for sweeps" in capsys.readouterr().err


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_second_process_is_refused_at_once_and_changes_nothing(begin, capsys):
    folder = begin(SEEDS)[1]
    manifest = Manifest.open(folder)
    manifest.mark([1], "running")
    lock = WriterLock(folder / "manifest.json")
    try:
        before, began = contents(folder), time.monotonic()
        assert main(["resume", str(folder), "--quiet"]) == 1
        assert time.monotonic() - began < 1.0
        assert contents(folder) == before
    finally:
        lock.release()
    said = capsys.readouterr().err
    assert f"being written by another process (process {os.getpid()} on " in said
    assert main(["resume", str(folder), "--quiet"]) == 0
    assert states(folder) == ["done"] * 3
    assert not list(folder.glob("*.lock"))


def test_the_states_are_those_of_who_wrote_last(begin):
    """A manifest that was opened before another process finished the sweep takes its word for it."""
    folder = begin(SEEDS)[1]
    old = Manifest.open(folder)
    old.runs[0]["state"] = "waiting"
    with old.locked(), old.locked():
        assert old.groups_to_run() == []


@pytest.mark.parametrize(
    "damage",
    by_default(["cut off", "other bytes", "empty", "missing", "shape"], ["other bytes"]),
)
def test_a_damaged_group_is_said_and_computed_again(damage, begin, capsys):
    folder = begin(SEEDS)[1]
    capsys.readouterr()
    expected, path = finals(folder), folder / "groups" / "00001.npz"
    content = path.read_bytes()
    match damage:
        case "cut off":
            path.write_bytes(content[: len(content) // 2])
        case "empty":
            path.write_bytes(b"")
        case "other bytes":  # the checksum of the archive tells
            middle = content.index(b"end_times.npy") + 160
            path.write_bytes(content[:middle] + b"\xff" * 8 + content[middle + 8 :])
        case "missing":
            path.unlink()
        case "shape":
            np.savez(path, times=np.zeros(5), end_times=np.zeros(7))
    stamps = [(folder / "groups" / f"0000{index}.npz").stat().st_mtime_ns for index in (0, 2)]
    assert main(["resume", str(folder), "--quiet"]) == 0
    assert f"{path} is damaged" in capsys.readouterr().err
    assert finals(folder) == expected
    assert [(folder / "groups" / f"0000{index}.npz").stat().st_mtime_ns for index in (0, 2)] == stamps


def test_results_are_on_disk_before_the_manifest_says_so(begin, monkeypatch):
    order, real = [], os.fsync

    def sync(descriptor):
        order.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    begin("seed = [1]\n")
    group = order.index(f".00000.partial-{os.getpid()}.npz")
    assert order[group + 1] == "groups"
    assert order[group + 2 : group + 4] == [f".manifest.partial-{os.getpid()}.json", "out"]


def test_a_signal_within_a_trajectory_leaves_it_to_wait(begin, monkeypatch, capsys):
    """`simulate` closes its file and returns when a signal comes: that is no finished group."""
    sent = []

    def report(share, text):
        if not sent:  # a second one would end the process
            os.kill(os.getpid(), signal.SIGINT)
            end = time.monotonic() + 10
            while not signals.asked() and time.monotonic() < end:  # the main thread answers it
                time.sleep(0.01)
        sent.append(share)

    with monkeypatch.context() as user:
        user.setattr(execute, "_reporter", lambda *_: report)
        code, folder = begin('keep = "trajectories"\nseed = [1, 2]\n')
    assert 0 < sent[0] < 1
    assert code == 130
    said = capsys.readouterr().err
    assert "Interrupted." in said
    assert f"0 of 2 runs are done; `particleflow resume {folder}` goes on" in said
    assert states(folder) == ["waiting", "waiting"]
    assert main(["resume", str(folder), "--quiet"]) == 0
    with pf.Trajectory.open(folder / "groups" / "00000.h5") as run:
        assert len(run) == 5


def test_a_hostile_manifest_cannot_write_to_the_terminal(tmp_path, capsys):
    escape = "\x1b]0;gotcha\x07\x1b[2J"
    run = {"values": {escape: 1}, "state": "done", "message": escape}
    content = {"version": 1, "title": escape, "keys": [escape, 3], "groups": [[0]], "runs": [run]}
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    assert main(["info", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "gotcha" in captured.out
    assert not set(captured.out + captured.err) & set("\x1b\x07")


def test_what_killed_processes_left_is_gone_after_a_resume(begin):
    """Partial files and locks of a sweep and its groups, under the names that they have."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    folder = begin('seed = [1]\nkeep = "trajectories"\n')[1]
    whole = {each.relative_to(folder) for each in folder.rglob("*")}
    Manifest.open(folder).mark([0], "running")
    groups = folder / "groups"
    (groups / ".00000.partial.h5.checkpoints").mkdir()
    left = [groups / ".00000.partial.h5.checkpoints" / "checkpoint-1.npz", folder / "manifest.json.lock"]
    left += [groups / f".00000.partial{end}" for end in (".h5", ".h5.lock", f"-{ended.pid}.npz")]
    left += [folder / f".{name}.partial-{ended.pid}.{end}" for name, end in (("manifest", "json"), ("results", "csv"))]
    for each in left:
        each.write_text("half")
    assert main(["resume", str(folder), "--quiet"]) == 0
    assert {each.relative_to(folder) for each in folder.rglob("*")} == whole


@pytest.mark.slow
def test_a_second_process_is_refused_while_the_first_goes_on(tmp_path):
    """Two processes of their own: the second gives up, the first finishes as if it had been alone."""
    (tmp_path / "sweep.toml").write_text(LAYERS + 'keep = "trajectories"\n"initial.count" = [4, 5, 6]\n')
    command = [sys.executable, "-m", "particleflow"]
    environment = {**os.environ, "PYTHONPATH": str(Path(pf.__file__).parents[1])}
    folder = tmp_path / "live"
    arguments = ["sweep", str(tmp_path / "sweep.toml"), "--quiet", "--output", str(folder)]
    first = subprocess.Popen([*command, *arguments], env=environment)
    while not list(folder.glob("manifest.json.lock")) and first.poll() is None:
        time.sleep(0.005)
    second = subprocess.run(
        [*command, "resume", str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert first.wait() == 0
    assert second.returncode == 1
    assert "being written by another process" in second.stderr
    assert states(folder) == ["done"] * 3


def test_a_sweep_that_could_not_begin_leaves_its_folder_free(begin, monkeypatch):
    with monkeypatch.context() as disk:
        disk.setattr(Manifest, "create", no_space)
        code, folder = begin(SEEDS)
    assert code == 1
    assert not folder.exists()
    assert begin(SEEDS)[0] == 0
