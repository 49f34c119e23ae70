"""What the store asks of the operating system: a lock, space, and files that no writer closed."""

import errno
import io
import os
import socket
import time
from pathlib import Path
from typing import IO, Any

from particleflow.errors import StoreError
from particleflow.store.layout import FILE_NAME

_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
_PATIENCE = 0.4  # seconds: a reader that asks whether a writer lives holds the lock for an instant


class BrokenWriterError(StoreError):
    """A write failed half-way: every acknowledged frame is kept, but HDF5 cannot close the file any more.

    HDF5 crashes when such a process ends in the usual way, so a program that catches this error must report it, flush
    its own output and leave with `os._exit(1)`; the attribute `hard_exit` says so. The file is then read and resumed
    like that of a killed process.
    """

    hard_exit = True


def trajectory_path(path: str | os.PathLike[str]) -> Path:
    """The trajectory file of a run: the path itself, or the file of the usual name in a run folder."""
    path = Path(path)
    return path / FILE_NAME if path.is_dir() else path


class WriterLock:
    """The right to write one trajectory, held through a lock file and dropped by the system when the process dies."""

    def __init__(self, path: Path) -> None:
        self._path = _lock_path(path)
        self._handle: IO[str] | None = _try_lock(self._path)
        deadline = time.monotonic() + _PATIENCE
        while self._handle is None:
            if time.monotonic() > deadline:
                raise StoreError(
                    f"{path} is being written by another process ({_owner(self._path)}). Wait until it ends or stop it,"
                    " or write to another folder; reading the file is possible meanwhile."
                )
            time.sleep(0.02)
            self._handle = _try_lock(self._path)
        self._handle.truncate(0)
        self._handle.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        self._handle.flush()

    def release(self) -> None:
        """Give the right back and remove the lock file."""
        if self._handle is not None:
            self._path.unlink(missing_ok=True)
            self._handle.close()
            self._handle = None


def is_being_written(path: Path) -> bool:
    """Whether a living process holds the writer's lock of a trajectory."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        with _lock_path(path).open() as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def reserve(descriptor: int, end: int, size: int, path: Path, frames: int | None) -> bool:
    """Make sure that `size` bytes after `end` can be written, or refuse before HDF5 has begun to.

    HDF5 cannot go back once a write has failed, so the space is claimed first. Returns whether the system can do so.
    """
    if not hasattr(os, "posix_fallocate"):
        return False
    if os.fstat(descriptor).st_size >= end + size:
        return True
    try:
        os.posix_fallocate(descriptor, end, size)
    except OSError as error:
        if error.errno not in _FULL:
            return False
        kept = "Nothing that was there is lost" if frames is None else f"All {frames} frames written so far are kept"
        raise StoreError(
            f"No space to write {path}: {size} bytes are needed after {end} ({error.strerror})."
            f" {kept}. Free some space (or raise the limit) and resume the run."
        ) from error
    return True


def trim(path: Path) -> None:
    """Give back the space reserved beyond the end that the closed file's superblock states."""
    with path.open("r+b") as handle:
        head = handle.read(48)
        end = int.from_bytes(head[28:36], "little")
        if head[8] == 3 and head[11] == 0 and 48 <= end < path.stat().st_size:
            handle.truncate(end)


def was_closed(path: Path) -> bool:
    """Whether the last writer closed the file: HDF5 marks an open file in byte 11 of its superblock."""
    with path.open("rb") as handle:
        head = handle.read(12)
    return len(head) == 12 and head[11] == 0


class UnclosedFile(io.RawIOBase):
    """The bytes of a file that no living process writes, offered to HDF5 as if its writer had closed it.

    On a plain path HDF5 refuses such a file, or, as a SWMR reader, waits for a writer that will never come back. Bytes
    beyond the end of a file that was cut off read as zeros, which the checksums reject one block at a time.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._handle = path.open("rb", buffering=0)
        head = self._handle.read(48)
        size, end = os.fstat(self._handle.fileno()).st_size, int.from_bytes(head[28:36], "little")
        self.cut_off = size < max(end, 48)
        self._size = max(size, end)
        self._place = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view) and (content := os.pread(self._handle.fileno(), len(view) - done, self._place + done)):
            view[done : done + len(content)] = content
            done += len(content)
        view[done:] = bytes(len(view) - done)
        self._place += len(view)
        return len(view)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._handle.close()
        super().close()


def partial_path(path: Path) -> Path:
    """The name under which a trajectory is laid out before it takes its own; who holds the lock may use it."""
    return path.with_name(path.name + ".partial")


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _owner(path: Path) -> str:
    try:
        text = path.read_text(errors="replace")[:200].strip()
    except OSError:
        return "unknown"
    return "".join(letter if letter.isprintable() else "?" for letter in text) or "unknown"


def _try_lock(path: Path) -> IO[str] | None:
    """Open and lock the lock file; None if another holds it or removed it between the two steps."""
    try:
        import fcntl
    except ImportError as error:
        raise StoreError("Writing trajectories needs POSIX file locks, which this system lacks (try WSL).") from error
    try:
        handle = path.open("a+")
    except OSError as error:
        raise StoreError(f"Cannot write to {path.parent}: {error.strerror}. Choose another output folder.") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists() and os.fstat(handle.fileno()).st_ino == path.stat().st_ino:
            return handle
    except BlockingIOError:
        pass
    handle.close()
    return None
