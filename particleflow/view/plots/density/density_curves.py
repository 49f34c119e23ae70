"""Densities as curves, maps and numbers: profiles at a few times, maps of the sphere, modes, and masses of peaks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.motion import even_in_motion
from particleflow.analysis.reading import first_run
from particleflow.analysis.samples import thinned
from particleflow.errors import ArgumentError
from particleflow.view import style
from particleflow.view.plots.base import (
    MAX_FRAMES,
    drawn_times,
    log_axis,
    mark_changes,
    new_axes,
    new_figure,
    rounding_level,
    set_title,
    time_axis,
    time_words,
    title_figure,
)
from particleflow.view.plots.density.density_frame import density_axis
from particleflow.view.plots.density.density_scale import Field, field_of, frame_density
from particleflow.view.plots.density.histograms import densities, ruler_of
from particleflow.view.plots.space.paths import angle_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.analysis.density.peaks import PeakTrack
    from particleflow.trajectory.trajectory import Trajectory

_SHOWN = 6  # profiles by default
_MAPS = 4  # by default
_MODES = 6  # by default
_CLEAR = 0.99  # of the variance of log A_k that a rate must explain
_SEEN = 1e3  # times rounding, what the largest amplitude of a mode must exceed to be drawn
_MOST_PEAKS = 12  # drawn, the heaviest ones


def _field(run: "Trajectory", what: str, kinds: Sequence[str]) -> Field:
    """The density of a run as a picture; an error, which begins with `what`, unless it is of one of the kinds."""
    field = field_of(run)
    if field is None or field.cells.kind not in kinds:
        found = "particles" if field is None else f"a density of the kind {field.cells.kind}"
        raise ArgumentError(f"{what} of a density ({', '.join(kinds)}), but this run is {found}.")
    return field


def profiles(trajectory: "Trajectory", frames: Any = None, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the density over the line or the angle at a few times, later ones in warmer colours.

    Curves go through ρ_i = m_i / V_i in the middles of the cells. An ensemble shows its run 0.

    Parameters: `frames`, frame indices, else six that are even in the mass that moves; `ax`, the axes to draw on, else
    new ones. Returns the axes.
    """
    run = first_run(trajectory)
    field = _field(run, "Profiles are drawn", ("line", "circle"))
    chosen = even_in_motion(run, _SHOWN) if frames is None else np.asarray(frames, int)
    every = thinned(len(run), MAX_FRAMES // 2)
    ruler = ruler_of(run, every)
    edges, found = densities(run, np.concatenate([every, chosen]), ruler)  # all frames decide where a circle is cut
    found = found[len(every) :]
    ax = new_axes(ax, about=trajectory)
    middle = (edges[1:] + edges[:-1]) / 2
    for row, frame, color in zip(found, chosen, style.ordered_colors(np.linspace(0, 1, len(chosen))), strict=True):
        ax.plot(middle, row, color=color, label=time_words(run, float(run.times[int(frame)])))
    density_axis(ax, field)
    ax.set(xlim=(edges[0], edges[-1]), xlabel=ruler.name)
    if field.cells.kind == "circle":
        angle_ticks(ax.xaxis, edges[0], edges[-1])
    ax.grid(True, axis="y")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
    set_title(ax, run)
    return ax


def density_map(trajectory: "Trajectory", frames: Any = None, *, figure: Any = None) -> np.ndarray:
    """Draw the whole sphere as equal-area maps (Mollweide), with the heaviest place of the last frame in the middle.

    Parameters: `frames`, frame indices, else four that are even in the mass that moves; `figure`, the figure to draw
    on, else a new one. Returns the array of axes.
    """
    from matplotlib.cm import ScalarMappable

    run = first_run(trajectory)
    field = _field(run, "A map is drawn", ("sphere",))
    chosen = even_in_motion(run, _MAPS) if frames is None else np.asarray(frames, int)
    rows = -(-len(chosen) // 2)
    if figure is None:
        figure = new_figure((1.0, 0.32 * rows + 0.1) if len(chosen) > 1 else (0.8, 0.5), trajectory)
        title_figure(figure, run, "Density")
    shape = (rows, 2) if len(chosen) > 1 else (1, 1)
    axes = figure.subplots(*shape, squeeze=False, subplot_kw={"projection": "mollweide"}).ravel()
    last = frame_density(run, field.cells, -1)
    longitude, latitude, nearest = _map_of(field, field.cells.points[int(last.argmax())])
    colors: dict[str, Any] = {"norm": field.norm(), "cmap": style.colormap("density")}
    for ax, frame in zip(axes, chosen, strict=False):
        values = frame_density(run, field.cells, int(frame))[nearest]
        ax.pcolormesh(longitude, latitude, values, rasterized=True, shading="nearest", **colors)
        ax.set(xticks=[], yticks=[])
        ax.set_title(time_words(run, float(run.times[int(frame)])))
    for ax in axes[len(chosen) :]:
        ax.set_visible(False)
    scale = ScalarMappable(field.norm(), style.colormap("density"))
    bar = figure.colorbar(scale, ax=list(axes), shrink=0.8, aspect=26, pad=0.02, label="density")
    bar.outline.set_visible(False)
    return axes[: len(chosen)]


def _map_of(field: Field, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Longitudes (361,), latitudes (181,) and the nearest cell at each (181, 361), with `centre` in the middle."""
    from scipy.spatial import KDTree

    longitude, latitude = np.linspace(-np.pi, np.pi, 361), np.linspace(-np.pi / 2, np.pi / 2, 181)
    units = field.cells.points / np.linalg.norm(field.cells.points, axis=1, keepdims=True)
    middle = centre / np.linalg.norm(centre)
    pole = np.eye(3)[2] if abs(middle[2]) < 0.95 else np.eye(3)[0]
    east = np.cross(pole, middle)
    east /= np.linalg.norm(east)
    axes = np.stack([middle, east, np.cross(middle, east)])
    across, up = np.meshgrid(longitude, latitude)
    there = np.stack([np.cos(up) * np.cos(across), np.cos(up) * np.sin(across), np.sin(up)], axis=-1) @ axes
    nearest = np.asarray(KDTree(units).query(there.reshape(-1, 3))[1])
    return longitude, latitude, nearest.reshape(across.shape)


def modes(
    trajectory: "Trajectory", maximum: int = _MODES, *, log: bool | str = "auto", ax: "Axes | None" = None
) -> "Axes":
    """Draw the amplitudes of the first modes against time: Fourier on the circle, spherical harmonics on S².

    The legend states the rate r of a mode that grows or decays by itself while it is small, A_k ∝ e^{rt}. Modes that
    never rise above rounding are left out, as are those that a symmetric start forbids: the largest of them is shaded
    as the error of the scheme, below which no amplitude means anything. An ensemble shows its run 0.

    Parameters: `maximum`, the number of modes; `log`, a logarithmic time axis (True, False, or "auto": where the frames
    are spaced like that); `ax`, the axes to draw on, else new ones. Returns the axes.
    """
    from particleflow.analysis import growth_rates, mode_amplitudes, symmetry_errors

    run = first_run(trajectory)
    _field(run, "Modes are drawn", ("circle", "sphere"))
    frames = thinned(len(run), MAX_FRAMES // 4)
    amplitudes = mode_amplitudes(run, maximum, frames=frames)
    times = np.asarray(run.times, float)[frames]
    ax, theme = new_axes(ax, about=trajectory), style.current()
    log = time_axis(ax, run.times, log, unit=run.facts.time_unit)
    wrong = symmetry_errors(run, maximum)
    seen = amplitudes.max(axis=0) > _SEEN * rounding_level(1.0)  # 1 is the amplitude of all mass at one point
    shown = np.flatnonzero(seen & ~wrong)
    if (seen & wrong).any():
        _shade_errors(ax, drawn_times(times, log), amplitudes, np.flatnonzero(wrong))
    fits = growth_rates(times, amplitudes) if len(times) > 2 else [None] * maximum
    for order, color in zip(shown, style.palette(len(shown)), strict=True):
        fit = fits[order]
        law = f", rate {fit.rate:.3g}" if fit is not None and fit.r_squared > _CLEAR else ""
        name = f"mode {order + 1}{law}"
        values = np.where(amplitudes[:, order] > rounding_level(1.0), amplitudes[:, order], np.nan)
        ax.plot(drawn_times(times, log), values, color=color, label=name, marker="o" if len(times) == 1 else None)
    known = amplitudes[:, shown][amplitudes[:, shown] > rounding_level(1.0)]
    log_axis(ax, known)
    ax.set(ylim=(0.5 * float(known.min(initial=1.0)), 1.6), ylabel="amplitude of the mode")
    ax.grid(True, axis="y")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2, labelcolor=theme.text)
    mark_changes(ax, run)
    set_title(ax, run)
    return ax


def _shade_errors(ax: "Axes", times: np.ndarray, amplitudes: np.ndarray, wrong: np.ndarray) -> None:
    """Shade what is below the largest amplitude of the modes that can only be errors, by their indices `wrong`."""
    orders = ", ".join(str(order + 1) for order in wrong)
    largest = amplitudes[:, wrong].max(axis=1)
    name = f"errors of the scheme:\nmodes {orders},\nnot in the start"
    ax.fill_between(times, 1e-300, largest, color=style.current().muted, alpha=0.25, linewidth=0, label=name, zorder=1)


def peaks(
    trajectory: "Trajectory",
    track: "PeakTrack | None" = None,
    *,
    log: bool | str = "auto",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the masses of the peaks of a density against time, as bands on one another, in the order of their places.

    A band begins where a peak stands out, and ends where it merges or is gone. Of many peaks the heaviest twelve are
    drawn. An ensemble shows its run 0.

    Parameters: `track`, what `analysis.track_peaks` returns, which is called here if left out; `log`, a logarithmic
    time axis (True, False, or "auto": where the frames are spaced like that); `ax`, the axes to draw on, else new ones.
    Returns the axes.
    """
    from particleflow.analysis.density.peaks import track_peaks

    run = first_run(trajectory)
    found = track or track_peaks(run)
    theme = style.current()
    ax = new_axes(ax, about=trajectory, note=f"peaks at contrast {found.contrast:g}, {100 * found.least:g} % of mass")
    log = time_axis(ax, run.times, log, unit=run.facts.time_unit)
    times = drawn_times(run.times, log)
    heavy = sorted(found.peaks, key=lambda peak: (-peak.masses.max(), peak.label))[:_MOST_PEAKS]
    below = np.zeros(len(times))
    for peak, color in zip(sorted(heavy, key=_place), style.palette(len(heavy)), strict=True):
        mass = np.zeros(len(times))
        mass[peak.frames] = peak.masses
        there = mass > 0
        drawn = there | np.roll(there, 1) & (np.arange(len(times)) > 0)  # a band ends where the next frame begins
        held = np.where(there, mass, np.roll(mass, 1))
        ax.fill_between(
            times, below, below + held, where=drawn, step="post", color=color, alpha=0.75, linewidth=0, zorder=2
        )
        if there[-1] and mass[-1] > 0.03:
            spot = (1.012, below[-1] + mass[-1] / 2)
            ax.text(*spot, f"{mass[-1]:.3f}", transform=ax.get_yaxis_transform(), va="center", color=color)
        below = below + mass
    ax.set(ylim=(0.0, 1.0), ylabel="mass of the peaks")
    ax.tick_params(axis="y", colors=theme.text)
    mark_changes(ax, run)
    set_title(ax, run)
    return ax


def _place(peak: Any) -> tuple[float, ...]:
    """The last place of a peak, by which bands are ordered: its angle on the circle, else its coordinates."""
    place = peak.places[-1]
    return (float(np.arctan2(place[1], place[0])),) if len(place) == 2 else tuple(place.tolist())
