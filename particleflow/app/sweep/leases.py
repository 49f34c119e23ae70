"""Leases: which worker runs which group of a sweep, on any machine that sees the folder.

A lease is a small file beside the results of its group. Its text names the worker; its time of modification is the
worker's last sign of life, which a thread renews. A lease has run out when its worker's process has ended on this
machine, or has shown no sign of life for the seconds that the lease states. Ages are differences of two times of the
same file system, so that the clocks of machines do not matter.
"""

import contextlib
import json
import os
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from particleflow._support.files import advice_for, reason_of
from particleflow.errors import StoreError

SECONDS = 60.0  # after which a silent worker loses its group
_SIGNS = 6  # of life, in the time of a lease
_LARGEST = 10_000  # bytes of a lease file that are read
_CLOCKS_AGREE = 60.0  # seconds
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class LeaseLost(Exception):  # noqa: N818 - what has happened, not a fault
    """The lease of this worker has run out, and another worker has its group."""


@dataclass(frozen=True)
class Holder:
    """The holder of a lease: its `worker` and `host`, the seconds since its last sign of life, and whether it lives."""

    worker: str
    host: str
    silent: float
    alive: bool


class Lease:
    """The right of one worker to run one group; released at the end of a `with` block, and when the process dies.

    Parameters: see `claim`, which makes it.
    """

    def __init__(self, path: Path, descriptor: int, seconds: float):
        self._path, self._descriptor = path, descriptor
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._show_life, args=(seconds / _SIGNS,), name="lease", daemon=True)
        self._thread.start()

    @classmethod
    def claim(cls, path: Path, worker: str, seconds: float = SECONDS) -> "Lease | None":
        """Take a lease; None while another worker has it. One that has run out is taken over.

        Parameters: `path` of its file; the `worker`'s name; the `seconds` of silence after which others may take it.
        """
        if (holder := holder_of(path)) is not None:
            if holder.alive:
                return None
            path.unlink(missing_ok=True)
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | _FLAGS, 0o666)
        except FileExistsError:  # another worker was quicker
            return None
        except OSError as error:
            why = f"{reason_of(error)}. {advice_for(error)}".rstrip()
            raise StoreError(f"Runs are claimed by files in {path.parent}, which cannot be made: {why}") from error
        _lock(descriptor)
        content = {"worker": worker, "host": socket.gethostname(), "boot": _boot(), "seconds": seconds}
        with contextlib.suppress(OSError):  # on a full disk: a lease without text counts as that of another machine
            os.write(descriptor, json.dumps(content).encode())
        return cls(path, descriptor, seconds)

    def is_mine(self) -> bool:
        """Whether the file is still the one that this worker made."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.lstat())
        except OSError:
            return False

    def check(self) -> None:
        """Raise `LeaseLost` if another worker has taken the lease over."""
        if not self.is_mine():
            raise LeaseLost

    def release(self) -> None:
        """Give the lease back."""
        if self._released.is_set():
            return
        self._released.set()
        self._thread.join()
        if self.is_mine():
            self._path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _show_life(self, pause: float) -> None:
        """Renew the time of the file until the lease is released; by its descriptor, so never another worker's file."""
        while not self._released.wait(pause):
            with contextlib.suppress(OSError):
                os.utime(self._descriptor)


def holder_of(path: Path) -> Holder | None:
    """The holder of a lease, None where there is no such file; one whose text cannot be read is on another machine."""
    descriptor = _opened(path)
    if descriptor is None:
        return None
    try:
        silent = max(0.0, _now(path.parent) - os.fstat(descriptor).st_mtime)
        worker, host, seconds, here = _content(descriptor)
        ended = here and not _is_locked(descriptor)
        return Holder(worker, host, silent, not ended and silent <= seconds)
    finally:
        os.close(descriptor)


def clock_difference(folder: Path) -> str | None:
    """A sentence where the clock of this machine and that of the folder's file system differ by over a minute."""
    ahead = time.time() - _now(folder)
    if abs(ahead) <= _CLOCKS_AGREE:
        return None
    return (
        f"The clock of this machine is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} that of the file "
        f"system of {folder}. Leases go by the file system's; set the clock right for times in logs."
    )


def _opened(path: Path) -> int | None:
    """A descriptor for reading, None where there is no file of ours. Opening a file refreshes what NFS knows of it."""
    try:
        return os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _FLAGS)
    except OSError:
        return None


def _content(descriptor: int) -> tuple[str, str, float, bool]:
    """Worker, host and seconds that a lease states, and whether it was made on this machine since it was started."""
    try:
        raw = json.loads(os.pread(descriptor, _LARGEST, 0))
        worker, host, seconds = str(raw["worker"]), str(raw["host"]), float(raw["seconds"])
        here = bool(raw["boot"]) and (host, raw["boot"]) == (socket.gethostname(), _boot())
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "unknown", "unknown", SECONDS, False
    return worker, host, seconds if 0 < seconds < float("inf") else SECONDS, here


def _now(folder: Path) -> float:
    """The time of the file system of a folder, by a file made there; that of this machine if none can be made."""
    probe = folder / f".clock-{os.getpid()}-{threading.get_ident()}"
    try:
        descriptor = os.open(probe, os.O_CREAT | os.O_WRONLY | _FLAGS, 0o600)
    except OSError:
        return time.time()
    try:
        os.utime(descriptor)
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)
        probe.unlink(missing_ok=True)


def _boot() -> str:
    """A name of the present start of this machine, empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _lock(descriptor: int) -> None:
    """Lock a file for as long as this process lives, where the system can."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)  # waits for a reader that is checking at this instant


def _is_locked(descriptor: int) -> bool:
    """Whether a living process has locked a file; true where this cannot be found out."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False
