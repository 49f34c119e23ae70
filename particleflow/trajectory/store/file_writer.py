"""The writer: a window of frames is either acknowledged, and then kept, or not in the file at all.

HDF5 in SWMR mode keeps the file readable after every single write, but a flush is no transaction over several datasets.
So a window is written and flushed first, and only then the number of committed frames, which is flushed again. Readers
trust nothing beyond that number.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from math import ceil, prod
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from particleflow._support.files import make_folder, replace
from particleflow.errors import ArgumentError, ShapeError, StoreError
from particleflow.trajectory.status import Status
from particleflow.trajectory.store import file_layout
from particleflow.trajectory.store.file_access import (
    BrokenWriterError,
    WriterLock,
    partial_path,
    reserve,
    trajectory_path,
    trim,
    was_closed,
)
from particleflow.trajectory.store.file_layout import FIELD, STATUSES, FileLayout, Node
from particleflow.trajectory.store.particle_constants import check_constants, check_fixed_points

if TYPE_CHECKING:
    from particleflow.trajectory.store.file_reader import StoredRun

_SLACK = 1 << 18  # bytes kept free for HDF5's own index blocks, on top of the frames


class TrajectoryWriter:
    """Appends windows of frames to one trajectory file; made by `create` or `reopen`.

    As a context manager it records how the run ended: failed or interrupted if the block raised, and closes the file.

    Parameters (of the constructor, which the two call): the open `file`, its `layout`; `path` and `lock`, None for a
    file in memory; `frames` that it holds already; `fsync` after every flush, so that a window survives a power cut.
    """

    def __init__(
        self,
        file: Node,
        layout: FileLayout,
        *,
        path: Path | None = None,
        lock: WriterLock | None = None,
        frames: int = 0,
        fsync: bool = True,
    ) -> None:
        """Begin after the frames that the file holds, with the status that it has."""
        self._file, self.layout, self.path = file, layout, path
        self._lock, self._committed = lock, frames
        self._fsync = fsync and path is not None
        self._reserving = path is not None
        self._broken = self._closed = False
        record, self._sequence, _ = file_layout.read_status(file)
        self._status = str(record.get("status", Status.RUNNING))
        self._datasets = {column: file[layout.path_of(column)] for column in (*layout.columns, "checksums")}

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        count: int,
        dimension: int,
        runs: int | None = None,
        dtype: str = "float64",
        observables: Mapping[str, tuple[int, ...]] | None = None,
        fields: Mapping[str, tuple[int, ...]] | None = None,
        points: Any = None,
        provenance: Mapping[str, Any] | None = None,
        log_weights: Any = None,
        positions: Any = None,
        values: Any = None,
        labels: Any = None,
        words: Any = None,
        particles: Any = None,
        expected_frames: int | None = None,
        overwrite: bool = False,
        fsync: bool = True,
    ) -> Self:
        """Begin a trajectory file; folders above it are made.

        Parameters: the number of particles `count`, their `dimension`, the number of `runs` of an ensemble; `dtype`,
        the precision of the stored points and fields; `observables`, for each name the shape within one frame (run axis
        included); `fields`, for each name the shape within one particle; `points`, if they never move; `provenance`,
        plain values that say where the run comes from; per-particle `log_weights`, `positions` and `values` (one row a
        run where runs differ), `labels`, `words` and `particles`, the indices of the stored ones if only some are;
        `expected_frames` keeps the blocks of short runs small; `overwrite` replaces an existing file; `fsync` makes
        every window survive a power cut.
        """
        shapes = ({k: tuple(v) for k, v in (given or {}).items()} for given in (observables, fields))
        layout = FileLayout(count, dimension, runs, dtype, *shapes, moving=points is None)
        given = {"log_weights": log_weights, "positions": positions, "values": values}
        given |= {"labels": labels, "words": words, "particles": particles}
        constants = check_constants(given, layout)
        if points is not None:
            constants["position"] = check_fixed_points(points, layout)
        path = trajectory_path(path)
        make_folder(path.parent)
        lock = WriterLock(path)
        try:
            if path.exists() and not overwrite:
                raise StoreError(
                    f"{path} exists already. Resume that run, choose another name, or replace it with `overwrite=True`."
                )
            file = new_file(path, layout, dict(provenance or {}), constants, expected_frames)
            return cls._start(file, layout, path, lock, fsync)
        except BaseException:
            lock.release(refused=True)
            raise

    @classmethod
    def _start(cls, file: Node, layout: FileLayout, path: Path, lock: WriterLock, fsync: bool) -> Self:
        """Switch SWMR on and only then give the file its name: a file under its name is crash-safe."""
        file.swmr_mode = True
        writer = cls(file, layout, path=path, lock=lock, fsync=fsync)
        try:
            writer.set_status(Status.RUNNING)
            replace(partial_path(path), path)
        except OSError as error:
            raise writer._break(error) from error
        return writer

    @classmethod
    def reopen(
        cls,
        path: str | os.PathLike[str],
        *,
        frames: "int | Callable[[StoredRun], int] | None" = None,
        fsync: bool = True,
    ) -> Self:
        """Continue the file of an earlier process after its first `frames` frames (all of them if None).

        `frames` may be a function of the stored run that returns how many, or raises; no other process can write to the
        run meanwhile. A file that was closed and keeps all its frames is continued in place; any other is first
        copied, block by block, to a new file that then takes the old one's name.
        """
        from particleflow.trajectory.store.file_reader import StoredRun
        from particleflow.trajectory.store.recovery import rebuild

        path = trajectory_path(path)
        lock = WriterLock(path) if path.parent.is_dir() else None
        try:
            with StoredRun(path, alone=True) as stored:
                available, layout, longest = stored.frames, stored.layout, stored.longest
                frames = frames(stored) if callable(frames) else available if frames is None else frames
            if not 0 <= frames <= available:
                raise StoreError(f"{path} holds {available} frames; it cannot be continued from frame {frames}.")
            if not was_closed(path) or frames != longest:
                rebuild(path, frames)
            file = _open_file(path)
            file.swmr_mode = True
            writer = cls(file, layout, path=path, lock=lock, frames=frames, fsync=fsync)
            writer.set_status(Status.RUNNING)
        except BaseException:
            if lock is not None:
                lock.release(refused=True)
            raise
        return writer

    @property
    def committed(self) -> int:
        """The number of acknowledged frames, which every reader sees."""
        return self._committed

    def append(
        self,
        times: Any,
        steps: Any,
        points: Any,
        observables: Mapping[str, Any] | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> int:
        """Add a window of k frames and return the number of committed frames once it is safe.

        Parameters: `times` (k,), `steps` (k,), `points` (k,[R,]N,d), None where they never move, `observables`
        name -> (k,...), `fields` name -> (k,[R,]N,...).
        """
        self._check_usable()
        window = self._window(times, steps, points, observables or {}, fields or {})
        added = len(window["time"])
        if added == 0:
            return self._committed
        self._reserve(added)
        start, stop = self._committed, self._committed + added
        try:
            for name, values in window.items():
                dataset = self._datasets[name]
                if len(dataset) < stop:  # longer only after an append that was interrupted from the keyboard
                    dataset.resize(stop, axis=0)
                dataset[start:stop] = values
            self._flush()
            file_layout.write_committed(self._file, stop)
            self._flush()
        except (OSError, RuntimeError, ValueError) as error:
            raise self._break(error) from error
        self._committed = stop
        return stop

    def set_status(self, status: str, message: str | None = None, statistics: Mapping[str, Any] | None = None) -> None:
        """Record the run's status: one of running, finished, stopped by event, failed, interrupted."""
        if status not in STATUSES:
            raise ArgumentError(f"Argument `status` must be one of {', '.join(STATUSES)}, but is {status!r}.")
        self._check_usable()
        now = datetime.now(UTC).isoformat()
        record = {"status": status, "message": message, "updated": now, "statistics": dict(statistics or {})}
        try:
            file_layout.write_status(self._file, record, self._sequence + 1)
            self._flush()
        except (OSError, RuntimeError, ValueError) as error:
            raise self._break(error) from error
        self._sequence += 1
        self._status = status

    def close(self) -> None:
        """Close the file; a run whose status is still running is marked as interrupted."""
        if self._closed or self._broken:
            return
        if self._status == Status.RUNNING:
            self.set_status(Status.INTERRUPTED, "the file was closed before the run had ended")
        try:
            self._file.close()
            if self.path is not None:
                trim(self.path)
        except (OSError, RuntimeError) as error:
            raise self._break(error) from error
        self._closed = True
        self._datasets = {}
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not self._broken and self._status == Status.RUNNING:
            ended = Status.FAILED if isinstance(error, Exception) else Status.INTERRUPTED
            self.set_status(ended, f"{type(error).__name__}: {error}"[:1000])
        self.close()

    def _window(
        self, times: Any, steps: Any, points: Any, observables: Mapping[str, Any], fields: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        """Convert and check one window, and add its checksums."""
        moving = {} if points is None else {"position": points}
        by_particle = {FIELD + name: values for name, values in fields.items()}
        given = {"time": times, "step": steps, **moving, **by_particle, **observables}
        if set(given) != set(self.layout.columns):
            expected = ", ".join(self.layout.columns)
            raise ArgumentError(f"A window must hold exactly: {expected}; found {', '.join(given)}.")
        added = len(np.atleast_1d(times))
        window = {}
        for column in self.layout.columns:
            values = self.layout.stored(column, given[column])
            expected = (added, *self.layout.shape_of(column))
            if values.shape != expected:
                raise ShapeError(f"The window's `{column}` must have shape {expected}, but has {values.shape}.")
            window[column] = values
        sums = [[file_layout.checksum(frame) for frame in values] for values in window.values()]
        window["checksums"] = np.array(sums, dtype="<u4").T
        return window

    def _reserve(self, added: int) -> None:
        """Reserve the space that the next window will take, so that a full disk is detected before HDF5 writes."""
        if not self._reserving or self.path is None:
            return
        size = 0
        for dataset in self._datasets.values():
            chunk = dataset.chunks
            rows = ceil((self._committed + added) / chunk[0]) - ceil(len(dataset) / chunk[0])
            pieces = prod(ceil(whole / piece) for whole, piece in zip(dataset.shape[1:], chunk[1:], strict=True))
            size += max(rows, 0) * pieces * (prod(chunk) * dataset.dtype.itemsize + 64)
        end = self._file.id.get_filesize()
        slack = _SLACK + end // 256
        self._reserving = reserve(self._file.id.get_vfd_handle(), end, size + slack, self.path, self._committed)

    def _flush(self) -> None:
        """Hand all writes to the system, and with `fsync` to the disk: HDF5 itself never does the latter."""
        self._file.flush()
        if self._fsync:
            os.fsync(self._file.id.get_vfd_handle())

    def _check_usable(self) -> None:
        """Refuse to go on after a failed write or after `close`."""
        if self._broken:
            raise BrokenWriterError(f"Writing {self.path} failed before; end this process and resume the run.")
        if self._closed:
            raise StoreError(f"{self.path} is closed; open it again with `TrajectoryWriter.reopen` to go on.")

    def _break(self, error: Exception) -> BrokenWriterError:
        """Abandon the file without closing it, which would crash, and return the error that says what is kept."""
        self._broken = True
        _ABANDONED.append(self._file)
        if self._lock is not None:
            self._lock.release()
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return BrokenWriterError(
            f"Writing {self.path} failed after {self._committed} frames ({reason}). These frames are kept."
            " Make sure that the disk has space and works, end this process, and resume the run."
        )


_ABANDONED: list[Node] = []  # keeps broken files from being closed by the garbage collector


def new_file(
    path: Path,
    layout: FileLayout,
    provenance: dict[str, Any],
    constants: dict[str, np.ndarray],
    expected_frames: int | None = None,
) -> Node:
    """Create a file with its layout under its partial name; a full disk is detected before HDF5 writes."""
    import h5py

    built = partial_path(path)
    try:
        built.unlink(missing_ok=True)  # the rest of a killed process, or a link to another file
        file = h5py.File(built, "x", locking="best-effort", **file_layout.CREATION)
    except OSError as error:
        with suppress(OSError):
            built.unlink(missing_ok=True)
        raise StoreError(
            f"Cannot create {path}: {error.strerror or str(error).splitlines()[0]}."
            " Check that the folder can be written and the disk has space."
        ) from error
    size = 8 * sum(layout.frame_shape) + sum(array.nbytes for array in constants.values())
    with closing_or_breaking(file, path, keep=True):
        claim(file, path, size + len(file_layout.to_json(provenance)))
        file_layout.build(file, layout, provenance, constants, expected_frames)
        file.flush()
    return file


def claim(file: Node, path: Path, size: int) -> None:
    """Reserve space at the end of a file that is being built."""
    reserve(file.id.get_vfd_handle(), file.id.get_filesize(), size + _SLACK, path, None)


@contextmanager
def closing_or_breaking(file: Node, path: Path, *, keep: bool = False) -> Iterator[None]:
    """Close a file under construction at the end (unless it is to be kept open), or remove it if it cannot be built."""
    try:
        yield
        if not keep:
            file.close()
    except StoreError:
        file.close()
        partial_path(path).unlink(missing_ok=True)
        raise
    except (OSError, RuntimeError) as error:
        _ABANDONED.append(file)
        partial_path(path).unlink(missing_ok=True)
        raise BrokenWriterError(
            f"Cannot write {path}: {str(error).splitlines()[0]}. Make sure that the disk has space and works."
        ) from error


def _open_file(path: Path) -> Node:
    """Open a closed file for appending; if this process still reads it, HDF5 refuses, and a copy replaces it."""
    import h5py

    from particleflow.trajectory.store.recovery import rebuild

    try:
        return h5py.File(path, "r+", libver=file_layout.LIBRARY_VERSION, locking="best-effort")
    except OSError:
        rebuild(path, None)
        return h5py.File(path, "r+", libver=file_layout.LIBRARY_VERSION, locking="best-effort")
