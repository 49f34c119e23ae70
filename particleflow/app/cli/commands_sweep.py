"""The commands `sweep`, `work` and `replay`: one scenario over many values of its keys, shared by many workers if
wanted, and one of its runs by itself."""

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from particleflow.app.cli.commands_run import note_chosen
from particleflow.app.cli.console import Meter, note, result, result_json
from particleflow.app.cli.job_submission import submit_job
from particleflow.app.cli.options import (
    AllowCode,
    Device,
    Devices,
    Flag,
    Native,
    Overrides,
    Quiet,
    Slurm,
    computing_options,
)
from particleflow.app.cli.sweep_members import replay_member
from particleflow.errors import UserError

if TYPE_CHECKING:
    from particleflow.app.sweep import Manifest, SweepPlan

_MOST_WORKERS = 1024
_TASKS = 8  # of a Slurm array


def sweep(
    scenario: str,
    /,
    *,
    set_: Overrides = [],  # noqa: B006
    output: Path | None = None,
    workers: Annotated[int | None, Parameter(validator=Number(gte=0, lte=_MOST_WORKERS))] = None,
    slurm: Annotated[Slurm, Parameter(name="*", group="On a cluster with Slurm")] = Slurm(),  # noqa: B008
    device: Device = None,
    devices: Devices = None,
    native: Native = "on",
    allow_code: AllowCode = False,
    json: Flag = False,
    quiet: Quiet = False,
) -> int:
    """Run the [sweep] of a scenario, and print the folder with its tables and figures.

    `particleflow resume FOLDER` goes on with a sweep that was interrupted or killed.

    Parameters
    ----------
    scenario
        A scenario file with a [sweep] table, or the name of a shipped one.
    output
        The folder of this sweep; outputs/SCENARIO/NUMBER if left out.
    workers
        Share the runs among so many processes on this machine. With 0 nothing is run: start `particleflow work FOLDER`
        as often as you like, on every machine that sees the folder.
    json
        Print what was found as JSON.
    """
    from particleflow.app.cli.device import prepare
    from particleflow.app.scenario import scenario as scenarios
    from particleflow.app.sweep import new_sweep, plan_groups, plan_sweep
    from particleflow.app.sweep.local_workers import shares_of
    from particleflow.app.sweep.slurm import sweep_script

    asked = slurm.sbatch_options(_TASKS if workers is None else max(1, workers))
    workers = _TASKS if asked is not None and workers is None else workers
    note(f"Reading {scenario} …", quiet=quiet)
    description = prepare(device, native, devices)
    loaded = scenarios.load(scenario, set_, allow_code=allow_code, devices=devices)
    if loaded.document.sweep is None:
        raise UserError(f"{loaded.name} has no [sweep] table; `particleflow run` runs it.")
    note(f"{loaded.title[:200]}\n  on {description}", quiet=quiet)
    plan = plan_sweep(loaded)
    with Meter(quiet=quiet) as meter:
        groups = plan_groups(plan, partial(meter.update, "planning"), 1 if workers is None else shares_of(workers))
    plan, manifest = new_sweep(plan, output, groups)  # only now, when the scenario is known to be right
    note(f"  into {manifest.folder}", quiet=quiet)
    note_chosen(loaded, quiet=quiet)
    if workers is not None:
        options = computing_options(device, native, devices, allow_code=allow_code)
        if asked is not None:
            script = sweep_script(manifest.folder, asked, options)
            return submit_job(manifest.folder, script, "work", dry_run=slurm.dry_run, quiet=quiet)
        if workers == 0:
            command = " ".join(["particleflow work", str(manifest.folder), *options])
            note(f"Nothing is run yet. `{command}` starts a worker; start any number, anywhere.", quiet=quiet)
            result_json({"folder": str(manifest.folder)}) if json else result(str(manifest.folder))
            return 0
        _share(manifest.folder, workers, options, quiet=quiet)
    with manifest.locked():
        return _run_and_report(plan, manifest, retry_failed=False, json=json, quiet=quiet)


def _share(folder: Path, workers: int, options: list[str], *, quiet: bool) -> None:
    """Let workers on this machine run a sweep, and show how far they are."""
    from particleflow.app.sweep.local_workers import run_workers

    try:
        with Meter(quiet=quiet) as meter:
            run_workers(folder, workers, [*options, "--no-products"], partial(meter.update, "sweeping"), note)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"`particleflow resume {folder}` or `particleflow work {folder}` go on.") from None


def work(
    sweep: Annotated[Path, Parameter(help="The folder of a sweep, which may be on a shared file system.")],
    /,
    *,
    stop_before: str | None = None,
    lease: Annotated[float, Parameter(validator=Number(gte=1))] = 60.0,
    products: bool = True,
    device: Device = None,
    devices: Devices = None,
    native: Native = "on",
    allow_code: AllowCode = False,
    quiet: Quiet = False,
) -> int:
    """Be a worker: claim runs of a sweep that nothing else runs, until all have ended, and print the folder.

    Start any number of workers, at any time, on any machine that sees the folder. What a worker that died had claimed
    is claimed again. The last one writes tables and figures.

    Parameters
    ----------
    stop_before
        End before this time: a duration such as 50m, a time such as 18:30 or 2030-01-31T06:00. If left out, the end of
        the Slurm job, if there is one.
    lease
        After so many seconds without a sign of life, others take over what this worker runs.
    products
        Whether the last worker writes tables and figures.
    """
    from particleflow.app.cli.device import prepare
    from particleflow.app.runs.run_folder import scenario_file
    from particleflow.app.scenario import scenario as scenarios
    from particleflow.app.sweep import Manifest, plan_sweep
    from particleflow.app.sweep.workers import OutOfTime, end_of_time
    from particleflow.app.sweep.workers import work as share
    from particleflow.trajectory.store.file_access import InUseError

    folder, end = _sweep_folder(sweep), end_of_time(stop_before)
    manifest = Manifest.open(folder)
    description = prepare(device, native, devices)
    plan = plan_sweep(scenarios.load(scenario_file(folder), allow_code=allow_code, devices=devices))
    note(f"{manifest.title[:200]}\n  a worker in {folder} on {description}", quiet=quiet)
    try:
        with Meter(quiet=quiet) as meter:
            share(plan, manifest, partial(meter.update, "working"), stop_before=end, seconds=lease, note=note)
    except OutOfTime:
        states = Manifest.open(folder).states()
        said = ", ".join(f"{number} {state}" for state, number in states.items() if number)
        note(f"The time is over: {said}. `particleflow work {folder}` goes on.", quiet=quiet)
        result(str(folder))
        return 0
    if products and not _has_results(folder):
        with suppress(InUseError), manifest.locked():
            return _run_and_report(plan, manifest, retry_failed=False, json=False, quiet=quiet)
    result(str(folder))
    return 0


def _has_results(folder: Path) -> bool:
    """Whether the results of a sweep are there and not older than its manifest."""
    from particleflow.app.runs.folder_contents import MANIFEST_FILE

    results = folder / "results.csv"
    return results.is_file() and results.stat().st_mtime >= (folder / MANIFEST_FILE).stat().st_mtime


def _sweep_folder(sweep: Path) -> Path:
    """The folder of a sweep, checked to hold one."""
    from particleflow.app.runs import run_folder

    folder = run_folder.folder_of(sweep)
    if not (folder / run_folder.MANIFEST_FILE).is_file():
        raise UserError(f"{folder} holds no sweep: it has no {run_folder.MANIFEST_FILE}.")
    return folder


def resume_sweep(
    folder: Path,
    *,
    device: str | None,
    devices: int | None,
    native: str,
    allow_code: bool,
    retry_failed: bool,
    json: bool,
    quiet: bool,
) -> int:
    """Run the runs of a sweep that are not done, then write its tables and figures."""
    from particleflow.app.cli.device import prepare
    from particleflow.app.runs.run_folder import scenario_file
    from particleflow.app.scenario import scenario as scenarios
    from particleflow.app.sweep import Manifest, plan_sweep

    manifest = Manifest.open(folder)
    with manifest.locked():  # before JAX is loaded, so that a second process is refused at once
        prepare(device, native, devices)
        plan = plan_sweep(scenarios.load(scenario_file(folder), allow_code=allow_code, devices=devices))
        return _run_and_report(plan, manifest, retry_failed=retry_failed, json=json, quiet=quiet)


def _run_and_report(plan: "SweepPlan", manifest: "Manifest", *, retry_failed: bool, json: bool, quiet: bool) -> int:
    """Run the groups that are left, write the table and the figures, and report the outcome."""
    from particleflow.app.sweep import complete
    from particleflow.summation.native.build import library

    with Meter(quiet=quiet) as meter:
        library(lambda text: meter.update(text, 0, 0))
        products = complete(
            plan, manifest, lambda done, total, text: meter.update("sweeping", done, total, text),
            retry_failed=retry_failed, note=note,
        )  # fmt: skip
    return _finish(manifest, [str(path) for path in products], json=json, quiet=quiet)


def _finish(manifest: "Manifest", products: list[str], *, json: bool, quiet: bool) -> int:
    """Report the outcome of a sweep: runs in each state, pictures, the first failures; returns an exit code."""
    from particleflow.app.sweep.manifest import FAILED

    folder, states = manifest.folder, manifest.states()
    if json:
        result_json({"folder": str(folder), "runs": len(manifest.runs), **states, "products": products})
    else:
        note(", ".join(f"{number} {state}" for state, number in states.items() if number), quiet=quiet)
        for picture in (path for path in products if path.endswith(".png")):
            note(f"open {picture}", quiet=quiet)
        result(str(folder))
    for number, run in [(n, run) for n, run in enumerate(manifest.runs) if run["state"] == FAILED][:5]:
        note(f"Run {number} failed: {run['message']}")
    if states[FAILED]:
        note(f"`particleflow resume {folder} --retry failed` runs those that failed once more.", quiet=quiet)
    return 1 if states[FAILED] else 0


def replay(
    sweep: Annotated[Path, Parameter(help="The folder of a sweep.")],
    number: Annotated[int, Parameter(help="Which of its runs: the column `run` of results.csv.")],
    /,
    *,
    device: Device = None,
    devices: Devices = None,
    native: Native = "on",
    allow_code: AllowCode = False,
    json: Flag = False,
    quiet: Quiet = False,
) -> int:
    """Make one run of a sweep a full run, in the folder SWEEP/NUMBER, and print the folder.

    A run that is there is completed, as `resume` does it.

    Parameters
    ----------
    json
        Print what was made as JSON.
    """
    return replay_member(
        _sweep_folder(sweep),
        number,
        device=device,
        devices=devices,
        native=native,
        allow_code=allow_code,
        json=json,
        quiet=quiet,
    )
