"""The stage of an animation: where the particles and the side panels are, and everything that does not move.

The stage is drawn once with the curves of the panels (the past), and its panels once more with faint ones (the future).
A frame is the future with the columns up to the time cursor taken from the past: no curve is drawn again.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.cells import is_density
from particleflow.view import style
from particleflow.view.animation.actors import DensityActor
from particleflow.view.animation.clock import Clock
from particleflow.view.drawing.base import (
    MAX_DOTS,
    Projection,
    drawn_times,
    is_crowd,
    sample_note,
    small_print,
    wants_log,
)
from particleflow.view.drawing.camera import (
    ELEVATION,
    GRATICULE,
    box_coordinates,
    box_edges,
    globe,
    graticule,
    rotation,
)
from particleflow.view.drawing.distributions import particle_density
from particleflow.view.drawing.field import Field, field_of
from particleflow.view.drawing.histograms import cell_count
from particleflow.view.drawing.paths import kymograph
from particleflow.view.drawing.series import cluster_count, observable, observable_values
from particleflow.view.drawing.snapshots import frame_limits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from PIL.Image import Image

    from particleflow.view.resampling import Resampling

SPACING_NAMES = {"linear": "time", "log": "log time", "arc": "distance moved"}
_MASS_MOVED = "mass moved"
_FAINT = 0.25
_PIXELS = 1.3  # of a cell of a density, at least: narrower ones may fall between two pixels
_KEPT_PIXELS = 20_000_000  # 80 MB
_TITLE_HEIGHT = 0.935  # of the frame


@dataclass
class Panel:
    """One plot over time: its axes, pixel box (left, top, right, bottom), cursor column and dot row by instant.

    Its curve goes through `values`, one a frame: straight from one to the next, or with `steps` only at the next.
    """

    axes: Any
    box: tuple[int, int, int, int] = (0, 0, 0, 0)
    columns: np.ndarray = field(default_factory=lambda: np.zeros(0))
    dots: np.ndarray | None = None
    color: Any = None
    values: np.ndarray | None = None
    steps: bool = False


@dataclass
class Stage:
    """The drawn stage: canvas, main axes, moving lines, panels, clock, and both backgrounds.

    The canvas holds the future, of which `region` is the part that the moving lines are drawn over; `drawn` keeps what
    came of it. A density has an `actor` for its main axes.
    """

    canvas: Any
    main: Any
    view: Projection
    panels: list[Panel]
    lines: list[Any]
    size: tuple[int, int]
    log: bool
    limits: tuple[np.ndarray, np.ndarray] | None = None
    actor: DensityActor | None = None
    clock: "Clock | None" = None
    region: Any = None
    drawn: dict[int | None, Any] = field(default_factory=dict)
    past: np.ndarray | None = None

    @property
    def scale(self) -> float:
        """Pixels of this stage for one pixel at 720 lines."""
        return self.size[1] / 720.0


def build_stage(
    run: Any,
    view: Projection,
    size: tuple[int, int],
    instants: "Resampling",
    *,
    labels: Any,
    counts: Any,
    plateaus: Any,
) -> Stage:
    """Lay the stage out and draw what stands still: title, main axes, and a panel for every number to show."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    theme = style.current()
    dpi = 100.0 * size[1] / 720.0
    figure = Figure(figsize=(size[0] / dpi, size[1] / dpi), dpi=dpi, facecolor=theme.background)
    canvas = FigureCanvasAgg(figure)
    log = instants.spacing == "log" or wants_log(run.times)
    has_energy = _scalar_energy(run) is not None
    wide, field = view.kind == "line", field_of(run)
    number = _shows_past(view, field) + has_energy + (counts is not None)
    main = figure.add_axes(_main_box(size, number, wide))
    panels = _panels(figure, run, view, log, labels, counts, plateaus, number)
    stage = Stage(canvas, main, view, panels, [], size, log)
    _dress_main(stage, run, labels, field)
    _dress_text(stage, figure, run, instants)
    make_room(stage)
    return stage


def _shows_past(view: Projection, field: Field | None) -> bool:
    """Whether a panel shows all of time: the main picture of particles on a line does so itself."""
    return view.kind == "circle" or (view.kind == "line" and field is not None)


def make_room(stage: Stage) -> None:
    """Move the left edges of axes whose numbers and names would be cut off, or would lie on the picture beside them."""
    renderer = stage.canvas.get_renderer()
    margin = 0.012 * stage.size[0]
    columns = [[stage.main], [panel.axes for panel in stage.panels if panel.axes is not stage.main]]
    wall = margin
    for column in columns:
        if not column:
            continue
        missing = max(wall - ax.get_tightbbox(renderer).x0 for ax in column) / stage.size[0]
        for ax in column:
            box = ax.get_position()
            if missing > 0:
                ax.set_position((box.x0 + missing, box.y0, box.width - missing, box.height))
        if column is not columns[-1]:
            square = stage.view.kind in ("sphere", "space", "circle")
            wall = (stage.main.get_window_extent() if square else stage.main.get_tightbbox(renderer)).x1 + margin


def _scalar_energy(run: Any) -> np.ndarray | None:
    if "energy" not in run.observables:
        return None
    if np.shape(run.observables["energy"]) != (len(run),):
        return None
    values = observable_values(run, "energy")
    return values if np.isfinite(values).any() else None


def _main_box(size: tuple[int, int], panels: int, wide: bool) -> tuple[float, float, float, float]:
    """The main axes in fractions of the frame: a square at the left, or in the middle if it stands alone."""
    bottom, height = 0.115, 0.755
    if wide:
        return (0.07, bottom, 0.47 if panels else 0.895, height)
    width = min(height * size[1] / size[0], 0.5)
    return (0.062 if panels else 0.5 - width / 2, bottom, width, height)


def _panels(
    figure: Any, run: Any, view: Projection, log: bool, labels: Any, counts: Any, plateaus: Any, number: int
) -> list[Panel]:
    """The column of panels at the right, from the top: kymograph (circle only), energy, cluster count."""
    theme = style.current()
    panels = []
    left, width, bottom, top, gap = 0.62, 0.345, 0.115, 0.87, 0.035

    def add(share: float) -> "Axes":
        height = (top - bottom - gap * (number - 1)) * share
        upper = panels[-1].axes.get_position().y0 - gap if panels else top
        ax = figure.add_axes((left, upper - height, width, height))
        panels.append(Panel(ax))
        return ax

    field = field_of(run)
    past = _shows_past(view, field)
    small = 0.27 if past and number == 3 else 1.0 / max(number, 1)
    if past:
        ax = add(1.0 - small * (number - 1))
        if is_crowd(run) or field is not None:
            fine = max(int(ax.get_window_extent().height / _PIXELS), 2)
            cells = fine if field is not None else min(cell_count(run.count), fine)
            particle_density(run, log=log, cells=cells, bar=False, ax=ax)
        else:
            kymograph(run, labels=labels, log=log, words=False, ax=ax)
    energy = _scalar_energy(run)
    if energy is not None:
        observable(run, "energy", log=log, ax=add(small))
        panels[-1].values, panels[-1].color = energy, theme.categories[0]
    if counts is not None:
        of = "clusters" if field is None else "peaks"
        cluster_count(run, counts, plateaus=plateaus, log=log, of=of, ax=add(small))
        panels[-1].values, panels[-1].color = np.asarray(counts, float), theme.categories[3]
        panels[-1].steps = True
    for panel in panels:
        panel.axes.set_title("")
        if panel is not panels[-1]:
            panel.axes.set_xlabel("")
            panel.axes.tick_params(labelbottom=False)
    figure.align_ylabels([panel.axes for panel in panels])
    return panels


def _dress_main(stage: Stage, run: Any, labels: Any, field: Field | None) -> None:
    """Axes, limits and what stands still in the main picture; lines that turn with the camera are kept apart."""
    theme, ax, view = style.current(), stage.main, stage.view
    if field is not None and view.kind == "line":
        pass  # the actor knows its axes
    elif view.kind == "line":
        kymograph(run, labels=labels, log=stage.log, words=False, ax=ax)
        ax.set_title("")
        stage.panels.insert(0, Panel(ax))
    elif view.kind == "circle":
        turn = np.linspace(0, 2 * np.pi, 361)
        ax.plot(np.cos(turn), np.sin(turn), color=theme.grid, linewidth=4.0)
        for angle, name in ((0, "0"), (0.5, "π/2"), (1, "±π"), (-0.5, "−π/2")):
            place = 0.86 * np.cos(angle * np.pi), 0.86 * np.sin(angle * np.pi)
            ax.text(*place, name, ha="center", va="center", color=theme.muted)
        _square(ax, 1.1 if field is None else 1.5)
    elif view.kind == "sphere":
        globe(ax, rotation(0.0, ELEVATION))
        for line in list(ax.lines):
            line.set_animated(True)
            stage.lines.append(line)
        _square(ax, 1.06)
    elif view.kind == "space":
        stage.limits = frame_limits(run, view)
        stage.lines.append(ax.plot([], [], color=theme.muted, linewidth=0.9, alpha=0.45, animated=True)[0])
        _square(ax, 1.04)
    else:
        low, high = frame_limits(run, view)
        half, middle = max(high - low) / 2, (low + high) / 2
        stage.limits = low, high
        ax.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half))
        ax.set(xlabel=view.labels[0], ylabel=view.labels[1])
        ax.grid(True, color=theme.grid)
    if field is not None:
        stage.actor = DensityActor(ax, field)


def _square(ax: "Axes", reach: float) -> None:
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach))
    ax.set_axis_off()


def _dress_text(stage: Stage, figure: Any, run: Any, instants: "Resampling") -> None:
    """Title at the left, the clock at the right, and below, in small, how the frames are spaced."""
    theme = style.current()
    title = style.clean((run.metadata or {}).get("title") or "", 62)
    size = 1.3 * theme.font_size
    pixels = size / 72 * figure.dpi
    baseline = _TITLE_HEIGHT - 0.26 * pixels / stage.size[1]  # the middle of the letters is at that height
    figure.text(0.032, baseline, title, fontsize=size, va="baseline")
    stage.clock = Clock(instants.times, 0.965 * stage.size[0], (1 - baseline) * stage.size[1], pixels)
    shown = "" if stage.actor is not None else sample_note(run, MAX_DOTS)
    sample = " · ".join(filter(None, [small_print(run), shown]))
    arc = instants.spacing == "arc" and is_density(run)
    note = f"{sample} · frames evenly spaced in {_MASS_MOVED if arc else SPACING_NAMES[instants.spacing]}"
    figure.text(0.032, 0.028, note, fontsize=0.78 * theme.font_size, color=theme.muted, va="center")


def freeze(stage: Stage, instants: "Resampling", all_times: np.ndarray) -> None:
    """Draw both backgrounds, and find each panel's box and where its cursor and dot are at every instant."""
    stage.canvas.draw()
    stage.past = np.array(stage.canvas.buffer_rgba())
    saved, shown = np.split(drawn_times(np.concatenate([all_times, instants.times]), stage.log), [len(all_times)])
    pixels, future = np.asarray(stage.canvas.buffer_rgba()), stage.past.copy()
    for panel in stage.panels:
        for artist in [*panel.axes.lines, *panel.axes.collections]:
            artist.set_visible(False)
        panel.axes.draw(stage.canvas.get_renderer())
        _measure(stage, panel, saved, shown, instants.reached)
        left, top, right, bottom = panel.box
        inside = np.s_[top:bottom, left:right]
        # pictures are mixed rather than opacities lowered: many faint lines on one another would be strong again
        future[inside] = (1 - _FAINT) * pixels[inside] + _FAINT * stage.past[inside] + 0.5
    pixels[:] = future
    stage.region = stage.canvas.copy_from_bbox(stage.main.bbox)


def _measure(stage: Stage, panel: Panel, saved: np.ndarray, shown: np.ndarray, reached: np.ndarray) -> None:
    """Find the box of a panel, and the pixels of cursor and dot at the `shown` times.

    Frames are at the `saved` times, of which each shown one has `reached` one.
    """
    height = stage.size[1]
    bounds = panel.axes.get_window_extent()
    # one column to the right of the axis line, and below the top: spines and ticks stay as they are in both pictures
    panel.box = int(bounds.x0) + 1, int(height - bounds.y1), int(np.ceil(bounds.x1)), int(height - bounds.y0)
    columns = _pixels(panel, shown, np.ones_like(shown))[:, 0]
    panel.columns = np.clip(columns, panel.box[0], panel.box[2])
    if panel.values is not None:
        known = np.isfinite(panel.values)
        corners = _pixels(panel, saved, np.where(known, panel.values, 1.0))
        rows = np.where(known, height - corners[:, 1], np.nan)
        panel.dots = rows[reached] if panel.steps else np.interp(columns, corners[:, 0], rows)


def _pixels(panel: Panel, times: np.ndarray, heights: np.ndarray) -> np.ndarray:
    return panel.axes.transData.transform(np.column_stack([times, heights]))


def grab(stage: Stage) -> "Image":
    """A copy of the canvas as an image that lives in an array, `image.info["pixels"]` (height, width, 4).

    What is pasted into the image is in the array at once: taking its bytes costs no copy, which is a third of a frame.
    """
    from PIL import Image

    pixels = np.array(stage.canvas.buffer_rgba())
    image = Image.frombuffer("RGBA", stage.size, pixels, "raw", "RGBA", 0, 1)
    image.readonly = 0  # nobody else has this array
    image.info["pixels"] = pixels
    return image


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
    if turns and (len(stage.drawn) + 1) * box.width * box.height <= _KEPT_PIXELS:
        stage.drawn[seen] = stage.canvas.copy_from_bbox(box)


def _turn_lines(stage: Stage, camera: np.ndarray) -> None:
    if stage.view.kind == "sphere":
        front, behind = graticule(camera)
        stage.lines[0].set_data(*behind.T)
        stage.lines[1].set_data(*front.T)
    elif stage.view.kind == "space" and stage.limits is not None:
        low, high = (box_coordinates(corner, stage.limits) for corner in stage.limits)
        gap = np.full((1, 3), np.nan)
        edges = [part for pair in box_edges(low, high) for part in (*pair, gap)]
        stage.lines[0].set_data(*(np.vstack(edges) @ camera.T)[:, :2].T)
