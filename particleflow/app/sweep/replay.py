"""One run of a sweep as a run of its own, in a folder beside the results of the sweep: SWEEP/723.

Its scenario has the run's values in place of the [sweep] table, so that it computes the same numbers.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from particleflow._support import toml
from particleflow.app.runs.run_folder import scenario_file
from particleflow.app.sweep.manifest import Manifest
from particleflow.errors import UserError

if TYPE_CHECKING:
    from particleflow.app.scenario.scenario import Scenario


def member_folder(sweep: Path, number: int) -> Path:
    """The folder of a run of the sweep in `sweep`."""
    return sweep / str(number)


def member_values(sweep: Path, number: int) -> dict[str, Any]:
    """The swept values of a run of a sweep, by their keys; a number that is none of its runs is a `UserError`."""
    runs = Manifest.open(sweep).runs
    if not 0 <= number < len(runs):
        raise UserError(f"Argument `number` must be from 0 to {len(runs) - 1}, the runs of {sweep}, but is {number}.")
    return runs[number]["values"]


def member_scenario(sweep: Path, number: int, *, allow_code: bool = False, devices: int | None = None) -> "Scenario":
    """The scenario of a run of a sweep: that of the sweep with the values of the run, and without its [sweep] table."""
    from particleflow.app.scenario.scenario import from_document, load

    values = member_values(sweep, number)
    whole = load(scenario_file(sweep), allow_code=allow_code)
    raw = {name: value for name, value in whole.raw.items() if name != "sweep"}
    raw["title"] = f"{whole.title}, run {number}"
    for path, value in values.items():
        raw = toml.with_value(raw, toml.parse_path(path), value)
    return from_document(raw, whole.name, whole.folder, source=whole.source, allow_code=allow_code, devices=devices)
