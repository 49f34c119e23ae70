"""The picture of a sweep along time: the mean of every recorded series over the seeds, with its standard error."""

from typing import Any

import numpy as np

from particleflow._support.text import plural
from particleflow.app.scenario.key_labels import key_label, value_label
from particleflow.app.sweep.manifest import Manifest
from particleflow.app.sweep.results import ERROR, is_number, mean_series

MOST_LINES = 12  # places on the swept keys; more lines in a panel could not be told apart
_MOST_PANELS = 6
_PANEL = (0.94, 0.62)  # width and height of a panel, in widths of the theme


def repeated_series(manifest: Manifest, axes: list[str]) -> list[dict[str, Any]]:
    """The mean series of a sweep by place, as far as they can be drawn: empty without seeds or with too many places."""
    rows = [row for row in mean_series(manifest, axes) if len(row["times"]) > 1]
    return rows if len(rows) <= MOST_LINES and any(row["runs"] > 1 for row in rows) and _names(rows) else []


def series_figure(rows: list[dict[str, Any]], axes: list[str], title: str) -> Any:
    """One panel for each recorded name, with a line for each place on the axes and a band of one standard error."""
    from particleflow.view.plots.base import new_figure, write_figure_title

    names = _names(rows)
    columns = 1 if len(names) == 1 else 2
    lines = -(-len(names) // columns)
    figure = new_figure((_PANEL[0] * columns, _PANEL[1] * lines))
    panels = figure.subplots(lines, columns, squeeze=False)
    fewest, most = min(row["runs"] for row in rows), max(row["runs"] for row in rows)
    seeds = plural(most, "run") if fewest == most else f"{fewest}–{most} runs"
    write_figure_title(figure, title, f"mean ± standard error over {seeds}")
    for place, ax in enumerate(panels.flat):
        if place < len(names):
            _draw_series(ax, rows, axes, names[place])
        else:
            ax.set_visible(False)
    if len(rows) > 1:
        panels.flat[0].legend(loc="best", ncols=1 if len(rows) <= 6 else 2, handlelength=1.6)
    return figure


def _names(rows: list[dict[str, Any]]) -> list[str]:
    """The recorded names that hold a finite mean somewhere."""
    found = dict.fromkeys(name for row in rows for name in row if f"{name}{ERROR}" in row)
    return [name for name in found if any(np.isfinite(row[name]).any() for row in rows if name in row)][:_MOST_PANELS]


def _draw_series(ax: Any, rows: list[dict[str, Any]], axes: list[str], name: str) -> None:
    """The mean of one name along time at every place, and the band of its error where there are several runs."""
    from particleflow.analysis.reading import is_log_spaced
    from particleflow.view import style
    from particleflow.view.plots.base import drawn_times, time_axis
    from particleflow.view.plots.time.series import spans_decades

    times = np.unique(np.concatenate([row["times"] for row in rows]))
    log = time_axis(ax, times, is_log_spaced(times))
    for row, color in zip(rows, _colors(rows, axes), strict=True):
        if name not in row:
            continue
        shown = np.maximum(drawn_times(row["times"], log), drawn_times(times, log)[0])
        mean, error = row[name], np.nan_to_num(row[name + ERROR])
        label = ", ".join(value_label(key, row[key]) for key in axes)
        ax.plot(shown, mean, color=color, label=style.clean(label, 40))
        ax.fill_between(shown, mean - error, mean + error, color=color, alpha=0.25, linewidth=0)
    means = np.concatenate([row[name] for row in rows if name in row])
    if spans_decades(means):
        ax.set_yscale("log")
    ax.set_ylabel(style.clean(key_label(name)))
    ax.grid(True, axis="y")


def _colors(rows: list[dict[str, Any]], axes: list[str]) -> np.ndarray:
    """The colours of the places: in order along a single axis of numbers, else those of categories."""
    from particleflow.view import style

    if len(axes) != 1 or len(rows) < 3 or not all(is_number(row[axes[0]]) for row in rows):
        return style.palette(len(rows))
    ranks = np.argsort(np.argsort([row[axes[0]] for row in rows]))
    return style.ordered_colors(ranks / (len(rows) - 1))
