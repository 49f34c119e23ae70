"""Stability of uniform states: growth rates of modes, and the branches of stationary states over temperature."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.errors import ShapeError
from particleflow.view import style
from particleflow.view.plots.base import new_axes, new_figure, set_title, write_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DASHED = (0, (4, 2))


def growth_rates(modes: Any, rates: Any, *, title: str = "", ax: "Axes | None" = None) -> "Axes":
    """Draw growth rates over the modes of a density: one line, or one for each of several flows by their names.

    The fastest mode of every line has a large mark, if it grows.

    Parameters: `modes` (k,), their numbers; `rates` (k,), what `theory.stability.growth_rates` returns for them, or a
    mapping of names to such arrays; `title`; `ax`, the axes to draw on, else new ones. Returns the axes.
    """
    several = rates if isinstance(rates, Mapping) else {"": rates}
    modes, ax = np.asarray(modes), new_axes(ax)
    theme = style.current()
    ax.axhline(0.0, color=theme.muted, linewidth=0.8, zorder=1)
    for (name, values), color in zip(several.items(), style.palette(len(several)), strict=True):
        values = np.asarray(values, float)
        if values.shape != modes.shape:
            raise ShapeError(f"Argument `rates` must have shape {modes.shape}, one a mode, but has {values.shape}.")
        ax.plot(modes, values, "o-", color=color, markersize=3.5, label=style.clean(name) or None)
        best = int(np.argmax(values))
        if values[best] > 0:
            ax.plot(modes[best], values[best], "o", color=color, markersize=8, zorder=3)
    ax.set(xlabel="mode $l$", ylabel="growth rate")
    ax.locator_params(axis="x", integer=True)
    _name(ax, title, "Growth of modes around the uniform state")
    if any(several):
        ax.legend()
    return ax


def branches(found: Sequence[Any], *, title: str = "", figure: Any = None) -> np.ndarray:
    """Draw branches of stationary states over temperature: order parameters, and free energies where there are any.

    Solid lines are stable states, dashed ones are not; the uniform state is the line at 0. Circles are folds, diamonds
    where a branch has the free energy of the uniform state, and dotted lines where a mode of the uniform state begins
    to grow.

    Parameters: `found`, what `theory.stability.branches` returns; `title`; `figure`, the figure to draw on, else a new
    one. Returns the array of axes.
    """
    energetic = all(each.free_energies is not None for each in found)
    figure = new_figure((1.0, 0.95 if energetic else 0.55)) if figure is None else figure
    axes = np.atleast_1d(figure.subplots(2 if energetic else 1, 1, sharex=True))
    theme = style.current()
    reach = [min(each.temperatures.min() for each in found), max(each.temperatures.max() for each in found)]
    margin = 0.06 * (reach[1] - reach[0])
    limits, first = (reach[0] - margin / 3, reach[1] + 2 * margin), max(each.temperatures[0] for each in found)
    for ax in axes:
        ax.plot([limits[0], first], [0, 0], color=theme.text, linestyle=_DASHED, linewidth=theme.line_width)
        ax.plot([first, limits[1]], [0, 0], color=theme.text, linewidth=theme.line_width, label="uniform")
    for each, color in zip(found, style.palette(len(found)), strict=True):
        name = f"{each.mode} cluster" + ("s" if each.mode > 1 else "")
        _draw(axes[0], each, each.orders, color, name)
        axes[0].axvline(each.temperatures[0], color=color, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
        for marker, places in (("o", each.folds), ("D", each.equal)):
            axes[0].plot([p.temperature for p in places], [p.order for p in places], marker, color=color, markersize=5)
        if energetic:
            _draw(axes[1], each, each.free_energies, color, name)
            axes[1].plot([p.temperature for p in each.equal], [0.0] * len(each.equal), "D", color=color, markersize=5)
    axes[0].set(ylabel=r"order parameter $|\int e^{il\theta}\, d\mu|$", xlim=limits)
    axes[-1].legend(loc="lower right" if energetic else "best")
    if energetic:
        axes[1].set(ylabel=r"free energy $F - F_{\mathrm{uniform}}$")
    axes[-1].set(xlabel="temperature $T$")
    _name(axes[0], title, "Stationary states on the circle")
    return axes


def _name(ax: "Axes", title: str, usual: str) -> None:
    """The title that is given, else the usual one where the theme has titles."""
    if title:
        write_title(ax, title)
    else:
        set_title(ax, None, usual)


def _draw(ax: "Axes", branch: Any, values: np.ndarray, color: Any, name: str) -> None:
    """A curve in pieces, solid where states are stable; neighbouring pieces share their ends."""
    stable, temperatures = np.asarray(branch.stable), np.asarray(branch.temperatures)
    edges = [0, *(np.flatnonzero(np.diff(stable)) + 1).tolist(), len(stable) - 1]
    ax.plot([], [], color=color, label=name)
    for begin, end in pairwise(edges):
        piece = slice(begin, end + 1)
        line = "-" if stable[begin] else _DASHED
        ax.plot(temperatures[piece], values[piece], color=color, linestyle=line)
