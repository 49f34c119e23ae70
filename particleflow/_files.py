"""Files that are there whole or not at all, whatever stops the process or the machine.

A file is written beside its place under a name of this process, brought to disk, renamed, and its folder brought to
disk: its name always stands for the old contents or the complete new ones.
"""

import contextlib
import errno
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from particleflow.errors import StoreError

HDF5_FAILURES = (OSError, RuntimeError)  # HDF5 raises the second where a disk is full
_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "Free some space (or raise the limit) and try again."),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "Change the permissions, or write to another folder."),
    errno.EROFS: "Write to another folder.",
    errno.EIO: "Check the disk, or write to another one.",
}


@contextmanager
def written(path: Path, advice: str = "", failures: tuple[type[Exception], ...] = (OSError,)) -> Iterator[Path]:
    """A hidden path beside `path`, of the same ending, that takes its place if the block succeeds and else is removed.

    Parameters: `failures` raised in the block mean that the file cannot be written, and become a `StoreError` that
    names the file and the reason, with `advice` (that for the reason, if left out) at its end. What killed processes
    left beside the file is removed. The hidden file is there from the beginning, empty and our own: a link that waits
    under its name is not followed.
    """
    partial = path.with_name(f".{path.stem}.partial-{os.getpid()}{path.suffix}")
    with contextlib.suppress(OSError):
        _remove_abandoned(path)
    try:
        partial.unlink(missing_ok=True)
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666))
        yield partial
        replace(partial, path)
    except failures as error:
        raise StoreError(f"Cannot write {path}: {_reason(error)}. {advice or advice_for(error)}".rstrip()) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes | memoryview, advice: str = "") -> None:
    """Write a file whole or not at all."""
    with written(path, advice) as partial, partial.open("wb") as file:
        file.write(content)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all; lines end as they do in `text`."""
    write_bytes(path, text.encode("utf-8"))


@contextmanager
def new_hdf5(path: Path) -> Iterator[Any]:
    """A new HDF5 file to fill; what the disk refused is raised when it is closed."""
    import h5py

    with _PatientFile(path, "w+") as target:
        with h5py.File(target, "w") as file:
            yield file
        if target.refusal is not None:
            raise target.refusal


class _PatientFile(io.FileIO):
    """A file that remembers the first write that failed and takes all others: HDF5 crashes when one of its own fails.

    What was never written reads as zeros.
    """

    refusal: OSError | None = None

    def write(self, content: Any) -> int:
        view, done = memoryview(content).cast("B"), 0
        try:
            while done < len(view):
                done += super().write(view[done:])
        except OSError as error:
            self.refusal = self.refusal or error
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self.refusal = self.refusal or error
            return size or 0

    def readinto(self, buffer: Any) -> int:
        view, done = memoryview(buffer).cast("B"), 0
        while done < len(view) and (count := super().readinto(view[done:])):
            done += count
        view[done:] = bytes(len(view) - done)
        return len(view)


def replace(source: Path, target: Path) -> None:
    """Rename a finished file into place, durably: contents, then name, then folder reach the disk."""
    _sync(source)
    source.replace(target)
    with contextlib.suppress(OSError):  # some network file systems cannot; the rename itself is then all there is
        _sync(target.parent)


def advice_for(error: Exception) -> str:
    """What a user can do about a failure of the operating system; nothing for reasons that tell it themselves."""
    return _ADVICE.get(getattr(error, "errno", None) or 0, "")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_abandoned(path: Path) -> None:
    """Remove partial files of processes that no longer run."""
    pattern = re.compile(rf"\.{re.escape(path.stem)}\.partial-(\d+){re.escape(path.suffix)}")
    for entry in path.parent.iterdir():
        match = pattern.fullmatch(entry.name)
        if match and not _is_running(int(match[1])):
            with contextlib.suppress(OSError):
                entry.unlink()


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it runs, but is not ours
        return True
    return True


def _reason(error: Exception) -> str:
    lines = str(getattr(error, "strerror", None) or error).splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")
