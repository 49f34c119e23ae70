"""A worker: one of many processes, on this machine or on others, that share the groups of one sweep by leases.

    work(plan, manifest)      until every run has ended

A worker keeps nothing but its lease, so that any number can be started at any time and each may die at any moment.
`local_workers` starts several on this machine, `slurm` an array of them on a cluster.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from particleflow._support import signals
from particleflow._support.files import own_folder
from particleflow.app.sweep.execute import GroupRunner, Report
from particleflow.app.sweep.groups import GROUPS_FOLDER
from particleflow.app.sweep.leases import SECONDS, clock_difference
from particleflow.app.sweep.manifest import RUNNING, WAITING, Manifest
from particleflow.app.sweep.sweep_plan import SweepPlan
from particleflow.errors import UserError

_PAUSE_SECONDS = 1.0  # between two looks at groups that other workers have
_MARGIN_SECONDS = 30.0  # before the end of the allotted time, for the last window and the files
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class OutOfTime(Exception):  # noqa: N818 - what has happened, not a fault
    """The time that this worker may take has come to its end."""


def work(
    plan: SweepPlan,
    manifest: Manifest,
    report: Report | None = None,
    *,
    stop_before: float | None = None,
    seconds: float = SECONDS,
    note: Callable[[str], None] | None = None,
) -> None:
    """Claim groups and run them until every run of the sweep has ended.

    While other workers have all that is left it waits, since one of them may die. Raises `OutOfTime` where the time
    is over before the runs are.

    Parameters: `report(done, total, text)` receives the progress; `stop_before`, a time in seconds as of `time.time`;
    the `seconds` of silence after which others take over this worker's group; `note` receives warnings.
    """
    say = report or (lambda *_: None)
    own_folder(manifest.folder / GROUPS_FOLDER)
    if (warning := clock_difference(manifest.folder)) and note is not None:
        note(warning)
    runner = GroupRunner(plan, manifest, report, seconds=seconds)
    with _alarm(stop_before):
        while left := _left(manifest):
            ran = [_try(runner, index, stop_before) for index in left]
            if not any(ran):
                states = manifest.states()
                say(ended(states), len(manifest.runs), "other workers have the rest")
                pause(stop_before)


def _try(runner: GroupRunner, index: int, stop_before: float | None) -> bool:
    """Run a group unless another worker has it; False if so."""
    if runner.manifest.is_leased(index):
        return False
    _check_time(stop_before)
    try:
        return runner.run(index)
    except KeyboardInterrupt:
        _check_time(stop_before)
        raise


def _left(manifest: Manifest) -> list[int]:
    """The groups that have not ended, in the order in which a worker tries them."""
    now = Manifest.open(manifest.folder)
    manifest.runs, manifest.log = now.runs, now.log
    leased = [
        index for index, group in enumerate(now.groups) if any(now.runs[run]["state"] == RUNNING for run in group)
    ]
    return [*now.groups_to_run(), *leased]


def ended(states: dict[str, int]) -> int:
    """Count the runs that have ended, done or failed."""
    return sum(count for state, count in states.items() if state not in (WAITING, RUNNING))


def _check_time(stop_before: float | None) -> None:
    """Raise `OutOfTime` where less than a margin is left."""
    if stop_before is not None and time.time() > stop_before - _MARGIN_SECONDS:
        raise OutOfTime


def pause(stop_before: float | None) -> None:
    """Wait a little, but no longer than a signal or the end of the time allows."""
    end = time.monotonic() + _PAUSE_SECONDS
    while time.monotonic() < end:
        if signals.asked():
            raise KeyboardInterrupt
        _check_time(stop_before)
        time.sleep(_PAUSE_SECONDS / 20)


@contextlib.contextmanager
def _alarm(stop_before: float | None) -> Iterator[None]:
    """Ask the run that is under way to stop when the time is nearly over."""
    if stop_before is None:
        yield
        return
    timer = threading.Timer(max(0.0, stop_before - _MARGIN_SECONDS - time.time()), signals.ask)
    timer.daemon = True
    timer.start()
    try:
        yield
    except OutOfTime:
        signals.forget()
        raise
    finally:
        timer.cancel()


def end_of_time(text: str | None) -> float | None:
    """The time, in seconds as of `time.time`, at which a worker must have ended; None for no limit.

    Parameters: `text`, a duration from now such as "50m", "1.5h" or "90" (seconds), or a time of this machine such as
    "18:30" or "2030-01-31T06:00"; if None, the end of the Slurm job that this process belongs to, if Slurm says it.
    """
    if text is None:
        slurm = os.environ.get("SLURM_JOB_END_TIME", "")
        return float(slurm) if slurm.isdecimal() else None
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    with contextlib.suppress(ValueError):
        if 0 < (length := float(number)) < float("inf"):
            return time.time() + length * _UNITS[unit]
    with contextlib.suppress(ValueError):
        today = datetime.now().astimezone()
        if "T" in text or "-" in text:
            return datetime.fromisoformat(text).astimezone().timestamp()
        clock = datetime.strptime(text, "%H:%M").time()
        end = today.replace(hour=clock.hour, minute=clock.minute, second=0, microsecond=0)
        return (end if end > today else end + timedelta(days=1)).timestamp()
    raise UserError(
        f"Option --stop-before must be a duration such as 50m or 1.5h, or a time such as 18:30 or 2030-01-31T06:00, "
        f"but is {text!r}."
    )
