"""Figures of a fitted local mean, its curve and its attention weights, and of values on fixed places."""

from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.motion import even_in_motion
from particleflow.analysis.reading import first_run
from particleflow.analysis.samples import stored_points
from particleflow.errors import ArgumentError, ShapeError
from particleflow.view import style
from particleflow.view.plots.base import inches, new_axes, new_figure, set_title, time_words, title_figure
from particleflow.view.plots.density.functions import regression
from particleflow.view.plots.matrices.pair_matrices import color_bar, edges_between
from particleflow.view.plots.subjects.placed_values import seen_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory.trajectory import Trajectory

_QUERIES = 200  # of the curve by default
_CURVES = 6  # of more values the first are drawn
_PANEL = 0.4  # the width of a panel of curves, in widths of the theme
_LARGE_PANEL = 0.64  # and of places in the plane, two panels in a row
_TIMES = 5  # of fitted curves


def fit(
    model: Any, *, queries: Any = None, at: float | None = None, truth: Any = None, figure: Any = None
) -> np.ndarray:
    """Draw a fitted regression of one feature: the curve over its data, and beside it all attention weights.

    Left: samples, the local mean, and, with `at`, the weight of each sample at that query. Right: the weights of every
    query (rows) on every sample (columns, sorted by their feature), whose means of the targets are the curve.

    Parameters: `model`, a fitted `KernelRegression` or one like it (`predict`, `attention`, `measure_`); `queries`
    (q,), evenly over the samples if left out; `truth`, a function of the feature, drawn dashed. Returns both axes.
    """
    inputs, targets = (np.asarray(each, float) for each in (model.measure_.points, model.measure_.carried))
    if inputs.shape[1] != 1 or targets.ndim != 1:
        raise ShapeError(
            f"A fit of one feature and one target can be drawn, but the model has {inputs.shape[1]} features and "
            f"targets of shape {targets.shape}."
        )
    low, high = inputs.min(), inputs.max()
    asked = np.linspace(low, high, _QUERIES) if queries is None else np.ravel(np.asarray(queries, float))
    figure = figure or new_figure((1.55, 0.6))
    left, right = figure.subplots(1, 2)
    weights = None if at is None else model.attention(np.array([[float(at)]]))[0]
    real = None if truth is None else np.asarray(truth(asked), float)
    regression(inputs, targets, asked, model.predict(asked[:, None]), weights=weights, at=at, truth=real, ax=left)
    left.set_title("the local mean")
    _heat_map(right, inputs[:, 0], np.sort(asked), model.attention(np.sort(asked)[:, None]))
    return np.array([left, right])


def _heat_map(ax: Any, inputs: np.ndarray, asked: np.ndarray, weights: np.ndarray) -> None:
    """Queries against samples, both in the order of their feature."""
    order = np.argsort(inputs, kind="stable")
    columns = np.arange(len(inputs) + 1) + 0.5
    image = ax.pcolormesh(
        columns, edges_between(asked, False), weights[:, order], cmap=style.colormap("density"), vmin=0, rasterized=True
    )
    color_bar(ax, image, "attention weight")
    ax.set(xlabel="sample, in the order of x", ylabel="query x")
    ax.set_title("where it comes from")


def values_on_places(
    trajectory: "Trajectory", places: Any, *, frames: Any = None, names: Any = None, figure: Any = None
) -> np.ndarray:
    """Draw a run whose points are values on places that stay, one panel a frame; returns the array of axes.

    On the line the values are curves over their places; in the plane dots as large as there is room, two panels in a
    row, coloured by the value, or by the leading one of several (shares of labels), the paler the less it leads.

    Parameters: `places` (n, 1) or (n, 2), in the order of the particles; `frames`, four, even in the motion, if left
    out; `names` of the values. An ensemble shows its run 0.
    """
    run = first_run(trajectory)
    places = np.asarray(places, float)
    if places.ndim != 2 or places.shape[0] != run.count or places.shape[1] not in (1, 2):
        raise ShapeError(
            f"Argument `places` must have shape ({run.count}, 1) or ({run.count}, 2), but has {places.shape}."
        )
    chosen = np.unique(even_in_motion(run, 4)) if frames is None else np.atleast_1d(np.asarray(frames, int))
    plane = places.shape[1] == 2
    columns = min(len(chosen), 2) if plane else len(chosen)
    rows = -(-len(chosen) // columns)
    if figure is None:
        panel = _LARGE_PANEL if plane else _PANEL
        figure = new_figure((panel * max(columns, 2), rows * _height(places, panel) + 0.1), trajectory)
        title_figure(figure, trajectory, "Values on places")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    axes = grid.ravel()[: len(chosen)]
    for ax in grid.ravel()[len(chosen) :]:
        ax.set_visible(False)
    values = [np.asarray(stored_points(run, int(frame)), float) for frame in chosen]
    named = list(seen_values(places, values, names).names)
    if len(named) != values[0].shape[1]:
        raise ArgumentError(f"Argument `names` must name {values[0].shape[1]} values, but names {len(named)}.")
    draw = _curves if places.shape[1] == 1 else _dots
    for ax, frame, seen in zip(axes, chosen, values, strict=True):
        draw(ax, places, seen, values, named)
        ax.set_title(time_words(run, float(run.times[int(frame)])))
        ax.set(xlabel="x", ylabel="y" if plane else "value")
        ax.label_outer()
    if len(named) > 1:
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=min(len(named), 4))
    return axes


def fitted_values(trajectory: "Trajectory", places: Any, *, frames: Any = None, ax: "Axes | None" = None) -> "Axes":
    """Draw one value on each place of a line: those of the first frame as dots, those of later frames as curves.

    Under attention by places each curve is a kernel regression of the dots, or of the curve before it.

    Parameters: `places` (n, 1), in the order of the particles; `frames`, else five that are even in the motion, the
    first step of a map among them; `ax`, the axes to draw on, else new ones. An ensemble shows its run 0.
    """
    run = first_run(trajectory)
    places = np.asarray(places, float)
    if places.shape != (run.count, 1) or run.dimension != 1:
        raise ShapeError(f"One value on each of {run.count} places of a line is drawn, but places are {places.shape}.")
    chosen = even_in_motion(run, _TIMES) if frames is None else np.atleast_1d(np.asarray(frames, int))
    if frames is None and run.metadata.get("solver") == "map":
        chosen = np.append(chosen, min(1, len(run) - 1))
    ax, theme, order = new_axes(ax, about=trajectory), style.current(), np.argsort(places[:, 0], kind="stable")
    later = [int(frame) for frame in np.unique(chosen) if frame > 0]
    for frame, color in zip(later, style.ordered_colors(np.linspace(0, 1, max(len(later), 2))), strict=False):
        ax.plot(
            places[order, 0], stored_points(run, frame)[order, 0], color=color, linewidth=1.3 * theme.line_width,
            label=time_words(run, float(run.times[frame])),
        )  # fmt: skip
    ax.scatter(
        places[:, 0], stored_points(run, 0)[:, 0], s=16, color=theme.muted, linewidths=0, zorder=3, label="start"
    )
    ax.set(xlabel="x", ylabel="value")
    ax.grid(True, axis="y")
    ax.legend(loc="best", labelcolor=theme.text)
    set_title(ax, run)
    return ax


def _height(places: np.ndarray, panel: float) -> float:
    """The height of a row of panels, in widths of the theme: places in the plane keep their proportions."""
    wide, high = np.ptp(places, axis=0) if places.shape[1] == 2 else (1.0, 0.85)
    return 0.85 * panel * float(np.clip(high / (wide or 1.0), 0.3, 1.6)) + 0.12


def _curves(ax: Any, places: np.ndarray, seen: np.ndarray, values: list[np.ndarray], names: list[str]) -> None:
    """Values over places on the line, at most a few of them."""
    order = np.argsort(places[:, 0], kind="stable")
    theme = style.current()
    for number in range(min(seen.shape[1], _CURVES)):
        color = theme.categories[number % len(theme.categories)]
        ax.plot(places[order, 0], seen[order, number], ".-", color=color, markersize=3, label=names[number])


def _dots(ax: Any, places: np.ndarray, seen: np.ndarray, values: list[np.ndarray], names: list[str]) -> None:
    """Dots in the plane, coloured by their one value, or by which of several values is the largest."""
    ax.set_aspect("equal")
    view = seen_values(places, values, names)
    unit = 72 * inches(ax) / max(float(np.ptp(places, axis=0).max()) * 1.1, 1e-300)
    dots = ax.scatter(*places.T, s=view.dot_area(unit), marker="s" if view.is_grid else "o")
    dots.set(**view.dot_style(seen))
    for name, color in zip(names, style.label_colors(np.arange(len(names))), strict=True):
        if len(names) > 1:
            ax.scatter([], [], color=color, s=30, linewidths=0, label=style.clean(name))
