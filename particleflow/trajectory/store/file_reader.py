"""The reader: opens a finished, running or killed trajectory file and trusts only what is committed and intact.

Three things may be wrong. A writer may be at work: frames are counted first, then read, and a failed read is repeated
for up to a second. A writer may have been killed: the file is opened by its bytes, and frames count up to `committed`.
A disk may have changed bits: HDF5's checksum of a block tells that one of its frames is bad, and our CRC-32 of every
frame tells which one, so that the others are still read.
"""

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, Self

import numpy as np

from particleflow.errors import ArgumentError, StoreError
from particleflow.trajectory.status import Status
from particleflow.trajectory.store import file_guard, file_layout
from particleflow.trajectory.store.file_access import UnclosedFile, is_being_written, trajectory_path, was_closed
from particleflow.trajectory.store.file_layout import FIELD, FILE_NAME, FORMAT_VERSION, OURS, POSITION, FileLayout, Node
from particleflow.trajectory.store.particle_constants import read_constants

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
# What h5py and json raise where a structure is not as expected; RuntimeError includes a recursion without end.
_DAMAGE = (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError, MemoryError)
# Seconds to wait in all, and between two tries, for a block that a living writer is changing: its checksum fails then.
_PATIENCE, _PAUSE = 1.0, 0.02


class StoredRun:
    """One trajectory file, open for reading; frames are read when they are used.

    Attributes: `path`; `layout`, shapes and types; `frames`, the number of committed frames; `longest`, that of all
    frames, committed or not; `times`, `steps` (T,); `provenance` and `record` (status, message, statistics), plain
    values; `constants` of the particles by name; `closed_cleanly`, whether the last writer closed the file.

    Parameters: `path`, a run folder or its trajectory file; `lenient` opens a file whose count, status or times are
    damaged as far as its frames are intact, as `recover` needs; `alone` states that the caller holds the writer's lock,
    so that there is no check for a living writer.
    """

    def __init__(self, path: str | os.PathLike[str], *, lenient: bool = False, alone: bool = False) -> None:
        """Open the file, or raise a `StoreError` that says what is wrong and what to do."""
        self.path = trajectory_path(path)
        self._lenient, self._alone = lenient, alone
        self._open()

    def _open(self) -> None:
        """Open the file, with repeated tries for up to a second while a living writer is changing it.

        A block that is being rewritten fails its checksum for an instant; a damaged file still fails after that.
        """
        self._patience = _PATIENCE
        while True:
            self.closed_cleanly = _check_file(self.path)
            self._inode = self.path.stat().st_ino
            self._living = not self.closed_cleanly and not self._alone and is_being_written(self.path)
            try:
                return self._open_once()
            except StoreError as error:
                if self._may_change():
                    continue
                if not self._living:
                    raise
                raise StoreError(f"{error} Another process is writing to it: stop that one first.") from error

    def _may_change(self) -> bool:
        """Whether to repeat a failed read: waits, and returns true while a writer lives and the time is not used up."""
        if not self._living or self._patience <= 0:
            return False
        self._patience -= _PAUSE
        time.sleep(_PAUSE)
        return True

    def _open_once(self) -> None:
        """Open the file as it is now and read all but its frames."""
        # HDF5 reads no further than the end it found when it opened the file: frames are counted before that.
        promised = _promised(self.path) if self._living else None
        self._file, self._content = _open_file(self.path, self.closed_cleanly)
        try:
            self._load(self._file, promised)
        except StoreError:
            self.close()
            raise
        except _DAMAGE as error:
            self.close()
            raise StoreError(
                f"{self.path} is damaged or cut off: its structure cannot be read ({_first_line(error)})."
                f" Try `particleflow recover {self.path}`, or take the file from a backup."
            ) from error

    def _load(self, file: Node, promised: int | None) -> None:
        """Find the datasets and check that they fit together, then read constants, count and times."""
        cut_off = self._content is not None and self._content.cut_off
        _check_ours(file, self.path, "is cut off" if cut_off else "is an HDF5 file of another program")
        size = self._size()
        file_guard.check_records(file, self.path)
        columns = [
            name.decode()
            for name in file_guard.numbers(file, file_layout.path_of("checksums"), self.path).attrs["columns"]
        ]
        places = {column: file_layout.path_of(column, columns) for column in (*columns, "checksums")}
        self._datasets = {column: file_guard.numbers(file, place, self.path) for column, place in places.items()}
        if self._datasets["checksums"].shape[1:] != (len(columns),) or len(set(columns)) != len(columns):
            raise StoreError(f"{self.path} has checksums that do not fit its datasets: no trajectory of ours.")
        fixed = None if "position" in columns else file_guard.numbers(file, POSITION, self.path)
        self.layout = _layout(columns, self._datasets, fixed, self.path)
        self._load_constants(file, fixed, size)
        self._count_frames(size, promised)

    def _size(self) -> int:
        """The number of bytes that the file has, without a limit while it grows."""
        if self._living:
            return sys.maxsize
        return self.path.stat().st_size if self._content is None else self._content.size

    def _load_constants(self, file: Node, fixed: Node | None, size: int) -> None:
        """Read what does not change with time: where the run comes from, and one entry for every particle."""

        def read(dataset: Node) -> np.ndarray:
            """A fixed dataset, checked against the size of the file."""
            return file_guard.read_whole(dataset, size, self.path)

        ours = file_guard.node(file, OURS, self.path)
        names = [name for name in ("provenance", "scenario") if file_guard.has(ours, name)]
        texts = {name: read(file_guard.numbers(ours, name, self.path)) for name in names}
        written = {name: text.tobytes().decode("utf-8", "replace") for name, text in texts.items()}
        self.provenance = dict(json.loads(written.pop("provenance"))) | written
        self.constants = read_constants(ours, self.layout, size, self.path)
        if fixed is not None:
            self.constants["position"] = read(fixed)

    def _count_frames(self, size: int, promised: int | None) -> None:
        """Read the number of committed frames, unless it was `promised`, and the lengths after it.

        The writer writes them in the opposite order. A file of `size` bytes that states more frames than its blocks can
        hold is refused.
        """
        committed = file_layout.read_committed(self._file) if promised is None else promised
        self.record, _, sound = file_layout.read_status(self._file)
        if self.closed_cleanly and not self._lenient and (committed is None or not sound or not self.record):
            what = "number of committed frames" if committed is None else "status"
            raise StoreError(
                f"{self.path} is damaged: its {what} does not match its checksum."
                f" `particleflow recover {self.path}` rebuilds it from the frames, which have checksums of their own."
            )
        lengths = [len(dataset) for dataset in self._datasets.values()]
        self.longest = max(lengths)
        self.frames = min(lengths) if committed is None else min(committed, *lengths)
        most = file_guard.stored_frames(self._datasets, size, self.path)
        if self.frames > most and committed is not None:
            raise StoreError(
                f"{self.path} states {self.frames} frames, but its blocks hold at most {most}: it is damaged, or not"
                " written by us. Take it from a backup, or run the scenario again."
            )
        if committed is None:
            self.frames = min(self.frames, most)
            self.frames = self.first_damaged()
        shown = 0 if self._lenient else self.frames
        self.times = self.read("time", slice(0, shown))
        self.steps = self.read("step", slice(0, shown))

    @property
    def status(self) -> str:
        """The recorded status, or killed if that is running and no living process holds the writer's lock."""
        status = str(self.record.get("status", Status.RUNNING))
        lives = not self._alone and is_being_written(self.path)
        return Status.KILLED if status == Status.RUNNING and not lives else status

    def refresh(self) -> int:
        """Look for frames that a running simulation has added since, and return their number in all."""
        same = self.path.exists() and self.path.stat().st_ino == self._inode
        if same and self.closed_cleanly and was_closed(self.path):
            return self.frames
        self.close()
        self._open()
        return self.frames

    def read(self, column: str, frames: slice, rest: tuple[Any, ...] = ()) -> np.ndarray:
        """Read some frames of one dataset, and only the part of each that `rest` selects.

        Parameters: `column`, a name of the layout; `frames`, a slice with a positive step; `rest`, integers and slices
        with positive steps for the further axes.
        """
        dataset = self._datasets[column]
        while True:
            try:
                return dataset[(frames, *rest)]
            except (OSError, RuntimeError):
                if not self._may_change():
                    return self._read_damaged(column, range(*frames.indices(len(dataset))), rest)

    def _read_damaged(self, column: str, frames: Iterable[int], rest: tuple[Any, ...]) -> np.ndarray:
        """Read frame by frame; from a bad block take the frames that have their own CRC-32."""
        dataset = self._datasets[column]
        good, bad = [], []
        known: dict[int, list[int]] = {}
        for frame in frames:
            try:
                good.append(dataset[(frame, *rest)])
                continue
            except (OSError, RuntimeError):
                block = frame // dataset.chunks[0]
            if block not in known:
                known[block] = self._bad_frames(column, block)
            raw = None if frame in known[block] else self._raw_frame(column, frame)
            if raw is None:
                bad.append(frame)
            else:
                good.append(raw[rest])
        if bad:
            raise self._damage(column, bad)
        return np.array(good, dtype=dataset.dtype)

    def _bad_frames(self, column: str, block: int) -> list[int]:
        """The frames of a block that failed its checksum and that cannot be trusted.

        The last block of a file that was not closed may have been caught half-written; its committed frames are whole.
        Elsewhere, if every frame has its CRC-32, the block's own checksum is damaged, and no frame of it is trusted.
        """
        dataset = self._datasets[column]
        start = block * dataset.chunks[0]
        stop = min(start + dataset.chunks[0], max(self.frames, 1))
        if column == "checksums":  # nothing else checks these; a wrong sum makes its frame fail, never pass
            return [] if not self.closed_cleanly and stop == self.frames else list(range(start, stop))
        index = self.layout.columns.index(column)
        bad = []
        for frame in range(start, stop):
            raw = self._raw_frame(column, frame)
            if raw is None or file_layout.checksum(raw) != int(
                self.read("checksums", slice(frame, frame + 1), (index,))[0]
            ):
                bad.append(frame)
        tail = not self.closed_cleanly and stop == self.frames
        return bad if bad or tail else list(range(start, stop))

    def _raw_frame(self, column: str, frame: int) -> np.ndarray | None:
        """One frame from the stored bytes, past the block's checksum; None if the bytes are not there."""
        dataset = self._datasets[column]
        chunk, shape = dataset.chunks, dataset.shape[1:]
        whole = np.empty(shape, dtype=dataset.dtype)
        row = frame % chunk[0]
        for corner in product(*(range(0, size, piece) for size, piece in zip(shape, chunk[1:], strict=True))):
            try:
                _, content = dataset.id.read_direct_chunk((frame - row, *corner))
                block = np.frombuffer(content[:-4], dtype=dataset.dtype).reshape(chunk)
            except (OSError, RuntimeError, ValueError):
                return None
            edges = list(zip(corner, chunk[1:], shape, strict=True))  # the last piece of an axis may stick out
            target = tuple(slice(start, start + piece) for start, piece, _ in edges)
            whole[target] = block[row][tuple(slice(0, size - start) for start, _, size in edges)]
        return whole

    def first_damaged(self) -> int:
        """The first frame that is damaged in any dataset, or the number of frames."""
        first = self.frames
        for column in self.layout.columns:
            first = next(self._damaged(column, first), first)
        return first

    def damaged_frames(self) -> dict[str, list[int]]:
        """Check every frame of every dataset against both checksums: dataset -> the frames that fail."""
        found = {column: list(self._damaged(column, self.frames)) for column in (*self.layout.columns, "checksums")}
        return {column: frames for column, frames in found.items() if frames}

    def _damaged(self, column: str, frames: int) -> Iterator[int]:
        """The damaged ones among the first frames of one dataset, found block by block."""
        rows = self._datasets[column].chunks[0]
        for start in range(0, frames, rows):
            stop = min(start + rows, frames)
            try:
                yield from self._failing(column, start, stop)
            except StoreError:
                yield from (frame for frame in range(start, stop) if not self._is_sound(column, frame))

    def _failing(self, column: str, start: int, stop: int) -> list[int]:
        """The frames of start … stop − 1 whose numbers do not have the CRC-32 that was stored for them."""
        values = self.read(column, slice(start, stop))
        if column == "checksums":
            return []
        sums = self.read("checksums", slice(start, stop), (self.layout.columns.index(column),))
        return [
            start + i for i, (v, c) in enumerate(zip(values, sums, strict=True)) if file_layout.checksum(v) != int(c)
        ]

    def _is_sound(self, column: str, frame: int) -> bool:
        """Whether one frame can be read and has its CRC-32."""
        try:
            return not self._failing(column, frame, frame + 1)
        except StoreError:
            return False

    def _damage(self, column: str, frames: list[int]) -> StoreError:
        """The error that names the damaged frames and the way to keep the others."""
        shown = ", ".join(str(frame) for frame in frames[:8]) + (", ..." if len(frames) > 8 else "")
        noun = "frame" if len(frames) == 1 else "frames"
        return StoreError(
            f"{self.path} is damaged: {noun} {shown} of `{column}` ({self.layout.path_of(column)}) cannot be read or"
            f" fail their checksum. The other frames can still be read; `particleflow recover {self.path}` keeps those"
            " before."
        )

    def dataset(self, column: str) -> Node:
        """The HDF5 dataset behind a column, for copying blocks."""
        return self._datasets[column]

    def close(self) -> None:
        """Close the file and its handle on the bytes; reading frames is then an error."""
        if self._file:
            self._file.close()
        if self._content is not None:
            self._content.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_file(path: Path) -> bool:
    """Refuse what is no trajectory file, and return whether its last writer closed it."""
    if not path.exists():
        raise StoreError(f"There is no trajectory at {path}. Give a run folder or its {FILE_NAME}.")
    if not path.is_file():
        raise StoreError(f"{path} is a pipe or a device, not a file. Give a run folder or its {FILE_NAME}.")
    try:
        with path.open("rb") as handle:
            head = handle.read(12)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from error
    if not head:
        raise StoreError(f"{path} is empty. Give the {FILE_NAME} of a run, or run the scenario again.")
    if head[:8] != _SIGNATURE:
        raise StoreError(f"{path} is not an HDF5 file (it begins with {head[:8]!r}). Give a run's {FILE_NAME}.")
    if len(head) < 12 or head[8] < 3:
        raise StoreError(f"{path} is cut off or was written by another program: it is no particleflow trajectory.")
    return head[11] == 0


def _promised(path: Path) -> int | None:
    """The number of frames that the writer of a file has committed by now, None if that cannot be read."""
    with suppress(StoreError, *_DAMAGE):
        file, content = _open_file(path, closed_cleanly=False)
        try:
            file_guard.check_records(file, path)
            return file_layout.read_committed(file)
        finally:
            file.close()
            if content is not None:
                content.close()
    return None


def _open_file(path: Path, closed_cleanly: bool) -> tuple[Node, UnclosedFile | None]:
    """Open a file: by h5py's path if it was closed, else through its bytes.

    Never as a SWMR reader, which repeats a read whose checksum fails without end.
    """
    import h5py

    try:
        if closed_cleanly:
            with suppress(OSError):  # cut off, or open elsewhere in this process: opened by its bytes below
                return h5py.File(path, "r", locking="best-effort", rdcc_nbytes=1 << 21), None
        content = UnclosedFile(path)
        return h5py.File(content, "r", rdcc_nbytes=1 << 21), content
    except (OSError, RuntimeError) as error:
        raise StoreError(
            f"{path} cannot be opened: it is cut off or damaged ({_first_line(error)}). Take it from a backup, or run"
            " the scenario again."
        ) from error


def _check_ours(file: Node, path: Path, otherwise: str) -> None:
    """Refuse a file of another program, and one of a newer format than this version reads."""
    ours = file_guard.node(file, OURS, path) if file_guard.has(file, "particleflow") else None
    if ours is None or not file_guard.has(file, "h5md") or "format_version" not in ours.attrs:
        raise StoreError(
            f"{path} {otherwise}: it has no /particleflow group. Give the {FILE_NAME} of a particleflow run."
        )
    version = int(ours.attrs["format_version"])
    if version > FORMAT_VERSION:
        raise StoreError(
            f"{path} was written by a newer particleflow (file format {version}, this one reads {FORMAT_VERSION})."
            " Update particleflow."
        )


def _layout(columns: list[str], datasets: dict[str, Node], fixed: Node | None, path: Path) -> FileLayout:
    """The shapes and types of a file from those of its datasets, whose names `columns` lists in their order."""
    shapes = {column: datasets[column].shape[1:] for column in columns}
    position = shapes.get("position", ()) if fixed is None else fixed.shape
    if columns[:2] != ["time", "step"] or len(position) not in (2, 3) or shapes["time"] or shapes["step"]:
        raise StoreError(f"{path} has no positions of the shape (T, N, d) or (T, R, N, d): no trajectory of ours.")
    own = [column for column in columns[2:] if column != "position"]
    observables = {column: shapes[column] for column in own if not column.startswith(FIELD)}
    by_particle = [column for column in own if column.startswith(FIELD)]
    if any(shapes[column][: len(position) - 1] != position[:-1] for column in by_particle):
        raise StoreError(f"{path} has fields that do not fit its positions: no trajectory of ours.")
    fields = {column.removeprefix(FIELD): shapes[column][len(position) - 1 :] for column in by_particle}
    runs = position[0] if len(position) == 3 else None
    dtype = (datasets["position"] if fixed is None else fixed).dtype.name
    try:
        return FileLayout(position[-2], position[-1], runs, dtype, observables, fields, moving=fixed is None)
    except ArgumentError as error:
        raise StoreError(f"{path} is no trajectory of ours: {error}") from error


def _first_line(error: BaseException) -> str:
    """The first line of an error's message, or its class."""
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
