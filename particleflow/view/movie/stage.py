"""The stage of an animation: where the particles and the side panels are, and everything that does not move.

The stage is drawn once with the curves of the panels (the past), and its panels once more with faint ones (the future).
A frame is the future with the columns up to the time cursor taken from the past: no curve is drawn again.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.clusters.separation import CHAINS
from particleflow.analysis.density.cells import is_density
from particleflow.analysis.samples import thinned
from particleflow.view import style
from particleflow.view.movie.clock import Clock, ProgressLine, clock_texts, progress_shares
from particleflow.view.movie.density_layer import DensityLayer
from particleflow.view.movie.panels import KnownClusters, Panel, build_panels, is_noisy, panel_count
from particleflow.view.movie.places_layer import PlacesLayer
from particleflow.view.plots.base import (
    HATCHED_NOTE,
    MAX_DOTS,
    Projection,
    drawn_times,
    projection,
    sample_note,
    small_print,
    wants_log,
)
from particleflow.view.plots.camera import (
    BEHIND_NOTE,
    ELEVATION,
    GRATICULE,
    box_coordinates,
    box_edges,
    camera_of,
    frame_limits,
    globe,
    graticule,
    rotation,
)
from particleflow.view.plots.density.density_scale import Field, field_of
from particleflow.view.plots.density.distributions import particle_density
from particleflow.view.plots.space.law import ELLIPSES_NOTE, LEVELS_NOTE, law_lines
from particleflow.view.plots.space.paths import kymograph
from particleflow.view.plots.space.ring import empty_ring
from particleflow.view.plots.space.snapshots import rings_note
from particleflow.view.plots.subjects.placed_values import PlacedValues

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.view.resampling import Resampling

_SPACING_NOTES = {
    "motion": "slow where much moves, fast at rest",
    "linear": "frames evenly spaced in time",
    "log": "frames evenly spaced in log time",
    "arc": "frames evenly spaced in distance moved",
}
_MERGES_NOTE = "slow where much moves and at merges, fast at rest"
_ARC_OF_A_DENSITY = "frames evenly spaced in mass moved"  # its points stay
_RING_FRAMES = 12  # that are searched for several labels at one place
_FUTURE_OPACITY = 0.25  # of what lies to the right of the cursor
_CACHED_PIXELS = 20_000_000  # of drawn graticules: 80 MB
_TITLE_HEIGHT = 0.935  # of the frame
_LEFT, _RIGHT = 0.62, 0.965  # of the frame: the ends of the line of progress, those of the panels


@dataclass
class Stage:
    """The drawn stage: canvas, main axes, moving lines, panels, clock, line of progress, and both backgrounds.

    The `canvas` holds the future, of which `region` is the part that the moving lines are drawn over; `drawn` caches
    main axes with their lines by the direction of the camera; `past` is the drawing (height, width, 4) with all curves
    in full. A density has a `density_layer` over its main axes, values on places a `places_layer`, a normal law
    `ellipses`. `limits` are the corners of the box or plane shown.
    """

    canvas: Any
    main: Any
    view: Projection | PlacedValues
    panels: list[Panel]
    lines: list[Any]
    size: tuple[int, int]
    log: bool
    limits: tuple[np.ndarray, np.ndarray] | None = None
    density_layer: DensityLayer | None = None
    places_layer: PlacesLayer | None = None
    ellipses: list[Any] = field(default_factory=list)
    clock: Clock | None = None
    progress: ProgressLine | None = None
    region: Any = None
    drawn: dict[int | None, Any] = field(default_factory=dict)
    past: np.ndarray | None = None

    @property
    def scale(self) -> float:
        """Pixels of this stage for one pixel at 720 lines."""
        return self.size[1] / 720.0


def build_stage(
    run: Any, view: Projection | PlacedValues, size: tuple[int, int], instants: "Resampling", clusters: KnownClusters
) -> Stage:
    """Lay the stage out and draw what stands still: title, main axes, and a panel for every number to show."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    dpi = 100.0 * size[1] / 720.0
    figure = Figure(figsize=(size[0] / dpi, size[1] / dpi), dpi=dpi, facecolor=style.current().background)
    canvas = FigureCanvasAgg(figure)
    log = instants.spacing == "log" or wants_log(run.times)
    wide = view.kind in ("line", "places", "graph")
    main = figure.add_axes(_main_box(size, panel_count(run, view, clusters), wide))
    stage = Stage(canvas, main, view, build_panels(figure, run, view, log, clusters), [], size, log)
    _draw_still_parts(stage, run, clusters.labels, field_of(run))
    mixture = ""
    if field_of(run) is None and stage.places_layer is None:
        mixture = rings_note(run, camera_of(run), thinned(len(run), _RING_FRAMES), clusters.labels)
    _write_texts(stage, figure, run, instants, [mixture, _hatched_note(stage), _speed_note(run, instants, clusters)])
    fit_tick_labels(stage)
    return stage


def _main_box(size: tuple[int, int], panels: int, wide: bool) -> tuple[float, float, float, float]:
    """The main axes in fractions of the frame: a square at the left, or in the middle if it stands alone."""
    bottom, height = 0.115, 0.755
    if wide:
        return (0.07, bottom, 0.47 if panels else 0.895, height)
    width = min(height * size[1] / size[0], 0.5)
    return (0.062 if panels else 0.5 - width / 2, bottom, width, height)


def _draw_still_parts(stage: Stage, run: Any, labels: Any, density: Field | None) -> None:
    """Draw the axes, the limits and whatever does not move in the main picture, by the kind of the picture."""
    kind = stage.view.kind
    if isinstance(stage.view, PlacedValues):
        shown = thinned(run.count, MAX_DOTS)
        stage.places_layer = PlacesLayer(stage.main, stage.view, np.asarray(run.points[0], float)[shown])
    elif kind == "line" and density is None:
        _draw_line(stage, run, labels)
    elif kind == "circle":
        empty_ring(stage.main, 4.0)
        _hide_square_axes(stage.main, 1.1 if density is None else 1.5)
    elif kind == "sphere":
        _draw_globe(stage)
    elif kind == "space":
        _draw_box(stage, run)
    elif kind != "line":
        _draw_plane(stage, run)
    if run.facts.is_law and kind != "line":
        stage.ellipses = law_lines(stage.main)
        for line in stage.ellipses:
            line.set_animated(True)
    if density is not None:  # over a line, the layer sets the axes itself
        stage.density_layer = DensityLayer(stage.main, density)


def _draw_line(stage: Stage, run: Any, labels: Any) -> None:
    """Particles on a line: the kymograph, of noise the density, is the main picture, revealed like a panel."""
    if is_noisy(run):
        particle_density(run, log=stage.log, bar=False, ax=stage.main)
    else:
        kymograph(run, labels=labels, log=stage.log, words=False, ax=stage.main)
    stage.main.set_title("")
    stage.panels.insert(0, Panel(stage.main))


def _draw_globe(stage: Stage) -> None:
    """The ball; its graticule turns with the camera, so that its lines are kept apart from what stands still."""
    globe(stage.main, rotation(0.0, ELEVATION))
    for line in list(stage.main.lines):
        line.set_animated(True)
        stage.lines.append(line)
    _hide_square_axes(stage.main, 1.06)


def _draw_box(stage: Stage, run: Any) -> None:
    """The box that the run visits; its edges turn with the camera."""
    muted = style.current().muted
    stage.limits = frame_limits(run, projection(run))
    stage.lines.append(stage.main.plot([], [], color=muted, linewidth=0.9, alpha=0.45, animated=True)[0])
    _hide_square_axes(stage.main, 1.04)


def _draw_plane(stage: Stage, run: Any) -> None:
    """Two coordinates or principal components on equal scales, with a grid."""
    ax, view = stage.main, projection(run)
    low, high = frame_limits(run, view)
    half, middle = max(high - low) / 2, (low + high) / 2
    stage.limits = low, high
    ax.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half))
    ax.set(xlabel=view.labels[0], ylabel=view.labels[1])
    ax.grid(True, color=style.current().grid)


def _hide_square_axes(ax: "Axes", reach: float) -> None:
    """Limits from −reach to reach on both sides, without a frame."""
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach))
    ax.set_axis_off()


def _hatched_note(stage: Stage) -> str:
    """What is hatched in a panel that has no room for the words."""
    hatched = any(patch.get_hatch() for panel in stage.panels for patch in panel.axes.patches)
    worded = any(CHAINS.partition(",")[0] in text.get_text() for panel in stage.panels for text in panel.axes.texts)
    return HATCHED_NOTE.format(CHAINS) if hatched and not worded else ""


def _speed_note(run: Any, instants: "Resampling", clusters: KnownClusters) -> str:
    """How the frames are spaced, in words."""
    if instants.spacing == "arc" and is_density(run):
        return _ARC_OF_A_DENSITY
    merges = clusters.counts is not None and bool((np.diff(np.asarray(clusters.counts, float)) < 0).any())
    return _MERGES_NOTE if instants.spacing == "motion" and merges else _SPACING_NOTES[instants.spacing]


def _write_texts(stage: Stage, figure: Any, run: Any, instants: "Resampling", more: list[str]) -> None:
    """Title at the left, clock and progress at the right, and below, in small print, what is shown, and `more`."""
    theme = style.current()
    title = style.clean((run.metadata or {}).get("title") or "", 62)
    size = 1.3 * theme.font_size
    pixels = size / 72 * figure.dpi
    baseline = _TITLE_HEIGHT - 0.26 * pixels / stage.size[1]  # the middle of the letters is at that height
    figure.text(0.032, baseline, title, fontsize=size, va="baseline")
    right, height = _RIGHT * stage.size[0], (1 - baseline) * stage.size[1]
    stage.clock = Clock(clock_texts(run, instants), right, height, pixels)
    shares = progress_shares(np.asarray(run.times, float), instants.times, stage.log)
    _add_progress(stage, figure, shares, height, run.facts.time_unit or "time")
    sides = BEHIND_NOTE if stage.view.kind == "sphere" else ""
    noted = " · ".join(filter(None, [sample_note(run, MAX_DOTS), sides]))
    shown = "" if stage.density_layer is not None else noted
    if run.facts.is_law:
        shown = ELLIPSES_NOTE if stage.ellipses else LEVELS_NOTE
    note = " · ".join(filter(None, [small_print(run), shown, *more]))
    figure.text(0.032, 0.028, note, fontsize=0.78 * theme.font_size, color=theme.muted, va="center")


def _add_progress(stage: Stage, figure: Any, shares: np.ndarray, baseline: float, scale: str) -> None:
    """The line of progress below the clock, as wide as the column of panels, and the name of its `scale`."""
    theme, (width, height) = style.current(), stage.size
    top = baseline + 0.011 * height
    bottom = top + 0.0045 * height
    stage.progress = ProgressLine(shares, (_LEFT * width, top, _RIGHT * width, bottom))
    words, size = f"log {scale}" if stage.log else scale, 0.78 * theme.font_size
    figure.text(_LEFT, 0.993 - bottom / height, words, fontsize=size, color=theme.muted, va="top")


def fit_tick_labels(stage: Stage) -> None:
    """Move the left edges of axes whose numbers and names would be cut off, or would lie on the picture beside them."""
    renderer = stage.canvas.get_renderer()
    margin = 0.012 * stage.size[0]
    side = [panel.axes for panel in stage.panels if panel.axes is not stage.main]
    _shift_left_edges([stage.main], margin, stage.size[0], renderer)
    square = stage.view.kind in ("sphere", "space", "circle")
    wall = (stage.main.get_window_extent() if square else stage.main.get_tightbbox(renderer)).x1 + margin
    _shift_left_edges(side, wall, stage.size[0], renderer)


def _shift_left_edges(column: "list[Any]", wall: float, width: int, renderer: Any) -> None:
    """Narrow axes from the left by what their labels reach beyond the pixel column `wall`, all by the same amount."""
    missing = max((wall - ax.get_tightbbox(renderer).x0 for ax in column), default=0.0) / width
    for ax in column:
        box = ax.get_position()
        if missing > 0:
            ax.set_position((box.x0 + missing, box.y0, box.width - missing, box.height))


def render_backgrounds(stage: Stage, instants: "Resampling", all_times: np.ndarray) -> None:
    """Draw both backgrounds, and find each panel's box and where its cursor and dot are at every instant."""
    stage.canvas.draw()
    stage.past = np.array(stage.canvas.buffer_rgba())
    saved, shown = np.split(drawn_times(np.concatenate([all_times, instants.times]), stage.log), [len(all_times)])
    pixels, future = np.asarray(stage.canvas.buffer_rgba()), stage.past.copy()
    for panel in stage.panels:
        for artist in [*panel.axes.lines, *panel.axes.collections]:
            artist.set_visible(False)
        panel.axes.draw(stage.canvas.get_renderer())
        panel.measure(stage.size[1], saved, shown)
        left, top, right, bottom = panel.box
        inside = np.s_[top:bottom, left:right]
        # pictures are mixed rather than opacities lowered: many faint lines on one another would add up
        future[inside] = (1 - _FUTURE_OPACITY) * pixels[inside] + _FUTURE_OPACITY * stage.past[inside] + 0.5
    pixels[:] = future
    stage.region = stage.canvas.copy_from_bbox(stage.main.bbox)


def draw_lines(stage: Stage, azimuth: float, elevation: float) -> None:
    """Draw the lines that turn with the camera where it sees them: the graticule, or the edges of the box.

    A graticule looks the same from every 30 degrees, so that what was drawn is kept for the next time.
    """
    turns = stage.view.kind == "sphere"
    seen = round(azimuth / GRATICULE * 10**8) % 10**8 if turns else None
    if seen in stage.drawn:
        stage.canvas.restore_region(stage.drawn[seen])
        return
    stage.canvas.restore_region(stage.region)
    _turn_lines(stage, rotation(azimuth, elevation))
    for line in stage.lines:
        stage.main.draw_artist(line)
    box = stage.main.bbox
    if turns and (len(stage.drawn) + 1) * box.width * box.height <= _CACHED_PIXELS:
        stage.drawn[seen] = stage.canvas.copy_from_bbox(box)


def _turn_lines(stage: Stage, camera: np.ndarray) -> None:
    """Set the ends of the moving lines for a camera (3, 3), whose rows are right, up and towards the viewer."""
    if stage.view.kind == "sphere":
        front, behind = graticule(camera)
        stage.lines[0].set_data(*behind.T)
        stage.lines[1].set_data(*front.T)
    elif stage.view.kind == "space" and stage.limits is not None:
        low, high = (box_coordinates(corner, stage.limits) for corner in stage.limits)
        gap = np.full((1, 3), np.nan)
        edges = [part for pair in box_edges(low, high) for part in (*pair, gap)]
        stage.lines[0].set_data(*(np.vstack(edges) @ camera.T)[:, :2].T)
