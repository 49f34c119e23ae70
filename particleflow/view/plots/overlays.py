"""Several runs in one picture: particles over the density that they are drawn from, or the paths of all of them.

The title and the small print state what holds for all runs; what differs stands beside the name of each.

Where a run lives on a line or a circle its coordinate or angle is drawn, on a sphere the cosine with a direction, else
the first coordinate. Densities are curves, particles are histograms by mass: both integrate to one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.density.cells import is_density
from particleflow.analysis.motion import even_in_motion
from particleflow.analysis.reading import first_run, frame_weights
from particleflow.analysis.samples import gather, stored_points, thinned
from particleflow.errors import ArgumentError
from particleflow.view import style
from particleflow.view.plots.base import (
    MAX_FRAMES,
    angles,
    check_one_space,
    drawn_times,
    new_figure,
    projection,
    small_print_of_several,
    time_axis,
    time_words,
    write_small_print,
    write_title,
)
from particleflow.view.plots.comparison_plot import common_unit, named_runs, names_with_differences
from particleflow.view.plots.density.density_scale import field_of
from particleflow.view.plots.density.distributions import particle_density
from particleflow.view.plots.density.histograms import Ruler, cell_count, densities, ruler_of
from particleflow.view.plots.space.paths import angle_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory.trajectory import Trajectory

_TIMES = 4  # by default
_LEGEND_LETTERS = 60  # that fit into one row of a legend
_LINES = 120  # of particles over the density
_FINEST = 80  # cells of a histogram: narrower ones only show how few particles there are


def overlay(
    trajectories: "Mapping[str, Trajectory] | Sequence[Trajectory]", times: Any = None, *, figure: Any = None
) -> np.ndarray:
    """Draw where the mass of several runs is at a few times: densities as curves, particles as histograms over them.

    Above, the first density (or, without one, the density of the first run) against time, with the paths of up to 120
    particles of each other run on a line or a circle. Where all runs have no more, on a line or a circle, and no times
    are given, the paths of each are drawn in its colour instead, on one axes. Runs must live in one space; of an
    ensemble run 0 is shown.

    Parameters: the trajectories, a sequence or a mapping by name; `times`, else four that are even in the mass that
    moves, of the time that all runs have; `figure`, the figure to draw on, else a new one. Returns the array of axes:
    that over time, then one a time.
    """
    runs = [(name, first_run(run)) for name, run in named_runs(trajectories)]
    if len(runs) < 2:
        raise ArgumentError(f"An overlay needs at least two runs, but there is {len(runs)}.")
    base = next((run for _, run in runs if is_density(run)), runs[0][1])
    check_one_space(runs, base)
    if times is None and all(_draws_every_way(run) for _, run in runs):
        return np.array([_draw_every_way(runs, figure)])
    shown = _common_times(runs, base) if times is None else np.atleast_1d(np.asarray(times, float))
    lined = [run for _, run in runs if run is not base and _has_ways(run)]
    figure, names = figure or _new_figure((1.5, 0.95), runs, _lines_note(lined)), _names(runs)
    grid = figure.add_gridspec(2, len(shown), height_ratios=(1.25, 1.0))
    above = figure.add_subplot(grid[0, :])
    particle_density(base, ax=above)
    ruler = _ruler(base, above.get_ylim())
    colored, lines = "", []
    for name, (_, run) in zip(names, runs, strict=True):
        if run is base:
            colored = f"colour: {name}"
        elif _has_ways(run):
            _draw_ways(above, run, ruler)
            lines.append(name)
    write_title(above, _common_title(runs), colored + (f"; lines: {', '.join(lines)}" if lines else ""))
    below = [figure.add_subplot(grid[1, place]) for place in range(len(shown))]
    for ax, time in zip(below, shown, strict=True):
        for name, (_, run), color in zip(names, runs, style.palette(len(runs)), strict=True):
            _draw_moment(ax, run, float(time), ruler, color, name)
        ax.set_title(time_words(base, float(time)))
    _dress(below, base, ruler)
    return np.array([above, *below])


def _common_times(runs: "Sequence[tuple[str, Trajectory]]", base: "Trajectory") -> np.ndarray:
    """Times of the base that are even in what moves and that all runs have."""
    begin = max(float(run.times[0]) for _, run in runs)
    end = min(float(run.times[-1]) for _, run in runs)
    inside = np.flatnonzero((np.asarray(base.times) >= begin) & (np.asarray(base.times) <= end))
    if end < begin or not inside.size:
        raise ArgumentError("The runs have no time in common.")
    part = base[int(inside[0]) : int(inside[-1]) + 1]
    return np.asarray(part.times, float)[even_in_motion(part, _TIMES)]


def _ruler(base: "Trajectory", ends: tuple[float, float]) -> Ruler:
    """The ruler of the base between given ends, at the first of which a circle is cut open."""
    view, found = projection(base), ruler_of(base, thinned(len(base), MAX_FRAMES // 2))
    if view.kind != "circle":
        return replace(found, ends=ends)
    return Ruler(lambda points: angles(view(points), ends[0]), found.name, ends)


def _draws_every_way(run: "Trajectory") -> bool:
    """Whether the paths of all particles can be drawn over time."""
    return _has_ways(run) and run.count <= _LINES


def _has_ways(run: "Trajectory") -> bool:
    """Whether paths of particles can be drawn over time: on a line or a circle."""
    return not is_density(run) and projection(run).kind in ("line", "circle")


def _lines_note(runs: "Sequence[Trajectory]") -> str:
    """Small print on how many particles have lines, where these are not all: "lines of 120 of 300 particles"."""
    counts = dict.fromkeys(f"{_LINES} of {run.count:,}" for run in runs if run.count > _LINES)
    return f"lines of {' and '.join(counts)} particles" if counts else ""


def _draw_every_way(runs: "Sequence[tuple[str, Trajectory]]", figure: Any) -> "Axes":
    """The paths of all particles of all runs over time, one colour a run."""
    from matplotlib.lines import Line2D

    base = runs[0][1]
    figure = figure or _new_figure((1.2, 0.75), runs)
    ax = figure.add_subplot()
    time_axis(ax, base.times, unit=common_unit(run for _, run in runs))
    found = [ruler_of(run, thinned(len(run), MAX_FRAMES // 2)) for _, run in runs]
    circle = projection(base).kind == "circle"
    low, high = min(each.ends[0] for each in found), max(each.ends[1] for each in found)
    ruler = _ruler(base, found[0].ends if circle else (low, high))
    for (_, run), color in zip(runs, style.palette(len(runs)), strict=True):
        _draw_ways(ax, run, ruler, color)
    ax.set(ylabel=ruler.name, ylim=ruler.ends, xlim=(ax.get_xlim()[0], max(float(run.times[-1]) for _, run in runs)))
    if circle:
        angle_ticks(ax.yaxis, *ruler.ends)
    names = _names(runs)
    lines = [Line2D([], [], color=color) for color in style.palette(len(runs))]
    _legend(figure, lines, names)
    write_title(ax, _common_title(runs))
    return ax


def _new_figure(shape: tuple[float, float], runs: "Sequence[tuple[str, Trajectory]]", note: str = "") -> Any:
    """A figure whose small print holds for all runs, and ends with a note."""
    figure, common = new_figure(shape), small_print_of_several([run for _, run in runs])[0]
    write_small_print(figure, " · ".join(filter(None, [common, note])))
    return figure


def _names(runs: "Sequence[tuple[str, Trajectory]]") -> list[str]:
    """Names for the legend, each with what tells its run from the others."""
    return [style.clean(name, 80) for name in names_with_differences(runs)]


def _common_title(runs: "Sequence[tuple[str, Trajectory]]") -> str:
    """The title of all runs, if they have one."""
    titles = {str((run.metadata or {}).get("title") or "") for _, run in runs}
    return titles.pop() if len(titles) == 1 and style.current().annotated else ""


def _draw_ways(ax: "Axes", run: "Trajectory", ruler: Ruler, color: Any = None) -> None:
    """Lines of some particles over time, thin ones without a colour; on a circle they break where it is cut."""
    from matplotlib.collections import LineCollection

    theme = style.current()
    frames, chosen = thinned(len(run), MAX_FRAMES), thinned(run.count, _LINES)
    points = gather(run, frames, chosen)
    heights = ruler.measure(points.reshape(-1, run.dimension)).reshape(points.shape[:2])
    width = ruler.ends[1] - ruler.ends[0]
    jump = np.abs(np.diff(heights, axis=0, prepend=heights[:1])) > width / 2
    heights = np.where(jump & (projection(run).kind == "circle"), np.nan, heights)
    times = np.broadcast_to(drawn_times(run.times, ax.get_xscale() == "log")[frames, None], heights.shape)
    lines = np.stack([times, heights], axis=-1).swapaxes(0, 1)
    looks: dict[str, Any] = {"colors": theme.text, "linewidths": 0.5, "alpha": 0.4}
    looks = looks if color is None else {"colors": [color], "linewidths": theme.line_width, "alpha": 0.85}
    ax.add_collection(LineCollection(list(lines), **looks), autolim=False)


def _draw_moment(ax: "Axes", run: "Trajectory", time: float, ruler: Ruler, color: Any, name: str) -> None:
    """The mass of one run at the frame that is nearest to a time."""
    frame = int(np.abs(np.asarray(run.times, float) - time).argmin())
    label = name
    if is_density(run):
        edges, found = densities(run, np.array([frame]), ruler)
        middle = (edges[1:] + edges[:-1]) / 2
        if projection(run).kind == "circle":
            middle = np.mod(middle - ruler.ends[0], 2 * np.pi) + ruler.ends[0]
        order = np.argsort(middle)
        ax.plot(middle[order], found[0][order], color=color, label=label, zorder=3)
        return
    cells = min(cell_count(run.count), _FINEST)
    edges = np.linspace(*ruler.ends, cells + 1)
    places = ruler.measure(stored_points(run, frame))
    counts, _ = np.histogram(places[np.isfinite(places)], edges, weights=frame_weights(run, frame)[np.isfinite(places)])
    ax.stairs(counts / np.diff(edges), edges, fill=True, color=color, alpha=0.4, label=label, zorder=2)


def _dress(axes: "list[Axes]", base: "Trajectory", ruler: Ruler) -> None:
    """One scale for all moments: logarithmic where the density is drawn so; names once."""
    field = field_of(base)
    highest = max(ax.get_ylim()[1] for ax in axes)
    for place, ax in enumerate(axes):
        if field is not None and field.log:
            ax.set_yscale("log")
            ax.set_ylim(field.low, 1.6 * max(highest, field.high))
        else:
            ax.set_ylim(0.0, highest)
        ax.set_xlim(*ruler.ends)
        ax.set_xlabel(ruler.name)
        if projection(base).kind == "circle":
            angle_ticks(ax.xaxis, *ruler.ends)
        if place:
            ax.tick_params(labelleft=False)
        else:
            ax.set_ylabel("density")
    handles, labels = axes[0].get_legend_handles_labels()
    _legend(axes[0].figure, handles, labels)


def _legend(figure: Any, handles: "Sequence[Any]", names: "Sequence[str]") -> None:
    """A legend above the axes, in one row where it fits."""
    short = max(map(len, names)) * len(names) <= _LEGEND_LETTERS
    figure.legend(handles, names, loc="outside upper right", ncols=len(names) if short else 1)
