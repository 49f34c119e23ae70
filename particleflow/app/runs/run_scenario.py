"""`particleflow.run`: a scenario file run from Python with the same folder, products and bits as by the command."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from particleflow.app.runs import driver
from particleflow.app.runs.driver import Listener, PlannedRun, new_run_folder
from particleflow.app.scenario import scenario as scenarios
from particleflow.errors import ArgumentError, ProductMissing

if TYPE_CHECKING:
    from particleflow.simulation.window_loop import Frames
    from particleflow.trajectory.trajectory import Trajectory


def run(
    scenario: str | Path,
    *,
    set: Mapping[str, Any] | None = None,
    output: str | Path | None = None,
    summary: bool | None = None,
    figures: bool | str | list[str] | None = None,
    movie: bool | None = None,
    page: bool | None = None,
    devices: int | None = None,
    allow_code: bool = False,
    progress: bool | Callable[["Frames"], None] | None = None,
) -> "Trajectory":
    """Run a scenario file into a folder of its own, as `particleflow run` does, and return the stored trajectory.

    Parameters: `scenario`, a TOML file or the name of a shipped one; `set`, other values for some of its keys by their
    dotted paths, such as {"drift.0.kernel.beta": 4}; `output`, the run's own folder, which must not be in use,
    outputs/SCENARIO/NUMBER if left out; `summary`, `figures`, `movie` and `page` make a product or leave it out, as the
    scenario says if None (`figures` may be "all" or a list of names, as `only` of `view.figures`); on how
    many `devices` it runs, see `simulate`; `allow_code` lets the file name code of yours; `progress` as for `simulate`.
    A [sweep] in the file is left aside. A product that cannot be made is a warning, and the others are made.
    """
    if not isinstance(set, Mapping | None):
        raise ArgumentError(f"Argument `set` must hold values by their paths, such as {{'seed': 1}}, but is {set!r}.")
    products = {"summary": summary, "figures": figures, "movie": movie, "page": page}
    wishes = {f"output.{name}": wish for name, wish in products.items() if wish is not None}
    loaded = scenarios.load(scenario, values={**(set or {}), **wishes}, allow_code=allow_code, devices=devices)
    planned = PlannedRun(loaded)
    with new_run_folder(planned, output) as folder:
        trajectory, outcome = driver.run(planned, folder, Listener(windows=progress))
    for name, reason in outcome.failures.items():
        warnings.warn(f"The {name} of {folder} could not be made: {reason}", ProductMissing, stacklevel=2)
    return trajectory
