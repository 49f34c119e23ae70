"""Names of lines beside the axis where they begin, one below the other, each with leaders to its lines."""

from typing import TYPE_CHECKING

import numpy as np

from particleflow.trajectory.words import named
from particleflow.view import style
from particleflow.view.label_placement import spread_apart
from particleflow.view.plots.base import height_left

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LINE = 1.2  # of the size of letters, from one name to the next
_NEAR = 6  # leaders within such a part of a line are one
_TEXT, _BEND, _LINES_BEGIN = -0.062, -0.056, -0.006  # places from the axis to the left, in widths of the axes


def name_lines(ax: "Axes", words: np.ndarray, begins: np.ndarray) -> None:
    """Name lines that begin at heights (n,) of a linear axis, left of it; its numbers move to the right.

    Equal words side by side share a name; where there is no room for all names, so do the lines nearest to each other.
    """
    theme = style.current()
    size = 0.72 * theme.font_size
    low, high = ax.get_ylim()
    step = _LINE * size * (high - low) / height_left(ax)
    groups = _groups(words, begins, step, int((high - low) / step))
    middles = np.array([begins[group].mean() for group in groups])
    ax.yaxis.tick_right()
    ax.yaxis.set_label_position("right")
    ax.spines["right"].set_visible(True)
    across = ax.get_yaxis_transform()  # x in widths of the axes, y in data
    places = spread_apart(middles, step, low + step / 2, high - step / 2)
    for group, place in zip(groups, places, strict=True):
        text = style.clean(named(words[group].tolist(), 3), 40)
        ax.text(_TEXT, place, text, transform=across, ha="right", va="center", fontsize=size, color=theme.text)
        _, first = np.unique((begins[group] * _NEAR / step).round(), return_index=True)
        for begin in begins[group][first].tolist():
            ends, look = [place, begin, begin], {"color": theme.muted, "linewidth": 0.6, "clip_on": False}
            ax.plot([_BEND, _LINES_BEGIN, 0.0], ends, transform=across, **look)


def _groups(words: np.ndarray, begins: np.ndarray, step: float, most: int) -> list[np.ndarray]:
    """Indices of lines that share a name, from below: equal words side by side, and as many others as there must be."""
    order = np.argsort(begins, kind="stable")
    gaps = np.diff(begins[order])
    alike = (words[order][1:] == words[order][:-1]) & (gaps <= 2 * step)
    apart = np.sort(gaps[~alike])[::-1]
    joined = alike if apart.size < most else alike | (gaps <= apart[max(most, 1) - 1])
    return np.split(order, np.flatnonzero(~joined) + 1)
