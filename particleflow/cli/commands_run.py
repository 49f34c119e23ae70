"""run, resume, check."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from particleflow.cli.answering import INTERRUPTED
from particleflow.cli.closing import closing_lines, counted
from particleflow.cli.console import Meter, RunMeter, note, result, result_json
from particleflow.cli.options import AllowCode, Device, Flag, Native, Overrides, Quiet, Scenario
from particleflow.errors import ResumedElsewhere, UserError
from particleflow.status import Status

if TYPE_CHECKING:
    from particleflow.plan import Cost
    from particleflow.products import Outcome
    from particleflow.scenario import Scenario as Loaded

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
    from particleflow import run_folder
    from particleflow import scenario as scenarios
    from particleflow.cli.device import prepare

    description = prepare(device, native)
    switches = {"summary": summary, "figures": figures, "movie": movie, "page": page}
    chosen = [f"output.{name}={str(on).lower()}" for name, on in switches.items() if on is not None]
    loaded = scenarios.load(scenario, [*set_, *chosen], allow_code=allow_code)
    if loaded.document.sweep is not None:
        note("This file has a [sweep]; running the scenario alone. `particleflow sweep` runs all of it.", quiet=quiet)
    loaded.build()  # nothing is made on disk before the scenario is known to be right
    folder = run_folder.new_folder(loaded.stem, output)
    note(f"{loaded.title[:200]}\n  into {folder} on {description}", quiet=quiet)
    note_chosen(loaded, quiet=quiet)
    try:
        return simulate_into(loaded, folder, resumed=False, json=json, quiet=quiet)
    finally:
        run_folder.discard_if_empty(folder)


def resume(
    run: Path,
    /,
    *,
    retry: Literal["failed"] | None = None,
    device: Device = None,
    native: Native = "on",
    allow_code: AllowCode = False,
    json: Flag = False,
    quiet: Quiet = False,
) -> int:
    """Go on with a run (or a sweep) that was interrupted or killed, and make the products it lacks.

    Parameters
    ----------
    run
        The folder of a run or of a sweep, or the trajectory file of a run.
    retry
        Of a sweep, run those that failed once more; those that a full disk stopped are run in any case.
    json
        Print what was made as JSON.
    """
    from particleflow import run_folder
    from particleflow import scenario as scenarios
    from particleflow.cli.device import prepare

    folder = run_folder.folder_of(run)
    if (folder / run_folder.MANIFEST_FILE).is_file():
        from particleflow.cli.commands_sweep import resume_sweep

        return resume_sweep(
            folder, device=device, native=native, allow_code=allow_code, retry_failed=retry is not None, json=json,
            quiet=quiet,
        )  # fmt: skip
    if retry is not None:
        raise UserError(f"Option --retry is for sweeps, but {folder} holds a single run: leave it out.")
    description = prepare(device, native)
    loaded = scenarios.load(run_folder.scenario_file(folder), allow_code=allow_code)
    note(f"{loaded.title[:200]}\n  resumed in {folder} on {description}", quiet=quiet)
    return simulate_into(loaded, folder, resumed=True, json=json, quiet=quiet)


def check(
    scenario: Scenario,
    /,
    *,
    set_: Overrides = [],  # noqa: B006
    allow_code: AllowCode = False,
    json: Flag = False,
    quiet: Quiet = False,
) -> int:
    """Check a scenario completely without running it.

    Parameters
    ----------
    json
        Print the result as JSON.
    """
    from particleflow import scenario as scenarios
    from particleflow.cli.device import prepare

    prepare()
    try:
        loaded = scenarios.load(scenario, set_, allow_code=allow_code)
        setup = loaded.build()
        cost, runs = setup.cost(), 1
        if loaded.document.sweep is not None:
            from particleflow.sweep import expand

            runs = len(expand(loaded))
    except UserError as error:
        if not json:
            raise
        problems = [{"path": each.path, "message": each.message} for each in getattr(error, "problems", ())]
        result_json({"ok": False, "message": str(error), "problems": problems})
        return 2
    facts = {
        "ok": True,
        "title": loaded.title,
        "particles": setup.start.count,
        "dimension": setup.start.dimension,
        "frames": len(setup.times),
        "runs": runs,
        "cost": cost._asdict(),
        "warnings": cost.warnings(),
        "chosen": loaded.document.chosen,
    }
    if json:
        result_json(facts)
    elif not quiet:
        sweep = f", {counted(runs, 'run')}" if loaded.document.sweep is not None else ""
        note(f"{loaded.name} is fine: {counted(facts['particles'], 'particle')} in dimension {facts['dimension']}, "
             f"{counted(facts['frames'], 'frame')}{sweep}.")  # fmt: skip
        note_chosen(loaded)
        for line in [*cost.lines(), *(f"Warning: {each}" for each in cost.warnings())]:
            note(f"  {line}")
    return 0


def note_chosen(loaded: "Loaded", *, quiet: bool = False) -> None:
    """Say what a scenario left open and how it was chosen."""
    if chosen := loaded.document.chosen:
        note("  chosen: " + ", ".join(f"{path} = {value}" for path, value in chosen.items()), quiet=quiet)


def simulate_into(
    loaded: "Loaded", folder: Path, *, resumed: bool, json: bool | None, quiet: bool, products: bool = True
) -> int:
    """Simulate a scenario into its folder, make its products and say how it went; returns an exit code.

    Parameters: `json` is whether the result is printed as JSON, None for no result at all.
    """
    from particleflow import run_folder
    from particleflow.products import Outcome
    from particleflow.scenario import save_times
    from particleflow.summation.native import library

    times = save_times(loaded.document.time)
    with Meter(quiet=quiet) as meter:
        library(lambda text: meter.update(text, 0, 0))
        meter.update("compiling, then the first frame", 0, 0)
        geometry = loaded.document.geometry
        event = loaded.document.event
        progress = RunMeter(
            meter, float(times[-1]), len(times), None if geometry is None else geometry.made,
            None if event is None else event.made.linking_distance(),
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("always", ResumedElsewhere)
            warnings.showwarning = lambda message, *_, **__: note(str(message), quiet=quiet)
            trajectory = run_folder.run_scenario(
                loaded, folder, resume=resumed, progress=progress, announce=lambda cost: _announce(cost, quiet=quiet)
            )
        with trajectory:
            outcome = Outcome(folder, trajectory.status, trajectory.metadata.get("message"), len(trajectory))
            if products and outcome.status != Status.INTERRUPTED:
                _make_products(loaded, outcome, trajectory, meter)
            lines = closing_lines(folder, trajectory) if products else []
    return _finish(outcome, lines, json=json, quiet=quiet)


def _announce(cost: "Cost", *, quiet: bool) -> None:
    """One line before a run, and what somebody may not have meant."""
    note(f"  {cost.lines()[0]}", quiet=quiet)
    for warning in cost.warnings():
        note(f"Warning: {warning}", quiet=quiet)


def _make_products(loaded, outcome: "Outcome", trajectory, meter: Meter) -> None:
    from particleflow.products import make_products

    wanted = loaded.document.output.model_dump()
    try:
        make_products(outcome.folder, trajectory, wanted, outcome, meter.update)
    except KeyboardInterrupt:
        hint = f"The run is {outcome.status}; `particleflow resume {outcome.folder}` makes the products it lacks."
        raise KeyboardInterrupt(hint) from None


def _finish(outcome: "Outcome", lines: list[str], *, json: bool | None, quiet: bool) -> int:
    for name, reason in outcome.failures.items():
        note(f"The {name} could not be made: {reason}")
    if outcome.status == Status.INTERRUPTED:
        note(f"Interrupted after {counted(outcome.frames, 'frame')}; `particleflow resume {outcome.folder}` goes on.")
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
