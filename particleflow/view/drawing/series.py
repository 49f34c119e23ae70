"""Numbers over time: energy, cluster count, any observable; plateaus shaded.

An ensemble is drawn as its median with a band from the 10th to the 90th percentile.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.frames import check_trajectory
from particleflow.errors import ArgumentError, ShapeError
from particleflow.view import style
from particleflow.view.drawing.base import drawn_times, new_axes, set_title, time_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory import Trajectory


_DECADES = 1e4
_LARGEST = 1e250  # an axis needs room above


def observable_values(trajectory: "Trajectory", name: str) -> np.ndarray:
    """A scalar observable, (T,) or (T, R), NaN where it overflowed; an unknown name is an error with the known ones."""
    check_trajectory(trajectory)
    if name not in trajectory.observables:
        recorded = ", ".join(map(repr, trajectory.observables)) or "none"
        raise ArgumentError(f"Argument `name` must be a recorded observable ({recorded}), but is {name!r}.")
    values = np.asarray(trajectory.observables[name], float)
    expected = (len(trajectory),) if trajectory.runs is None else (len(trajectory), trajectory.runs)
    if values.shape != expected:
        raise ShapeError(f"Observable {name!r} must have shape {expected} to be a line, but has {values.shape}.")
    return np.where(np.abs(values) < _LARGEST, values, np.nan)


def observable(
    trajectory: "Trajectory",
    name: str = "energy",
    *,
    log: bool | str = "auto",
    color: Any = None,
    label: str | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw a scalar observable against time; `log` chooses the time axis (True, False or "auto")."""
    ax = new_axes(ax)
    values = observable_values(trajectory, name)
    log = time_axis(ax, trajectory.times, log)
    draw_band(ax, drawn_times(trajectory.times, log), values, color or style.current().categories[0], label)
    ax.set_ylabel(style.clean(name.replace("_", " "), 40))
    ax.grid(True, axis="y")
    set_title(ax, trajectory)
    return ax


def energy(trajectory: "Trajectory", *, log: bool | str = "auto", ax: "Axes | None" = None) -> "Axes":
    """Draw the interaction energy against time."""
    return observable(trajectory, "energy", log=log, ax=ax)


def draw_band(
    ax: "Axes", times: np.ndarray, values: np.ndarray, color: Any, label: str | None, steps: bool = False
) -> None:
    """One line for (T,), median and 10-90 % band for (T, R); `steps` holds a value until the next time.

    Positive values over more than four decades get a logarithmic axis.
    """
    name = None if label is None else style.clean(label, 40)
    middle = values if values.ndim == 1 else np.median(values, axis=1)
    style_of_line = "steps-post" if steps else "default"
    if values.ndim == 2:
        low, high = np.quantile(values, [0.1, 0.9], axis=1)
        ax.fill_between(times, low, high, color=color, alpha=0.22, linewidth=0, step="post" if steps else None)
    marker = "o" if len(times) == 1 else None
    ax.plot(times, middle, color=color, label=name, drawstyle=style_of_line, marker=marker, zorder=3)
    known = values[np.isfinite(values)]
    if known.size and not steps and known.min() > 0 and known.max() > _DECADES * known.min():
        ax.set_yscale("log")


def check_counts(trajectory: "Trajectory", counts: Any) -> np.ndarray:
    """Cluster counts as an array (T,) or (T, R)."""
    check_trajectory(trajectory)
    counts = np.asarray(counts)
    if counts.ndim not in (1, 2) or len(counts) != len(trajectory):
        expected = f"({len(trajectory)},) or ({len(trajectory)}, R)"
        raise ShapeError(f"Argument `counts` must have shape {expected}, but has {counts.shape}.")
    return counts


def shade_plateaus(
    ax: "Axes", trajectory: "Trajectory", plateaus: Iterable[Any], log: bool, *, names: bool = True
) -> None:
    """Shade plateaus, rows (start, end, count) in times or `Plateau` objects; wide ones get their count at the top."""
    theme = style.current()
    times = drawn_times(trajectory.times, log)
    span = np.log(times[-1] / times[0]) if log else times[-1] - times[0]
    for plateau in plateaus:
        start, end, count = _plateau_parts(plateau)
        start, end = max(float(start), times[0]), min(float(end), times[-1])
        if not end > start:
            continue
        ax.axvspan(start, end, facecolor=theme.shade, edgecolor=theme.panel, linewidth=1.6, zorder=0)
        middle, width = (np.sqrt(start * end), np.log(end / start)) if log else ((start + end) / 2, end - start)
        if names and count is not None and width > 0.035 * span:
            ax.text(
                middle, 0.985, f"{int(count)}", transform=ax.get_xaxis_transform(), ha="center", va="top",
                color=theme.muted, fontsize=0.9 * theme.font_size,
            )  # fmt: skip


def _plateau_parts(plateau: Any) -> tuple[float, float, Any]:
    """(start, end, count) of a row, or of an object with these attributes, as the analysis returns."""
    if hasattr(plateau, "start"):
        return plateau.start, plateau.end, plateau.count
    start, end, count = plateau
    return start, end, count


def cluster_count(
    trajectory: "Trajectory",
    counts: Any,
    *,
    plateaus: Iterable[Any] = (),
    log: bool | str = True,
    color: Any = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the number of clusters as a staircase, on logarithmic axes, with plateaus (start, end, count) shaded.

    `counts` is (T,), or (T, R) for a median and a band over runs; plateau bounds are times.
    """
    ax = new_axes(ax)
    counts = check_counts(trajectory, counts)
    log = time_axis(ax, trajectory.times, log)
    shade_plateaus(ax, trajectory, plateaus, log)
    draw_band(
        ax, drawn_times(trajectory.times, log), counts.astype(float), color or style.current().categories[3], None, True
    )
    count_axis(ax, counts)
    ax.set_ylabel("clusters")
    set_title(ax, trajectory)
    return ax


def count_axis(ax: "Axes", counts: np.ndarray) -> None:
    """A logarithmic axis with plain whole numbers, tall enough for the plateau names above the staircase."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    top = max(int(np.nanmax(counts)), 2)
    ax.set_yscale("log")
    ax.set_ylim(0.8, top * top**0.14)
    ladder = [value * 10**power for power in range(7) for value in (1, 2, 5)]
    ax.yaxis.set_major_locator(FixedLocator([value for value in ladder if value <= top]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.grid(True, axis="y")


def staircase(
    trajectory: "Trajectory",
    counts: Any = None,
    *,
    plateaus: Iterable[Any] = (),
    log: bool | str = True,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw cluster count (left axis) and energy (right axis) on one logarithmic time axis, plateaus shaded.

    Whichever of the two is missing is left out. Returns the left axes; the right ones share its time axis.
    """
    check_trajectory(trajectory)
    theme = style.current()
    has_energy = "energy" in trajectory.observables
    if counts is None:
        if not has_energy:
            raise ArgumentError(
                "A staircase needs cluster counts or an `energy` observable, but found neither: give `counts`."
            )
        ax = energy(trajectory, log=log, ax=ax)
        shade_plateaus(ax, trajectory, plateaus, ax.get_xscale() == "log")
        return ax
    ax = cluster_count(trajectory, counts, plateaus=plateaus, log=log, ax=ax)
    if has_energy:
        _colored_axis(ax, "left", theme.categories[3])
        right = ax.twinx()
        times = drawn_times(trajectory.times, ax.get_xscale() == "log")
        draw_band(right, times, observable_values(trajectory, "energy"), theme.categories[0], None)
        right.set_ylabel("energy")
        right.spines["right"].set_visible(True)
        if right.get_yscale() == "linear":
            low, high = right.get_ylim()
            right.set_ylim(low, high + 0.12 * (high - low))
        _colored_axis(right, "right", theme.categories[0])
    return ax


def _colored_axis(ax: "Axes", side: str, color: str) -> None:
    ax.yaxis.label.set_color(color)
    ax.tick_params(axis="y", colors=color, labelcolor=color)
    ax.spines[side].set_color(color)
