"""Hysteresis: a number against the parameter that goes up and down, both ways in one picture, over the theory."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.hysteresis import step_means, up_and_down
from particleflow.errors import ArgumentError
from particleflow.trajectory.facts import StoredBranch
from particleflow.view import style
from particleflow.view.plots.base import new_axes, set_title
from particleflow.view.plots.time.series import observable_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory.trajectory import Trajectory

_DASHED = (0, (4, 2))
_DOTTED = (0, (1, 2))
_NAMES = {"value": "strength κ of the attraction", "beta": "β"}


def hysteresis(trajectory: "Trajectory", name: str = "order_parameter", *, ax: "Axes | None" = None) -> "Axes":
    """Draw a number against the parameter of a schedule that goes up and then down in steps, one dot a step.

    A dot is the mean over the second half of a step, its bar one standard deviation. Where the run stores what theory
    says of the transition, its branch of states lies beneath (dashed where unstable), with the values at which the
    uniform state loses its stability, at which both states have equal free energy, and at which the branch turns.

    Parameters: the `name` of an observable; `ax`, the axes to draw on, else new ones. Returns the axes.
    """
    schedule = up_and_down(trajectory)
    if schedule is None:
        raise ArgumentError(
            "Hysteresis is drawn of a run whose parameter goes up and then down in steps, but this one has no such "
            "schedule."
        )
    found, theme = step_means(trajectory, observable_values(trajectory, name)), style.current()
    ax = new_axes(ax, (1.0, 0.7), about=trajectory)
    known = trajectory.facts.transition
    known = known if known is not None and known.parameter == schedule.name and name == "order_parameter" else None
    if known is not None:
        _draw_theory(ax, known, found.values)
    ways = (slice(None, found.top + 1), "^", 3, "going up"), (slice(found.top, None), "v", 0, "going down")
    for way, marker, color, label in ways:
        ax.errorbar(
            found.values[way], found.means[way], found.deviations[way], color=theme.categories[color], marker=marker,
            markersize=5, linewidth=0.9 * theme.line_width, elinewidth=0.7, label=label, zorder=4,
        )  # fmt: skip
    ax.set(xlabel=_NAMES.get(schedule.name, style.clean(schedule.name, 30)), ylabel=style.clean(name.replace("_", " ")))
    ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
    ax.grid(True, axis="y")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3, labelcolor=theme.text, fontsize="small")
    set_title(ax, trajectory)
    return ax


def _draw_theory(ax: "Axes", known: StoredBranch, values: np.ndarray) -> None:
    """The branches of theory in grey, and its critical values as upright lines with their numbers in the legend."""
    theme = style.current()
    edges = [0, *(np.flatnonzero(np.diff(known.stable)) + 1).tolist(), len(known.stable) - 1]
    ends = min(values.min(), known.values.min()), max(values.max(), known.values.max())
    line: dict[str, Any] = {"color": theme.muted, "linewidth": 1.6, "zorder": 2}
    ax.plot([ends[0], known.limit], [0, 0], label="theory: stable", **line)
    ax.plot([known.limit, ends[1]], [0, 0], linestyle=_DASHED, label="theory: unstable", **line)
    for begin, end in pairwise(edges):
        piece = slice(begin, end + 1)
        ax.plot(known.values[piece], known.orders[piece], linestyle="-" if known.stable[begin] else _DASHED, **line)
    marks = [(each, "κ_c", "equal free energy", "-") for each in known.equal]
    marks += [(known.limit, "limit", "uniform loses stability", _DOTTED)]
    marks += [(each, "fold", "no cluster below", _DOTTED) for each in known.folds]
    for value, symbol, meaning, dashes in marks:
        name = f"{meaning}, $\\kappa_c$ = {value:.3f}" if symbol == "κ_c" else f"{meaning}, {value:.3f}"
        ax.axvline(value, color=theme.text, linewidth=0.9, linestyle=dashes, label=name, zorder=1.5)
    pad = 0.03 * (float(np.ptp(values)) or 1.0)
    ax.set_xlim(float(values.min()) - pad, float(values.max()) + pad)
