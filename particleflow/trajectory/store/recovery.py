"""Bring the file of a killed process back into a state that every HDF5 program opens.

HDF5 marks a file as open for writing; if the writer dies, the mark stays, and only SWMR readers may open the file. The
frames are intact, so they are copied to a new file, block by block, and the new file takes the old one's name.
"""

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from particleflow._support.files import replace
from particleflow.errors import StoreError
from particleflow.trajectory.status import Status
from particleflow.trajectory.store import file_layout
from particleflow.trajectory.store.file_access import WriterLock, partial_path, trajectory_path, trim
from particleflow.trajectory.store.file_layout import FILE_NAME, Node
from particleflow.trajectory.store.file_reader import StoredRun
from particleflow.trajectory.store.file_writer import claim, closing_or_breaking, new_file


@dataclass(frozen=True)
class RecoveryReport:
    """What `recover` found and did.

    Parameters: the `path`; the number of `frames` kept and of `lost` frames, committed but damaged; the file's `status`
    before; whether a new file was `written`; and where the damaged original is `kept`, if frames were lost.
    """

    path: Path
    frames: int
    lost: int
    status: str
    written: bool
    kept: Path | None = None

    def __str__(self) -> str:
        if not self.written:
            return f"{self.path}: {self.frames} frames, all intact; nothing to do (status: {self.status})."
        text = f"{self.path}: recovered {self.frames} frames (status before: {self.status})."
        if self.lost:
            text += f" {self.lost} frames from frame {self.frames} on are damaged; the original is kept as {self.kept}."
        return text


def recover(path: str | os.PathLike[str]) -> RecoveryReport:
    """Make a killed or damaged trajectory an ordinary file again, keeping every frame before the first damaged one.

    Parameters: `path`, a run folder or its trajectory file. A file that is being written is refused.
    """
    path = trajectory_path(path)
    if not path.exists():
        raise StoreError(f"There is no trajectory at {path}. Give a run folder or its {FILE_NAME}.")
    lock = WriterLock(path)
    refused = True
    try:
        with StoredRun(path, lenient=True, alone=True) as stored:
            frames = stored.first_damaged()
            lost, status = stored.frames - frames, stored.status
            _, _, sound = file_layout.read_status(stored.dataset("time").file)
            counted = file_layout.read_committed(stored.dataset("time").file) == stored.frames == stored.longest
            intact = stored.closed_cleanly and sound and counted and not lost and not stored.damaged_frames()
        status = Status.KILLED if status == Status.RUNNING else status
        kept = None if intact else rebuild(path, frames, keep_original=lost > 0)
        refused = False
        return RecoveryReport(path, frames, lost, status, written=not intact, kept=kept)
    finally:
        lock.release(refused=refused)


def rebuild(path: Path, frames: int | None, *, keep_original: bool = False) -> Path | None:
    """Copy the first frames (all if None) to a new file that replaces the old one; the caller holds the writer's lock.

    Returns the name under which the original is kept, if it is to be.
    """
    with StoredRun(path, lenient=True, alone=True) as stored:
        frames = stored.frames if frames is None else frames
        expected_frames = stored.dataset("time").chunks[0]  # gives every dataset the blocks it had
        file = new_file(path, stored.layout, stored.provenance, stored.constants, expected_frames)
        with closing_or_breaking(file, path):
            claim(file, path, path.stat().st_size)
            _copy(stored, file, frames)
    trim(partial_path(path))
    kept = None
    if keep_original:
        kept = _free_name(path)
        kept.hardlink_to(path)
    replace(partial_path(path), path)
    return kept


def _copy(stored: StoredRun, file: Node, frames: int) -> None:
    """Copy block by block through the reader, which recovers whole frames from a half-written last block."""
    for column in (*stored.layout.columns, "checksums"):
        target = file[stored.layout.path_of(column)]
        target.resize(frames, axis=0)
        rows = target.chunks[0]
        for start in range(0, frames, rows):
            stop = min(start + rows, frames)
            target[start:stop] = stored.read(column, slice(start, stop))
    file_layout.write_committed(file, frames)
    file_layout.write_status(file, _status_after(stored, frames), 1)


def _status_after(stored: StoredRun, frames: int) -> dict[str, object]:
    """The record of a recovered file: a run that was killed counts as interrupted."""
    if stored.record.get("status", Status.RUNNING) != Status.RUNNING:
        return stored.record
    message = f"the process was killed; recovered {frames} frames"
    now = datetime.now(UTC).isoformat()
    return {**stored.record, "status": Status.INTERRUPTED, "message": message, "updated": now}


def _free_name(path: Path) -> Path:
    """The first name `<file>.damaged-<number>` that is not taken, not even by a broken link."""
    number = 1
    while os.path.lexists(kept := path.with_name(f"{path.name}.damaged-{number}")):
        number += 1
    return kept
