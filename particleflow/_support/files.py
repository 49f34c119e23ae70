"""Atomic writes: files that are written completely or not at all, whatever stops the process or the machine.

A file is written under a hidden name in its folder, brought to disk (fsync), renamed, and its folder brought to disk:
under its name there are always either the old contents or the complete new ones.

    with written(path) as partial:
        partial.write_bytes(content)
"""

import contextlib
import errno
import io
import os
import re
import shutil
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
    names the file and the reason, with `advice` (that for the reason, if left out) at its end. Hidden files that killed
    processes left in the folder are removed. The hidden file is created empty before the block begins, and a link that
    another program has put under its name is not followed.
    """
    partial = _partial(path)
    with contextlib.suppress(OSError):
        _remove_abandoned(path)
    try:
        partial.unlink(missing_ok=True)
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666))
        yield partial
        replace(partial, path)
    except failures as error:
        raise StoreError(f"Cannot write {path}: {reason_of(error)}. {advice or advice_for(error)}".rstrip()) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


@contextmanager
def written_folder(path: Path) -> Iterator[Path]:
    """A hidden new folder beside `path` that takes this name if the block succeeds, and else is removed."""
    partial = _partial(path)
    with contextlib.suppress(OSError):
        _remove_abandoned(path)
    try:
        _remove(partial)
        partial.mkdir()
        yield partial
        partial.rename(path)
    except OSError as error:
        raise StoreError(f"Cannot write {path}: {reason_of(error)}. {advice_for(error)}".rstrip()) from error
    finally:
        with contextlib.suppress(OSError):
            _remove(partial)


def own_folder(path: Path) -> Path:
    """Make a folder that particleflow owns unless it exists, and return it; a link is refused, not followed."""
    refuse_link(path)
    path.mkdir(exist_ok=True)
    return path


def make_folder(path: Path) -> None:
    """Make a folder that the user has named, and those above it, unless they are there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f"{reason_of(error)}. {advice_for(error)}".rstrip()
        raise StoreError(f"The folder {path} cannot be made: {why}") from error


def refuse_link(path: Path) -> None:
    """Raise if a folder in which particleflow writes and deletes is a symbolic link."""
    if path.is_symlink():
        raise StoreError(f"{path} is not a folder of ours but leads elsewhere. Remove it.")


@contextmanager
def hdf5_output(partial: Path) -> Iterator["HDF5Output"]:
    """A file object for `h5py.File(output, "w")`; a write that failed is raised at the end of the block, or by `check`.

    Parameters: `partial`, an existing file, such as `written` gives.
    """
    output = HDF5Output(partial)
    try:
        yield output
        output.check()
    finally:
        output.close()


class HDF5Output(io.RawIOBase):
    """A file object whose writes never raise, because HDF5 crashes the process, at the latest at exit, if one does.

    Bytes that cannot be written are kept in memory, where HDF5 can read them again, until the file is closed. So call
    `check` regularly while writing much.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._descriptor = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
        self._failure: OSError | None = None
        self._kept: list[tuple[int, bytes]] = []
        self._place, self._end = 0, os.fstat(self._descriptor).st_size

    def check(self) -> None:
        """Raise the first write that failed, if one did."""
        if self._failure is not None:
            raise OSError(self._failure.errno, self._failure.strerror)

    def write(self, content: Any) -> int:
        """Write bytes at the current place, into memory once the disk refuses them; returns how many."""
        view = memoryview(content).cast("B")
        done = 0
        try:
            while self._failure is None and done < len(view):
                done += os.pwrite(self._descriptor, view[done:], self._place + done)
        except OSError as error:
            self._failure = error
        if done < len(view):
            self._kept.append((self._place + done, bytes(view[done:])))
        self._place += len(view)
        self._end = max(self._end, self._place)
        return len(view)

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from the file and from what is kept in memory; returns its length."""
        view = memoryview(buffer).cast("B")
        begin, end = self._place, self._place + len(view)
        content = os.pread(self._descriptor, len(view), begin)
        view[:] = content.ljust(len(view), b"\0")
        for place, kept in self._kept:
            first, last = max(begin, place), min(end, place + len(kept))
            if first < last:
                view[first - begin : last - begin] = kept[first - place : last - place]
        self._place = end
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Cut the file off, or extend it with zeros; returns its size."""
        self._end = self._place if size is None else size
        try:
            os.ftruncate(self._descriptor, self._end)
        except OSError as error:
            self._failure = self._failure or error
        return self._end

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place, counted from the beginning, from the current place or from the end; returns it."""
        self._place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._end}[whence]
        return self._place

    def tell(self) -> int:
        """The current place in the file."""
        return self._place

    def readable(self) -> bool:
        """True: HDF5 reads back what it writes."""
        return True

    def writable(self) -> bool:
        """True: HDF5 writes to it."""
        return True

    def seekable(self) -> bool:
        """True: HDF5 writes in any order."""
        return True

    def close(self) -> None:
        """Close the file; what is kept in memory is lost."""
        if not self.closed:
            os.close(self._descriptor)
        super().close()


def write_bytes(path: Path, content: bytes | memoryview, advice: str = "") -> None:
    """Write a file whole or not at all."""
    with written(path, advice) as partial, partial.open("wb") as file:
        file.write(content)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all; lines end as they do in `text`."""
    write_bytes(path, text.encode("utf-8"))


def replace(source: Path, target: Path) -> None:
    """Rename a finished file into place, durably: contents, then name, then folder reach the disk."""
    _sync(source)
    source.replace(target)
    with contextlib.suppress(OSError):  # some network file systems cannot sync a folder; then only the rename is done
        _sync(target.parent)


def advice_for(error: Exception) -> str:
    """What a user can do about a failure of the operating system; empty where no advice is known."""
    return _ADVICE.get(getattr(error, "errno", None) or 0, "")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _partial(path: Path) -> Path:
    """The hidden name of a file or folder that this process is writing; it keeps the suffix, which writers look at."""
    return path.with_name(f".{path.stem}.partial-{os.getpid()}{path.suffix}")


def _remove_abandoned(path: Path) -> None:
    """Remove partial files and folders of processes that no longer run."""
    pattern = re.compile(rf"\.{re.escape(path.stem)}\.partial-(\d+){re.escape(path.suffix)}")
    for entry in path.parent.iterdir():
        match = pattern.fullmatch(entry.name)
        if match and not _is_running(int(match[1])):
            with contextlib.suppress(OSError):
                _remove(entry)


def _remove(path: Path) -> None:
    """Remove a file, a link (not what it leads to) or a folder with all in it, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it runs, but is not ours
        return True
    return True


def reason_of(error: Exception) -> str:
    """Why something failed, in one line without a full stop; that of the operating system does not repeat the path."""
    lines = str(getattr(error, "strerror", None) or error).splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")
