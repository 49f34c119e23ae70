"""What the store needs of the operating system: a lock, disk space, and access to files that were never closed.

HDF5 has no reliable lock between processes, cannot undo a write that the disk refuses, and opens a file that its writer
has not closed only for SWMR readers. This module works around all three.
"""

import errno
import io
import os
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from particleflow.errors import StoreError
from particleflow.trajectory.store.file_layout import FILE_NAME

_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
# How a lock file is opened: a link is not followed, and opening a pipe does not block.
_OWN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_PATIENCE = 0.4  # seconds: a reader that checks for a living writer holds the lock for an instant


class BrokenWriterError(StoreError):
    """A write failed half-way: every acknowledged frame is kept, but HDF5 cannot close the file any more.

    HDF5 crashes when such a process ends in the usual way, so a program that catches this error must report it, flush
    its own output and leave with `os._exit(1)`; the attribute `hard_exit` says so. The file is then read and resumed
    like that of a killed process.
    """

    hard_exit = True


class InUseError(StoreError):
    """Another living process has the right to write this file."""


def trajectory_path(path: str | os.PathLike[str]) -> Path:
    """The trajectory file of a run: the path itself, or the file of the usual name in a run folder."""
    path = Path(path)
    return path / FILE_NAME if path.is_dir() else path


class WriterLock:
    """The right to write one trajectory: an exclusive `flock` on a file beside it.

    The system drops it when the process dies, so that a killed run never locks its file for ever; the lock file's
    text, process and host, is for the error message alone.

    Parameters: `path` of the trajectory; the `patience` in seconds while another process holds the lock, after which it
    is an error.
    """

    def __init__(self, path: Path, patience: float = _PATIENCE) -> None:
        """Take the lock, or raise with the name of the process that holds it."""
        self._path = _lock_path(path)
        deadline = time.monotonic() + patience
        while (locked := _try_lock(self._path)) is None:
            if time.monotonic() > deadline:
                raise InUseError(
                    f"{path} is being written by another process ({_owner(self._path)}). Wait until it ends or stop it,"
                    " or write to another folder; reading the file is possible meanwhile."
                )
            time.sleep(0.02)
        self._descriptor: int | None = locked[0]
        self._found = None if locked[1] else os.pread(locked[0], 1000, 0)
        self._write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())

    def release(self, *, refused: bool = False) -> None:
        """Release the lock and remove the lock file.

        With `refused`, when nothing was written, a lock file that a killed process had left is restored as it was.
        """
        if self._descriptor is None:
            return
        if refused and self._found is not None:
            self._write(self._found)
        else:
            self._path.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = None

    def _write(self, content: bytes) -> None:
        """Write the owner into the lock file, if the disk has space; the lock holds without it."""
        assert self._descriptor is not None
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, content, 0)


def is_being_written(path: Path) -> bool:
    """Whether a living process holds the writer's lock of a trajectory."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        descriptor = os.open(_lock_path(path), os.O_RDONLY | _OWN)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def reserve(descriptor: int, end: int, size: int, path: Path, frames: int | None) -> bool:
    """Reserve `size` bytes after `end` for writing, or raise before HDF5 begins to write.

    HDF5 cannot recover from a failed write, so the space is reserved first. Returns whether the system can reserve.
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
        """Open the file and find its end: the larger of the superblock's end and the number of bytes."""
        super().__init__()
        self._handle = path.open("rb", buffering=0)
        head = self._handle.read(48)
        size, end = os.fstat(self._handle.fileno()).st_size, int.from_bytes(head[28:36], "little")
        self.cut_off = size < max(end, 48)
        self.size = max(size, end)
        self._place = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a place in the file and return it; the end is that which the superblock states."""
        self._place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self.size}[whence]
        return self._place

    def tell(self) -> int:
        """Return the place in the file from which the next bytes are read."""
        return self._place

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with bytes and return how many: zeros beyond the end of a file that was cut off."""
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view) and (content := os.pread(self._handle.fileno(), len(view) - done, self._place + done)):
            view[done : done + len(content)] = content
            done += len(content)
        view[done:] = bytes(len(view) - done)
        self._place += len(view)
        return len(view)

    def readable(self) -> bool:
        """Return true: HDF5 reads from this file."""
        return True

    def seekable(self) -> bool:
        """Return true: HDF5 reads at any place of this file."""
        return True

    def close(self) -> None:
        """Close the file on the disk, too."""
        self._handle.close()
        super().close()


def partial_path(path: Path) -> Path:
    """The name under which a trajectory is built before it takes its own; for the holder of the lock alone."""
    return path.with_name(path.name + ".partial")


def _lock_path(path: Path) -> Path:
    """The lock file of a trajectory, beside it."""
    return path.with_name(path.name + ".lock")


def _owner(path: Path) -> str:
    """What the lock file says of its owner, as one printable line."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _OWN)
    except OSError:
        return "unknown"
    text = os.read(descriptor, 200).decode(errors="replace").strip()
    os.close(descriptor)
    return "".join(letter if letter.isprintable() else "?" for letter in text) or "unknown"


def _try_lock(path: Path) -> tuple[int, bool] | None:
    """Open and lock the lock file: its descriptor, and whether it is new.

    None if another holds it or removed it between the two steps. A name that leads to another file is refused, since
    the lock file is written to.
    """
    try:
        import fcntl
    except ImportError as error:
        raise StoreError("Writing trajectories needs POSIX file locks, which this system lacks (try WSL).") from error
    try:
        descriptor, is_new = _open_lock(path)
    except FileNotFoundError:
        if path.parent.is_dir():
            return None
        raise StoreError(f"The folder {path.parent} does not exist. Choose another output folder.") from None
    except OSError as error:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise StoreError(f"{path} is not a lock file of ours but leads elsewhere. Remove it.") from error
        raise StoreError(f"Cannot write to {path.parent}: {error.strerror}. Choose another output folder.") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        raise StoreError(f"{path} is not a lock file of ours but leads elsewhere. Remove it.")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists() and os.fstat(descriptor).st_ino == path.stat().st_ino:
            return descriptor, is_new
    except BlockingIOError:
        pass
    os.close(descriptor)
    return None


def _open_lock(path: Path) -> tuple[int, bool]:
    """A descriptor of the lock file, and whether it was made just now."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OWN, 0o666), True
    except FileExistsError:
        return os.open(path, os.O_RDWR | _OWN), False
