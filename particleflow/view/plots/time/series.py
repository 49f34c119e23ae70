"""Plots of numbers over time: energy, cluster count, any observable; plateaus shaded.

An ensemble is drawn as its median with a band from the 10th to the 90th percentile.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.clusters.brackets import ChangeTimes, bracket_of
from particleflow.analysis.clusters.separation import CHAINS, spans_without_count
from particleflow.analysis.density.density_modes import symmetry_errors
from particleflow.analysis.density.peaks import NO_PEAK_YET, since_first_peak
from particleflow.analysis.late_approach import LEAST_GAP, late_law, late_stretch, law_values
from particleflow.analysis.reading import check_trajectory, first_run
from particleflow.errors import ArgumentError, ShapeError
from particleflow.view import style
from particleflow.view.plots.base import (
    HATCHED_NOTE,
    add_to_small_print,
    drawn_times,
    hatch_span,
    log_axis,
    mark_changes,
    new_axes,
    rounding_level,
    set_title,
    time_axis,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory.trajectory import Trajectory


_WIDE_RANGE = 1e4  # largest over smallest value, from which an axis is logarithmic
_FEW = 8  # clusters, up to which the axis of a count is linear
_LARGEST = 1e250  # that is drawn: an axis needs room above
_SQUARES = ("covariance", "dissipation", "largest_variance")  # observables that are squares of what is rounded


def spans_decades(values: Any) -> bool:
    """Whether positive values differ by more than a factor of 10,000, so that a linear axis would hide the small."""
    known = np.asarray(values, float)
    known = known[np.isfinite(known)]
    return bool(known.size) and 0 < known.min() < known.max() / _WIDE_RANGE


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


def in_stored_precision(trajectory: "Trajectory", name: str, values: np.ndarray) -> np.ndarray:
    """The values of an observable in the precision in which they are stored, which says what of them is rounding."""
    single = trajectory.observables[name].dtype == np.float32
    return values.astype(np.float32) if single else values


def only_errors(trajectory: "Trajectory", name: str) -> bool:
    """Whether an observable can only be an error: the order parameter, mode 1 of a circle, where the start forbids it.

    See `analysis.symmetry_errors`; of an ensemble, run 0 decides.
    """
    return name == "order_parameter" and bool(symmetry_errors(first_run(trajectory), 1)[0])


def power_of(name: str) -> float:
    """The power at which an observable holds what is rounded: 2 for squares, else 1.

    An energy is a sum of positive numbers, right to its own last digits however small it is; its power is ∞.
    """
    return np.inf if name == "energy" else 2 if name in _SQUARES else 1


def observable(
    trajectory: "Trajectory",
    name: str = "energy",
    *,
    log: bool | str = "auto",
    color: Any = None,
    label: str | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw a scalar observable against time; of an ensemble its median and a band from 10 to 90 %.

    Parameters: the `name` under which it was recorded; `log`, a logarithmic time axis (True, False, or "auto": where
    the frames are spaced like that); `color` and `label` of the line; `ax`, the axes to draw on, else new ones. Returns
    the axes.
    """
    ax = new_axes(ax, about=trajectory)
    values = observable_values(trajectory, name)
    log = time_axis(ax, trajectory.times, log, unit=trajectory.facts.time_unit)
    color = color or style.current().categories[0]
    values = in_stored_precision(trajectory, name, values)
    draw_band(ax, drawn_times(trajectory.times, log), values, color, label, power=power_of(name))
    ax.set_ylabel(with_band(style.clean(name.replace("_", " "), 40), values))
    ax.grid(True, axis="y")
    mark_changes(ax, trajectory)
    set_title(ax, trajectory)
    _say_overflow(ax, trajectory, name)
    if only_errors(trajectory, name):
        _write(ax, "0 by the symmetry of the start: errors of the scheme")
    return ax


def energy_name(trajectory: "Trajectory") -> str | None:
    """The recorded energy to draw: `energy`, or `log_energy` where that overflowed or was not recorded; else None."""
    check_trajectory(trajectory)
    expected = (len(trajectory),) if trajectory.runs is None else (len(trajectory), trajectory.runs)
    recorded = trajectory.observables
    names = [name for name in ("energy", "log_energy") if name in recorded and np.shape(recorded[name]) == expected]
    whole = [name for name in names if not _overflows(trajectory, name)]
    return next(iter([*whole, *names]), None)


def _overflows(trajectory: "Trajectory", name: str) -> int:
    """The number of frames in which an observable is too large to be drawn."""
    too_large = np.abs(np.asarray(trajectory.observables[name], float)) >= _LARGEST
    return int(too_large.reshape(len(trajectory), -1).any(axis=1).sum())


def _write(ax: "Axes", text: str) -> None:
    """Write a remark into the lower right corner of the axes."""
    theme = style.current()
    back = {"facecolor": theme.panel, "edgecolor": "none", "alpha": 0.8, "pad": 1.5}
    options: dict[str, Any] = {"color": theme.muted, "fontsize": 0.82 * theme.font_size, "bbox": back, "zorder": 5}
    ax.text(0.98, 0.04, text, transform=ax.transAxes, ha="right", **options)


def _say_overflow(ax: "Axes", trajectory: "Trajectory", name: str) -> None:
    """Write into the axes in how many frames the observable, or the energy of a logarithm, is too large to be drawn."""
    known = "energy" if name == "log_energy" and "energy" in trajectory.observables else name
    lost = _overflows(trajectory, known)
    if not lost:
        return
    advice = "its logarithm is drawn" if known != name else "record log_energy" if name == "energy" else "not drawn"
    shown = style.clean(known.replace("_", " "), 40)
    text = f"{shown} exceeds {_LARGEST:g} in {lost} of {len(trajectory)} frames: {advice}"
    _write(ax, text)
    if not np.isfinite(observable_values(trajectory, name)).any():
        ax.set_yticks([])


def energy(trajectory: "Trajectory", *, log: bool | str = "auto", ax: "Axes | None" = None) -> "Axes":
    """Draw the recorded interaction energy against time, or its recorded logarithm where the energy overflowed.

    Parameters: `log`, a logarithmic time axis (True, False, or "auto": where the frames are spaced like that); `ax`,
    the axes to draw on, else new ones. Returns the axes.
    """
    return observable(trajectory, energy_name(trajectory) or "energy", log=log, ax=ax)


def approach(trajectory: "Trajectory", *, log: bool | str = "auto", ax: "Axes | None" = None) -> "Axes":
    """Draw the approach to consensus, 1 − ρ of the recorded mean similarity ρ against time, with its late-time law.

    The laws A t^r and A e^{rt} are fitted where 1 − ρ is between 1e-10 and a tenth of its first value; the one that
    explains more is drawn, if it explains 99.9 % of the variance of log (1 − ρ).

    Parameters: `log`, a logarithmic time axis (True, False, or "auto": where the frames are spaced like that); `ax`,
    the axes to draw on, else new ones. Returns the axes.
    """
    gap = 1.0 - observable_values(trajectory, "mean_similarity")
    late = late_stretch(gap)
    if late is None:
        raise ArgumentError("The approach is drawn of a run whose mean similarity comes near 1, but this one does not.")
    ax, theme = new_axes(ax, about=trajectory), style.current()
    log = time_axis(ax, trajectory.times, log, unit=trajectory.facts.time_unit)
    times, shown = drawn_times(trajectory.times, log), gap > LEAST_GAP
    ax.plot(times[shown], log_axis(ax, gap[shown]), color=theme.categories[0], label="1 − mean similarity")
    fit = late_law(trajectory.times, gap)
    if fit is not None:
        name = f"$\\propto t^{{{fit.rate:.2f}}}$" if fit.law == "power" else f"$\\propto e^{{{fit.rate:.3g}\\,t}}$"
        law = law_values(fit, trajectory.times[late])
        ax.plot(times[late], law, "--", color=theme.text, linewidth=0.9, label=name, zorder=4)
    ax.set_ylabel("1 − mean similarity")
    ax.grid(True, axis="y")
    ax.legend(loc="best", labelcolor=theme.text)
    mark_changes(ax, trajectory)
    set_title(ax, trajectory)
    return ax


def with_band(name: str, values: np.ndarray) -> str:
    """The name of an axis; for an ensemble with the meaning of its line and its band, and the number of runs."""
    return name if values.ndim == 1 else f"{name}\n(median and 10–90 % of {values.shape[1]} runs)"


def draw_band(
    ax: "Axes",
    times: np.ndarray,
    values: np.ndarray,
    color: Any,
    label: str | None,
    *,
    changes: np.ndarray | None = None,
    power: float = 1,
    among: np.ndarray | None = None,
) -> None:
    """One line for (T,), median and 10-90 % band for (T, R); with `changes` (T − 1,) steps at these times.

    Positive values over more than four decades get a logarithmic axis, which ends at rounding: `log_axis`, with the
    `power` of the values there. The range is that of the values `among` others on the axes, if there are any.
    """
    among = values if among is None else among
    known = among[np.isfinite(among)]
    if known.size and changes is None and known.min() > 0:
        least = max(float(known.min()), rounding_level(known, power=power))
        if known.max() > _WIDE_RANGE * least:
            values = np.maximum(values, log_axis(ax, known, power=power).min())
    name = None if label is None else style.clean(label, 80)
    marker, step = "o" if len(times) == 1 else None, None
    if changes is not None and len(times) > 1:
        times, step = np.concatenate([times[:1], changes, times[-1:]]), "post"
        values = np.concatenate([values, values[-1:]])
    middle = values if values.ndim == 1 else np.median(values, axis=1)
    if values.ndim == 2:
        low, high = np.quantile(values, [0.1, 0.9], axis=1)
        ax.fill_between(times, low, high, color=color, alpha=0.22, linewidth=0, step=step)
    look = "default" if step is None else f"steps-{step}"
    ax.plot(times, middle, color=color, label=name, drawstyle=look, marker=marker, zorder=3)


def check_counts(trajectory: "Trajectory", counts: Any) -> np.ndarray:
    """Cluster counts, those of a track or given ones, as an array (T,) or (T, R), NaN where there is none."""
    check_trajectory(trajectory)
    counts = np.asarray(getattr(counts, "counts", counts), dtype=float)
    if counts.ndim not in (1, 2) or len(counts) != len(trajectory):
        expected = f"({len(trajectory)},) or ({len(trajectory)}, R)"
        raise ShapeError(f"Argument `counts` must have shape {expected}, but has {counts.shape}.")
    return counts


def known_changes(trajectory: "Trajectory", counts: Any) -> ChangeTimes:
    """What is known of the times at which counts change: what their track says, else whether time is whole steps."""
    return getattr(counts, "changes", None) or ChangeTimes(whole=trajectory.facts.time_unit is not None)


def change_times(times: np.ndarray, changes: ChangeTimes) -> np.ndarray:
    """The times (T − 1,) at which values change from frame to frame: the middles of their brackets."""
    return np.array([bracket_of(times, frame, changes).middle for frame in range(1, len(times))])


def shade_plateaus(ax: "Axes", trajectory: "Trajectory", plateaus: Iterable[Any], log: bool) -> None:
    """Shade plateaus, rows (start, end, count) in times or `Plateau` objects, and write their counts at the top."""
    theme = style.current()
    times = drawn_times(trajectory.times, log)
    spans = []
    for plateau in plateaus:
        start, end, count = _plateau_parts(plateau)
        start, end = max(float(start), times[0]), min(float(end), times[-1])
        if end > start:
            ax.axvspan(start, end, facecolor=theme.shade, edgecolor=theme.panel, linewidth=1.6, zorder=0)
            spans.append((start, end, count))
    ruler = np.log if log else np.asarray
    begin, length = ruler(times[0]), max(float(ruler(times[-1]) - ruler(times[0])), 1e-300)
    named = [
        (float(ruler(a) - begin) / length, float(ruler(b) - begin) / length, c) for a, b, c in spans if c is not None
    ]
    for place, row, text in plateau_names(ax, named):
        height = 0.985 - row * _line_height(ax)
        ax.text(
            place, height, text, transform=ax.transAxes, ha="center", va="top", color=theme.text,
            fontsize=0.9 * theme.font_size, fontweight="bold", zorder=4,
        )  # fmt: skip


def plateau_names(ax: "Axes", spans: list[tuple[float, float, Any]]) -> list[tuple[float, int, str]]:
    """The positions of the counts' names, as (place, row, text): longest plateaus first, in two rows, none overlap.

    `spans` are (start, end, count) in shares of the axis. A count that finds no room in either row is left out.
    """
    points = max(ax.get_position().width * ax.figure.get_figwidth() * 72, 1.0)  # type: ignore[union-attr]
    taken: list[list[tuple[float, float]]] = [[], []]
    found = []
    for start, end, count in sorted(spans, key=lambda span: span[0] - span[1]):
        text = f"{int(count)}"
        half = (0.68 * 0.9 * style.current().font_size * len(text) / 2 + 2) / points
        place = float(np.clip((start + end) / 2, half, 1 - half))
        for row, others in enumerate(taken):
            if all(place + half <= low or place - half >= high for low, high in others):
                others.append((place - half, place + half))
                found.append((place, row, text))
                break
    return sorted(found)


def _line_height(ax: "Axes") -> float:
    """The height of a line of small text as a share of the axes."""
    points = max(ax.get_position().height * ax.figure.get_figheight() * 72, 1.0)  # type: ignore[union-attr]
    return 1.15 * style.current().font_size / points


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
    log: bool | str = "auto",
    color: Any = None,
    of: str = "clusters",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the number of clusters as a staircase, plateaus (start, end, count) shaded and named by their count.

    The number changes in the middle between two frames, of layers and steps at the later one, and at the very time of
    a merge that ended the run, as in a merge tree. Frames without a number, NaN, are hatched: clusters are not
    separated there, or there is no peak yet.

    Parameters: `counts`, a `ClusterTrack` or `PeakTrack`, or numbers (T,), or (T, R) for a median and a band over runs,
    of which the time of the last merge is not known; `plateaus`, whose bounds are times; `log`, a
    logarithmic time axis (True, False, or "auto": where the frames are spaced like that); `color` of the line; `of`,
    the noun of what is counted; `ax`, the axes to draw on, else new ones. Returns the axes.
    """
    alone, ax = ax is None, new_axes(ax, about=trajectory)
    changes, counts = known_changes(trajectory, counts), check_counts(trajectory, counts)
    gaps, counts = (NO_PEAK_YET, since_first_peak(counts)) if of == "peaks" else (CHAINS, counts)
    log = time_axis(ax, trajectory.times, log, unit=trajectory.facts.time_unit)
    shade_plateaus(ax, trajectory, plateaus, log)
    color = color or style.current().categories[3]
    times = drawn_times(trajectory.times, log)
    draw_band(ax, times, counts, color, None, changes=change_times(times, changes))
    count_axis(ax, counts)
    if counts.ndim == 1:
        worded = [hatch_span(ax, span, gaps) for span in spans_without_count(trajectory.times, counts, changes)]
        if alone and not all(worded):
            add_to_small_print(ax.figure, HATCHED_NOTE.format(gaps))  # type: ignore[arg-type]
    ax.set_ylabel(with_band(of, counts))
    mark_changes(ax, trajectory)
    set_title(ax, trajectory)
    return ax


def count_axis(ax: "Axes", counts: np.ndarray) -> None:
    """A logarithmic axis with plain whole numbers, tall enough for the plateau names above the staircase.

    Counts of at most eight, or with a zero among them, have a linear axis.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    top = max(int(np.max(counts, where=np.isfinite(counts), initial=0)), 2)
    ax.grid(True, axis="y")
    if np.min(counts, where=np.isfinite(counts), initial=top) < 1 or top <= _FEW:
        ax.set_ylim(-0.04 * top, 1.25 * top)
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        return
    ax.set_yscale("log")
    ax.set_ylim(0.8, top * (top / 0.8) ** 0.2)  # a sixth of the height is left for two rows of names
    ladder = [value * 10**power for power in range(7) for value in (1, 2, 5)]
    ax.yaxis.set_major_locator(FixedLocator([value for value in ladder if value <= top]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def staircase(
    trajectory: "Trajectory",
    counts: Any = None,
    *,
    plateaus: Iterable[Any] = (),
    log: bool | str = "auto",
    of: str = "clusters",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw cluster count (left axis) and energy (right axis) on one time axis, plateaus shaded.

    Whichever of the two is missing is left out. Where the energy overflowed, its recorded logarithm is drawn.

    Parameters: `counts`, a track or (T,) or (T, R), as of `cluster_count`; `plateaus` (start, end, count) in times;
    `log`, a logarithmic time axis (True, False, or "auto": where the frames are spaced like that); `of`, the noun of
    what is counted; `ax`, the axes to draw on, else new ones. Returns the left axes; the right ones share its time
    axis.
    """
    check_trajectory(trajectory)
    theme = style.current()
    drawn = energy_name(trajectory)
    if counts is None:
        if drawn is None:
            raise ArgumentError(
                "A staircase needs cluster counts or an `energy` observable, but found neither: give `counts`."
            )
        ax = energy(trajectory, log=log, ax=ax)
        shade_plateaus(ax, trajectory, plateaus, ax.get_xscale() == "log")
        return ax
    ax = cluster_count(trajectory, counts, plateaus=plateaus, log=log, of=of, ax=ax)
    if drawn is not None:
        _colored_axis(ax, "left", theme.categories[3])
        right = ax.twinx()
        times = drawn_times(trajectory.times, ax.get_xscale() == "log")
        values = observable_values(trajectory, drawn)
        draw_band(right, times, values, theme.categories[0], None, power=power_of(drawn))
        right.set_ylabel(with_band(drawn.replace("_", " "), values))
        _say_overflow(right, trajectory, drawn)
        right.spines["right"].set_visible(True)
        if right.get_yscale() == "linear":
            low, high = right.get_ylim()
            right.set_ylim(low, high + 0.12 * (high - low))
        _colored_axis(right, "right", theme.categories[0])
    return ax


def _colored_axis(ax: "Axes", side: str, color: str) -> None:
    """Give the name, the numbers and the line of a vertical axis the colour of its curve."""
    ax.yaxis.label.set_color(color)
    ax.tick_params(axis="y", colors=color, labelcolor=color)
    ax.spines[side].set_color(color)
