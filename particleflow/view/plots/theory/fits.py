"""Figures of a fitted local mean, its curve and its attention weights, and of values on fixed places."""

from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.motion import even_in_motion
from particleflow.analysis.reading import first_run
from particleflow.analysis.samples import stored_points
from particleflow.errors import ArgumentError, ShapeError
from particleflow.view import style
from particleflow.view.plots.base import format_time, new_figure, title_figure
from particleflow.view.plots.density.functions import regression
from particleflow.view.plots.matrices.pair_matrices import color_bar, edges_between

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

_QUERIES = 200  # of the curve by default
_CURVES = 6  # of more values the first are drawn
_PANEL = 0.4  # the width of a panel, in widths of the theme
_LEAST_LEAD = 1e-3  # of the largest lead: a place whose leading value is ahead by less is drawn without colour


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

    On the line the values are curves over their places; in the plane dots, coloured by the value, or by the leading
    one of several (shares of labels), the paler the less it leads.

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
    if figure is None:
        figure = new_figure((_PANEL * max(len(chosen), 2), _height(places) + 0.1), trajectory)
        title_figure(figure, trajectory, "Values on places")
    axes = figure.subplots(1, len(chosen), squeeze=False, sharex=True, sharey=True)[0]
    values = [np.asarray(stored_points(run, int(frame)), float) for frame in chosen]
    named = [f"value {number}" for number in range(values[0].shape[1])] if names is None else list(names)
    if len(named) != values[0].shape[1]:
        raise ArgumentError(f"Argument `names` must name {values[0].shape[1]} values, but names {len(named)}.")
    draw = _curves if places.shape[1] == 1 else _dots
    for ax, frame, seen in zip(axes, chosen, values, strict=True):
        draw(ax, places, seen, values, named)
        ax.set_title(f"t = {format_time(float(run.times[int(frame)]))}")
    axes[0].set_ylabel("value" if places.shape[1] == 1 else "y")
    if len(named) > 1:
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=min(len(named), 4))
    return axes


def _height(places: np.ndarray) -> float:
    """The height of a row of panels, in widths of the theme: places in the plane keep their proportions."""
    wide, high = np.ptp(places, axis=0) if places.shape[1] == 2 else (1.0, 0.85)
    return 0.85 * _PANEL * float(np.clip(high / (wide or 1.0), 0.3, 1.6)) + 0.2


def _leads(values: np.ndarray) -> np.ndarray:
    """By how much the largest value of every row is ahead of the second."""
    ordered = np.sort(values, axis=1)
    return ordered[:, -1] - ordered[:, -2]


def _curves(ax: Any, places: np.ndarray, seen: np.ndarray, values: list[np.ndarray], names: list[str]) -> None:
    """Values over places on the line, at most a few of them."""
    order = np.argsort(places[:, 0], kind="stable")
    theme = style.current()
    for number in range(min(seen.shape[1], _CURVES)):
        color = theme.categories[number % len(theme.categories)]
        ax.plot(places[order, 0], seen[order, number], ".-", color=color, markersize=3, label=names[number])
    ax.set_xlabel("x")


def _dots(ax: Any, places: np.ndarray, seen: np.ndarray, values: list[np.ndarray], names: list[str]) -> None:
    """Dots in the plane, coloured by their one value, or by which of several values is the largest."""
    ax.set_aspect("equal")
    ax.set_xlabel("x")
    if seen.shape[1] == 1:
        low, high = min(each.min() for each in values), max(each.max() for each in values)
        ax.scatter(*places.T, c=seen[:, 0], s=12, linewidths=0, vmin=low, vmax=high, cmap=style.colormap("sequential"))
        return
    leading, largest = seen.argmax(axis=1), max(_leads(each).max() for each in values)
    lead = _leads(seen) / (largest or 1.0)
    colors = style.label_colors(np.arange(seen.shape[1]))
    theme = style.current()
    unknown = lead < _LEAST_LEAD
    ax.scatter(*places[unknown].T, s=8, facecolors="none", edgecolors=theme.muted, linewidths=0.5)
    for number, name in enumerate(names):
        here = (leading == number) & ~unknown
        shades = np.column_stack([np.tile(colors[number], (here.sum(), 1)), 0.25 + 0.75 * lead[here]])
        ax.scatter(*places[here].T, c=shades, s=14, linewidths=0)
        ax.scatter([], [], color=colors[number], s=14, linewidths=0, label=style.clean(name))
