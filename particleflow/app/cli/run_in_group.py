"""`run` and `resume` by several processes: the first one keeps the run and reports, all others compute with it."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from particleflow.app.cli.commands_run import note_chosen, run_and_report
from particleflow.app.cli.console import note
from particleflow.app.processes.joining import ProcessGroup, joined

if TYPE_CHECKING:
    from particleflow.app.runs.driver import PlannedRun


def run_in_group(
    group: ProcessGroup, plan: Callable[[], "PlannedRun"], folder: Path | None, *, json: bool, quiet: bool
) -> int:
    """Make a run together with the other processes of a group; returns an exit code.

    Parameters: `plan`, called once this process is connected; `folder`, of the run that is resumed, or for a new one,
    None for the next number.
    """
    from particleflow.app.runs.driver import has_ended, new_run_folder
    from particleflow.simulation.processes import check_alike, condition_of_first
    from particleflow.simulation.simulate import run_unrecorded

    code, used = 0, folder
    with joined(group) as watch:
        planned = replace(plan(), products=False)
        check_alike(planned.setup.plan)
        first = group.index == 0
        ended = condition_of_first(
            planned.setup.plan, first and planned.resumed and folder is not None and has_ended(folder)
        )
        if ended:
            pass
        elif not first:
            run_unrecorded(planned.setup.plan, lambda _: watch.window())
        else:
            place = nullcontext(folder) if planned.resumed else new_run_folder(planned, folder)
            with place as used:
                assert used is not None
                devices = len(planned.setup.plan.devices or ())
                note(
                    f"{planned.scenario.title[:200]}\n  into {used} on {group.count} processes, {devices} devices",
                    quiet=quiet,
                )
                note_chosen(planned.scenario, quiet=quiet)
                code = run_and_report(planned, used, json=None, quiet=quiet, watch=watch)
    if group.index > 0 or code != 0:
        return code
    assert used is not None
    return run_and_report(replace(planned, resumed=True, products=True), used, json=json, quiet=quiet)
