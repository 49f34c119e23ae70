"""One number over two swept keys, with a curve from theory on top."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.errors import ArgumentError, ShapeError
from particleflow.view import style
from particleflow.view.plots.base import new_axes, write_title
from particleflow.view.plots.matrices.pair_matrices import color_bar, edges_between

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_MOST_TICKS = 8  # values that are written at an axis one by one
_ROOM = 0.05  # of an axis, that the name of a value needs
SYMBOLS = {
    "time": "time t",
    "t": "time t",
    "beta": "β",
    "count": "n",
    "dim": "d",
    "width": "σ",
    "rho": "ρ",
    "temperature": "temperature T",
}


def mean_label(value: str, runs: int | tuple[int, int] | None) -> str:
    """A label with the number of runs that its value is the mean of."""
    if runs is None:
        return value
    fewest, most = (runs, runs) if isinstance(runs, int) else runs
    if most == 1:
        return value
    return f"{value}, mean of {most if fewest == most else f'{fewest}–{most}'} runs".removeprefix(", ")


def sweep_grid(
    records: Iterable[Mapping[str, Any]], x: str, y: str, value: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of a sweep as a grid: sorted x (X,), sorted y (Y,), and the mean value of each pair (Y, X), or NaN.

    Each record is a mapping that holds the two swept keys and the value; repetitions (seeds) are averaged.
    """
    rows = list(records)
    if not rows:
        raise ArgumentError("Argument `records` must hold at least one record, but is empty.")
    xs, x_index = np.unique(_column(rows, x), return_inverse=True)
    ys, y_index = np.unique(_column(rows, y), return_inverse=True)
    mean, number = np.zeros((len(ys), len(xs))), np.zeros((len(ys), len(xs)))
    np.add.at(number, (y_index, x_index), 1)
    np.add.at(mean, (y_index, x_index), _column(rows, value) / number[y_index, x_index])  # a sum could be too large
    return xs, ys, np.where(number > 0, mean, np.nan)


def _column(rows: list[Mapping[str, Any]], key: str) -> np.ndarray:
    """One number of every record, by its key."""
    numbers = np.empty(len(rows))
    for index, row in enumerate(rows):
        if key not in row:
            known = ", ".join(map(repr, row)) or "nothing"
            raise ArgumentError(f"Every record must hold {key!r}, but record {index} holds {known}.")
        try:
            numbers[index] = float(row[key])
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"{key!r} must be a number, but in record {index} it is {row[key]!r}.") from error
    return numbers


def phase_diagram(
    x: Any,
    y: Any,
    values: Any,
    *,
    x_label: str = "",
    y_label: str = "",
    value_label: str = "",
    overlay: Any = None,
    overlay_label: str = "",
    log_x: bool = False,
    log_y: bool = False,
    limits: tuple[float, float] | None = None,
    title: str = "",
    runs: int | tuple[int, int] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw values (Y, X) over x (X,) and y (Y,) as cells; `overlay` is a curve (xs, ys) drawn on top.

    Cells reach halfway to their neighbours, in the logarithm on a logarithmic axis; missing values stay empty. Up to
    eight values along an axis are its ticks.

    Parameters: `x_label`, `y_label` and `value_label`, of which names of parameters ("beta", "time") become symbols;
    `overlay_label`, for the legend; `log_x` and `log_y`; `limits`, the ends of the colour scale; `title`; `runs`, of
    how many runs each value is the mean, or of how many at least and at most; `ax`, the axes to draw on, else new ones.
    Returns the axes.
    """
    x, y, values = np.asarray(x, float), np.asarray(y, float), np.asarray(values, float)
    if values.shape != (len(y), len(x)):
        raise ShapeError(f"Argument `values` must have shape ({len(y)}, {len(x)}), but has {values.shape}.")
    ax = new_axes(ax)
    mesh = _cells(ax, x, y, values, (log_x, log_y), limits or (float(np.nanmin(values)), float(np.nanmax(values))))
    color_bar(ax, mesh, style.clean(mean_label(value_label, runs)))
    if overlay is not None:
        _overlay(ax, overlay, overlay_label)
    value_ticks(ax.xaxis, x)
    value_ticks(ax.yaxis, y)
    ax.set_xlabel(style.clean(SYMBOLS.get(x_label, x_label)))
    ax.set_ylabel(style.clean(SYMBOLS.get(y_label, y_label)))
    write_title(ax, title)
    return ax


def value_ticks(axis: Any, values: np.ndarray) -> None:
    """Ticks at up to eight different values of an axis, and nowhere else; those too near to the last have no name.

    With more values the ticks of the axis stay.
    """
    values = np.unique(values)
    if values.size > _MOST_TICKS:
        return
    low, high = axis.get_view_interval()
    shown = axis.get_transform().transform(np.array([low, high, *values]))
    names, last = [], -np.inf
    for value, place in zip(values.tolist(), shown[2:] / abs(shown[1] - shown[0]), strict=True):
        roomy = place - last >= _ROOM
        names.append(f"{value:g}".replace("-", "−") if roomy else "")
        last = place if roomy else last
    axis.set_ticks(values, names)
    axis.set_ticks([], minor=True)


def _cells(
    ax: "Axes", x: np.ndarray, y: np.ndarray, values: np.ndarray, log: tuple[bool, bool], limits: tuple[float, float]
) -> Any:
    """The coloured cells, with the axes scaled to them."""
    columns, rows = _cell_edges(x, log[0]), _cell_edges(y, log[1])
    colors: dict[str, Any] = {"cmap": style.colormap("sequential"), "vmin": limits[0], "vmax": limits[1]}
    mesh = ax.pcolormesh(columns, rows, np.ma.masked_invalid(values), rasterized=True, **colors)
    ax.set(xscale="log" if log[0] else "linear", yscale="log" if log[1] else "linear")
    ax.set(xlim=(columns[0], columns[-1]), ylim=(rows[0], rows[-1]))
    return mesh


def _cell_edges(values: np.ndarray, log: bool) -> np.ndarray:
    """Edges around values: halfway inside, and mirrored outside so that the outer cells are whole."""
    if log and not np.all(values > 0):
        raise ArgumentError(f"A logarithmic axis needs positive values, but the smallest is {values.min():g}.")
    edges = np.log(edges_between(values, True)) if log else edges_between(values, False)
    if len(values) > 1:
        inner = np.log(values) if log else values
        edges[0], edges[-1] = 2 * inner[0] - edges[1], 2 * inner[-1] - edges[-2]
    return np.exp(edges) if log else edges


def _overlay(ax: "Axes", overlay: Any, label: str) -> None:
    """A curve readable on any colour below it: white with a dark rim."""
    from matplotlib import patheffects

    xs, ys = (np.asarray(part, float) for part in overlay)
    rim = [patheffects.Stroke(linewidth=4.0, foreground="#1c2430"), patheffects.Normal()]
    ax.plot(xs, ys, color="white", linewidth=1.8, label=style.clean(label) or None, path_effects=rim)
    if label:
        legend = ax.legend(loc="upper right", frameon=True, facecolor="#1c2430", edgecolor="none", framealpha=0.75)
        for text in legend.get_texts():
            text.set_color("white")
