"""Diagrams of one local mean: its query, keys, weights and values with their numbers, and its graphical model."""

from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.errors import ArgumentError, ShapeError
from particleflow.view import style
from particleflow.view.plots.base import new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_KEYS = 7  # of the largest weights that are drawn by default
_BOX = {"boxstyle": "round,pad=0.4", "linewidth": 0.9}
_QUERY, _KEY, _BAR, _VALUE, _OUTPUT = 0.0, 2.3, 3.15, 6.3, 8.9  # where columns stand
_LONGEST_BAR = 2.1
_WIDEST_LINE = 5.0  # of an edge, in points
_LEAST_LINE = 0.15


def query_key_value(model: Any, at: float, *, keys: int = _KEYS, ax: "Axes | None" = None) -> "Axes":
    """Draw how attention pools one query: query, keys, weights α(x, x_i), values y_i and the output Σ_i α_i y_i.

    Edges are as wide as the weight that the key has for this query. Keys of the largest weights are drawn, in the order
    of their places; what all others weigh together, and what their part of the output is, stands in the last line.

    Parameters: `model`, a fitted `KernelRegression` or one like it (`predict`, `attention`, `measure_`), of one feature
    and one target; the query `at`; the number of `keys`; `ax`, the axes to draw on, else new ones. Returns the axes.
    """
    places, values = (np.asarray(each, float) for each in (model.measure_.points, model.measure_.carried))
    if places.shape[1] != 1 or values.ndim != 1:
        raise ShapeError(
            f"A model of one feature and one target can be drawn, but this one has {places.shape[1]} features and "
            f"targets of shape {values.shape}."
        )
    if not isinstance(keys, int) or keys < 1:
        raise ArgumentError(f"Argument `keys` must be a positive integer, but is {keys!r}.")
    query = np.array([[float(at)]])
    weights, output = model.attention(query)[0], float(model.predict(query)[0])
    chosen = np.sort(np.argsort(-weights, kind="stable")[:keys])
    chosen = chosen[np.argsort(places[chosen, 0], kind="stable")]
    rows = [(f"{places[i, 0]:.2f}", float(weights[i]), f"{values[i]:.2f}") for i in chosen]
    rest = len(weights) - len(chosen)
    if rest:
        share = 1.0 - float(weights[chosen].sum())
        part = output - float(weights[chosen] @ values[chosen])
        rows.append((f"{rest} others", max(share, 0.0), f"adds {part:.2f}"))
    ax = new_axes(ax, (1.25, 0.14 + 0.062 * (len(rows) + 2)))
    _draw_pooling(ax, f"{float(at):.2f}", rows, f"{output:.2f}", bool(rest))
    return ax


def _draw_pooling(ax: "Axes", query: str, rows: list[tuple[str, float, str]], output: str, has_rest: bool) -> None:
    """The columns of the diagram: one row a key, the last one for all that are not drawn."""
    theme = style.current()
    heights = -np.arange(len(rows), dtype=float)
    middle, largest = float(heights.mean()), max(weight for _, weight, _ in rows) or 1.0
    colors = theme.categories
    for height, (key, weight, value) in zip(heights, rows, strict=True):
        other = has_rest and height == heights[-1]
        edge = {"color": theme.muted, "linewidth": max(_WIDEST_LINE * weight / largest, _LEAST_LINE), "alpha": 0.55}
        ax.plot([_QUERY, _KEY], [middle, height], solid_capstyle="butt", zorder=1, **edge)
        ax.plot([_VALUE, _OUTPUT], [height, middle], solid_capstyle="butt", zorder=1, **edge)
        _box(ax, _KEY, height, key, theme.muted if other else colors[0])
        _box(ax, _VALUE, height, value, theme.muted if other else colors[2])
        length = _LONGEST_BAR * weight / largest
        ax.barh(height, length, 0.46, left=_BAR, color=theme.muted if other else colors[1], linewidth=0, zorder=2)
        ax.text(_BAR + length + 0.08, height, f"{weight:.3f}", va="center", fontsize="small", color=theme.text)
    _box(ax, _QUERY, middle, query, colors[3])
    _box(ax, _OUTPUT, middle, output, colors[3])
    head = 1.0
    for x, name in (
        (_QUERY, "query $x$\nvolitional cue"),
        (_KEY, "keys $x_i$\nnonvolitional cues"),
        (_BAR + 0.5 * _LONGEST_BAR, "weights $\\alpha(x, x_i)$\nof sum 1"),
        (_VALUE, "values $y_i$\n"),
        (_OUTPUT, "output\n$\\sum_i\\,\\alpha(x, x_i)\\,y_i$"),
    ):
        ax.text(x, head, name, ha="center", va="center", fontsize="small", color=theme.text)
    ax.set(xlim=(-0.85, 9.75), ylim=(heights[-1] - 0.6, head + 0.55))
    ax.set_axis_off()


def _box(ax: "Axes", x: float, y: float, text: str, color: Any) -> None:
    """A number in a box whose frame has the colour of its column."""
    theme = style.current()
    box: dict[str, Any] = {**_BOX, "edgecolor": color, "facecolor": theme.panel}
    ax.text(x, y, style.clean(text), ha="center", va="center", color=theme.text, bbox=box, zorder=3)


def local_mean_graph(*, ax: "Axes | None" = None) -> "Axes":
    """Draw the graphical model of the local mean: a query chooses a neighbour I, whose value is the output.

    P(I = i | x*) = K(x*, x_i) / Σ_j K(x*, x_j) and y = y_I; then E[y | x*] = Σ_i P(i | x*) y_i is the local mean.
    Shaded nodes are known, I is not, and the plate stands for all n samples. Nothing is computed: there are no data.

    Parameters: `ax`, the axes to draw on, else new ones. Returns the axes.
    """
    ax, theme = new_axes(ax, (1.1, 0.5)), style.current()
    nodes = {"$x_*$": (0.0, 0.0, True), "$I$": (2.6, 0.0, False), "$y$": (5.2, 0.0, False)}
    nodes |= {"$x_i$": (1.9, 2.0, True), "$y_i$": (3.3, 2.0, True)}
    for name, (x, y, known) in nodes.items():
        ring: dict[str, Any] = {"facecolor": theme.shade if known else theme.panel, "edgecolor": theme.text}
        ax.scatter([x], [y], s=1150, linewidths=1.2, zorder=3, **ring)
        ax.text(x, y, name, ha="center", va="center", fontsize="large", color=theme.text, zorder=4)
    for start, end in (("$x_*$", "$I$"), ("$I$", "$y$"), ("$x_i$", "$I$"), ("$y_i$", "$y$")):
        _arrow(ax, nodes[start][:2], nodes[end][:2])
    plate: dict[str, Any] = {"boxstyle": "round,pad=0.1", "facecolor": "none", "edgecolor": theme.muted}
    from matplotlib.patches import FancyBboxPatch

    ax.add_patch(FancyBboxPatch((1.15, 1.35), 2.9, 1.3, linewidth=1.0, **plate))
    small: dict[str, Any] = {"fontsize": "small", "color": theme.text}
    ax.text(1.2, 2.55, "i = 1 … n", ha="left", va="center", **{**small, "color": theme.muted})
    for x, words in (
        (0.0, "query"),
        (2.6, "which neighbour\n$P(I=i\\,|\\,x_*)=K(x_*,x_i)\\,/\\,\\sum_j K(x_*,x_j)$"),
        (5.2, "its value, $y=y_I$\n$E[y\\,|\\,x_*]=\\sum_i P(i\\,|\\,x_*)\\,y_i$"),
    ):
        ax.text(x, -0.62, words, ha="center", va="top", linespacing=1.9, **small)
    ax.set(xlim=(-0.9, 6.6), ylim=(-1.75, 2.85))
    ax.set_axis_off()
    return ax


def _arrow(ax: "Axes", start: tuple[float, float], end: tuple[float, float]) -> None:
    """An arrow from the rim of one node to the rim of another."""
    theme = style.current()
    shape: dict[str, Any] = {"arrowstyle": "-|>", "color": theme.text, "shrinkA": 18, "shrinkB": 18, "linewidth": 1.0}
    ax.annotate("", end, start, arrowprops=shape, zorder=2)
