"""The commands `run`, `resume` and `check`.

Options are described in the docstrings as cyclopts reads them; `particleflow.app.runs.driver` does the work.
"""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from particleflow._support.text import plural
from particleflow.app.cli.closing_lines import closing_lines
from particleflow.app.cli.console import Meter, RunMeter, note, result, result_json
from particleflow.app.cli.job_submission import submit_run
from particleflow.app.cli.options import (
    AllowCode,
    Device,
    Devices,
    Flag,
    GroupOptions,
    Native,
    Overrides,
    Processes,
    Quiet,
    Scenario,
    SlurmRun,
    computing_options,
)
from particleflow.app.cli.signal_thread import INTERRUPTED
from particleflow.errors import ResumedElsewhere, UserError
from particleflow.trajectory.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from particleflow.app.processes.joining import ProcessGroup
    from particleflow.app.processes.watch import Watch
    from particleflow.app.runs.driver import PlannedRun
    from particleflow.app.runs.run_outputs import Outcome
    from particleflow.app.scenario.scenario import Scenario as Loaded
    from particleflow.simulation.plan import Cost
    from particleflow.simulation.window_loop import Frames

Switch = Annotated[bool | None, Parameter(show_default=False)]


def run(
    scenario: Scenario,
    /,
    *,
    set_: Overrides = [],  # noqa: B006
    output: Path | None = None,
    summary: Switch = None,
    figures: Switch = None,
    movie: Switch = None,
    page: Switch = None,
    device: Device = None,
    devices: Devices = None,
    group: GroupOptions = Processes(),  # noqa: B008
    slurm: Annotated[SlurmRun, Parameter(name="*", group="On a cluster with Slurm")] = SlurmRun(),  # noqa: B008
    native: Native = "on",
    allow_code: AllowCode = False,
    json: Flag = False,
    quiet: Quiet = False,
) -> int:
    """Run a scenario into a folder of its own, and print the folder.

    Parameters
    ----------
    output
        The folder of this run; outputs/SCENARIO/NUMBER if left out.
    summary
        Write summary.json.
    figures
        Write the figures.
    movie
        Write the movie.
    page
        Write the interactive page.
    json
        Print what was made as JSON.
    """
    from particleflow.app.cli.device import prepare
    from particleflow.app.runs.driver import PlannedRun, new_run_folder
    from particleflow.app.scenario import scenario as scenarios

    switches = {"summary": summary, "figures": figures, "movie": movie, "page": page}
    chosen = [f"output.{name}={str(on).lower()}" for name, on in switches.items() if on is not None]

    def load() -> "Loaded":
        return scenarios.load(scenario, [*set_, *chosen], allow_code=allow_code, devices=devices)

    asked = slurm.sbatch_options()
    if asked is None and (found := group.found()) is not None:
        return _together(found, load, output, device, native, resumed=False, json=json, quiet=quiet)
    description = prepare(device, native, None if asked else devices)
    loaded = load()
    if asked is not None:
        options = computing_options(device, native, devices, allow_code=allow_code)
        return submit_run(replace(loaded, devices=None), output, asked, options, dry_run=slurm.dry_run, quiet=quiet)
    if loaded.document.sweep is not None:
        note("This file has a [sweep]; running the scenario alone. `particleflow sweep` runs all of it.", quiet=quiet)
    planned = PlannedRun(loaded)
    with new_run_folder(planned, output) as folder:
        note(f"{loaded.title[:200]}\n  into {folder} on {description}", quiet=quiet)
        note_chosen(loaded, quiet=quiet)
        return run_and_report(planned, folder, json=json, quiet=quiet)


def resume(
    run: Path,
    /,
    *,
    retry: Literal["failed"] | None = None,
    device: Device = None,
    devices: Devices = None,
    group: GroupOptions = Processes(),  # noqa: B008
    native: Native = "on",
    allow_code: AllowCode = False,
    json: Flag = False,
    quiet: Quiet = False,
) -> int:
    """Continue a run (or a sweep) that was interrupted or killed, and make the products that it lacks or outgrew.

    Parameters
    ----------
    run
        The folder of a run or of a sweep, or the trajectory file of a run.
    retry
        For a sweep: run those runs again that failed; those that a full disk stopped are run again in any case.
    json
        Print what was made as JSON.
    """
    from particleflow.app.cli.device import prepare
    from particleflow.app.runs import run_folder
    from particleflow.app.runs.driver import PlannedRun
    from particleflow.app.scenario import scenario as scenarios

    folder = run_folder.folder_of(run)
    if (folder / run_folder.MANIFEST_FILE).is_file():
        from particleflow.app.cli.commands_sweep import resume_sweep

        return resume_sweep(
            folder, device=device, devices=devices, native=native, allow_code=allow_code,
            retry_failed=retry is not None, json=json, quiet=quiet,
        )  # fmt: skip
    if retry is not None:
        raise UserError(f"Option --retry is for sweeps, but {folder} holds a single run: leave it out.")

    def load() -> "Loaded":
        return scenarios.load(run_folder.scenario_file(folder), allow_code=allow_code, devices=devices)

    if (found := group.found()) is not None:
        return _together(found, load, folder, device, native, resumed=True, json=json, quiet=quiet)
    description = prepare(device, native, devices)
    loaded = load()
    note(f"{loaded.title[:200]}\n  resumed in {folder} on {description}", quiet=quiet)
    return run_and_report(PlannedRun(loaded, resumed=True), folder, json=json, quiet=quiet)


def _together(
    group: "ProcessGroup", load: "Callable[[], Loaded]", folder: Path | None, device: str | None, native: str, *,
    resumed: bool, json: bool, quiet: bool,
) -> int:  # fmt: skip
    """Make a run, or go on with it, together with the other processes of a group; returns an exit code."""
    from particleflow.app.cli.device import prepare
    from particleflow.app.cli.run_in_group import run_in_group
    from particleflow.app.runs.driver import PlannedRun

    def plan() -> "PlannedRun":
        loaded = load()
        prepare(device, native, loaded.devices)
        return PlannedRun(loaded, resumed=resumed)

    return run_in_group(group, plan, folder, json=json, quiet=quiet)


def note_chosen(loaded: "Loaded", *, quiet: bool = False) -> None:
    """Print the values that a scenario left open, as they were chosen."""
    if chosen := loaded.document.chosen:
        note("  chosen: " + ", ".join(f"{path} = {value}" for path, value in chosen.items()), quiet=quiet)


def run_and_report(
    planned: "PlannedRun", folder: Path, *, json: bool | None, quiet: bool, watch: "Watch | None" = None
) -> int:
    """Run a scenario in its folder, show its progress, and report its outcome; returns an exit code.

    Parameters: `json` is whether the result is printed as JSON, None for no result at all; `watch` of the processes
    that make the run together counts its windows.
    """
    from particleflow.app.runs import driver
    from particleflow.summation.native.build import library

    with Meter(quiet=quiet) as meter:
        library(lambda text: meter.update(text, 0, 0))
        meter.update("compiling, then the first frame", 0, 0)
        listener = driver.Listener(
            lambda cost: _announce(cost, quiet=quiet),
            _counted(_run_meter(planned.scenario, meter), watch),
            meter.update,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("always", ResumedElsewhere)
            warnings.showwarning = lambda message, *_, **__: note(str(message), quiet=quiet)
            trajectory, outcome = driver.run(planned, folder, listener)
        with trajectory:
            lines = closing_lines(folder, trajectory) if planned.products else []
    return _finish(outcome, lines, json=json, quiet=quiet)


def _counted(show: RunMeter, watch: "Watch | None") -> "Callable[[Frames], None]":
    """A function of a window that shows it, and counts it for the other processes."""

    def report(frames: "Frames") -> None:
        show(frames)
        if watch is not None:
            watch.window()

    return report


def _run_meter(loaded: "Loaded", meter: Meter) -> RunMeter:
    """The progress of a run up to its last saved time, with clusters as its geometry and its event link them."""
    from particleflow.app.scenario.scenario import save_times

    times, geometry, event = save_times(loaded.document.time), loaded.document.geometry, loaded.document.event
    return RunMeter(
        meter, float(times[-1]), len(times), None if geometry is None else geometry.made,
        None if event is None else event.made.linking_distance(),
        loaded.document.drifts[0].kind,
    )  # fmt: skip


def _announce(cost: "Cost", *, quiet: bool) -> None:
    """Print one line on the cost of a run, and warnings about implausible cost."""
    note(f"  {cost.lines()[0]}", quiet=quiet)
    for warning in cost.warnings():
        note(f"Warning: {warning}", quiet=quiet)


def _finish(outcome: "Outcome", lines: list[str], *, json: bool | None, quiet: bool) -> int:
    """Report the outcome of a run: lines on stderr, its folder (or JSON) on stdout; returns an exit code."""
    for name, reason in outcome.failures.items():
        note(f"The {name} could not be made: {reason}")
    if outcome.status == Status.INTERRUPTED:
        note(f"Interrupted after {plural(outcome.frames, 'frame')}; `particleflow resume {outcome.folder}` goes on.")
    elif outcome.message:
        note(f"The run is {outcome.status}: {outcome.message}", quiet=quiet)
    if outcome.status != Status.INTERRUPTED:
        for line in lines:
            note(line, quiet=quiet)
    if json:
        result_json({**vars(outcome), "folder": str(outcome.folder)})
    elif json is not None:
        result(str(outcome.folder))
    if outcome.status == Status.INTERRUPTED:
        return INTERRUPTED
    return 1 if outcome.failures else 0
