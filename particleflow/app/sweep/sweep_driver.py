"""The driver of sweeps: a plan in, a folder with every run's results, their table and their figures out.

The command line (`sweep`, `resume`) and `particleflow.sweep` both use it:

    plan, manifest = new_sweep(plan_sweep(scenario))
    products = complete(plan, manifest)
"""

from collections.abc import Callable
from pathlib import Path

from particleflow.app.runs.run_folder import discard_if_empty, new_folder
from particleflow.app.sweep.execute import Report, run_sweep, start_sweep
from particleflow.app.sweep.manifest import DONE, Manifest
from particleflow.app.sweep.results import write_results
from particleflow.app.sweep.sweep_figures import draw_figures
from particleflow.app.sweep.sweep_plan import SweepPlan
from particleflow.errors import UserError


def new_sweep(
    plan: SweepPlan, output: str | Path | None = None, groups: list[list[int]] | None = None
) -> tuple[SweepPlan, Manifest]:
    """Make the folder of a new sweep and freeze it there; returns the plan to run and the manifest.

    Parameters: `output`, the folder itself, the next number in outputs/SCENARIO if left out; `groups` of `plan_groups`,
    if they are known already.
    """
    folder = new_folder(plan.scenario.stem, output)
    try:
        return start_sweep(plan, folder, groups)
    finally:
        discard_if_empty(folder)


def complete(
    plan: SweepPlan,
    manifest: Manifest,
    report: Report | None = None,
    *,
    retry_failed: bool = False,
    note: Callable[[str], None] | None = None,
) -> list[Path]:
    """Run the groups that are left, write the table and draw the figures; returns the paths of both.

    Parameters: `report`, `retry_failed` and `note` as for `run_sweep`; `note` is also told why a figure is missing.
    """
    try:
        run_sweep(plan, manifest, report, retry_failed=retry_failed, note=note)
    except KeyboardInterrupt:
        done = manifest.states()[DONE]
        hint = f"{done} of {len(manifest.runs)} runs are done; `particleflow resume {manifest.folder}` goes on."
        raise KeyboardInterrupt(hint) from None
    products = write_results(manifest)
    try:
        return [*products, *draw_figures(manifest)]
    except UserError as error:
        (note or (lambda _: None))(f"The figure could not be drawn: {error}")
        return products
