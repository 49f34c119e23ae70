"""Where the particles are in one frame: on a line, on a ring, in the plane, on a sphere, or in principal components."""

from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.frames import first_run
from particleflow.view import style
from particleflow.view.drawing.base import (
    SQUARE,
    WIDE,
    Projection,
    crowd_colors,
    crowd_share,
    frame_points,
    inches,
    new_axes,
    particle_colors,
    projection,
    rotation,
    thinned,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory import Trajectory

ELEVATION = 22.0
CROWD_AREA = 130.0  # points² that a marker gains when every particle has merged into it


def snapshot(
    trajectory: "Trajectory",
    frame: int = -1,
    *,
    labels: Any = None,
    colors: np.ndarray | None = None,
    azimuth: float | None = None,
    view: Projection | None = None,
    title: str | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the particles of one frame; an ensemble shows its run 0.

    The picture follows geometry and dimension: a strip (d = 1), a ring or the plane (d = 2), a sphere or a box seen
    from `azimuth` degrees with nearer particles larger and stronger (d = 3), principal components (d > 3). `labels`
    (N,) or (T, N) colour by cluster, `colors` (N, 3) directly; the default is the place in the first frame. `view`
    fixes the projection, so that several frames share it.
    """
    run = first_run(trajectory)
    view = view or projection(run)
    ax = new_axes(ax, WIDE if view.kind == "line" else SQUARE)
    coordinates = view(frame_points(run, frame))
    if colors is None:
        colors = particle_colors(run, labels, frame)
        if labels is None and run.labels is None and view.kind != "line":
            colors = crowd_colors(coordinates, colors, _crowd_cell(run, view))
    draw = {"line": _line, "circle": _circle, "plane": _plane, "pca": _plane, "sphere": _sphere, "space": _space}
    draw[view.kind](ax, run, view, coordinates, colors, azimuth)
    ax.set_title(style.clean(f"t = {format_time(run.times[frame])}" if title is None else title))
    return ax


def snapshots(trajectory: "Trajectory", frames: Any = None, *, labels: Any = None, figure: Any = None) -> np.ndarray:
    """A row of snapshots that share projection and colours; returns the array of axes.

    `frames` lists frame indices; the default takes four, even in the motion between the first and the last frame.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from particleflow.view.resampling import arc_length

    run = first_run(trajectory)
    if frames is None:
        length = arc_length(run)
        frames = np.searchsorted(length, np.linspace(0, length[-1], 4)) if length[-1] > 0 else [len(run) - 1]
    frames = np.unique(np.asarray(frames, int))
    if figure is None:
        side = 2.5 * style.current().width / 6.4
        figure = Figure(figsize=(side * len(frames), side * 1.2), layout="constrained")
        FigureCanvasAgg(figure)
    view, azimuth = projection(run), facing_azimuth(run)
    axes = figure.subplots(1, len(frames), squeeze=False)[0]
    for ax, frame in zip(axes, frames, strict=True):
        snapshot(run, int(frame), labels=labels, azimuth=azimuth, view=view, ax=ax)
        if ax is not axes[0]:
            ax.set_ylabel("")
            ax.tick_params(labelleft=False)
    return axes


def format_time(time: float) -> str:
    """A time for a title: always three significant digits, so that a clock keeps its width."""
    if time != 0 and not 1e-3 <= abs(time) < 1e4:
        exponent = int(np.floor(np.log10(abs(time))))
        digits = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"{time / 10.0**exponent:.2f}·10{digits}"
    return (f"{time:#.3g}".rstrip(".") if abs(time) < 1000 else f"{time:.0f}") if time else "0"


def marker_area(count: int) -> float:
    """Marker area in points² that keeps a crowd readable."""
    return float(np.clip(9000.0 / max(count, 1), 5.0, 46.0))


def facing_azimuth(trajectory: "Trajectory") -> float:
    """A camera azimuth from which the last frame's clusters are seen, a little off their mean direction."""
    run = first_run(trajectory)
    view = projection(run)
    if view.kind not in ("sphere", "space"):
        return 0.0
    mean = np.nanmean(view(frame_points(run, -1)), axis=0)
    return float(np.degrees(np.arctan2(mean[1], mean[0]))) - 28.0 if np.hypot(mean[0], mean[1]) > 0.1 else -50.0


def _scatter(ax: "Axes", points: np.ndarray, colors: np.ndarray, sizes: Any, **options: Any) -> None:
    scale = float(np.clip(inches(ax) / 3.2, 0.25, 1.3))  # small axes, small markers
    ax.scatter(points[:, 0], points[:, 1], s=scale * sizes, c=colors, **{"linewidths": 0, "zorder": 3, **options})


def frame_limits(run: "Trajectory", view: Projection) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper corners of everything the run visits, so that frames can be compared; padded by 6 %."""
    seen = np.concatenate([view(frame_points(run, int(frame))) for frame in thinned(len(run), 60)])
    seen = seen[np.isfinite(seen).all(axis=-1)]
    if len(seen) == 0:
        seen = np.zeros((1, view.matrix.shape[1]))
    low, high = seen.min(axis=0), seen.max(axis=0)
    middle, half = (low + high) / 2, np.maximum((high - low) / 2, 1e-9 + 0.02 * np.max(high - low))
    half = np.where(half < 1e-6, 1.0, half)
    return middle - 1.12 * half, middle + 1.12 * half


def _crowd_cell(run: "Trajectory", view: Projection) -> float:
    """How near particles must be to be one dot: a hundredth of the radius, or of half the picture."""
    if view.kind in ("circle", "sphere"):
        return 0.01
    low, high = frame_limits(run, view)
    return 0.005 * float(max(high - low))


def _line(ax: "Axes", run: Any, view: Projection, coordinates: np.ndarray, colors: np.ndarray, _: Any) -> None:
    """A strip: the place is the abscissa, the particle's rank spreads the crowd upwards."""
    theme = style.current()
    low, high = frame_limits(run, view)
    heights = (np.arange(len(coordinates)) + 0.5) / len(coordinates)
    _scatter(ax, np.column_stack([coordinates[:, 0], heights]), colors, marker_area(len(coordinates)))
    ax.plot(coordinates[:, 0], np.full(len(coordinates), -0.08), "|", color=theme.text, markersize=9, alpha=0.5)
    ax.set(xlim=(low[0], high[0]), ylim=(-0.16, 1.04), yticks=[], xlabel=view.labels[0], ylabel="particle")


def _circle(ax: "Axes", run: Any, view: Projection, coordinates: np.ndarray, colors: np.ndarray, _: Any) -> None:
    theme = style.current()
    turn = np.linspace(0, 2 * np.pi, 361)
    roomy = inches(ax) > 1.5
    ax.plot(np.cos(turn), np.sin(turn), color=theme.grid, linewidth=3.0 if roomy else 1.6, zorder=1)
    quarters = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
    for place, name in zip(quarters, ("0", "π/2", "±π", "−π/2") if roomy else ("",) * 4, strict=True):
        ax.plot(*np.outer(place, (0.93, 0.97)), color=theme.muted, linewidth=0.8, zorder=1)
        ax.text(
            0.8 * place[0],
            0.8 * place[1],
            name,
            ha="center",
            va="center",
            color=theme.muted,
            fontsize=0.85 * theme.font_size,
        )
    area = marker_area(len(coordinates)) + CROWD_AREA * crowd_share(coordinates)
    _scatter(ax, coordinates, colors, area, alpha=0.9)
    _bare(ax, 1.16)


def _bare(ax: "Axes", reach: float) -> None:
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    ax.set_axis_off()


def _plane(ax: "Axes", run: Any, view: Projection, coordinates: np.ndarray, colors: np.ndarray, _: Any) -> None:
    theme = style.current()
    low, high = frame_limits(run, view)
    area = marker_area(len(coordinates)) + CROWD_AREA * crowd_share(coordinates, _crowd_cell(run, view))
    _scatter(ax, coordinates[:, :2], colors, area, alpha=0.9)
    half, middle = max(high - low) / 2, (low + high) / 2
    if view.kind == "plane" and max(high - low) > 12 * min(high - low):  # a sliver is stretched rather than lost
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    else:
        ax.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half), aspect="equal")
    ax.grid(True, color=theme.grid)
    ax.set(xlabel=view.labels[0], ylabel=view.labels[1])


def graticule(camera: np.ndarray, step: float = 30.0) -> tuple[np.ndarray, np.ndarray]:
    """Meridians and parallels of the unit sphere on the page, (k, 2) each: in front and behind; NaN between lines."""
    sweep = np.radians(np.arange(0, 361, 4.0))
    lines = []
    for longitude in np.radians(np.arange(0, 180, step)):
        lines.append(
            np.column_stack([np.cos(longitude) * np.cos(sweep), np.sin(longitude) * np.cos(sweep), np.sin(sweep)])
        )
    for latitude in np.radians(np.arange(step - 90, 90, step)):
        ring = np.column_stack([np.cos(sweep), np.sin(sweep), np.zeros_like(sweep)]) * np.cos(latitude)
        lines.append(ring + np.array([0, 0, np.sin(latitude)]))
    gap = np.full((1, 3), np.nan)
    all_lines = np.concatenate([part for line in lines for part in (line, gap)]) @ camera.T
    front = np.where(all_lines[:, 2:] >= 0, all_lines[:, :2], np.nan)
    behind = np.where(all_lines[:, 2:] <= 0, all_lines[:, :2], np.nan)
    return front, behind


def depth_style(depth: np.ndarray, colors: np.ndarray, fog: Any, solid: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Depth cue for depths in [−1, 1] (1 = near): relative sizes, and colours that fade into the fog behind.

    A solid body hides what is behind its middle, so there the colours drop; in open space they fade evenly.
    """
    from matplotlib.colors import to_rgb

    near = np.clip((depth + 1) / 2, 0, 1)
    strength = np.where(depth >= 0, 0.88 + 0.12 * near, 0.16 + 0.44 * near) if solid else 0.4 + 0.6 * near
    strength = strength[:, None]
    return 0.5 + 0.5 * near, strength * colors + (1 - strength) * np.array(to_rgb(fog))


def _sphere(ax: "Axes", run: Any, view: Projection, coordinates: np.ndarray, colors: np.ndarray, azimuth: Any) -> None:
    camera = rotation(facing_azimuth(run) if azimuth is None else azimuth, ELEVATION)
    globe(ax, camera)
    _with_depth(ax, coordinates @ camera.T, colors)
    _bare(ax, 1.09)


def globe(ax: "Axes", camera: np.ndarray) -> None:
    """The ball itself: a disc with soft shading towards its rim, and a graticule."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Circle

    theme = style.current()
    rows, columns = np.mgrid[-1:1:256j, -1:1:256j]
    shading = np.clip(np.hypot(rows - 0.25, columns + 0.25) / 1.35, 0, 1) ** 1.6
    tones = LinearSegmentedColormap.from_list("ball", [theme.panel, theme.shade, theme.grid])
    image = ax.imshow(shading, cmap=tones, extent=(-1, 1, -1, 1), origin="lower", zorder=0, interpolation="bilinear")
    rim = Circle((0, 0), 1.0, facecolor="none", edgecolor=theme.muted, linewidth=0.7, zorder=1)
    ax.add_patch(rim)
    image.set_clip_path(rim)
    front, behind = graticule(camera)
    ax.plot(*behind.T, color=theme.muted, linewidth=0.4, alpha=0.18, zorder=0.5)
    ax.plot(*front.T, color=theme.muted, linewidth=0.5, alpha=0.4, zorder=1)


def _with_depth(ax: "Axes", seen: np.ndarray, colors: np.ndarray, solid: bool = True) -> None:
    """Particles from far to near, (N, 3) in camera axes with depth in [−1, 1]."""
    theme = style.current()
    order = np.argsort(seen[:, 2], kind="stable")
    sizes, shades = depth_style(seen[order, 2], colors[order], theme.shade, solid)
    area = (1.2 * marker_area(len(seen)) + CROWD_AREA * crowd_share(seen[order])) * sizes**2
    _scatter(ax, seen[order], shades, area, edgecolors=theme.panel, linewidths=0.25)


def _space(ax: "Axes", run: Any, view: Projection, coordinates: np.ndarray, colors: np.ndarray, azimuth: Any) -> None:
    """The box that the run visits, seen from the camera."""
    theme = style.current()
    limits = frame_limits(run, view)
    camera = rotation(facing_azimuth(run) if azimuth is None else azimuth, ELEVATION)
    low, high = (box_coordinates(corner, limits) for corner in limits)
    for edge in box_edges(low, high):
        ends = np.stack(edge) @ camera.T
        ax.plot(ends[:, 0], ends[:, 1], color=theme.muted, linewidth=0.6, alpha=0.35 + 0.2 * np.sign(ends[:, 2].mean()))
    _with_depth(ax, box_coordinates(coordinates, limits) @ camera.T, colors, solid=False)
    _bare(ax, 1.04)


def box_coordinates(coordinates: np.ndarray, limits: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Coordinates in which the box fits into a picture from −1 to 1 from whichever side the camera looks."""
    low, high = limits
    half = (high - low) / 2
    across, tilt = np.hypot(half[0], half[1]), np.radians(ELEVATION)
    return (coordinates - (low + high) / 2) / max(across, half[2] * np.cos(tilt) + across * np.sin(tilt))


def box_edges(low: np.ndarray, high: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The twelve edges of a box as pairs of corners."""
    corners = np.array([[x, y, z] for x in (low[0], high[0]) for y in (low[1], high[1]) for z in (low[2], high[2])])
    pairs = [(i, i | bit) for i in range(8) for bit in (1, 2, 4) if not i & bit]
    return [(corners[i], corners[j]) for i, j in pairs]
