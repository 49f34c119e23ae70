"""Plots of functions given as arrays: kernel regression with its attention weights, and densities over time."""

from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.samples import thinned
from particleflow.errors import ShapeError
from particleflow.view import style
from particleflow.view.plots.base import drawn_times, format_time, new_axes, rounding_level, time_axis, write_title
from particleflow.view.plots.matrices.pair_matrices import color_bar, edges_between

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def regression(
    inputs: Any,
    targets: Any,
    queries: Any,
    estimates: Any,
    *,
    weights: Any = None,
    at: float | None = None,
    truth: Any = None,
    title: str = "",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw a kernel regression: data (inputs, targets) as dots, the estimate m(x) at the queries as a curve.

    Parameters: `inputs` and `targets` (n,), the data; `queries` and `estimates` (q,), the curve; `weights` (n,), the
    attention weights of the query `at`, with which dots grow and darken, while a drop line marks the query and a ring
    its local mean; `truth` (q,), drawn dashed; `title`; `ax`, the axes to draw on, else new ones. Returns the axes.
    """
    inputs, targets = _pair(inputs, targets, "inputs", "targets")
    queries, estimates = _pair(queries, estimates, "queries", "estimates")
    ax = new_axes(ax)
    order = np.argsort(queries)
    _regression_curves(ax, queries[order], estimates[order], None if truth is None else np.ravel(truth)[order])
    _weighted_dots(ax, inputs, targets, weights)
    if at is not None:
        _mark_query(ax, at, float(np.interp(at, queries[order], estimates[order])))
    ax.set(xlabel="x", ylabel="y")
    _regression_legend(ax, weights is not None)
    write_title(ax, title)
    return ax


def _pair(first: Any, second: Any, first_name: str, second_name: str) -> tuple[np.ndarray, np.ndarray]:
    """Two vectors of one length."""
    first, second = np.ravel(np.asarray(first, float)), np.ravel(np.asarray(second, float))
    if first.shape != second.shape:
        raise ShapeError(
            f"`{first_name}` and `{second_name}` must have one shape, but have {first.shape} and {second.shape}."
        )
    return first, second


def _regression_curves(ax: "Axes", queries: np.ndarray, estimates: np.ndarray, truth: np.ndarray | None) -> None:
    """The estimate as a strong curve, and the truth, if it is known, dashed."""
    theme = style.current()
    if truth is not None:
        ax.plot(queries, truth, "--", color=theme.muted, linewidth=1.0, label="truth")
    width = 1.5 * theme.line_width
    ax.plot(queries, estimates, color=theme.categories[0], linewidth=width, label="local mean", zorder=4)


def _mark_query(ax: "Axes", at: float, mean: float) -> None:
    """A drop line at the query, and a ring at its local mean."""
    color = style.current().categories[3]
    ax.axvline(at, color=color, linewidth=0.9, alpha=0.7, zorder=1)
    ring: dict[str, Any] = {"markerfacecolor": "none", "markeredgecolor": color, "markeredgewidth": 1.8}
    ax.plot([at], [mean], "o", markersize=9, zorder=5, **ring)


def _regression_legend(ax: "Axes", weighted: bool) -> None:
    """The drawn names, and for the weights a dot as strong as the strongest."""
    from matplotlib.lines import Line2D

    handles, _ = ax.get_legend_handles_labels()
    if weighted:
        color = style.current().categories[3]
        handles.append(
            Line2D(
                [],
                [],
                linestyle="",
                marker="o",
                markersize=8,
                alpha=0.75,
                color=color,
                markeredgewidth=0,
                label="attention weight",
            )
        )
    ax.legend(handles=handles, loc="best")


def _weighted_dots(ax: "Axes", inputs: np.ndarray, targets: np.ndarray, weights: Any) -> None:
    """The data as dots; with weights, a second dot on each whose area and opacity grow with its weight."""
    theme = style.current()
    if weights is None:
        ax.scatter(inputs, targets, s=16, color=theme.muted, alpha=0.6, linewidths=0, label="data", zorder=3)
        return
    weights = np.ravel(np.asarray(weights, float))
    if weights.shape != inputs.shape:
        raise ShapeError(f"Argument `weights` must have shape {inputs.shape}, but has {weights.shape}.")
    relative = weights / (weights.max() or 1.0)
    order = np.argsort(relative)
    ax.scatter(inputs, targets, s=10, color=theme.muted, alpha=0.5, linewidths=0, label="data", zorder=2)
    colors = np.column_stack([np.tile(style.label_colors(np.array([3])), (len(inputs), 1)), 0.05 + 0.7 * relative])
    ax.scatter(inputs[order], targets[order], s=8 + 90 * relative[order], c=colors[order], linewidths=0, zorder=3)


def density(
    times: Any,
    grid: Any,
    densities: Any,
    *,
    label: str = "x",
    log: bool | str = "auto",
    title: str = "",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw densities (T, G) on a grid (G,) over times (T,): colour is the density, capped at its 99.5th percentile.

    Parameters: `label`, the name of the grid's axis; `log`, a logarithmic time axis (True, False, or "auto": where the
    times are spaced like that); `title`; `ax`, the axes to draw on, else new ones. Returns the axes.
    """
    times, grid, densities = (np.asarray(part, float) for part in (times, grid, densities))
    if densities.shape != (len(times), len(grid)):
        raise ShapeError(
            f"Argument `densities` must have shape ({len(times)}, {len(grid)}), but has {densities.shape}."
        )
    ax = new_axes(ax)
    log = time_axis(ax, times, log)
    density_mesh(ax, edges_between(drawn_times(times, log), log), edges_between(grid, False), densities)
    ax.set_ylabel(style.clean(label))
    write_title(ax, title)
    return ax


def density_mesh(
    ax: "Axes",
    columns: np.ndarray,
    rows: np.ndarray,
    densities: np.ndarray,
    *,
    logarithmic: bool = False,
    norm: Any = None,
    bar: bool = True,
) -> None:
    """Cells between edges in time (T + 1,) and place (G + 1,), coloured by densities (T, G), with their scale.

    Colours are linear up to the 99.5th percentile, or `logarithmic`, which shows clusters and the last stragglers and
    leaves empty cells blank, or on a given matplotlib `norm`. `bar` draws the scale.
    """
    from matplotlib.colors import LogNorm

    top = float(np.nanquantile(densities, 0.995)) or 1.0
    colors: dict[str, Any] = {"cmap": style.colormap("density"), "vmin": 0.0, "vmax": top}
    if norm is not None:
        colors = {"cmap": style.colormap("density"), "norm": norm}
    elif logarithmic and (densities > 0).any():
        least = max(densities[densities > 0].min(), rounding_level(densities))
        colors = {"cmap": style.colormap("density"), "norm": LogNorm(least, densities.max())}
        densities = np.ma.masked_where(densities <= 0, densities)
    mesh = ax.pcolormesh(columns, rows, densities.T, rasterized=True, **colors)
    if bar:
        color_bar(ax, mesh, "density")


def density_profiles(
    times: Any,
    grid: Any,
    densities: Any,
    *,
    count: int = 8,
    label: str = "x",
    title: str = "",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw up to `count` of the densities (T, G) as profiles stacked upwards in time, each over its own base line.

    Parameters: `times` (T,) and `grid` (G,); `label`, the name of the grid's axis; `title`; `ax`, the axes to draw on,
    else new ones. Returns the axes.
    """
    theme = style.current()
    times, grid, densities = (np.asarray(part, float) for part in (times, grid, densities))
    ax = new_axes(ax)
    shown = thinned(len(times), count)
    height = 2.2 / (float(np.nanmax(densities)) or 1.0)
    colors = style.ordered_colors(np.linspace(0, 1, len(shown)))
    for level, frame in reversed(list(enumerate(shown))):
        profile = level + height * densities[frame]
        ax.fill_between(
            grid, level, profile, color=colors[level], alpha=0.55, linewidth=0, zorder=2 * (len(shown) - level)
        )
        ax.plot(grid, profile, color=theme.text, linewidth=0.7, zorder=2 * (len(shown) - level) + 1)
    ax.set_yticks(range(len(shown)), [f"t = {format_time(times[frame])}" for frame in shown])
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=(grid.min(), grid.max()), xlabel=style.clean(label))
    write_title(ax, title)
    return ax
