"""A command that is refused changes no byte, and a checkpoint that is of no use never costs a frame without a word."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import particleflow as pf
from particleflow import drifts
from particleflow.errors import ComputedAgain, ParticleflowError, StoreError
from particleflow.trajectory.store import TrajectoryWriter, export, recover

FLOW = pf.Flow(drifts.Linear(np.diag([-1.0, 0.5])))
START = np.random.default_rng(0).normal(size=(5, 2))
TIMES = np.arange(13) / 16
OPTIONS: dict[str, Any] = {"step": 0.0625, "solver": "heun", "window": 2}


def run(path: Path | None = None, flow: pf.Flow = FLOW, **options: Any) -> pf.Trajectory:
    return pf.simulate(flow, START, TIMES, **{**OPTIONS, **({"store": path} if path else {}), **options})


def stop(frames: Any) -> None:
    if frames.progress.frames >= 6:
        raise KeyboardInterrupt


def snapshot(folder: Path) -> dict[str, str]:
    """Every file below a folder with the SHA-256 of its bytes."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def whole() -> np.ndarray:
    return np.asarray(run().points)


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of 13 frames that was broken off after six, and the lock that a killed process leaves."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.raises(KeyboardInterrupt):
        run(folder / "beta0.5", progress=stop)
    (folder / "beta0.5.lock").write_text("process 1 on another machine\n")
    (folder / "empty.h5").write_bytes(b"")
    (folder / "text.h5").write_text("time,x,y\n")
    return folder


@pytest.fixture
def folder(broken_off: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(broken_off, tmp_path / "copy"))


def without_checkpoints(folder: Path) -> None:
    shutil.rmtree(folder / "beta0.5.checkpoints")


def with_torn_checkpoints(folder: Path) -> None:
    for path in (folder / "beta0.5.checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-300])


def with_a_damaged_count(folder: Path) -> None:
    content = (folder / "beta0.5").read_bytes()
    record = np.array([6, ~6], dtype="<i8").tobytes()
    assert content.count(record) == 1
    (folder / "beta0.5").write_bytes(content.replace(record, np.array([4, ~6], dtype="<i8").tobytes()))


def as_it_is(folder: Path) -> None:
    pass


OTHER = pf.Flow(drifts.Linear(np.diag([-1.0, 0.25])))
REFUSED: dict[str, tuple[Callable[[Path], Any], Callable[[Path], None]]] = {
    "simulate over it": (lambda f: run(f / "beta0.5"), as_it_is),
    "simulate in single precision over it": (lambda f: run(f / "beta0.5", storage="float32"), as_it_is),
    "simulate in a precision that is none": (lambda f: run(f / "new.h5", storage="float16"), as_it_is),
    "simulate with too few labels": (lambda f: run(f / "new.h5", labels=[1, 2]), as_it_is),
    "simulate particles that are none": (lambda f: run(f / "new.h5", particles=[7]), as_it_is),
    "simulate into no folder": (lambda f: run(f / "text.h5" / "new.h5"), as_it_is),
    "simulate in a precision that is none in a new folder": (lambda f: run(f / "a" / "b.h5", storage="half"), as_it_is),
    "resume without a file": (lambda f: run(resume=True), as_it_is),
    "resume a file that is not there": (lambda f: run(f / "new.h5", resume=True), as_it_is),
    "resume a text": (lambda f: run(f / "text.h5", resume=True), as_it_is),
    "resume with other settings": (lambda f: run(f / "beta0.5", OTHER, resume=True), as_it_is),
    "resume without checkpoints": (lambda f: run(f / "beta0.5", resume=True), without_checkpoints),
    "resume from torn checkpoints": (lambda f: run(f / "beta0.5", resume=True), with_torn_checkpoints),
    "resume a damaged file": (lambda f: run(f / "beta0.5", resume=True), with_a_damaged_count),
    "open what is not there": (lambda f: pf.Trajectory.open(f / "new.h5"), as_it_is),
    "open nothing": (lambda f: pf.Trajectory.open(f / "empty.h5"), as_it_is),
    "open a text": (lambda f: pf.Trajectory.open(f / "text.h5"), as_it_is),
    "open a damaged file": (lambda f: pf.Trajectory.open(f / "beta0.5"), with_a_damaged_count),
    "recover what is not there": (lambda f: recover(f / "new.h5"), as_it_is),
    "recover nothing": (lambda f: recover(f / "empty.h5"), as_it_is),
    "recover a text": (lambda f: recover(f / "text.h5"), as_it_is),
    "create over it": (lambda f: TrajectoryWriter.create(f / "beta0.5", count=2, dimension=2), as_it_is),
    "reopen beyond its end": (lambda f: TrajectoryWriter.reopen(f / "beta0.5", frames=7), as_it_is),
    "save over it": (lambda f: run().save(f / "beta0.5"), as_it_is),
    "export to an unknown format": (lambda f: export(run(), f / "x.doc"), as_it_is),
    "export into no folder": (lambda f: export(run(), f / "nowhere" / "x.npz"), as_it_is),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_command_changes_no_byte(folder: Path, name: str) -> None:
    command, prepare = REFUSED[name]
    prepare(folder)
    before = snapshot(folder)
    with pytest.raises((ParticleflowError, IndexError)):
        command(folder)
    assert snapshot(folder) == before


@pytest.mark.slow
def test_beside_a_living_writer_a_refused_command_changes_no_byte(folder: Path) -> None:
    commands = [REFUSED[name][0] for name in ("simulate over it", "resume with other settings")]
    commands += [lambda f: recover(f / "beta0.5"), lambda f: run(f / "beta0.5", resume=True)]
    with TrajectoryWriter.reopen(folder / "beta0.5"):
        before = snapshot(folder)
        for command in commands:
            with pytest.raises(ParticleflowError, match="being written by another process"):
                command(folder)
        assert snapshot(folder) == before


def test_after_a_refusal_the_run_goes_on_where_it_was(folder: Path, whole: np.ndarray) -> None:
    with pytest.raises(StoreError, match="exists already"):
        run(folder / "beta0.5")
    seen = []
    run(folder / "beta0.5", resume=True, progress=lambda frames: seen.append(frames.first))
    assert seen == [6, 8, 10, 12]
    assert np.array_equal(np.asarray(pf.Trajectory.open(folder / "beta0.5").points), whole)


def test_frames_without_a_usable_checkpoint_are_kept_and_the_reason_is_given(folder: Path) -> None:
    with_torn_checkpoints(folder)
    with pytest.raises(StoreError, match=r"holds 6 frames, but no checkpoint.*damaged.*begin a new run"):
        run(folder / "beta0.5", resume=True)
    without_checkpoints(folder)
    with pytest.raises(StoreError, match=r"holds 6 frames, but no checkpoint.*There are no checkpoints.*begin a new"):
        run(folder / "beta0.5", resume=True)
    assert len(pf.Trajectory.open(folder / "beta0.5")) == 6


def test_a_torn_newest_checkpoint_is_named(folder: Path, whole: np.ndarray) -> None:
    newest = max((folder / "beta0.5.checkpoints").iterdir())
    newest.write_bytes(b"")
    with pytest.warns(ComputedAgain, match=rf"{newest.name} is damaged.* 2 frames of .* are computed again"):
        resumed = run(folder / "beta0.5", resume=True)
    assert np.array_equal(np.asarray(resumed.points), whole)


def test_frames_that_recover_gave_up_are_computed_again_from_the_checkpoint_before(folder: Path, whole) -> None:
    with TrajectoryWriter.reopen(folder / "beta0.5", frames=5):
        pass
    with pytest.warns(ComputedAgain, match="needs 6 frames, but 5 are there"):
        resumed = run(folder / "beta0.5", resume=True)
    assert np.array_equal(np.asarray(resumed.points), whole)


def test_names_with_a_point_do_not_share_checkpoints(folder: Path, whole: np.ndarray) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(folder / "beta0.7", OTHER, progress=stop)
    seen = []
    resumed = run(folder / "beta0.5", resume=True, progress=lambda frames: seen.append(frames.first))
    assert seen[0] == 6
    assert np.array_equal(np.asarray(resumed.points), whole)


def test_checkpoints_under_the_name_of_before_0_1_0_are_not_taken_for_those_of_the_run(folder: Path) -> None:
    (folder / "beta0.5.checkpoints").rename(folder / "beta0.checkpoints")
    before = snapshot(folder)
    with pytest.raises(StoreError, match=r"no checkpoint to go on from. There are no checkpoints beside it"):
        run(folder / "beta0.5", resume=True)
    assert snapshot(folder) == before


def test_checkpoints_of_a_deleted_file_do_not_outlive_the_next_run(folder: Path, whole: np.ndarray) -> None:
    (folder / "beta0.5").unlink()
    assert np.array_equal(np.asarray(run(folder / "beta0.5").points), whole)
    names = sorted(path.name for path in (folder / "beta0.5.checkpoints").iterdir())
    assert names == ["checkpoint-00000004.npz", "checkpoint-00000005.npz"]


def test_a_name_without_a_point_tells_the_reason_once(folder: Path) -> None:
    (folder / "beta0.5").rename(folder / "plain")
    (folder / "beta0.5.checkpoints").rename(folder / "plain.checkpoints")
    for path in (folder / "plain.checkpoints").iterdir():
        path.write_bytes(b"")
    with pytest.raises(StoreError) as refusal:
        run(folder / "plain", resume=True)
    assert str(refusal.value).count("checkpoint-00000002.npz is damaged") == 1
