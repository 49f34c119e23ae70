"""Workers of one sweep on this machine, each a process of its own with its share of the cores.

run_workers(folder, 4, [], report, note)      start four, and wait until every run has ended
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from particleflow._support.files import own_folder
from particleflow._support.text import plural
from particleflow.app.sweep.execute import Report
from particleflow.app.sweep.groups import GROUPS_FOLDER
from particleflow.app.sweep.manifest import RUNNING, WAITING, Manifest
from particleflow.app.sweep.workers import ended, pause
from particleflow.errors import RunError

_SHARES = 4  # groups a worker, so that none waits long for the others at the end
_DEATHS = 3  # of each worker in a row, without a group ended in between: no more are started


def shares_of(workers: int) -> int:
    """The number of groups into which the runs of a sweep for so many workers should be divided."""
    return max(1, _SHARES * workers)


def run_workers(folder: Path, count: int, options: list[str], report: Report, note: Callable[[str], None]) -> None:
    """Start workers on this machine, each with its share of the cores, and wait until every run has ended.

    One that is ended by a signal is replaced. Parameters: the `folder` of the sweep; the `count` of workers; `options`
    of `particleflow work`; `report(done, total, text)`; `note` receives a line for each worker that died.
    """
    crew = _Crew(folder, count, options, note)
    try:
        while crew.workers:
            states = Manifest.open(folder).states()
            text = f"{states[RUNNING]} under way, {plural(len(crew.workers), 'worker')}"
            report(ended(states), sum(states.values()), text)
            crew.replace_dead(ended(states))
            pause(None)
    finally:
        crew.stop()
    crew.check_ended()


class _Crew:
    """The worker processes of one sweep that this process has started, by place."""

    def __init__(self, folder: Path, count: int, options: list[str], note: Callable[[str], None]):
        self.folder, self.count, self.options, self.note = folder, count, options, note
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        self.ended, self.deaths = 0, 0  # runs that have ended, and workers that died since one last did
        own_folder(folder / GROUPS_FOLDER)
        for place in range(count):
            self.start(place)

    def start(self, place: int) -> None:
        """Start a worker, which inherits the cores that are its share; its messages go to a file of its own."""
        command = [sys.executable, "-m", "particleflow", "work", str(self.folder), *self.options]
        with _cores(place, self.count), self.log(place).open("ab") as log:
            self.workers[place] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches this process alone
            )

    def log(self, place: int | str) -> Path:
        """The file of the messages of a worker."""
        return self.folder / GROUPS_FOLDER / f"worker-{place}.log"

    def replace_dead(self, runs_ended: int) -> None:
        """Start a worker for each that was ended by a signal, unless too many were without a run ended in between."""
        if runs_ended > self.ended:
            self.ended, self.deaths = runs_ended, 0
        for place, code in [(place, worker.poll()) for place, worker in self.workers.items()]:
            if code is None:
                continue
            del self.workers[place]
            if code < 0:
                self.deaths += 1
                self.note(f"A worker was ended by signal {-code}; what it ran goes to others.")
                if self.deaths < _DEATHS * self.count:
                    self.start(place)

    def stop(self) -> None:
        """Ask the workers that are left to stop after their windows, and wait for them."""
        for worker in self.workers.values():
            with contextlib.suppress(OSError):
                worker.send_signal(signal.SIGTERM)
        for worker in self.workers.values():
            worker.wait()

    def check_ended(self) -> None:
        """Remove the messages if every run has ended, else raise."""
        states = Manifest.open(self.folder).states()
        left = states[WAITING] + states[RUNNING]
        if left:
            raise RunError(
                f"The workers have ended with {plural(left, 'run')} to go; what they said is in {self.log('*')}. "
                f"`particleflow resume {self.folder}` goes on."
            )
        for place in range(self.count):
            self.log(place).unlink(missing_ok=True)


@contextlib.contextmanager
def _cores(place: int, count: int) -> Iterator[None]:
    """Within, processes that this thread starts may use their share of the cores; not on systems that cannot say so."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    cores = sorted(before)
    share = cores[place * len(cores) // count : (place + 1) * len(cores) // count] or [cores[place % len(cores)]]
    os.sched_setaffinity(0, share)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
