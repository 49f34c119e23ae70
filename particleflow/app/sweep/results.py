"""Results of a sweep: one tidy table (CSV and HDF5), and the numbers of a phase diagram over two of its keys."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np

from particleflow._support.files import HDF5_FAILURES, hdf5_output, write_text, written
from particleflow.app.runs.extent import FARTHEST
from particleflow.app.sweep.groups import group_path, load_group
from particleflow.app.sweep.manifest import DONE, Manifest
from particleflow.errors import UserError
from particleflow.trajectory.frame import weights_of

ERROR = "_error"  # behind the name of a number: the standard error of its mean
_OBSERVABLE = "observable."


def write_results(manifest: Manifest) -> list[Path]:
    """Write results.csv and results.h5 and return their paths.

    The table has one row a run: its number, state and swept values, the time it ended at, the last value of every
    scalar observable, and the number of clusters at the end. The HDF5 file holds the same columns under /table, and
    under /groups the observables of every run over time.
    """
    rows = table(manifest)
    folder = manifest.folder
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    write_text(folder / "results.csv", text.getvalue())
    _write_hdf5(manifest, rows, columns, folder / "results.h5")
    return [folder / "results.csv", folder / "results.h5"]


def table(manifest: Manifest) -> list[dict[str, Any]]:
    """One row a run, in order: its number, state and values, and where it is done its end, its numbers, its clusters.

    Clusters are those of the last points, linked at the distance that the analysis of a single run would choose.
    """
    from particleflow.analysis import cluster_count
    from particleflow.analysis.clusters.clusters import unit_directions

    rows = [
        {"run": number, "state": run["state"], **run["values"], "message": run["message"]}
        for number, run in enumerate(manifest.runs)
    ]
    for numbers, group in finished_groups(manifest):
        for place, number in enumerate(numbers):
            if manifest.runs[number]["state"] != DONE:
                continue
            rows[number]["end_time"] = float(group["end_times"][place])
            for name, series in group.items():
                if name.startswith(_OBSERVABLE) and series.ndim == 2:
                    rows[number][name.removeprefix(_OBSERVABLE)] = float(series[place, -1])
            if "last_points" in group and np.abs(group["last_points"][place]).max() <= FARTHEST:
                points, threshold = group["last_points"][place], float(group["thresholds"][place])
                if "directions" in group and bool(group["directions"][place]):
                    points = unit_directions(points)
                weights = weights_of(group["log_weights"][place]) if "log_weights" in group else None
                rows[number]["clusters"] = cluster_count(points, threshold, weights=weights)
    return rows


def mean_series(manifest: Manifest, axes: list[str]) -> list[dict[str, Any]]:
    """The mean and its error along time of every observable that is one number a frame, one row for each place on axes.

    A row holds the swept values, how many `runs` are done there, the `times` that all of them have, and of each name
    its mean and, as NAME_error, s/√n with the unbiased variance s², NaN of a single run.
    """
    places: dict[str, tuple[dict[str, Any], list[tuple[int, dict[str, Any]]]]] = {}
    for numbers, group in finished_groups(manifest):
        for place, number in enumerate(numbers):
            run = manifest.runs[number]
            if run["state"] == DONE:
                at = {key: run["values"][key] for key in axes}
                places.setdefault(repr(list(at.values())), (at, []))[1].append((number, _series_of(group, place)))
    return [{**at, **_mean_series([run for _, run in runs])} for at, runs in _in_order(places.values())]


def _in_order(places: Any) -> list[Any]:
    """Places in the order of the sweep, by the first of their runs, which may be in any group."""
    return sorted(places, key=lambda place: min(number for number, _ in place[1]))


def _series_of(group: dict[str, np.ndarray], place: int) -> dict[str, np.ndarray]:
    """The times (T,) of a run of a group and what was recorded of it as one number a frame, (T,)."""
    names = [name for name, values in group.items() if name.startswith(_OBSERVABLE) and values.ndim == 2]
    series = {name.removeprefix(_OBSERVABLE): np.asarray(group[name][place], float) for name in names}
    return {"times": group["times"], **series}


def _mean_series(runs: list[dict[str, np.ndarray]]) -> dict[str, Any]:
    """The means of the series of some runs with their errors, at the times that all of the runs have."""
    times = runs[0]["times"]
    for run in runs[1:]:
        times = np.intersect1d(times, run["times"])
    found: dict[str, Any] = {"runs": len(runs), "times": times}
    for name in runs[0]:
        if name == "times" or not all(name in run for run in runs):
            continue
        values = np.stack([run[name][np.isin(run["times"], times)] for run in runs])
        with np.errstate(invalid="ignore", over="ignore"):  # a run may hold infinities
            found[name] = np.mean(values, axis=0)
            spread = np.std(values, axis=0, ddof=1) if len(runs) > 1 else np.full(times.shape, np.nan)
        found[name + ERROR] = spread / np.sqrt(len(runs))
    return found


def phase_values(manifest: Manifest, x: str, y: str, value: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The axes (X,), (Y,) of a phase diagram and the mean value of each pair (Y, X); missing pairs are NaN."""
    from particleflow.view import sweep_grid

    if "time" not in (x, y):
        rows = [row for row in table(manifest) if is_number(row.get(value))]
        if not rows:
            raise UserError(f"No run has finished with a number {value!r}, so there is nothing to draw.")
        return sweep_grid(rows, x, y, value)
    other = y if x == "time" else x
    keys, times, mean, number = np.zeros(0), np.zeros(0), {}, {}
    for numbers, group in finished_groups(manifest):
        series = group.get(_OBSERVABLE + value)
        if series is None or series.ndim != 2:
            raise UserError(f"{value!r} is not one number a frame, so it cannot be drawn over time.")
        if times.size and not np.array_equal(times, group["times"]):
            raise UserError("The runs were saved at different times, so time cannot be an axis.")
        times = group["times"]
        for place, run in enumerate(numbers):
            if manifest.runs[run]["state"] == DONE:
                key = float(manifest.runs[run]["values"][other])
                number[key] = number.get(key, 0) + 1
                before = mean.get(key, 0.0) * ((number[key] - 1) / number[key])
                mean[key] = before + series[place] / number[key]  # a sum could be too large
    if not mean:
        raise UserError("No run has finished, so there is nothing to draw.")
    keys = np.asarray(sorted(mean))
    values = np.stack([mean[key] for key in keys.tolist()])
    return (times, keys, values) if x == "time" else (keys, times, values.T)


def repetitions(manifest: Manifest, keys: set[str]) -> tuple[int, int]:
    """The least and the largest number of finished runs that share a place on the axes `keys`."""
    from collections import Counter

    rows = (run["values"] for run in manifest.runs if run["state"] == DONE)
    numbers = Counter(tuple(str(values.get(key)) for key in sorted(keys)) for values in rows).values()
    return min(numbers, default=1), max(numbers, default=1)


def finished_groups(manifest: Manifest) -> Any:
    """Yield the run numbers and the arrays of every group whose results are on disk."""
    for index, numbers in enumerate(manifest.groups):
        path = group_path(manifest.folder, index)
        if path.is_file() and any(manifest.runs[number]["state"] == DONE for number in numbers):
            yield numbers, load_group(path, len(numbers))


def is_number(value: Any) -> bool:
    """Whether a swept value or a cell of the table is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _write_hdf5(manifest: Manifest, rows: list[dict[str, Any]], columns: list[str], path: Path) -> None:
    """Write the table by columns, numbers as float64 and all else as text, and the observables of every group."""
    import h5py

    with (
        written(path, failures=HDF5_FAILURES) as partial,
        hdf5_output(partial) as output,
        h5py.File(output, "w") as file,
    ):
        target = file.create_group("table")
        for name in columns:
            values = [row.get(name) for row in rows]
            if all(isinstance(value, int | float) or value is None for value in values):
                target[_safe(name)] = np.asarray([np.nan if value is None else value for value in values], dtype=float)
            else:
                texts = ["" if value is None else str(value).replace("\0", " ") for value in values]
                target.create_dataset(_safe(name), data=texts, dtype=h5py.string_dtype())
        for index, (numbers, group) in enumerate(finished_groups(manifest)):
            node = file.create_group(f"groups/{index:05d}")
            node["runs"] = np.asarray(numbers)
            for name, values in group.items():
                node[_safe(name)] = values


def _safe(name: str) -> str:
    """A name for a data set of HDF5, in which a slash would open a group."""
    return name.replace("/", "_").replace("\0", "_") or "_"


def _cell(value: Any) -> Any:
    """A value for a CSV cell; text that a spreadsheet would run as a formula is quoted."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else None
    return f"'{text}" if text and text[0] in "=+-@\t\r" else value
