"""Where the particles are in one frame: on a line, on a ring, in the plane, on a sphere, or in principal components."""

from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.motion import even_in_motion
from particleflow.analysis.reading import first_run
from particleflow.analysis.run_character import character_of
from particleflow.analysis.samples import stored_points, thinned
from particleflow.view import style
from particleflow.view.plots.base import (
    MAX_DOTS,
    SQUARE,
    WIDE,
    Projection,
    inches,
    is_crowd,
    new_axes,
    new_figure,
    sample_note,
    set_title,
    time_words,
    title_figure,
    write_title,
)
from particleflow.view.plots.camera import (
    BEHIND_NOTE,
    Camera,
    box_coordinates,
    box_edges,
    camera_for,
    depth_cues,
    globe,
)
from particleflow.view.plots.colors import has_labels, may_blend, particle_colors
from particleflow.view.plots.crowds import MET_NOTE, SHARES_NOTE, crowd_colors, find_crowds, marker_areas, shown_weights
from particleflow.view.plots.density.density_frame import BARS_NOTE, draw_cells
from particleflow.view.plots.density.density_scale import Field, field_of
from particleflow.view.plots.density.histograms import cell_count
from particleflow.view.plots.matrices.pair_matrices import color_bar
from particleflow.view.plots.space.law import (
    DEVIATIONS,
    ELLIPSES_NOTE,
    draw_law_density,
    law_curves,
    law_lines,
)
from particleflow.view.plots.space.ring import (
    CURVE_REACH,
    RING_NOTE,
    bare,
    curve_note,
    draw_density_curve,
    draw_ring,
    empty_ring,
)
from particleflow.view.plots.space.shown_particles import ShownParticles
from particleflow.view.plots.word_labels import write_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory.trajectory import Trajectory

_CLOUD = 50  # particles on a circle, from which a curve of their density is drawn
_MOST_ROWS = 200  # particles on a line that have a row each; of more a histogram is drawn
_MOST_STACKED = 12  # colours of the bars of a histogram
_RIM = 0.14  # of an open dot, in roots of its area


def snapshot(
    trajectory: "Trajectory",
    frame: int = -1,
    *,
    labels: Any = None,
    colors: np.ndarray | None = None,
    azimuth: float | None = None,
    camera: Camera | None = None,
    title: str | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the particles of one frame; an ensemble shows its run 0.

    The picture follows geometry and dimension: a strip (d = 1; of more than 200 particles a histogram), a ring (with a
    curve of the density around 50 or more that noise or repulsion keeps apart) or the plane (d = 2), a sphere or a box
    with nearer particles larger and stronger (d = 3), those behind the sphere as open dots, principal components (d >
    3). Areas are proportional to mass. Particles with words are named by them where there is room: those at one place
    together, none over another. Of more
    than 20,000 particles a ring shows the density of all, and other pictures so many of them, evenly chosen. A density
    is drawn as such: a curve over the line, bars around the circle, a heat map of the plane, a coloured sphere, all
    frames on one scale; a normal law as its density on a line, else as ellipses on equal scales.

    Parameters: the index of the `frame`; `labels` (N,) or (T, N), clusters to colour by, or `colors` (N, 3), else the
    cluster that a particle ends in, or its first place; `azimuth`, in degrees, where the camera stands, else it is
    aimed at the last clusters; `camera`, one that several runs share (see `camera_of`); `title`, else that of the run
    with the time; `ax`, the axes to draw on, else new ones. Returns the axes.
    """
    run = first_run(trajectory)
    camera = camera_for(run, camera).turned(azimuth)
    view, alone, density = camera.view, ax is None, field_of(run)
    shape, note = WIDE if view.kind == "line" else SQUARE, _note(run, camera, [frame], labels)
    ax = new_axes(ax, shape, about=trajectory, note=note)
    if density is not None:
        stored_points(run, frame)  # an error where there is no such frame
        draw_cells(ax, run, camera, density, frame, bar=alone)
    else:
        draw = {"line": _line, "circle": _circle, "ring": draw_ring, "plane": _plane, "pca": _plane}
        draw |= {"sphere": _sphere, "space": _space, "law": _law, "heap": _heap}
        draw[_kind(run, view)](ax, _shown_particles(run, camera, frame, labels, colors))
    _name(ax, run, frame, title)
    return ax


def _shown_particles(
    run: "Trajectory", camera: Camera, frame: int, labels: Any, colors: np.ndarray | None
) -> ShownParticles:
    """The particles of a frame that a picture shows, projected and coloured."""
    view = camera.view
    kind = _kind(run, view)
    chosen = slice(None) if kind in ("ring", "law", "heap") else thinned(run.count, MAX_DOTS)
    coordinates, weights = view(stored_points(run, frame))[chosen], shown_weights(run, frame, chosen)
    inks = (particle_colors(run, labels, frame) if colors is None else colors)[chosen]
    blended = colors is None and may_blend(run, labels)
    if blended and kind not in ("line", "ring", "law", "heap"):
        inks = crowd_colors(coordinates, inks, crowd_cell(camera))
    words = None if run.words is None else run.words[chosen]
    return ShownParticles(run, camera, coordinates, inks, weights, words, blended)


def _name(ax: "Axes", run: "Trajectory", frame: int, title: str | None) -> None:
    """The title that is given, else that of the run with the time of the frame."""
    if title is None:
        set_title(ax, run, time=float(run.times[frame]))
    else:
        write_title(ax, title)


def _kind(run: "Trajectory", view: Projection) -> str:
    """The picture: that of the projection, the ring of a crowd, the histogram of many on a line, or a normal law's."""
    if run.facts.is_law:
        return "law"
    if view.kind == "line" and _is_heap(run):
        return "heap"
    return "ring" if view.kind == "circle" and is_crowd(run) else view.kind


def _is_cloud(run: "Trajectory") -> bool:
    """Whether noise or repulsion keeps many particles spread: dots alone hide how many there are at a place."""
    return run.count >= _CLOUD and character_of(run).apart in ("noise", "repulsion")


def _is_heap(run: "Trajectory") -> bool:
    """Whether there are too many particles on a line to tell their rows apart, and rows mean nothing else."""
    return run.count > _MOST_ROWS and run.words is None and run.positions is None


def _note(run: "Trajectory", camera: Camera, frames: Any, labels: Any = None) -> str:
    """Small print about how a crowd, a density or a mixture of labels is drawn in some frames; empty otherwise."""
    view = camera.view
    if field_of(run) is not None:
        return BARS_NOTE if view.kind == "circle" else ""
    if _kind(run, view) != view.kind:
        return RING_NOTE if _kind(run, view) == "ring" else "" if view.kind == "line" else ELLIPSES_NOTE
    if view.kind == "circle" and _is_cloud(run):
        return curve_note(run.count)
    mixture = rings_note(run, camera, frames, labels)
    sides = BEHIND_NOTE if view.kind == "sphere" else ""
    return " · ".join(filter(None, [sample_note(run, MAX_DOTS), mixture, sides]))


def rings_note(run: "Trajectory", camera: Camera, frames: Any, labels: Any = None) -> str:
    """Small print on rings where they are drawn: particles of several labels or clusters at one place in some frame."""
    if _kind(run, camera.view) in ("line", "heap", "ring", "law") or may_blend(run, labels):
        return ""
    for frame in frames:
        shown = _shown_particles(run, camera, int(frame), labels, None)
        seen, cell = _crowd_places(shown)
        if (find_crowds(seen, shown.weights, shown.colors, cell).share < 1).any():
            return SHARES_NOTE if has_labels(run, labels) else MET_NOTE
    return ""


def _crowd_places(shown: ShownParticles) -> tuple[np.ndarray, float]:
    """The places of particles (n, k) in the picture, in camera axes in space, and the side of the cell of a crowd."""
    camera = shown.camera
    if shown.view.kind == "space":
        return box_coordinates(shown.coordinates, camera.limits) @ camera.rotation.T, 0.01
    if shown.view.kind == "sphere":
        return shown.coordinates @ camera.rotation.T, 0.01
    return shown.coordinates, crowd_cell(camera)


def snapshots(
    trajectory: "Trajectory",
    frames: Any = None,
    *,
    labels: Any = None,
    camera: Camera | None = None,
    figure: Any = None,
) -> np.ndarray:
    """A row of snapshots that share projection, camera and colours, titled by the run; returns the array of axes.

    Parameters: `frames`, frame indices, else four that are even in the motion between the first and the last frame;
    `labels` (N,) or (T, N), clusters to colour by; `camera`, one that several runs share (see `camera_of`); `figure`,
    the figure to draw on, else a new one.
    """
    run = first_run(trajectory)
    frames = even_in_motion(run, 4) if frames is None else np.asarray(frames, int)
    frames = np.unique(np.where(frames < 0, frames + len(run), frames))
    if figure is None:
        side = 2.5 / 6.4
        note = _note(run, camera_for(run, camera), frames, labels)
        figure = new_figure((side * max(len(frames), 2), side * 1.32), trajectory, note)
        title_figure(figure, run, "Snapshots")
    camera = camera_for(run, camera)
    view = camera.view
    axes = figure.subplots(1, len(frames), squeeze=False)[0]
    for ax, frame in zip(axes, frames, strict=True):
        when = time_words(run, float(run.times[int(frame)]))
        snapshot(run, int(frame), labels=labels, camera=camera, title=when, ax=ax)
        if ax is not axes[0]:
            ax.set_ylabel("")
            ax.tick_params(labelleft=False)
    if view.kind == "line" and run.facts.is_law:  # one scale for all densities
        top = max(ax.get_ylim()[1] for ax in axes)
        for ax in axes:
            ax.set_ylim(0.0, top)
    if _kind(run, view) == "heap" and field_of(run) is None:  # a cluster would leave nothing of the other frames
        for ax in axes:
            ax.set_yticks([])
        axes[0].set_ylabel("density, scaled to each frame")
    field = field_of(run)
    if field is not None and field.cells.kind != "line":  # heights of curves have an axis of their own
        _shared_bar(axes[-1], field)
    return axes


def _shared_bar(ax: "Axes", field: Field) -> None:
    """The scale of a row of pictures, beside the last of them."""
    from matplotlib.cm import ScalarMappable

    color_bar(ax, ScalarMappable(field.norm(), style.colormap("density")), "density")


def _marker_scale(ax: "Axes") -> float:
    """The factor of marker areas: 1 on axes of 3.2 inches, less on small ones."""
    return float(np.clip(inches(ax) / 3.2, 0.25, 1.3))


def _scatter(ax: "Axes", points: np.ndarray, colors: np.ndarray, sizes: Any, **options: Any) -> None:
    """Dots without an outline, of areas in points² that are scaled to the axes."""
    drawn = {"s": _marker_scale(ax) * sizes, "c": colors, "linewidths": 0, "zorder": 3, **options}
    ax.scatter(points[:, 0], points[:, 1], **drawn)


def _discs(
    ax: "Axes", places: np.ndarray, colors: np.ndarray, weights: np.ndarray, cell: float = 0.01, **options: Any
) -> None:
    """Dots whose areas are the masses at their places; several colours at one place are rings."""
    crowds = find_crowds(places, weights, colors, cell)
    order = crowds.order()
    area = marker_areas(crowds.mass) * crowds.share
    _scatter(ax, places[order], colors[order], area[order], **options)


def crowd_cell(camera: Camera) -> float:
    """The side of a cell whose particles are drawn as one crowd: 0.01 of the radius, or of half the picture."""
    if camera.view.kind in ("circle", "sphere"):
        return 0.01
    low, high = camera.limits
    return 0.005 * float(max(high - low))


def _line(ax: "Axes", shown: ShownParticles) -> None:
    """A strip: the coordinate along x, the particle's index along y, so that particles do not overlap."""
    theme, places = style.current(), shown.coordinates[:, 0]
    low, high = shown.camera.limits
    heights = (np.arange(len(places)) + 0.5) / len(places)
    _scatter(ax, np.column_stack([places, heights]), shown.colors, marker_areas(shown.weights))
    ax.plot(places, np.full(len(places), -0.08), "|", color=theme.text, markersize=9, alpha=0.5)
    top = 1.04 if shown.words is None else 1.22  # names have a row of their own above
    ax.set(xlim=(low[0], high[0]), ylim=(-0.16, top), yticks=[], xlabel=shown.view.labels[0], ylabel="particle")
    above = np.column_stack([places, np.full(len(places), 1.12)])
    write_words(ax, shown.words, above, shown.weights, 0.0, axes=1)


def _heap(ax: "Axes", shown: ShownParticles) -> None:
    """A histogram of particles on the line, in the colours of those in a cell: their mean, or one on another."""
    places, known = shown.coordinates[:, 0], np.isfinite(shown.coordinates[:, 0])
    low, high = shown.camera.limits
    edges = np.linspace(low[0], high[0], cell_count(len(places)) + 1)
    cell = np.clip(np.searchsorted(edges, places[known], side="right") - 1, 0, len(edges) - 2)
    mass, colors = shown.weights[known], shown.colors[known]
    tones, tone = np.unique(colors.round(6), axis=0, return_inverse=True)
    if shown.blended or len(tones) > _MOST_STACKED:
        whole = np.bincount(cell, mass, len(edges) - 1)
        mixed = np.stack([np.bincount(cell, mass * each, len(whole)) for each in colors.T], axis=1)
        mixed /= np.where(whole > 0, whole, 1.0)[:, None]
        ax.bar(edges[:-1], whole / np.diff(edges), np.diff(edges), align="edge", color=np.clip(mixed, 0, 1))
    else:
        below = np.zeros(len(edges) - 1)
        for index, color in enumerate(tones):
            heights = np.bincount(cell, mass * (tone.ravel() == index), len(below)) / np.diff(edges)
            ax.bar(edges[:-1], heights, np.diff(edges), bottom=below, align="edge", color=color)
            below += heights
    ax.set(xlim=(low[0], high[0]), xlabel=shown.view.labels[0], ylabel="density")
    ax.set_ylim(bottom=0.0)


def _circle(ax: "Axes", shown: ShownParticles) -> None:
    """Dots on a ring, with areas by the mass at each place, and of a cloud a curve of its density around it."""
    empty_ring(ax, 3.0 if inches(ax) > 1.5 else 1.6)
    cloud = _is_cloud(shown.run)
    if cloud:
        draw_density_curve(ax, shown.coordinates, shown.weights)
    _discs(ax, shown.coordinates, shown.colors, shown.weights, alpha=0.9)
    write_words(ax, shown.words, shown.coordinates, shown.weights, _marker_scale(ax))
    bare(ax, CURVE_REACH if cloud else 1.16)


def _plane(ax: "Axes", shown: ShownParticles) -> None:
    """Dots in the plane, or in two principal components, on equal scales; of places in a sliver on unequal ones."""
    view, places = shown.view, shown.coordinates[:, :2]
    _discs(ax, shown.coordinates, shown.colors, shown.weights, crowd_cell(shown.camera), alpha=0.9)
    write_words(ax, shown.words, places, shown.weights, _marker_scale(ax))
    low, high = shown.camera.limits
    _plane_axes(ax, shown.camera)
    if view.kind == "plane" and max(high - low) > 12 * min(high - low):  # a sliver is stretched rather than lost
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="auto")


def _plane_axes(ax: "Axes", camera: Camera) -> None:
    """Equal scales over all places of the run, a grid, and the names of the axes."""
    (low, high), view = camera.limits, camera.view
    half, middle = max(high - low) / 2, (low + high) / 2
    ax.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half), aspect="equal")
    ax.grid(True, color=style.current().grid)
    ax.set(xlabel=view.labels[0], ylabel=view.labels[1])


def _law(ax: "Axes", shown: ShownParticles) -> None:
    """A normal law: its density on a line; in the plane, in space and in components its ellipses."""
    view = shown.view
    if view.kind == "line":
        low, high = shown.camera.limits
        draw_law_density(ax, shown.coordinates, shown.weights, (float(low[0]), float(high[0])))
        ax.set_xlabel(view.labels[0])
        return
    turn = _box(ax, shown.camera) if view.kind == "space" else np.eye(2)
    for line, deviations in zip(law_lines(ax), DEVIATIONS, strict=True):
        curve = law_curves(shown.coordinates, shown.weights, deviations)
        curve = box_coordinates(curve, shown.camera.limits) if view.kind == "space" else curve
        line.set_data(*(curve @ turn.T)[:, :2].T)
    if view.kind == "space":
        bare(ax, 1.04)
    else:
        _plane_axes(ax, shown.camera)


def _sphere(ax: "Axes", shown: ShownParticles) -> None:
    """Dots on a globe, seen from the camera."""
    globe(ax, shown.camera.rotation)
    draw_depth(ax, _crowd_places(shown)[0], shown.colors, shown.weights, shown.words)
    bare(ax, 1.09)


def draw_depth(
    ax: "Axes", seen: np.ndarray, colors: np.ndarray, weights: np.ndarray, words: Any = None, *, solid: bool = True
) -> None:
    """Particles from far to near, (N, 3) in camera axes with depth in [−1, 1], and their words (N,) beside them.

    Those behind a solid body are open dots.
    """
    from matplotlib.colors import to_rgb

    theme = style.current()
    crowds = find_crowds(seen, weights, colors)
    order = crowds.order(seen[:, 2])
    cues = depth_cues(seen[order, 2], colors[order], theme.shade, solid)
    area = (marker_areas(crowds.mass) * crowds.share)[order] * cues.sizes**2
    widths = np.where(cues.open, _RIM * np.sqrt(_marker_scale(ax) * area), 0.25)
    edges = np.where(cues.open[:, None], cues.rims, to_rgb(theme.panel))
    _scatter(ax, seen[order], cues.fills, area, edgecolors=edges, linewidths=widths)
    write_words(ax, words, seen[:, :2], weights, _marker_scale(ax), depth=seen[:, 2])


def _space(ax: "Axes", shown: ShownParticles) -> None:
    """Dots in the box that the run visits, seen from the camera."""
    _box(ax, shown.camera)
    draw_depth(ax, _crowd_places(shown)[0], shown.colors, shown.weights, shown.words, solid=False)
    bare(ax, 1.04)


def _box(ax: "Axes", camera: Camera) -> np.ndarray:
    """Draw the edges of the box that the run visits; returns the rotation of the camera (3, 3)."""
    low, high = (box_coordinates(corner, camera.limits) for corner in camera.limits)
    for edge in box_edges(low, high):
        ends = np.stack(edge) @ camera.rotation.T
        strength = 0.35 + 0.2 * np.sign(ends[:, 2].mean())
        ax.plot(ends[:, 0], ends[:, 1], color=style.current().muted, linewidth=0.6, alpha=strength)
    return camera.rotation
