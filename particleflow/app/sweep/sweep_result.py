"""`particleflow.sweep`: a sweep from Python, with the folder and the results of the command, as tables and arrays."""

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow._support import toml
from particleflow._support.progress import reporting
from particleflow._support.text import plural
from particleflow.app.scenario import scenario as scenarios
from particleflow.app.scenario.key_labels import key_label, value_label
from particleflow.app.sweep.manifest import Manifest
from particleflow.app.sweep.results import ERROR, is_number, mean_series, table
from particleflow.app.sweep.sweep_driver import complete, new_sweep
from particleflow.app.sweep.sweep_plan import plan_sweep
from particleflow.errors import ArgumentError

if TYPE_CHECKING:
    import pandas
    import xarray

_NO_NUMBERS = ("run", "state", "message")
_SHOWN_PLACES = 20


def sweep(
    scenario: str | Path,
    over: Mapping[str, Any] | None = None,
    *,
    set: Mapping[str, Any] | None = None,
    output: str | Path | None = None,
    devices: int | None = None,
    allow_code: bool = False,
    progress: bool | Callable[[int, int, str], None] | None = None,
) -> "SweepResult":
    """Run a scenario over values of its keys, as `particleflow sweep` does, and return the results.

    Parameters: `scenario`, a TOML file or the name of a shipped one; `over`, the [sweep] table, that of the file if
    left out: dotted paths with lists of values, ranges such as {"start": 1, "stop": 9, "count": 5}, and seeds, as
    {"drift.0.kernel.beta": [1, 4, 9], "seed": {"count": 8}}, while the `phase` of the file, its figure, stays as long
    as its axes are swept and no other one is given; `set`, other values for keys that all runs share;
    `output`, the folder, outputs/SCENARIO/NUMBER if left out; on how many `devices` it runs, see `simulate`;
    `allow_code` lets the file name code of yours;
    `progress`, true for a bar, or a function of runs done, runs in all, and details.
    A sweep that is interrupted goes on by `particleflow resume FOLDER`.
    """
    values = {**(set or {}), **({} if over is None else {"sweep": {**_kept_phase(scenario, over), **over}})}
    loaded = scenarios.load(scenario, values=values, allow_code=allow_code, devices=devices)
    if loaded.document.sweep is None:
        raise ArgumentError(f"Argument `over` must name keys to sweep, since {loaded.name} has no [sweep] table.")
    plan, manifest = new_sweep(plan_sweep(loaded), output)
    with reporting(progress, "sweeping", len(plan.runs), lambda done, total, text: (done, text)) as report:
        complete(plan, manifest, report)
    return SweepResult(manifest.folder)


def _kept_phase(scenario: str | Path, over: Mapping[str, Any]) -> dict[str, Any]:
    """The `phase` of a scenario's own [sweep] table, if both its axes are swept `over`, too, or are time."""
    file = scenarios.find(scenario)
    table = toml.loads(scenarios.read_text(file), str(file)).get("sweep")
    phase = table.get("phase") if isinstance(table, dict) else None
    is_swept = isinstance(phase, dict) and all(phase.get(axis) in (*over, "time") for axis in ("x", "y"))
    return {"phase": phase} if is_swept else {}


class SweepResult:
    """The results of the sweep in a folder: its runs, and the means of their numbers over the seeds.

    `rows` holds one mapping a run, as results.csv does; `means` one for each place on the swept keys other than the
    seed, and `series` the same along time. For a mean over n seeds the error is s/√n, s² the unbiased variance; of a
    single run it is NaN.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self._manifest = Manifest.open(self.folder)
        self.keys = self._manifest.keys

    def __len__(self) -> int:
        return len(self._manifest.runs)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """One row a run: number, state, swept values, end time, the last value of every number, and the clusters."""
        return table(self._manifest)

    @property
    def axes(self) -> list[str]:
        """The swept keys apart from the seed, whose values are repetitions."""
        return [key for key in self.keys if key != "seed"]

    @property
    def numbers(self) -> list[str]:
        """The names of what was found as one number a run: observables, clusters, the end time."""
        found = dict.fromkeys(name for row in self.rows for name in row if name not in (*self.keys, *_NO_NUMBERS))
        return [name for name in found if any(is_number(row.get(name)) for row in self.rows)]

    @cached_property
    def means(self) -> list[dict[str, Any]]:
        """One row a place: the swept values, how many `runs` have ended there, every number and its error."""
        places: dict[str, list[dict[str, Any]]] = {}
        for row in self.rows:
            places.setdefault(repr([row[key] for key in self.axes]), []).append(row)
        return [self._mean(rows) for rows in places.values()]

    def _mean(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """The means of the numbers of some runs, each with its error."""
        found: dict[str, Any] = {key: rows[0][key] for key in self.axes}
        found["runs"] = sum("end_time" in row for row in rows)
        for name in self.numbers:
            values = np.array([row[name] for row in rows if is_number(row.get(name))], dtype=float)
            found[name] = float(np.mean(values)) if values.size else math.nan
            error = float(np.std(values, ddof=1)) / math.sqrt(values.size) if values.size > 1 else math.nan
            found[name + ERROR] = error
        return found

    @cached_property
    def series(self) -> list[dict[str, Any]]:
        """The means along time, one row a place: its values and `runs`, `times` (T,), NAME and NAME_error, each (T,).

        Of every observable that is one number a frame, over the runs that are done, at the times that all of them have.
        """
        return mean_series(self._manifest, self.axes)

    def to_pandas(self, *, along_time: bool = False) -> "pandas.DataFrame":
        """One row a run, by its number, as in results.csv; `pandas.DataFrame(sweep.means)` has the means.

        `along_time`: the means along time (`series`) instead, one row for each place and time.
        """
        try:
            import pandas
        except ImportError as error:
            raise ArgumentError("This needs pandas, which is not installed: pip install pandas.") from error
        if not along_time:
            return pandas.DataFrame(self.rows).set_index("run")
        places = [{**row, **{key: _coordinate(row[key]) for key in self.axes}} for row in self.series]
        parts = [pandas.DataFrame({"time" if name == "times" else name: row[name] for name in row}) for row in places]
        return pandas.concat(parts, ignore_index=True) if parts else pandas.DataFrame()

    def to_xarray(self, *, along_time: bool = False) -> "xarray.Dataset":
        """The means and their errors, NAME and NAME_error, with a dimension for each swept key but the seed.

        Where the runs fill no grid of the keys' values (`mode` zip and random), there is one dimension, `place`, along
        which all keys change. Values that are tables or lists are coordinates as TOML text. `along_time`: the means
        along time (`series`) instead, with the further dimension `time`; all places must have the same times.
        """
        try:
            import xarray
        except ImportError as error:
            raise ArgumentError("This needs xarray: pip install 'particleflow[interop]'.") from error
        rows = self.series if along_time else self.means
        if along_time and any(not np.array_equal(row["times"], rows[0]["times"]) for row in rows):
            raise ArgumentError("The runs were saved at different times; `to_pandas(along_time=True)` has all of them.")
        return xarray.Dataset(**_along_axes(rows, self.axes), attrs={"title": self._manifest.title})

    def __repr__(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in self._manifest.states().items() if count)
        lines = [self._manifest.title, f"  {plural(len(self), 'run')}: {states}, in {self.folder}"]
        names = self._shown_numbers()
        for row in self.means[:_SHOWN_PLACES]:
            place = ", ".join(value_label(key, row[key]) for key in self.axes)
            numbers = ", ".join(_mean_text(row, name) for name in names)
            lines.append(f"  {place + ':  ' if place else ''}{numbers}")
        hidden = len(self.means) - _SHOWN_PLACES
        return "\n".join([*lines, *([f"  and {plural(hidden, 'place')} more"] if hidden > 0 else [])])

    def _shown_numbers(self) -> list[str]:
        """The names of the numbers, first of those that vary between runs; without an end time that all runs share."""
        columns = {name: {row[name] for row in self.rows if is_number(row.get(name))} for name in self.numbers}
        shown = [name for name in self.numbers if name != "end_time" or len(columns[name]) > 1] or self.numbers
        return sorted(shown, key=lambda name: len(columns[name]) == 1)


def _along_axes(rows: list[dict[str, Any]], axes: list[str]) -> dict[str, Any]:
    """The variables and coordinates of a data set: numbers, and series with their `times`, over the swept keys."""
    places = [{**row, **{key: _coordinate(row[key]) for key in axes}} for row in rows]
    values = {key: list(dict.fromkeys(row[key] for row in places)) for key in axes}
    shape = [len(each) for each in values.values()]
    is_grid = math.prod(shape) == len(places)
    dimensions, size = (axes, shape) if is_grid else (["place"], [len(places)])
    if is_grid:
        places.sort(key=lambda row: [values[key].index(row[key]) for key in axes])
    coordinates: dict[str, Any] = values if is_grid else {key: ("place", [row[key] for row in places]) for key in axes}
    variables = {}
    for name in [name for name in (places or [{}])[0] if name not in (*axes, "times")]:
        cells = np.array([row[name] for row in places])
        variables[name] = [*dimensions, "time"][: len(size) + cells.ndim - 1], cells.reshape(*size, *cells.shape[1:])
    times = {"time": places[0]["times"]} if places and "times" in places[0] else {}
    return {"data_vars": variables, "coords": {**coordinates, **times}}


def _mean_text(row: dict[str, Any], name: str) -> str:
    """A number of a place with its error, "clusters 7.33 ± 0.67"; without one where there is a single run."""
    error = f" ± {row[name + ERROR]:.2g}" if row["runs"] > 1 else ""
    return f"{key_label(name)} {row[name]:.4g}{error}"


def _coordinate(value: Any) -> Any:
    """A swept value as a coordinate: numbers and texts as they are, a kind by its name, anything else as TOML text."""
    if isinstance(value, dict) and set(value) == {"kind"}:
        return value["kind"]
    return value if isinstance(value, int | float | str) else toml.value_text(value)
