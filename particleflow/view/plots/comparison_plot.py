"""Several runs in one picture: an observable or the cluster count of each."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.clusters.separation import CHAINS
from particleflow.analysis.density.peaks import NO_PEAK_YET, since_first_peak
from particleflow.analysis.reading import check_trajectory
from particleflow.errors import ArgumentError, ShapeError
from particleflow.view import style
from particleflow.view.plots.base import (
    drawn_times,
    new_axes,
    small_print_of_several,
    time_axis,
    write_small_print,
)
from particleflow.view.plots.time.series import (
    change_times,
    check_counts,
    count_axis,
    draw_band,
    in_stored_precision,
    known_changes,
    observable_values,
    power_of,
    with_band,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory.trajectory import Trajectory


_DASHES: Any = ("-", "--", ":", "-.")
_SYMBOLS = {"count": "n", "beta": "β", "dim": "d"}  # keys of a scenario by their symbols in small print


def compare(
    trajectories: "Mapping[str, Trajectory] | Sequence[Trajectory]",
    name: str = "energy",
    *,
    counts: Mapping[str, Any] | Sequence[Any] | None = None,
    of: str = "clusters",
    log: bool | str = "auto",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw one observable, or the cluster counts, of several runs together; the legend takes the keys or the titles.

    Beside its name a run has what tells it from the others, such as its β; the small print holds for all of them.
    Ensembles become bands. Colours repeat their order with other dashes after seven runs.

    Parameters: the trajectories, a sequence or a mapping by name; the `name` of the observable; `counts` to draw
    instead, one row (T,) or (T, R), or a track, for each run; `of`, the noun of what was counted; `log`, a logarithmic
    time axis (True, False, or "auto": where the frames are spaced like that); `ax`, the axes to draw on, else new ones.
    Returns the axes.
    """
    runs = named_runs(trajectories)
    if not runs:
        raise ArgumentError("Argument `trajectories` must hold at least one run, but is empty.")
    if ax is None:
        ax = new_axes(None)
        write_small_print(ax.figure, comparison_note([run for _, run in runs], counts, of))  # type: ignore[arg-type]
    times = np.unique(np.concatenate([np.asarray(run.times, float) for _, run in runs]))
    log = time_axis(ax, times, log, unit=common_unit(run for _, run in runs))
    rows = list(counts.values()) if isinstance(counts, Mapping) else counts
    if rows is not None and len(rows) != len(runs):
        raise ShapeError(f"Argument `counts` must hold one row for each of {len(runs)} runs, but holds {len(rows)}.")
    colors = style.palette(min(len(runs), 7))
    if rows is None:
        series = [in_stored_precision(run, name, observable_values(run, name)) for _, run in runs]
    else:
        series = [check_counts(run, row) for (_, run), row in zip(runs, rows, strict=True)]
        series = [since_first_peak(row) for row in series] if of == "peaks" else series
    common: dict[str, Any] = {"power": power_of(name)}
    common["among"] = np.concatenate([values.ravel() for values in series])
    labels = names_with_differences(runs)
    for index, (label, (_, run), values) in enumerate(zip(labels, runs, series, strict=True)):
        shown = np.maximum(drawn_times(run.times, log), drawn_times(times, log)[0])
        changes = None if rows is None else change_times(shown, known_changes(run, rows[index]))
        draw_band(ax, shown, values, colors[index % 7], label, changes=changes, **common)
        ax.lines[-1].set_linestyle(_DASHES[index // 7 % 4])
    if rows is not None:
        count_axis(ax, common["among"])
    what = of if rows is not None else style.clean(name.replace("_", " "), 40)
    ax.set_ylabel(with_band(what, max(series, key=np.ndim)))
    ax.grid(True, axis="y")
    if len(runs) > 1:
        ax.legend(loc="best", ncols=1 if len(runs) <= 7 else 2, handlelength=1.6)
    return ax


def comparison_note(runs: "Sequence[Trajectory]", counts: Any = None, of: str = "clusters") -> str:
    """The small print of several runs: what holds for all of them, and what gaps in their counts are."""
    rows = [] if counts is None else list(counts.values() if isinstance(counts, Mapping) else counts)
    numbers = [np.asarray(getattr(row, "counts", row), float) for row in rows]
    gaps = any(np.isnan(since_first_peak(row) if of == "peaks" else row).any() for row in numbers)
    meaning = NO_PEAK_YET if of == "peaks" else CHAINS
    return " · ".join(filter(None, [small_print_of_several(runs)[0], f"gaps: {meaning}" if gaps else ""]))


def names_with_differences(runs: "Sequence[tuple[str, Trajectory]]") -> list[str]:
    """The names of runs, each with the small print that does not hold for all of them, unless the name says it."""
    others = small_print_of_several([run for _, run in runs])[1]
    found = []
    for (name, _), text in zip(runs, others, strict=True):
        found.append(", ".join([name, *(part for part in text.split(", ") if part and not _says(name, part))]))
    return found


def _says(name: str, part: str) -> bool:
    """Whether a name says a part of the small print, in its words or in those of a scenario: "count = 300", "n = 300".

    A number is the same only as a whole: "n = 3" is not said by "n = 300".
    """
    said, wanted = (re.sub(r"(?<=\d),(?=\d)", "", text).replace(" = ", " ") for text in (name, part))
    for key, symbol in _SYMBOLS.items():
        said = re.sub(rf"\b{key}\b", symbol, said)
    return re.search(rf"(?<![\w.]){re.escape(wanted)}(?![\w.]|e[+-])", said) is not None


def common_unit(runs: "Iterable[Trajectory]") -> str | None:
    """What one unit of time counts in all of several runs, "layer" or "step"; None where they differ."""
    units = {run.facts.time_unit for run in runs}
    return units.pop() if len(units) == 1 else None


def named_runs(trajectories: Any) -> list[tuple[str, Any]]:
    """Runs with their names: the keys that they are given under, else their titles, else their numbers."""
    for run in trajectories.values() if isinstance(trajectories, Mapping) else trajectories:
        check_trajectory(run)
    if isinstance(trajectories, Mapping):
        return [(str(key), run) for key, run in trajectories.items()]
    titles = [str((run.metadata or {}).get("title") or "") for run in trajectories]
    return [(title or f"run {index}", run) for index, (title, run) in enumerate(zip(titles, trajectories, strict=True))]
