"""The commands `sweep` and `replay`: one scenario over many values of its keys, and one of its runs by itself."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from particleflow.app.cli.commands_run import note_chosen
from particleflow.app.cli.console import Meter, note, result, result_json
from particleflow.app.cli.options import AllowCode, Device, Flag, Native, Overrides, Quiet
from particleflow.app.cli.sweep_members import replay_member
from particleflow.errors import UserError

if TYPE_CHECKING:
    from particleflow.app.sweep import Manifest, SweepPlan


def sweep(
    scenario: str,
    /,
    *,
    set_: Overrides = [],  # noqa: B006
    output: Path | None = None,
    device: Device = None,
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
    json
        Print what was found as JSON.
    """
    from particleflow.app.cli.device import prepare
    from particleflow.app.scenario import scenario as scenarios
    from particleflow.app.sweep import new_sweep, plan_groups, plan_sweep

    note(f"Reading {scenario} …", quiet=quiet)
    description = prepare(device, native)
    loaded = scenarios.load(scenario, set_, allow_code=allow_code)
    if loaded.document.sweep is None:
        raise UserError(f"{loaded.name} has no [sweep] table; `particleflow run` runs it.")
    note(f"{loaded.title[:200]}\n  on {description}", quiet=quiet)
    plan = plan_sweep(loaded)
    with Meter(quiet=quiet) as meter:
        groups = plan_groups(plan, lambda done, total, text: meter.update("planning", done, total, text))
    plan, manifest = new_sweep(plan, output, groups)  # only now, when the scenario is known to be right
    note(f"  into {manifest.folder}", quiet=quiet)
    note_chosen(loaded, quiet=quiet)
    with manifest.locked():
        return _run_and_report(plan, manifest, retry_failed=False, json=json, quiet=quiet)


def resume_sweep(
    folder: Path, *, device: str | None, native: str, allow_code: bool, retry_failed: bool, json: bool, quiet: bool
) -> int:
    """Run the runs of a sweep that are not done, then write its tables and figures."""
    from particleflow.app.cli.device import prepare
    from particleflow.app.runs.run_folder import scenario_file
    from particleflow.app.scenario import scenario as scenarios
    from particleflow.app.sweep import Manifest, plan_sweep

    manifest = Manifest.open(folder)
    with manifest.locked():  # before JAX is loaded, so that a second process is refused at once
        prepare(device, native)
        plan = plan_sweep(scenarios.load(scenario_file(folder), allow_code=allow_code))
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
    from particleflow.app.runs import run_folder

    folder = run_folder.folder_of(sweep)
    if not (folder / run_folder.MANIFEST_FILE).is_file():
        raise UserError(f"{folder} holds no sweep: it has no {run_folder.MANIFEST_FILE}.")
    return replay_member(folder, number, device=device, native=native, allow_code=allow_code, json=json, quiet=quiet)
