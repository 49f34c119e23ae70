"""Runs of a sweep as arguments: SWEEP/723 is the folder of run 723, which is run again if the folder does not exist."""

from contextlib import nullcontext
from pathlib import Path

from particleflow.app.cli.commands_run import run_and_report
from particleflow.app.cli.console import note
from particleflow.errors import UserError


def ready(run: Path, *, quiet: bool = False) -> Path:
    """Return the path of a run; a run of a sweep that has no folder of its own yet is run first."""
    if "\0" in str(run) or not run.name.isdecimal() or _exists(run):
        return run
    from particleflow.app.runs.folder_contents import MANIFEST_FILE

    if not _exists(run.parent / MANIFEST_FILE):
        return run
    note(f"{run} is a run of a sweep: running it by itself.", quiet=quiet)
    try:
        code = replay_member(run.parent, int(run.name), products=False, quiet=quiet)
    except UserError as error:
        refused = "--allow-code" in str(error)
        hint = f"\n`particleflow replay {run.parent} {run.name} --allow-code` makes this run." if refused else ""
        raise UserError(f"{error}{hint}") from error
    if code:
        raise SystemExit(code)  # interrupted or failed, which has been reported already
    return run


def _exists(path: Path) -> bool:
    """Whether there is such a file or folder; a name that the system refuses is none."""
    try:
        return path.exists()
    except OSError:
        return False


def replay_member(
    sweep: Path,
    number: int,
    *,
    device: str | None = None,
    devices: int | None = None,
    native: str = "on",
    allow_code: bool = False,
    products: bool = True,
    json: bool | None = None,
    quiet: bool = False,
) -> int:
    """Run one of the runs of a sweep by itself into its own folder, or complete what is there; returns an exit code.

    Parameters: without `products` only the trajectory is made; `json` is whether the result is printed as JSON, None
    for no result at all.
    """
    from particleflow.app.cli.device import prepare
    from particleflow.app.runs.driver import PlannedRun, new_run_folder
    from particleflow.app.runs.run_folder import SCENARIO_FILE, scenario_file
    from particleflow.app.scenario import scenario as scenarios
    from particleflow.app.sweep import member_folder, member_scenario, member_values

    description = prepare(device, native, devices)
    folder = member_folder(sweep, number)
    if resumed := (folder / SCENARIO_FILE).is_file():
        member_values(sweep, number)  # refuses a number that is none of the sweep
        loaded = scenarios.load(scenario_file(folder), allow_code=allow_code, devices=devices)
    else:
        loaded = member_scenario(sweep, number, allow_code=allow_code, devices=devices)
    planned = PlannedRun(loaded, resumed=resumed, products=products)
    with nullcontext(folder) if resumed else new_run_folder(planned, folder):
        note(f"{loaded.title[:200]}\n  into {folder} on {description}", quiet=quiet)
        return run_and_report(planned, folder, json=json, quiet=quiet)
