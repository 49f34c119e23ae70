"""The motion of particles: the kymograph (place against time) and their paths on the page."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.samples import gather, thinned
from particleflow.errors import ArgumentError
from particleflow.view import style
from particleflow.view.plots.base import (
    MAX_FRAMES,
    MAX_LINES,
    SQUARE,
    Projection,
    angles,
    drawn_times,
    emptiest_angle,
    mark_changes,
    new_axes,
    projection,
    run_of_particles,
    sample_note,
    set_title,
    time_axis,
)
from particleflow.view.plots.camera import BEHIND_NOTE, Camera, box_coordinates, camera_for, globe
from particleflow.view.plots.colors import check_labels, may_blend, particle_colors
from particleflow.view.plots.crowds import crowd_colors, shown_weights
from particleflow.view.plots.line_names import name_lines
from particleflow.view.plots.space.law import LEVELS_NOTE, law_levels
from particleflow.view.plots.space.snapshots import draw_depth, rings_note, snapshot
from particleflow.view.plots.word_labels import write_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory.trajectory import Trajectory


_FADES = 24  # steps of opacity along a path
_RESTING = 1e-9  # in units of the picture: a stretch that moves less is not drawn


def kymograph(
    trajectory: "Trajectory",
    *,
    labels: Any = None,
    log: bool | str = "auto",
    vertical: bool = False,
    words: bool = True,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw one number a particle against time: its coordinate (d = 1), its angle (circle), else its first coordinate.

    The circle is cut open where the fewest particles pass; a line that crosses the cut is broken. At d > 3 the number
    is the first principal component. An ensemble shows its run 0; at most 512 particles and 600 frames are drawn. Of a
    normal law the mean and one and two standard deviations are drawn.

    Parameters: `labels` (N,), which colour the lines, or (T, N), which colour their pieces; `log`, a logarithmic time
    axis (True, False, or "auto": where the frames are spaced like that); `vertical`, time upwards; `words`, whether
    lines are named, if the particles have words, beside the axis where they begin, which moves the numbers to the other
    side; `ax`, the axes to draw on, else new ones. Returns the axes.
    """
    run = run_of_particles(trajectory, "A kymograph")
    law = run.facts.is_law
    ax = new_axes(ax, about=trajectory, note=LEVELS_NOTE if law else sample_note(run, MAX_LINES))
    frames, particles = thinned(len(run), MAX_FRAMES), thinned(run.count, run.count if law else MAX_LINES)
    view = projection(run)
    seen = view(gather(run, frames, particles))
    heights, ticks = kymograph_heights(view, law_levels(seen, shown_weights(run, 0)) if law else seen)
    colors = style.label_colors(np.zeros(heights.shape[1])) if law else _line_colors(run, labels, frames, particles)
    log = time_axis(ax, run.times, log, unit=run.facts.time_unit, axis="y" if vertical else "x")
    times = drawn_times(run.times, log)[frames]
    _draw_lines(ax, times, heights, colors, vertical)
    _place_axis(ax, view, heights, ticks, vertical)
    if words and run.words is not None and not law:
        _name_lines(ax, run.words[particles], heights[0], times[0], shown_weights(run, 0, particles), vertical)
    mark_changes(ax, run, axis="y" if vertical else "x")
    set_title(ax, run)
    return ax


def kymograph_heights(view: Projection, coordinates: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """The drawn number (T, n), NaN where a line crosses the circle's cut; and the tick angles of a circle."""
    if view.kind != "circle":
        return coordinates[..., 0], None
    cut = emptiest_angle(angles(coordinates))
    heights = angles(coordinates, cut)
    jump = np.abs(np.diff(heights, axis=0, prepend=heights[:1])) > np.pi
    first = int(np.ceil(cut / (np.pi / 2)))
    ticks = np.arange(first, first + 5) * np.pi / 2
    return np.where(jump, np.nan, heights), ticks[(ticks >= cut) & (ticks <= cut + 2 * np.pi)]


def _line_colors(run: Any, labels: Any, frames: np.ndarray, particles: np.ndarray) -> np.ndarray:
    """Colours (n, 3), or (T, n, 3) for labels that change with time."""
    if labels is not None and np.ndim(labels) == 2:
        return style.label_colors(check_labels(run, labels)[frames][:, particles])
    return particle_colors(run, labels)[particles]


def _draw_lines(ax: "Axes", times: np.ndarray, heights: np.ndarray, colors: np.ndarray, vertical: bool) -> None:
    """One line a particle, or one piece a frame and particle where colours change with time."""
    from matplotlib.collections import LineCollection

    count = heights.shape[1]
    lines = np.stack([np.broadcast_to(times[:, None], heights.shape), heights], axis=-1)
    lines = lines[..., ::-1] if vertical else lines
    width = style.current().line_width * float(np.clip(14.0 / np.sqrt(count), 0.5, 1.0))
    options: dict[str, Any] = {"linewidths": width, "alpha": float(np.clip(30.0 / count, 0.45, 0.95)), "zorder": 2}
    if len(times) == 1:
        ax.scatter(*lines[0].T, c=colors.reshape(-1, 3)[:count], s=14, zorder=3)
    elif colors.ndim == 2:
        ax.add_collection(LineCollection(list(lines.swapaxes(0, 1)), colors=colors, **options), autolim=False)
    else:
        pieces = np.stack([lines[:-1], lines[1:]], axis=2).reshape(-1, 2, 2)
        seen = np.isfinite(pieces).all(axis=(1, 2))
        collection = LineCollection(list(pieces[seen]), colors=colors[1:].reshape(-1, 3)[seen], **options)
        ax.add_collection(collection, autolim=False)


def _name_lines(
    ax: "Axes", words: np.ndarray, begins: np.ndarray, time: float, weights: np.ndarray, vertical: bool
) -> None:
    """Names beside the axis where the lines begin; of lines that go upwards beside their first points."""
    if not vertical:
        seen = np.isfinite(begins)
        name_lines(ax, words[seen], begins[seen])
        return
    write_words(ax, words, np.column_stack([begins, np.full(len(begins), time)]), weights, 0.0)


def _place_axis(ax: "Axes", view: Projection, heights: np.ndarray, ticks: np.ndarray | None, vertical: bool) -> None:
    """Limits, ticks and name of the axis that is not time."""
    axis, limits = (ax.xaxis, ax.set_xlim) if vertical else (ax.yaxis, ax.set_ylim)
    seen = heights[np.isfinite(heights)]
    low, high = (seen.min(), seen.max()) if seen.size else (0.0, 1.0)
    pad = 0.05 * (high - low) or 1.0
    if ticks is None:
        limits(low - pad, high + pad)
        axis.set_label_text(view.labels[0])
        return
    limits(low - pad / 2, high + pad / 2)
    axis.set_ticks(ticks, [angle_names(tick) for tick in ticks])
    limits(low - pad / 2, high + pad / 2)
    axis.set_label_text("angle θ")


def angle_ticks(axis: Any, low: float, high: float) -> None:
    """Ticks at the quarters of the circle on an axis of angles, whose limits stay low and high."""
    ticks = np.arange(np.ceil(low / (np.pi / 2)), np.floor(high / (np.pi / 2)) + 1) * np.pi / 2
    axis.set_ticks(ticks, [angle_names(tick) for tick in ticks])
    axis.axes.set(**{"xlim" if axis.axis_name == "x" else "ylim": (low, high)})


def angle_names(angle: float) -> str:
    """The name of a multiple of π/2, between −π and π."""
    names = {-4: "0", -3: "π/2", -2: "−π", -1: "−π/2", 0: "0", 1: "π/2", 2: "π", 3: "−π/2", 4: "0"}
    return names.get(round(angle / (np.pi / 2)), "")


def paths(
    trajectory: "Trajectory",
    *,
    labels: Any = None,
    azimuth: float | None = None,
    camera: Camera | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw every particle's path, faint where it began, and the last frame on top (d ≥ 2; d = 1 is a kymograph).

    An ensemble shows its run 0; at most 512 particles and 600 frames are drawn.

    Parameters: `labels` (N,) or (T, N), clusters to colour by; `azimuth`, in degrees, where the camera stands, else it
    is aimed at the last clusters; `camera`, one that several runs share (see `camera_of`); `ax`, the axes to draw on,
    else new ones. Returns the axes.
    """
    run = run_of_particles(trajectory, "A picture of paths")
    camera = camera_for(run, camera).turned(azimuth)
    view = camera.view
    if view.kind == "line":
        raise ArgumentError("Paths need at least two dimensions, but the trajectory has one: draw a kymograph instead.")
    rings = rings_note(run, camera, [len(run) - 1], labels)
    notes = [sample_note(run, MAX_LINES), rings, BEHIND_NOTE if view.kind == "sphere" else ""]
    ax = new_axes(ax, SQUARE, about=trajectory, note=" · ".join(filter(None, notes)))
    particles, frames = thinned(run.count, MAX_LINES), thinned(len(run), MAX_FRAMES)
    colors = particle_colors(run, labels, -1)
    seen = view(gather(run, frames, particles))
    if view.kind == "sphere":
        blended = may_blend(run, labels)
        dots = crowd_colors(seen[-1], colors[particles]) if blended else colors[particles]
        weights, words = shown_weights(run, -1, particles), None if run.words is None else run.words[particles]
        _sphere_paths(ax, seen @ camera.rotation.T, colors[particles], dots, weights, camera.rotation, words)
    else:
        snapshot(run, -1, labels=labels, camera=camera, title="", ax=ax)
        if view.kind == "space":
            seen = box_coordinates(seen, camera.limits) @ camera.rotation.T
        _fading_lines(ax, seen[..., :2], colors[particles])
    set_title(ax, run)
    return ax


def _fading_lines(
    ax: "Axes", seen: np.ndarray, colors: np.ndarray, strength: float = 0.6, thickness: float = 1.0
) -> None:
    """Paths whose opacity grows along the path in `_FADES` steps; `seen` is (T, n, 2), NaN where hidden.

    Lines of many corners are drawn ten times faster than their pieces; a stretch at rest, or hidden, is left out.
    """
    from matplotlib.collections import LineCollection

    if len(seen) < 2:
        return
    ends = np.unique(np.linspace(0, len(seen) - 1, min(len(seen), _FADES + 1)).round().astype(int))
    lines, inks = [], []
    for first, last in pairwise(ends.tolist()):
        stretch = seen[first : last + 1].swapaxes(0, 1)
        with np.errstate(invalid="ignore"):
            low, high = np.fmin.reduce(stretch, axis=1), np.fmax.reduce(stretch, axis=1)
        moving = np.flatnonzero((high - low).max(axis=-1) > _RESTING)
        age = 0.15 + 0.85 * (first + last) / (2 * (len(seen) - 1))
        lines += list(stretch[moving])
        inks.append(np.column_stack([colors[moving], np.full(len(moving), strength * age)]))
    width = 0.6 * thickness * style.current().line_width
    ax.add_collection(LineCollection(lines, colors=np.concatenate(inks), linewidths=width, zorder=2), autolim=False)


def _sphere_paths(
    ax: "Axes", turned: np.ndarray, colors: np.ndarray, dots: np.ndarray, weights: np.ndarray, camera: np.ndarray,
    words: np.ndarray | None,
) -> None:  # fmt: skip
    """Paths on the globe, (T, n, 3) in camera axes: those behind it faint and thin, the last places as dots."""
    globe(ax, camera)
    front = turned[..., 2:] >= 0
    _fading_lines(ax, np.where(front, np.nan, turned[..., :2]), colors, 0.28, 0.6)
    _fading_lines(ax, np.where(front, turned[..., :2], np.nan), colors, 0.75)
    draw_depth(ax, turned[-1], dots, weights, words)
    ax.set(xlim=(-1.09, 1.09), ylim=(-1.09, 1.09), aspect="equal")
    ax.set_axis_off()
