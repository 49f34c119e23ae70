"""Running a sweep: runs of one structure go as one compiled ensemble, the others one by one.

    plan = plan_sweep(scenario)                    the [sweep] table, read once
    plan, manifest = start_sweep(plan, folder)     frozen on disk, with the groups that run together
    run_sweep(plan, manifest)                      group by group; the manifest is saved after each

A group's results are a file that is there whole or not, and the manifest is replaced after it: a sweep that is killed
goes on with the groups that are not done. Every group is run under a lease (`leases`), by this process alone or by one
of many workers (`workers`).
"""

import contextlib
import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from particleflow._support import toml
from particleflow._support.files import own_folder
from particleflow.app.runs.run_folder import SCENARIO_FILE, freeze
from particleflow.app.sweep.group_simulation import TRANSIENT, run_group
from particleflow.app.sweep.groups import (
    GROUPS_FOLDER,
    group_path,
    lease_path,
    load_group,
    save_group,
)
from particleflow.app.sweep.leases import SECONDS, Lease, LeaseLost
from particleflow.app.sweep.manifest import DONE, FAILED, RUNNING, WAITING, Manifest
from particleflow.app.sweep.sweep_plan import SweepPlan, plan_sweep
from particleflow.errors import StoreError, UserError

_MOST_RUNS = 256  # of a group
_MOST_BYTES = 2**28  # of the points of a group in a window of 32 frames
_PATIENCE_SECONDS = 60.0  # while others change the manifest, which takes each of them an instant


Report = Callable[[int, int, str], object]


def plan_groups(plan: SweepPlan, report: Report | None = None, shares: int = 1) -> list[list[int]]:
    """The runs of a sweep, by number, in groups that run together; refused unless at least one of them can begin.

    Parameters: `report(done, total, text)`, called after each run that has been built; `shares`, the number of groups
    that there should be at least, if there are as many runs.
    """
    most = max(1, min(_MOST_RUNS, len(plan.runs) // shares))
    by_structure: dict[Any, list[int]] = {}
    for number, values in enumerate(plan.runs):
        by_structure.setdefault(plan.builder.signature(values), []).append(number)
        if report is not None:
            report(number + 1, len(plan.runs), "")
    _check_one_begins(plan, [numbers[0] for numbers in by_structure.values()])
    return sorted(part for numbers in by_structure.values() for part in _parts(plan, numbers, most))


def _check_one_begins(plan: SweepPlan, numbers: list[int]) -> None:
    """Raise the error of the first of these runs if all are refused; other errors show when the runs are run."""
    refusals: list[UserError] = []
    for number in numbers:
        try:
            plan.builder.setup(plan.runs[number]).cost()
        except UserError as error:
            refusals.append(error)
        except Exception:  # perhaps from the user's code; it is reported when the run is run
            return
        else:
            return
    name = f"{plan.scenario.name}: "  # errors of reading a scenario begin with it, those of planning do not
    raise UserError(name + str(refusals[0]).removeprefix(name)) from refusals[0]


def _parts(plan: SweepPlan, numbers: list[int], most: int) -> list[list[int]]:
    """A structure's runs in equally large groups that fit into memory, so that one compilation serves all of them.

    Runs that cannot be built are one group, which fails when it is run. Parameters: `most` runs of a group.
    """
    try:
        setup = plan.builder.setup(plan.runs[numbers[0]])
    except UserError:
        return [numbers]
    window = 32 * setup.start.points.size * setup.start.points.dtype.itemsize
    most = int(max(1, min(most, _MOST_BYTES // window)))
    count = -(-len(numbers) // most)
    size = -(-len(numbers) // count)
    return [numbers[first : first + size] for first in range(0, len(numbers), size)]


def start_sweep(plan: SweepPlan, folder: Path, groups: list[list[int]] | None = None) -> tuple[SweepPlan, Manifest]:
    """Freeze a sweep into its folder: the scenario, the values of every run, and the groups that run together.

    Returns the manifest, and the plan to run: the same one, unless files are swept over, which have other names in the
    folder. Parameters: `groups`, those of `plan_groups` if they are known already.
    """
    from particleflow.app.scenario.scenario import load

    scenario = plan.scenario
    groups = plan_groups(plan) if groups is None else groups
    frozen = toml.loads(freeze(scenario, folder, swept=True), SCENARIO_FILE)
    if frozen["sweep"] != scenario.raw["sweep"]:
        plan = plan_sweep(load(folder / SCENARIO_FILE, allow_code=scenario.allow_code, devices=scenario.devices))
    return plan, Manifest.create(folder, scenario.title, list(plan.keys), plan.runs, groups)


def run_sweep(
    plan: SweepPlan,
    manifest: Manifest,
    report: Report | None = None,
    *,
    retry_failed: bool = False,
    note: Callable[[str], None] | None = None,
) -> None:
    """Run every group that waits or was stopped by the disk; a run that fails is noted and the others go on.

    A disk that fails stops the sweep, since it would stop the next group, too.

    Parameters: `report(done, total, text)` receives the progress, `note` a line for each group that is run again since
    its file is damaged; `retry_failed` runs those runs again that failed for a reason of their own.
    """
    with manifest.locked():
        own_folder(manifest.folder / GROUPS_FOLDER)
        _requeue_damaged(manifest, note or (lambda _: None))
        runner = GroupRunner(plan, manifest, report, retry_failed=retry_failed)
        for index in manifest.groups_to_run(retry_failed=retry_failed):
            runner.run(index)


class GroupRunner:
    """Runs groups of a sweep, each under a lease, and keeps their states in the manifest.

    Parameters: the `plan` of the sweep; its `manifest`; `report(done, total, text)` receives the progress;
    `retry_failed` as for `run_sweep`; the `seconds` of silence after which others may take a group over.
    """

    def __init__(
        self,
        plan: SweepPlan,
        manifest: Manifest,
        report: Report | None = None,
        *,
        retry_failed: bool = False,
        seconds: float = SECONDS,
    ):
        self.plan, self.manifest = plan, manifest
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
        self._say = report or (lambda *_: None)
        self._retry_failed, self._seconds = retry_failed, seconds
        self._is_first = True

    def run(self, index: int) -> bool:
        """Run a group and keep its states in the manifest, whatever happens; False if another worker has run it."""
        begun = self._begin(index)
        if begun is None:
            return False
        lease, before = begun
        with lease:
            try:
                self._run_and_commit(index, lease, before)
            except LeaseLost:
                return False
            except BaseException:
                if not lease.is_mine():  # also files of the group may have been removed by its new worker
                    return False
                raise
        return True

    def _begin(self, index: int) -> tuple[Lease, list[dict[str, Any]]] | None:
        """Claim a group and mark its runs as under way: its lease, and its runs as they were before."""
        manifest, numbers = self.manifest, self.manifest.groups[index]
        with manifest.updating(_PATIENCE_SECONDS):
            if index not in manifest.groups_to_run(retry_failed=self._retry_failed):
                return None
            lease = Lease.claim(lease_path(manifest.folder, index), self.name, self._seconds)
            if lease is None:
                return None
            before = [dict(manifest.runs[number]) for number in numbers]
            try:
                manifest.record(index, "begun", self.name)
                manifest.mark(numbers, RUNNING)
            except BaseException:
                lease.release()
                raise
        return lease, before

    def _run_and_commit(self, index: int, lease: Lease, before: list[dict[str, Any]]) -> None:
        """Run a group and save its results and states; what stops it on the way is noted, and raised."""
        manifest, numbers = self.manifest, self.manifest.groups[index]
        finished, total = _finished(manifest), len(manifest.runs)
        self._say(finished, total, "compiling, then the first window" if self._is_first else "next group")
        self._is_first = False
        store = (
            group_path(manifest.folder, index).with_suffix(".h5") if self.plan.table.keep == "trajectories" else None
        )
        try:
            report_share = _reporter(self._say, finished, len(numbers), total)
            result, failed = run_group(self.plan.builder, [each["values"] for each in before], store, report_share)
            self._commit(index, lease, result, failed)
        except KeyboardInterrupt:
            with manifest.updating(_PATIENCE_SECONDS):
                manifest.record(index, "interrupted", self.name)
                manifest.restore(numbers, before)
            raise
        except TRANSIENT as error:
            raise self._stopped(index, before, error) from error

    def _commit(self, index: int, lease: Lease, result: dict[str, np.ndarray] | None, failed: dict[int, str]) -> None:
        """Save the results and states of a group under the manifest's lock, if the lease is still this worker's."""
        manifest, numbers = self.manifest, self.manifest.groups[index]
        with contextlib.ExitStack() as held:

            def begin() -> None:
                held.enter_context(manifest.updating(_PATIENCE_SECONDS))
                lease.check()

            if result is None:
                begin()
            else:
                save_group(group_path(manifest.folder, index), result, begin)
            manifest.record(index, FAILED if len(failed) == len(numbers) else DONE, self.name)
            manifest.mark(numbers, DONE, {numbers[place]: message for place, message in failed.items()})

    def _stopped(self, index: int, before: list[dict[str, Any]], error: Exception) -> Exception:
        """Note in the manifest that the disk stopped a group; results that were there before are still there."""
        manifest, numbers = self.manifest, self.manifest.groups[index]
        message = str(error)[:500] or type(error).__name__
        unfinished = [number for number, run in zip(numbers, before, strict=True) if run["state"] != DONE]
        # On the same disk; if it cannot be written, the manifest says "running", and resume runs the group.
        with contextlib.suppress(StoreError), manifest.updating(_PATIENCE_SECONDS):
            manifest.record(index, "stopped", self.name)
            manifest.restore(numbers, before)
            manifest.mark(unfinished, DONE, dict.fromkeys(unfinished, message), transient=True)
        if getattr(error, "hard_exit", False):
            return error
        done = manifest.states()[DONE]
        return StoreError(
            f"{message.rstrip('.')}. The sweep stops with {done} of {len(manifest.runs)} runs done; "
            f"`particleflow resume {manifest.folder}` goes on once that is fixed."
        )


def _finished(manifest: Manifest) -> int:
    """Count the runs that have ended, done or failed."""
    return sum(run["state"] not in (WAITING, RUNNING) for run in manifest.runs)


def _requeue_damaged(manifest: Manifest, note: Callable[[str], None]) -> None:
    """Set runs back to waiting if the results of their group cannot be read."""
    for index, numbers in enumerate(manifest.groups):
        finished = [number for number in numbers if manifest.runs[number]["state"] == DONE]
        if not finished:
            continue
        try:
            load_group(group_path(manifest.folder, index), len(numbers))
        except StoreError as error:
            note(str(error))
            manifest.mark(finished, WAITING)


def _reporter(say: Report, before: int, size: int, total: int) -> Callable[[float, str], object]:
    """Convert the finished share of a group of `size` runs into a number of finished runs of all."""
    return lambda share, text: say(before + int(share * size), total, text)
