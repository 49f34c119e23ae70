"""Crash safety of the trajectory file: every prefix of the stream of writes, half-written pages, SIGKILL, recovery."""

import io
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from particleflow.errors import StoreError
from particleflow.trajectory.store import TrajectoryWriter, recover
from particleflow.trajectory.store import file_layout as layout
from particleflow.trajectory.store.file_reader import StoredRun
from particleflow.trajectory.trajectory import Trajectory

PAGE = 4096


def hdf5(path: Path, mode: str = "r") -> Any:
    """A file opened by h5py, whose own annotations cannot tell a group from a dataset."""
    return h5py.File(path, mode)


class RecordingFile(io.BytesIO):
    """A file in memory that remembers every write and truncation in order."""

    def __init__(self, content: bytes = b"") -> None:
        super().__init__(content)
        self.operations: list[tuple[int, bytes | None]] = []

    def write(self, content) -> int:
        self.operations.append((self.tell(), bytes(content)))
        return super().write(content)

    def truncate(self, size=None) -> int:
        self.operations.append((self.tell() if size is None else size, None))
        return super().truncate(size)


def superblock_checksum(content: bytes) -> int:
    """Jenkins' lookup3 hash, with which HDF5 protects its superblock."""

    def rotate(value: int, bits: int) -> int:
        return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF

    a = b = c = (0xDEADBEEF + len(content)) & 0xFFFFFFFF
    words = [int.from_bytes(content[i : i + 4], "little") for i in range(0, len(content), 4)]
    words += [0] * (-len(words) % 3)
    while True:
        a, b, c = ((old + new) & 0xFFFFFFFF for old, new in zip((a, b, c), words[:3], strict=True))
        words = words[3:]
        if not words:
            break
        for bits in (4, 6, 8, 16, 19, 4):
            a = (a - c & 0xFFFFFFFF) ^ rotate(c, bits)
            c = c + b & 0xFFFFFFFF
            a, b, c = b, c, a
    for bits in (14, 11, 25, 16, 4, 14, 24):
        c = (c ^ b) - rotate(b, bits) & 0xFFFFFFFF
        a, b, c = b, c, a
    return b


def as_on_disk(operations: list[tuple[int, bytes | None]]) -> list[tuple[int, bytes | None]]:
    """Mark the superblock as open for writing, which HDF5 does for every file on disk but not for one in memory."""
    marked = []
    for offset, content in operations:
        if content is not None and offset == 0 and len(content) == 48:
            assert superblock_checksum(content[:44]) == int.from_bytes(content[44:], "little")
            head = content[:11] + bytes([content[11] | bool(content[11])]) + content[12:44]
            content = head + superblock_checksum(head).to_bytes(4, "little")
        marked.append((offset, content))
    return marked


@dataclass
class Recording:
    """The truth, the stream of writes, and how many frames were acknowledged after how many writes."""

    points: np.ndarray
    energies: np.ndarray
    operations: list[tuple[int, bytes | None]] = field(default_factory=list)
    acknowledged: list[tuple[int, int]] = field(default_factory=list)
    start: int = 0
    before: bytes = b""

    def promised(self, done: int) -> int:
        return max((frames for after, frames in self.acknowledged if after <= done), default=0)


def truth(frames: int, count: int, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    points = np.random.default_rng(frames).normal(size=(frames, count, dimension))
    return points, np.sum(points**2, axis=(1, 2))


def write_windows(writer: TrajectoryWriter, recording: Recording, file: RecordingFile, window: int) -> None:
    while writer.committed < len(recording.points):
        start = writer.committed
        chosen = slice(start, start + window)
        points, energies = recording.points[chosen], recording.energies[chosen]
        steps = np.arange(start, start + len(points))
        writer.append(steps / 10, steps, points, {"energy": energies, "mean": points.mean(axis=1)})
        recording.acknowledged.append((len(file.operations), writer.committed))
    writer.set_status("finished")


def record(frames: int, count: int, dimension: int, window: int, expected: int | None = None) -> Recording:
    """Write a whole trajectory into memory and keep the stream of writes from the moment the file gets its name."""
    recording = Recording(*truth(frames, count, dimension))
    plan = layout.FileLayout(count, dimension, observables={"energy": (), "mean": (dimension,)})
    content = RecordingFile()
    file = h5py.File(content, "w", **layout.CREATION)
    layout.build(file, plan, {"title": "crash"}, {"log_weights": np.zeros(count)}, expected)
    file.swmr_mode = True
    writer = TrajectoryWriter(file, plan)
    writer.set_status("running")
    recording.start = len(content.operations)
    write_windows(writer, recording, content, window)
    writer.close()
    recording.operations = as_on_disk(content.operations)
    return recording


def record_continuation(whole: bytes, recording: Recording, frames: int, window: int) -> Recording:
    """Continue a closed file in place, as `reopen` does, and keep the stream of writes."""
    content = RecordingFile(whole)
    file = h5py.File(content, "r+", libver=layout.LIBRARY_VERSION)
    file.swmr_mode = True
    observables = {"energy": (), "mean": (recording.points.shape[2],)}
    plan = layout.FileLayout(*recording.points.shape[1:], observables=observables)
    writer = TrajectoryWriter(file, plan, frames=frames)
    writer.set_status("running")
    again = Recording(recording.points, recording.energies, acknowledged=[(0, frames)], before=whole)
    write_windows(writer, again, content, window)
    writer.close()
    again.operations = as_on_disk(content.operations)
    return again


def check_frames(path: Path, recording: Recording, promised: int) -> None:
    """Open what a crash left and compare every frame shown with the truth."""
    with StoredRun(path) as stored:
        frames = stored.frames
        assert promised <= frames <= len(recording.points)
        np.testing.assert_array_equal(stored.times, np.arange(frames) / 10)
        np.testing.assert_array_equal(stored.steps, np.arange(frames))
        shown = slice(0, frames)
        np.testing.assert_array_equal(stored.read("position", shown), recording.points[:frames])
        np.testing.assert_array_equal(stored.read("energy", shown), recording.energies[:frames])
        np.testing.assert_array_equal(stored.read("mean", shown), recording.points[:frames].mean(axis=1))


def replay(recording: Recording, path: Path, every: int = 1, tears: int = 0) -> int:
    """Apply the writes one by one and check the file after each; with `tears`, also after parts of each write."""
    checked = 0
    path.write_bytes(recording.before)
    with path.open("r+b", buffering=0) as disk:
        for done, (offset, content) in enumerate(recording.operations):
            watched = done >= recording.start and done % every == 0
            if watched:
                check_frames(path, recording, recording.promised(done))
                checked += 1
            if content is None:
                disk.truncate(offset)
                continue
            for cut in tear_points(offset, content, tears) if watched else ():
                disk.seek(offset)
                disk.write(content[:cut])
                check_frames(path, recording, recording.promised(done))
                checked += 1
            disk.seek(offset)
            disk.write(content)
    check_frames(path, recording, recording.promised(len(recording.operations)))
    return checked + 1


def tear_points(offset: int, content: bytes, most: int) -> list[int]:
    """Where a write can be cut when the process is killed inside it: between the pages of the file."""
    edges = list(range(PAGE - offset % PAGE, len(content), PAGE))
    return edges[:: max(1, len(edges) // most)][:most] if most and edges else []


def test_sample_of_crash_points_loses_nothing_and_shows_no_garbage(tmp_path):
    """Every fourth prefix of a run of 60 frames; `test_every_crash_point` replays thousands."""
    recording = record(60, 40, 3, window=3)
    assert replay(recording, tmp_path / "prefix.h5", every=4) > 50


def test_writes_torn_between_pages_lose_nothing(tmp_path):
    """A block that is rewritten in place and cut off half-way fails its checksum; the frames' own ones save it."""
    recording = record(12, 400, 3, window=2)
    assert replay(recording, tmp_path / "torn.h5", tears=3) > 100


def test_crash_points_of_a_continued_file(tmp_path):
    recording = record(20, 40, 3, window=4)
    replay(recording, tmp_path / "whole.h5", every=10**6)
    longer = Recording(*truth(20, 40, 3))
    rng = np.random.default_rng(7)
    longer.points = np.concatenate([longer.points, rng.normal(size=(20, 40, 3))])
    longer.energies = np.sum(longer.points**2, axis=(1, 2))
    again = record_continuation((tmp_path / "whole.h5").read_bytes(), longer, 20, 4)
    # A kill while HDF5 opens the file leaves all of it intact; `check_frames` says so at every single write.
    assert replay(again, tmp_path / "again.h5") > 50


@pytest.mark.slow
@pytest.mark.parametrize(("frames", "count", "window"), [(500, 40, 1), (400, 8, 1), (120, 2000, 3), (30, 30000, 1)])
def test_every_crash_point(tmp_path, frames, count, window):
    """All prefixes of four runs: small and large blocks, blocks of one frame, frames of several blocks."""
    recording = record(frames, count, 3, window)
    checked = replay(recording, tmp_path / "prefix.h5", tears=2)
    print(f"{checked} crash points checked")
    assert checked > 10 * frames / window


WRITE_FOREVER = """
    import sys
    import numpy as np
    from particleflow.trajectory.store import TrajectoryWriter
    points = np.random.default_rng(300).normal(size=(300, 40, 3))
    if sys.argv[2] == "new":
        writer = TrajectoryWriter.create(sys.argv[1], count=40, dimension=3, observables={"energy": ()}, fsync=False)
    else:
        writer = TrajectoryWriter.reopen(sys.argv[1], fsync=False)
    print(writer.committed, flush=True)
    for start in range(writer.committed, 300, 2):
        window = points[start : start + 2]
        steps = np.arange(start, start + len(window))
        writer.append(steps / 10, steps, window, {"energy": np.sum(window**2, axis=(1, 2))})
        print(writer.committed, flush=True)
    writer.set_status("finished", statistics={"steps": 300})
    writer.close()
"""


def write_in_another_process(folder: Path, mode: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(WRITE_FOREVER), str(folder), mode]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def read_count(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    line = process.stdout.readline()
    return int(line) if line else 300


@pytest.mark.slow
def test_killed_again_and_again_the_run_ends_as_if_never_killed(tmp_path):
    """Kill the writer with SIGKILL twice, each time deeper into the run, and go on from what is there."""
    points, energies = truth(300, 40, 3)
    for target in (3, 130):
        process = write_in_another_process(tmp_path, "new" if target == 3 else "again")
        with process:
            promised = 0
            while promised < target:
                promised = read_count(process)
            process.send_signal(signal.SIGKILL)
        with Trajectory.open(tmp_path) as trajectory:
            assert trajectory.status == "killed"
            assert len(trajectory) >= promised
            np.testing.assert_array_equal(trajectory.points, points[: len(trajectory)])
    with write_in_another_process(tmp_path, "again") as process:
        assert process.wait(60) == 0
    with Trajectory.open(tmp_path) as trajectory:
        assert trajectory.status == "finished"
        assert trajectory.metadata["statistics"] == {"steps": 300}
        np.testing.assert_array_equal(trajectory.points, points)
        np.testing.assert_array_equal(trajectory.observables["energy"], energies)
        np.testing.assert_array_equal(trajectory.times, np.arange(300) / 10)
        assert trajectory.damaged_frames() == {}


def test_a_running_simulation_is_followed_by_another_process(tmp_path):
    """Read while the other process writes: frames only grow, are right at every moment, and the end is seen."""
    points, energies = truth(300, 40, 3)
    lengths = set()
    with write_in_another_process(tmp_path, "new") as process:
        assert read_count(process) == 0
        with Trajectory.open(tmp_path) as trajectory:
            assert trajectory.status == "running"
            while len(trajectory) < 300:
                seen = len(trajectory)
                lengths.add(seen)
                assert trajectory.refresh() >= seen
                np.testing.assert_array_equal(trajectory.points, points[: len(trajectory)])
                np.testing.assert_array_equal(trajectory.observables["energy"], energies[: len(trajectory)])
            assert process.wait(60) == 0
            trajectory.refresh()
            assert trajectory.status == "finished"
    assert len(lengths) > 1


def test_following_a_simulation_that_is_killed_ends_at_once(tmp_path):
    points, _ = truth(300, 40, 3)
    with write_in_another_process(tmp_path, "new") as process:
        assert read_count(process) == 0
        with Trajectory.open(tmp_path) as trajectory:
            while read_count(process) < 50:
                pass
            process.send_signal(signal.SIGKILL)
            process.wait(60)
            assert trajectory.refresh() >= 50
            assert trajectory.status == "killed"
            np.testing.assert_array_equal(trajectory.points, points[: len(trajectory)])
            recover(tmp_path)
            trajectory.refresh()
            assert trajectory.status == "interrupted"
            np.testing.assert_array_equal(trajectory.points, points[: len(trajectory)])


def test_recover_gives_a_killed_file_back_to_every_program(tmp_path):
    points, _ = truth(300, 40, 3)
    with write_in_another_process(tmp_path, "new") as process:
        while read_count(process) < 100:
            pass
        process.send_signal(signal.SIGKILL)
    path = tmp_path / "trajectory.h5"
    with pytest.raises(OSError, match="already open for"):
        h5py.File(path)
    report = recover(tmp_path)
    assert (report.status, report.lost, report.written) == ("killed", 0, True)
    assert report.frames >= 100
    with hdf5(path) as file:
        np.testing.assert_array_equal(file["particles/trajectory/position/value"], points[: report.frames])
        assert file["observables/energy/time"] == file["particles/trajectory/position/time"]
    assert recover(tmp_path).written is False
    with Trajectory.open(path) as trajectory:
        assert trajectory.status == "interrupted"
    assert [path.name for path in tmp_path.iterdir()] == ["trajectory.h5"]


@pytest.mark.parametrize("frames", [0, 1, 37, 60])
def test_reopening_cuts_to_the_frames_asked_for(tmp_path, frames):
    points, energies = truth(60, 40, 3)
    times = np.arange(60.0)
    with TrajectoryWriter.create(tmp_path, count=40, dimension=3, observables={"energy": ()}) as writer:
        writer.append(times, times, points, {"energy": energies})
    with TrajectoryWriter.reopen(tmp_path, frames=frames) as writer:
        assert writer.committed == frames
        chosen = slice(frames, frames + 5)
        added = len(times[chosen])
        writer.append(times[chosen], times[chosen], points[chosen], {"energy": energies[chosen]})
        writer.set_status("finished")
    with hdf5(tmp_path / "trajectory.h5") as file:
        np.testing.assert_array_equal(file["particles/trajectory/position/value"], points[: frames + added])
        assert file["observables/energy/value"].shape == (frames + added,)
    with pytest.raises(StoreError, match="cannot be continued from frame 70"):
        TrajectoryWriter.reopen(tmp_path, frames=70)
    assert not (tmp_path / "trajectory.h5.lock").exists()
