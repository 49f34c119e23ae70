"""The command `check`: everything that is wrong with a scenario, or what it would run, without running it."""

from typing import TYPE_CHECKING, Any

from particleflow._support.text import plural
from particleflow.app.cli.commands_run import note_chosen
from particleflow.app.cli.console import note, result_json
from particleflow.app.cli.options import AllowCode, Flag, Overrides, Quiet, Scenario
from particleflow.errors import UserError

if TYPE_CHECKING:
    from particleflow.app.scenario.scenario import Scenario as Loaded


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
    from particleflow.app.cli.device import prepare
    from particleflow.app.scenario import scenario as scenarios

    prepare()
    try:
        loaded = scenarios.load(scenario, set_, allow_code=allow_code)
        facts, lines = _checked(loaded)
    except UserError as error:
        if not json:
            raise
        problems = [{"path": each.path, "message": each.message} for each in getattr(error, "problems", ())]
        result_json({"ok": False, "message": str(error), "problems": problems})
        return 2
    if json:
        result_json(facts)
    elif not quiet:
        noun = "cell" if loaded.document.carries_density else "particle"
        sweep = f", {plural(facts['runs'], 'run')}" if loaded.document.sweep is not None else ""
        note(f"{loaded.name} is fine: {plural(facts['particles'], noun)} in dimension {facts['dimension']}, "
             f"{plural(facts['frames'], 'frame')}{sweep}.")  # fmt: skip
        note_chosen(loaded)
        for line in [*lines, *(f"Warning: {each}" for each in facts["warnings"])]:
            note(f"  {line}")
    return 0


def _checked(loaded: "Loaded") -> tuple[dict[str, Any], list[str]]:
    """What a scenario would run, by name and as lines on its cost; anything that is wrong with it is a `UserError`."""
    setup = loaded.build()
    cost, runs = setup.cost(), 1
    if loaded.document.sweep is not None:
        from particleflow.app.sweep import plan_sweep

        runs = len(plan_sweep(loaded).runs)
    facts = {
        "ok": True,
        "title": loaded.title,
        "particles": setup.start.count,
        "dimension": setup.start.dimension,
        "frames": len(setup.times),
        "runs": runs,
        "seed": setup.facts["seed"],
        "cost": cost._asdict(),
        "warnings": cost.warnings(),
        "chosen": loaded.document.chosen,
    }
    return facts, cost.lines()
