"""The state of a sweep on disk: its runs, their groups, the state of each run, and a log of what was done by whom.

The runs and their groups are frozen when the sweep begins; only states, messages and the log change, and the file is
replaced whole, so that a sweep killed at any moment goes on with what was not done.

One process holds the manifest `locked` while it runs the sweep alone. Workers, of which there may be many, lock it only
while they change it (`updating`), and hold a lease for the group that each runs.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from particleflow._support.files import advice_for, reason_of, write_text
from particleflow._support.text import plural
from particleflow.app.runs.run_folder import MANIFEST_FILE
from particleflow.app.sweep.groups import lease_path, leased
from particleflow.app.sweep.leases import Holder, holder_of
from particleflow.errors import StoreError
from particleflow.trajectory.status import Status
from particleflow.trajectory.store.file_access import InUseError, WriterLock

WAITING, RUNNING, DONE, FAILED = "waiting", Status.RUNNING, "done", Status.FAILED


@dataclass
class Manifest:
    """The runs of a sweep (`values`, `state`, `message` of each) and the groups that run together, by run number.

    A failure is `transient` if the run itself did not cause it, as when the disk was full: resume runs it again. The
    `log` has a row for every group that was begun, ended or given up: group, state, worker, time.
    """

    folder: Path
    title: str
    keys: list[str]
    runs: list[dict[str, Any]]
    groups: list[list[int]]
    log: list[dict[str, Any]] = field(default_factory=list)
    _lock: WriterLock | None = None

    @classmethod
    def create(cls, folder: Path, title: str, keys: list[str], values: Any, groups: list[list[int]]) -> "Manifest":
        """A new sweep, all of whose runs wait."""
        runs = [{"values": each, "state": WAITING, "message": None} for each in values]
        manifest = cls(folder, title, keys, runs, groups)
        manifest.save()
        return manifest

    @classmethod
    def open(cls, folder: Path) -> "Manifest":
        """The sweep in a folder; runs that were under way when it, or their worker, was killed wait again."""
        path = folder / MANIFEST_FILE
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            keys = [str(key) for key in raw["keys"]]
            manifest = cls(folder, str(raw["title"]), keys, list(raw["runs"]), list(raw["groups"]))
            manifest.log = [dict(row) for row in raw.get("log", [])]
            numbers = sorted(number for group in manifest.groups for number in group)
            if numbers != list(range(len(manifest.runs))):
                raise ValueError("its groups do not hold every run once")
            for index, group in enumerate(manifest.groups):
                under_way = [manifest.runs[number] for number in group if manifest.runs[number]["state"] == RUNNING]
                if under_way and not manifest.is_leased(index):
                    for run in under_way:
                        run["state"] = WAITING
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise StoreError(f"{path} cannot be read as the manifest of a sweep: {reason_of(error)}.") from error
        return manifest

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the exclusive lock of this sweep, and read the states of its runs from disk.

        Refused while workers run it. May be entered again while it is held.
        """
        if self._lock is not None:
            yield
            return
        with self.updating():
            if workers := self.workers():
                first = next(iter(workers.values()))
                raise InUseError(
                    f"{self.folder} is being run by {plural(len(workers), 'worker')} ({first.worker} on {first.host}). "
                    "Wait until they end or stop them; `particleflow work` joins them."
                )
            yield

    @contextmanager
    def updating(self, patience: float | None = None) -> Iterator[None]:
        """Hold the lock of the manifest, and read states and log from disk, unless this process holds it already.

        Parameters: the `patience` in seconds with another process that holds it; if left out, that of `WriterLock`.
        """
        if self._lock is not None:
            yield
            return
        try:
            self._lock = WriterLock(self.folder / MANIFEST_FILE, **({} if patience is None else {"patience": patience}))
        except OSError as error:
            raise StoreError(
                f"Cannot write to {self.folder}: {error.strerror}. {advice_for(error)}".rstrip()
            ) from error
        try:
            now = Manifest.open(self.folder)
            self.runs, self.log = now.runs, now.log
            yield
        finally:
            self._lock.release()
            self._lock = None

    def is_leased(self, index: int) -> bool:
        """Whether a living worker runs a group."""
        holder = holder_of(lease_path(self.folder, index))
        return holder is not None and holder.alive

    def workers(self) -> dict[int, Holder]:
        """The living workers, by the group that each runs."""
        found = {index: holder_of(lease_path(self.folder, index)) for index in leased(self.folder)}
        return {index: holder for index, holder in found.items() if holder is not None and holder.alive}

    def record(self, index: int, state: str, worker: str) -> None:
        """Add a row to the log; it is on disk with the next change of states."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.log.append({"group": index, "state": state, "worker": worker, "time": now})

    def save(self) -> None:
        """Replace the manifest on disk, as a whole."""
        content = {
            "version": 1,
            "title": self.title,
            "keys": self.keys,
            "groups": self.groups,
            "runs": self.runs,
            "log": self.log,
        }
        write_text(self.folder / MANIFEST_FILE, json.dumps(content, default=str))

    def mark(
        self, numbers: list[int], state: str, messages: dict[int, str] | None = None, *, transient: bool = False
    ) -> None:
        """Set the state of some runs and save; runs with a message have failed."""
        for number in numbers:
            message = (messages or {}).get(number)
            self.runs[number]["state"] = FAILED if message else state
            self.runs[number]["message"] = message
            self.runs[number]["transient"] = transient and bool(message)
        self.save()

    def restore(self, numbers: list[int], runs: list[dict[str, Any]]) -> None:
        """Bring some runs back to what they were before, and save."""
        for number, run in zip(numbers, runs, strict=True):
            self.runs[number] = dict(run)
        self.save()

    def states(self) -> dict[str, int]:
        """Count the runs in each state."""
        found = [run["state"] for run in self.runs]
        return {state: found.count(state) for state in (WAITING, RUNNING, DONE, FAILED)}

    def groups_to_run(self, *, retry_failed: bool = False) -> list[int]:
        """The groups that hold a run that waits, then those with one that the disk stopped, or (on wish) any failed."""
        waiting, stopped = [], []
        for index, group in enumerate(self.groups):
            runs = [self.runs[number] for number in group]
            if any(run["state"] == WAITING for run in runs):
                waiting.append(index)
            elif any(run["state"] == FAILED and (retry_failed or run.get("transient")) for run in runs):
                stopped.append(index)
        return waiting + stopped
