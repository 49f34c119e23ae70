"""Pictures of a sweep: the phase diagram its table names, or else its numbers over the one or two keys it sweeps.

Where runs repeat for several seeds, their series along time are drawn, too.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from particleflow._support import toml
from particleflow._support.files import own_folder, reason_of
from particleflow._support.text import plural
from particleflow.app.runs.run_folder import SCENARIO_FILE
from particleflow.app.scenario.key_labels import key_label
from particleflow.app.scenario.schema.sweep_table import PhaseTable
from particleflow.app.sweep.manifest import DONE, Manifest
from particleflow.app.sweep.results import finished_groups, is_number, phase_values, repetitions, table
from particleflow.app.sweep.series_figure import repeated_series, series_figure
from particleflow.errors import UserError

_MOST_PANELS = 6
_PANEL = (0.94, 0.62)  # width and height of a panel, in widths of the theme
_SPARSE = 4  # with more than so many times as many cells as runs, runs are drawn as points instead of a grid
_NOT_DRAWN = ("run", "state", "message")

Row = dict[str, Any]


@dataclass(frozen=True)
class Look:
    """How the pictures of a sweep are written; parameters as for `view.figures`, and the `folder`, else figures/."""

    theme: str = "light"
    format: str = "png"
    size: tuple[float, float] | None = None
    dpi: float | None = None
    folder: Path | None = None


def draw_figures(manifest: Manifest, look: Look | None = None) -> list[Path]:
    """Draw the phase diagram that the [sweep] table names, or else the figure for its one or two axes, and the series.

    The table is read from the scenario in the folder of the sweep.
    """
    look = look or Look()
    path = manifest.folder / SCENARIO_FILE
    try:
        scenario = toml.loads(path.read_text(encoding="utf-8"), SCENARIO_FILE)
        named = scenario["sweep"].get("phase")
        phase = None if named is None else PhaseTable.model_validate(named)
        count = scenario["initial"].get("count") if isinstance(scenario["initial"], dict) else None
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise UserError(f"{path} cannot be read as the scenario of a sweep: {reason_of(error)}.") from error
    drawn = draw_sweep(manifest, look) if phase is None else draw_phase_diagram(manifest, phase, count, look)
    return [path for path in (drawn, draw_series(manifest, look)) if path is not None]


def draw_phase_diagram(
    manifest: Manifest, phase: PhaseTable, count: int | None = None, look: Look | None = None
) -> Path:
    """Draw the mean of one observable over two keys (one may be "time") into figures/phase_diagram.png.

    An axis whose values are even in the logarithm is logarithmic.
    """
    from particleflow import view

    x, y, values = phase_values(manifest, phase.x, phase.y, phase.value)
    overlay, look = _overlay(phase, x, y, count), look or Look()
    with view.style.use(view.style.sized(look.theme, look.size, look.dpi)) as theme:
        axes = view.phase_diagram(
            x, y, values, x_label=key_label(phase.x), y_label=key_label(phase.y), value_label=key_label(phase.value),
            log_x=_is_log(x), log_y=_is_log(y),
            overlay=overlay, overlay_label="equiangular tokens" if overlay is not None else "",
            title=manifest.title if theme.annotated else "", runs=repetitions(manifest, {phase.x, phase.y} - {"time"}),
        )  # fmt: skip
        return _saved(axes.figure, manifest, "phase_diagram", look)


def draw_sweep(manifest: Manifest, look: Look | None = None) -> Path | None:
    """Draw the numbers of a sweep over its axes into figures/sweep.png; None where it has no axis, or more than two.

    One axis: the median of the runs at each value, with the band from 10 to 90 % where there are several. Two axes: the
    mean of the runs at each pair.
    """
    from particleflow import view
    from particleflow.view.plots.base import new_figure, write_figure_title

    rows = [row for row in table(manifest) if row["state"] == DONE]
    axes, values = swept_axes(manifest.keys, rows), drawn_values(manifest.keys, rows)
    if not 1 <= len(axes) <= 2 or not values:
        return None
    columns = 1 if len(values) == 1 else 2
    lines, look = -(-len(values) // columns), look or Look()
    with view.style.use(view.style.sized(look.theme, look.size, look.dpi)) as theme:
        figure = new_figure((_PANEL[0] * columns, _PANEL[1] * lines))
        panels = figure.subplots(lines, columns, squeeze=False)
        write_figure_title(figure, manifest.title if theme.annotated else "", _statistic(rows, axes))
        draw: Callable[..., None] = _draw_line if len(axes) == 1 else _draw_plane
        for place, ax in enumerate(panels.flat):
            if place < len(values):
                draw(ax, rows, axes, values[place])
            else:
                ax.set_visible(False)
        return _saved(figure, manifest, "sweep", look)


def draw_series(manifest: Manifest, look: Look) -> Path | None:
    """Draw the means along time over the seeds into figures/series.png; None where no run repeats for another seed."""
    from particleflow import view

    axes = [key for key in manifest.keys if key != "seed"]
    rows = repeated_series(manifest, axes)
    if not rows:
        return None
    with view.style.use(view.style.sized(look.theme, look.size, look.dpi)) as theme:
        figure = series_figure(rows, axes, manifest.title if theme.annotated else "")
        return _saved(figure, manifest, "series", look)


def _statistic(rows: list[Row], axes: list[str]) -> str:
    """Which statistic is drawn where several runs share a place on the axes; empty where none do."""
    most = max(Counter(tuple(_hashable(row[axis]) for axis in axes) for row in rows).values())
    words = "median, and 10 to 90 %," if len(axes) == 1 else "mean"
    return f"{words} of {most} runs at each place" if most > 1 else ""


def swept_axes(keys: list[str], rows: list[Row]) -> list[str]:
    """The keys that differ between runs; seeds are repetitions, and an axis only where nothing else differs."""
    varied = [key for key in keys if len({_hashable(row.get(key)) for row in rows}) > 1]
    return [key for key in varied if key != "seed"] or varied


def drawn_values(keys: list[str], rows: list[Row]) -> list[str]:
    """The columns of the table that hold numbers, clusters first; `end_time` only if it differs between runs."""
    columns = dict.fromkeys(name for row in rows for name in row if name not in (*keys, *_NOT_DRAWN))
    numbers = {name: [row[name] for row in rows if _is_finite(row.get(name))] for name in columns}
    found = [name for name, column in numbers.items() if column and (name != "end_time" or len(set(column)) > 1)]
    return sorted(found, key=lambda name: name != "clusters")[:_MOST_PANELS]


def _draw_line(ax: Any, rows: list[Row], axes: list[str], value: str) -> None:
    """The median of a number over one key, with a band where several runs share a value of the key."""
    from particleflow.view import style
    from particleflow.view.plots.time.series import spans_decades

    kept = [row for row in rows if _is_finite(row.get(value))]
    places, names = _places([row[axes[0]] for row in kept])
    numbers = np.array([float(row[value]) for row in kept])
    xs = np.unique(places)
    groups = [numbers[places == x] for x in xs]
    most = max(map(len, groups))
    low, middle, high = (np.array([np.quantile(group, share) for group in groups]) for share in (0.1, 0.5, 0.9))
    color = style.palette(1)[0]
    if most > 1 and names is not None:  # between kinds there is nothing to draw a line through
        bars = [middle - low, high - middle]
        ax.errorbar(xs, middle, bars, color=color, fmt="o", capsize=4)
    elif most > 1:
        ax.fill_between(xs, low, high, color=color, alpha=0.2, linewidth=0)
        ax.plot(xs, middle, color=color)
    else:
        joined = names is None and axes[0] != "seed"
        ax.plot(xs, middle, color=color, marker="o", markersize=4, linestyle="-" if joined else "")
    ax.set(xlabel=style.clean(key_label(axes[0])), ylabel=style.clean(key_label(value)))
    if names is None and _is_log(xs):
        ax.set_xscale("log")
    if spans_decades(numbers):
        ax.set_yscale("log")
    _set_ticks(ax.xaxis, xs, names)
    ax.grid(True, axis="y")


def _draw_plane(ax: Any, rows: list[Row], axes: list[str], value: str) -> None:
    """The mean of a number over two keys: cells where runs fill a grid, points where they do not."""
    from particleflow import view
    from particleflow.view import style

    kept = [row for row in rows if _is_finite(row.get(value))]
    (xs, x_names), (ys, y_names) = (_places([row[axis] for row in kept]) for axis in axes)
    records = [{"x": x, "y": y, "value": float(row[value])} for x, y, row in zip(xs, ys, kept, strict=True)]
    label = style.clean(key_label(value))
    if np.unique(xs).size * np.unique(ys).size > _SPARSE * len(kept):
        colors = [record["value"] for record in records]
        points = ax.scatter(xs, ys, c=colors, cmap=style.colormap("sequential"), s=24)
        ax.figure.colorbar(points, ax=ax, label=label)
        ax.set(xlabel=style.clean(key_label(axes[0])), ylabel=style.clean(key_label(axes[1])))
    else:
        x, y, grid = view.sweep_grid(records, "x", "y", "value")
        view.phase_diagram(
            x, y, grid, x_label=key_label(axes[0]), y_label=key_label(axes[1]), ax=ax,
            value_label=label,
            log_x=x_names is None and _is_log(x), log_y=y_names is None and _is_log(y),
        )  # fmt: skip
    _set_ticks(ax.xaxis, xs, x_names)
    _set_ticks(ax.yaxis, ys, y_names)


def _places(values: list[Any]) -> tuple[np.ndarray, list[str] | None]:
    """Where values lie on an axis: numbers at themselves, others one after the other with their names."""
    if all(map(is_number, values)):
        return np.array(values, dtype=float), None
    names = list(dict.fromkeys(map(_name, values)))
    return np.array([names.index(_name(value)) for value in values], dtype=float), names


def _name(value: Any) -> str:
    """A swept value in a few letters: a table by its kind."""
    text = value["kind"] if isinstance(value, dict) and "kind" in value else value
    return str(text)[:24]


def _set_ticks(axis: Any, places: np.ndarray, names: list[str] | None) -> None:
    """Ticks at the values that were swept, where they are few or have names."""
    from particleflow.view import style
    from particleflow.view.plots.time.phase import value_ticks

    if names is None:
        value_ticks(axis, places)
    else:
        axis.set_ticks(range(len(names)), [style.clean(name) for name in names])


def _is_log(values: np.ndarray) -> bool:
    """Whether positive values are evenly spaced in the logarithm."""
    from particleflow.analysis.reading import is_log_spaced

    return bool((values > 0).all()) and is_log_spaced(values)


def _is_finite(value: Any) -> bool:
    """Whether a cell of the table is a finite number."""
    return is_number(value) and bool(np.isfinite(value))


def _hashable(value: Any) -> Any:
    """A swept value that can be counted: tables and lists by their text."""
    return value if isinstance(value, int | float | str) else repr(value)


def small_print(manifest: Manifest) -> str:
    """n, d, seeds and runs of a sweep, from the smallest to the largest: "n = 32 · d = 8 · 16 seeds · 48 runs"."""
    shapes = [group["last_points"].shape[1:] for _, group in finished_groups(manifest) if "last_points" in group]
    parts = []
    for name, sizes in zip(("n", "d"), zip(*shapes, strict=True), strict=False):
        parts.append(f"{name} = {min(sizes)}" + (f" … {max(sizes)}" if max(sizes) > min(sizes) else ""))
    done = [run["values"] for run in manifest.runs if run["state"] == DONE]
    seeds = len({_hashable(values.get("seed")) for values in done})
    parts += [f"{seeds} seeds"] if seeds > 1 else []
    return " · ".join([*parts, plural(len(done), "run")])


def _saved(figure: Any, manifest: Manifest, name: str, look: Look) -> Path:
    """Save a figure among those of the sweep, with the sizes of its runs in small print, and return its path."""
    from particleflow.view.plots.base import write_small_print
    from particleflow.view.plots.saving import save_figure

    write_small_print(figure, small_print(manifest))
    folder = own_folder(manifest.folder / "figures") if look.folder is None else look.folder
    folder.mkdir(parents=True, exist_ok=True)
    return save_figure(figure, folder / f"{name}.{look.format}", look.dpi)


def _overlay(phase: Any, x: np.ndarray, y: np.ndarray, count: int | None) -> tuple[np.ndarray, np.ndarray] | None:
    """The theory curve that the phase table names, as its x and y; None without one."""
    from particleflow.analysis import equiangular_curve

    if phase.overlay is None or count is None or "time" not in (phase.x, phase.y):
        return None
    keys = y if phase.x == "time" else x
    betas, times = equiangular_curve(float(keys[0]), float(keys[-1]), count)
    return (times, betas) if phase.x == "time" else (betas, times)
