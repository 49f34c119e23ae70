"""What the store says about flipped bits, cut-off files, files of other programs, full disks and second writers."""

import re
import resource
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from particleflow.errors import ArgumentError, ShapeError, StoreError
from particleflow.trajectory.store import TrajectoryWriter, recover
from particleflow.trajectory.trajectory import Trajectory
from shares import by_default

FRAMES, COUNT = 60, 500


def hdf5(path: Path, mode: str = "r") -> Any:
    """A file opened by h5py, whose own annotations cannot tell a group from a dataset."""
    return h5py.File(path, mode)


def points_of(frames: int = FRAMES, count: int = COUNT) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(frames, count, 3))


@pytest.fixture
def run(tmp_path) -> Path:
    """A finished run of 60 frames of 500 particles, in several blocks."""
    points = points_of()
    provenance = {"title": "damage", "scenario": "seed = 0\n" * 50}
    log_weights = np.linspace(-1, 0, COUNT)
    with TrajectoryWriter.create(
        tmp_path, count=COUNT, dimension=3, observables={"energy": ()}, provenance=provenance, log_weights=log_weights
    ) as writer:
        for start in range(0, FRAMES, 10):
            window = slice(start, start + 10)
            steps = np.arange(start, start + 10)
            writer.append(steps * 0.5, steps, points[window], {"energy": points[window, 0, 0]})
        writer.set_status("finished", statistics={"steps": 77})
    return tmp_path / "trajectory.h5"


def everything(path: Path) -> list:
    """All that a reader can see of a trajectory."""
    with Trajectory.open(path) as trajectory:
        seen = [trajectory.times, trajectory.steps, np.asarray(trajectory.points), trajectory.weights]
        seen += [np.asarray(trajectory.observables["energy"]), repr(sorted(trajectory.metadata.items()))]
        assert trajectory.damaged_frames() == {}
        return seen


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("sample", [pytest.param(15, id="15"), pytest.param(200, id="200", marks=pytest.mark.slow)])
def test_a_flipped_bit_in_the_points_names_its_frame(run, sample):
    content = run.read_bytes()
    with hdf5(run) as file:
        value = file["particles/trajectory/position/value"]
        chunks = [value.id.get_chunk_info(index) for index in range(value.id.get_num_chunks())]
        blocks = [(info.chunk_offset[0], info.byte_offset) for info in chunks]
        rows = value.chunks[0]
    frame_bytes = COUNT * 3 * 8
    rng = np.random.default_rng(0)
    for _ in range(sample):
        frame, bit = int(rng.integers(FRAMES)), int(rng.integers(frame_bytes * 8))
        first, offset = next((first, offset) for first, offset in blocks if first <= frame < first + rows)
        run.write_bytes(flipped(content, (offset + (frame - first) * frame_bytes) * 8 + bit))
        with Trajectory.open(run) as trajectory, pytest.raises(StoreError, match=rf"frame {frame} of `position`"):
            np.asarray(trajectory.points)


def test_frames_beside_a_damaged_one_are_still_read(run):
    content, points = run.read_bytes(), points_of()
    place = content.index(points[7, 100].tobytes())
    run.write_bytes(flipped(content, place * 8 + 3))
    with Trajectory.open(run) as trajectory:
        np.testing.assert_array_equal(trajectory[6].points, points[6])
        np.testing.assert_array_equal(trajectory[8].points, points[8])
        assert trajectory.damaged_frames() == {"position": [7]}
        with pytest.raises(StoreError, match=r"frame 7 of `position`"):
            trajectory[7]
    report = recover(run)
    assert (report.frames, report.lost, report.written) == (7, FRAMES - 7, True)
    assert report.kept is not None
    assert report.kept.read_bytes() == flipped(content, place * 8 + 3)
    np.testing.assert_array_equal(everything(run)[2], points[:7])


@pytest.mark.parametrize("sample", [pytest.param(30, id="30"), pytest.param(3000, id="3000", marks=pytest.mark.slow)])
def test_a_flipped_bit_anywhere_is_detected_or_changes_nothing(run, sample):
    """Half of the bits in the structure at the head of the file, half anywhere."""
    content, before = run.read_bytes(), everything(run)
    rng = np.random.default_rng(1)
    noticed = 0
    for trial in range(sample):
        limit = len(content) if trial % 2 else 1 << 16
        run.write_bytes(flipped(content, int(rng.integers(limit * 8))))
        try:
            after = everything(run)
        except (StoreError, AssertionError):
            noticed += 1
            continue
        for old, new in zip(before, after, strict=True):
            np.testing.assert_array_equal(old, new)
    assert noticed > sample // 4


@pytest.mark.parametrize("percent", by_default([0.01, 1, 25, 50, 75, 99, 99.99], [0.01, 50, 99.99]))
def test_a_file_cut_off_gives_a_clear_error_or_everything_up_to_the_cut(run, percent):
    content, points = run.read_bytes(), points_of()
    run.write_bytes(content[: int(len(content) * percent / 100)])
    shown, message = 0, "nothing was wrong"
    try:
        with Trajectory.open(run) as trajectory:
            for index in range(len(trajectory)):
                np.testing.assert_array_equal(trajectory[index].points, points[index])
                shown += 1
    except StoreError as error:
        message = str(error)
    assert re.search(r"cut off|damaged|not an HDF5", message) or shown == FRAMES


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b"time,x,y\n0,1,2\n" * 9, "not an HDF5 file"), (b"\x89HDF\r\n\x1a\n", "cut off")],
)
def test_files_that_are_no_trajectories(tmp_path, content, message):
    path = tmp_path / "trajectory.h5"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=message):
        Trajectory.open(tmp_path)
    with pytest.raises(StoreError, match=message):
        recover(path)


@pytest.mark.parametrize("library", ["earliest", "latest"])
def test_hdf5_files_of_other_programs(tmp_path, library):
    with h5py.File(tmp_path / "other.h5", "w", libver=library) as file:
        file["data"] = np.arange(10)
    with pytest.raises(StoreError, match="another program"):
        Trajectory.open(tmp_path / "other.h5")


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(StoreError, match="no trajectory at"):
        Trajectory.open(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be made: "):
        TrajectoryWriter.create(tmp_path / "file" / "trajectory.h5", count=1, dimension=1)


def test_a_dataset_that_leads_to_another_file_is_not_followed(run, tmp_path):
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file.create_dataset("value", data=np.zeros((FRAMES, COUNT, 3)), chunks=(1, COUNT, 3))
    with hdf5(run, "r+") as file:
        position = file["particles/trajectory/position"]
        del position["value"]
        position["value"] = h5py.ExternalLink(str(secret), "/value")
    with pytest.raises(StoreError, match="not a plain dataset"):
        Trajectory.open(run)


@pytest.mark.parametrize("name", ["a/b", "..", "../x", "", ".hidden", "a\0b", "time", "a b", "x" * 200, "\x1b[31m"])
def test_observable_names_that_could_leave_their_place_are_refused(tmp_path, name):
    with pytest.raises(ArgumentError, match="observable name"):
        TrajectoryWriter.create(tmp_path, count=2, dimension=2, observables={name: ()})
    assert list(tmp_path.iterdir()) == []


def test_windows_of_the_wrong_shape_are_refused_and_leave_the_file_usable(tmp_path):
    with TrajectoryWriter.create(tmp_path, count=4, dimension=2, observables={"energy": ()}) as writer:
        with pytest.raises(ShapeError, match=r"`position` must have shape \(1, 4, 2\)"):
            writer.append([0.0], [0], np.zeros((1, 5, 2)), {"energy": [0.0]})
        with pytest.raises(ArgumentError, match="energy"):
            writer.append([0.0], [0], np.zeros((1, 4, 2)))
        writer.append([0.0], [0], np.ones((1, 4, 2)), {"energy": [2.5]})
    with Trajectory.open(tmp_path) as trajectory:
        assert len(trajectory) == 1
        assert trajectory[0].observables["energy"] == 2.5


def in_another_process(code: str, *arguments: str, limit: int | None = None) -> subprocess.CompletedProcess:
    def lower() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, preexec_fn=lower, check=False)


SECOND_WRITER = """
    import sys, time
    from particleflow.errors import StoreError
    from particleflow.trajectory.store import TrajectoryWriter, recover
    doors = {"create": lambda p: TrajectoryWriter.create(p, count=2, dimension=2, overwrite=True),
             "reopen": lambda p: TrajectoryWriter.reopen(p, frames=1), "recover": recover}
    for door in doors.values():
        start = time.perf_counter()
        try:
            door(sys.argv[1])
        except StoreError as error:
            print(time.perf_counter() - start, error)
"""


def test_a_second_writer_is_refused_within_a_second(tmp_path):
    """Whichever door it takes: `create`, `reopen` or `recover`."""
    with TrajectoryWriter.create(tmp_path, count=2, dimension=2) as writer:
        writer.append([0.0], [0], np.ones((1, 2, 2)))
        said = in_another_process(SECOND_WRITER, str(tmp_path)).stdout
        refusals = [line.split(maxsplit=1) for line in said.splitlines() if "is being written by" in line]
        assert len(refusals) == 3, said
        for seconds, message in refusals:
            assert float(seconds) < 1.0
            assert "is being written by another process (process" in message
        writer.append([1.0], [1], np.ones((1, 2, 2)))
    assert [path.name for path in tmp_path.iterdir()] == ["trajectory.h5"]
    with Trajectory.open(tmp_path) as trajectory:
        assert len(trajectory) == 2


FILL_THE_DISK = """
    import os, sys
    import numpy as np
    from particleflow.errors import StoreError
    from particleflow.trajectory.store import TrajectoryWriter
    points = np.random.default_rng(5).normal(size=(400, 500, 3))
    try:
        writer = TrajectoryWriter.create(sys.argv[1], count=500, dimension=3, observables={"energy": ()}, fsync=False)
        writer._reserving = sys.argv[2] == "reserving"
        for start in range(0, 400, 4):
            window = slice(start, start + 4)
            writer.append(np.arange(start, start + 4), np.arange(4), points[window], {"energy": points[window, 0, 0]})
            print(writer.committed, flush=True)
    except StoreError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        if getattr(error, "hard_exit", False):
            os._exit(1)
        if "writer" in globals():
            writer.set_status("failed", str(error))
            writer.close()
        sys.exit(1)
"""


@pytest.mark.parametrize("mode", ["reserving", "not reserving"])
@pytest.mark.parametrize("limit", by_default([20_000, 900_000, 1_500_000, 2_345_678], [900_000]))
def test_a_full_disk_keeps_every_acknowledged_frame(tmp_path, limit, mode):
    """With space reserved first the file even closes; without, HDF5 fails half-way and the process must leave hard."""
    ended = in_another_process(FILL_THE_DISK, str(tmp_path), mode, limit=limit)
    lines = ended.stdout.split("\n")
    acknowledged = max([int(line) for line in lines if line.isdigit()], default=0)
    assert ended.returncode == 1, ended.stderr
    assert "Error: " in ended.stdout
    assert "space" in ended.stdout
    assert ended.stderr == ""
    if limit < 100_000:
        assert list(tmp_path.glob("*.h5")) == []
        return
    assert acknowledged > 0
    points = np.random.default_rng(5).normal(size=(400, 500, 3))
    with Trajectory.open(tmp_path) as trajectory:
        assert acknowledged <= len(trajectory) <= acknowledged + 4
        np.testing.assert_array_equal(trajectory.points, points[: len(trajectory)])
        assert trajectory.status == ("failed" if mode == "reserving" else "killed")
    with TrajectoryWriter.reopen(tmp_path, frames=acknowledged) as writer:
        rest = slice(acknowledged, 400)
        times = np.arange(acknowledged, 400)
        writer.append(times, times, points[rest], {"energy": points[rest, 0, 0]})
    with Trajectory.open(tmp_path) as trajectory:
        np.testing.assert_array_equal(trajectory.points, points)
        np.testing.assert_array_equal(trajectory.observables["energy"], points[:, 0, 0])


@pytest.mark.slow
def test_reading_does_not_import_jax_and_is_quick(run):
    code = """
        import sys, time
        start = time.perf_counter()
        from particleflow.trajectory.trajectory import Trajectory
        trajectory = Trajectory.open(sys.argv[1])
        total = trajectory[30].points.sum()
        print(time.process_time(), "jax" in sys.modules, repr(float(total)))
    """
    started = time.perf_counter()
    seconds, jax, total = in_another_process(code, str(run)).stdout.split()
    assert jax == "False"
    assert float(total) == points_of()[30].sum()
    assert float(seconds) < 0.5, f"{seconds} s of processor time, {time.perf_counter() - started} s in all"
