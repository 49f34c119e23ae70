"""The state of a sweep on disk: its runs, their groups, and the state of each run.

The runs and their groups are frozen when the sweep begins; only states and messages change, and the file is replaced
whole, so that a sweep killed at any moment goes on with what was not done.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from particleflow._support.files import advice_for, reason_of, write_text
from particleflow.app.runs.run_folder import MANIFEST_FILE
from particleflow.errors import StoreError
from particleflow.trajectory.status import Status
from particleflow.trajectory.store.file_access import WriterLock

WAITING, RUNNING, DONE, FAILED = "waiting", Status.RUNNING, "done", Status.FAILED


@dataclass
class Manifest:
    """The runs of a sweep (`values`, `state`, `message` of each) and the groups that run together, by run number.

    A failure is `transient` if the run itself did not cause it, as when the disk was full: resume runs it again.
    """

    folder: Path
    title: str
    keys: list[str]
    runs: list[dict[str, Any]]
    groups: list[list[int]]
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
        """The sweep in a folder; runs that were under way when it was killed wait again."""
        path = folder / MANIFEST_FILE
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            keys = [str(key) for key in raw["keys"]]
            manifest = cls(folder, str(raw["title"]), keys, list(raw["runs"]), list(raw["groups"]))
            numbers = sorted(number for group in manifest.groups for number in group)
            if numbers != list(range(len(manifest.runs))):
                raise ValueError("its groups do not hold every run once")
            for run in manifest.runs:
                run["state"] = WAITING if run["state"] == RUNNING else run["state"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise StoreError(f"{path} cannot be read as the manifest of a sweep: {reason_of(error)}.") from error
        return manifest

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the exclusive lock of this sweep, and read the states of its runs from disk.

        May be entered again while it is held.
        """
        if self._lock is not None:
            yield
            return
        try:
            self._lock = WriterLock(self.folder / MANIFEST_FILE)
        except OSError as error:
            raise StoreError(
                f"Cannot write to {self.folder}: {error.strerror}. {advice_for(error)}".rstrip()
            ) from error
        try:
            self.runs = Manifest.open(self.folder).runs
            yield
        finally:
            self._lock.release()
            self._lock = None

    def save(self) -> None:
        """Replace the manifest on disk, as a whole."""
        content = {
            "version": 1,
            "title": self.title,
            "keys": self.keys,
            "groups": self.groups,
            "runs": self.runs,
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
