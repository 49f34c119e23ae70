"""What every figure needs: a projection to the page, colours, a time axis, an `ax`.

An ensemble is drawn through its run 0 where particles are drawn, and as a median with a 10-90 % band where a number
is drawn over time. Long or crowded runs are thinned evenly (`MAX_LINES` particles, `MAX_FRAMES` frames): a page shows
no more.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.frames import first_run
from particleflow.analysis.frames import select_frames as thinned  # particles are thinned out in the same way
from particleflow.analysis.shape import STATED_TOLERANCE, common_norm, principal_components
from particleflow.errors import ArgumentError, ShapeError
from particleflow.view import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory import Trajectory

MAX_LINES = 512
MAX_FRAMES = 600


@dataclass(frozen=True)
class Projection:
    """A linear map to what is drawn: x ↦ (x − center) matrix / radius, and the kind of picture it makes.

    `kind` is "line" (1-D), "circle", "plane" (2-D), "sphere", "space" (3-D) or "pca" (d > 3, two components);
    `spherical` says that the points lie on a sphere of that radius.
    """

    kind: str
    center: np.ndarray
    matrix: np.ndarray
    radius: float
    spherical: bool
    labels: tuple[str, ...]

    def __call__(self, points: np.ndarray) -> np.ndarray:
        return (np.asarray(points, float) - self.center) @ self.matrix / self.radius


def frame_points(trajectory: "Trajectory", frame: int = -1) -> np.ndarray:
    """The points of one frame, (N, d); negative frames count from the end."""
    length = len(trajectory)
    if not -length <= frame < length:
        raise ArgumentError(f"Argument `frame` must be in [{-length}, {length - 1}], but is {frame}.")
    return np.asarray(trajectory.points[frame % length], float)


def gather(trajectory: "Trajectory", frames: np.ndarray, particles: np.ndarray | slice = slice(None)) -> np.ndarray:
    """The points of some frames and particles, (frames, particles, d); read frame by frame, so a file stays lazy."""
    return np.stack([np.asarray(trajectory.points[int(frame)], float)[particles] for frame in frames])


def _centred_basis(dimension: int) -> np.ndarray:
    """An orthonormal basis (d, d−1) of the vectors whose coordinates sum to zero, where layer norm lives."""
    basis = np.zeros((dimension, dimension - 1))
    for column in range(dimension - 1):
        basis[: column + 1, column] = 1.0
        basis[column + 1, column] = -(column + 1.0)
    return basis / np.linalg.norm(basis, axis=0)


def projection(trajectory: "Trajectory") -> Projection:
    """How the points of a trajectory are put on the page, found from the geometry, the dimension and the points.

    Up to d = 3 the coordinates are kept. Above, the two principal components of (thinned) frames are taken. Layer-
    normed points have coordinates that sum to zero, so they are first written in the d − 1 coordinates they really
    have.
    """
    run = first_run(trajectory)
    points = gather(run, thinned(len(run), 24), thinned(run.count, 2000))
    dimension = points.shape[-1]
    radius = common_norm(run, points)
    basis = np.eye(dimension)
    if radius and dimension > 2 and run.metadata.get("geometry") == "layer_norm":
        sums = np.abs(np.nan_to_num(points).sum(axis=-1)).max()
        basis = _centred_basis(dimension) if sums <= STATED_TOLERANCE * radius else basis
    size = basis.shape[1]
    names = tuple(f"$x_{axis + 1}$" for axis in range(min(size, 3)))
    scale = radius or 1.0
    if size > 3:
        found = principal_components(points, 2)
        names = tuple(f"component {axis + 1} ({100 * share:.0f} %)" for axis, share in enumerate(found.shares))
        return Projection("pca", found.center, found.directions, scale, radius is not None, names)
    kinds = {1: "line", 2: "circle" if radius else "plane", 3: "sphere" if radius else "space"}
    return Projection(
        kinds[size], np.zeros(dimension), basis, scale, radius is not None, names if size > 1 else ("$x$",)
    )


def angles(coordinates: np.ndarray, cut: float = -np.pi) -> np.ndarray:
    """The angles of plane coordinates (..., 2), in [cut, cut + 2π)."""
    return np.mod(np.arctan2(coordinates[..., 1], coordinates[..., 0]) - cut, 2 * np.pi) + cut


def emptiest_angle(theta: np.ndarray) -> float:
    """Where to cut the circle open: the middle of the arc that the fewest positions visit; −π if all are alike."""
    counts, _ = np.histogram(np.mod(theta[np.isfinite(theta)], 2 * np.pi), bins=72, range=(0, 2 * np.pi))
    smooth = counts + np.roll(counts, 1) + np.roll(counts, -1)
    if smooth.max() - smooth.min() <= 0.2 * smooth.max():
        return -np.pi
    candidates = np.flatnonzero(smooth == smooth.min())
    runs = np.split(candidates, np.flatnonzero(np.diff(candidates) > 1) + 1)
    longest = max(runs, key=len)
    return float((longest.mean() + 0.5) * 2 * np.pi / 72 - 2 * np.pi)


def position_colors(coordinates: np.ndarray) -> np.ndarray:
    """Colours (N, 3) of where particles are: their order (1-D), their angle (2-D), longitude and latitude (3-D)."""
    theme = style.current()
    if coordinates.shape[-1] == 1:
        order = np.argsort(np.argsort(coordinates[:, 0], kind="stable"), kind="stable")
        return style.ordered_colors(order / max(len(order) - 1, 1), theme)
    centred = coordinates - (0 if coordinates.shape[-1] == 3 else np.nanmean(coordinates, axis=0))
    angle = np.nan_to_num(np.arctan2(centred[:, 1], centred[:, 0]))
    if coordinates.shape[-1] == 2:
        return style.cyclic_colors(angle, theme)
    low, high = theme.lightness
    height = np.nan_to_num(centred[:, 2] / np.maximum(np.linalg.norm(centred, axis=-1), 1e-300))
    return style.oklch(low + (high - low) * (height + 1) / 2, np.full(height.shape, 0.13), angle + 0.5)


def _crowds(coordinates: np.ndarray, cell: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For two grids, one shifted by half a cell: the number of each particle's cell, (N,), and the cells' counts."""
    scaled = np.clip(np.nan_to_num(coordinates / cell), -(2.0**20) + 1, 2.0**20 - 1)
    for shift in (0.0, 0.5):
        cells = np.floor(scaled + shift).astype(np.int64) + 2**20
        keys = cells @ (np.int64(2) ** (21 * np.arange(cells.shape[1])))  # up to three coordinates of 21 bits
        _, inverse, found = np.unique(keys, return_inverse=True, return_counts=True)
        yield inverse, found


def crowd_share(coordinates: np.ndarray, cell: float = 0.01) -> np.ndarray:
    """The share of the other particles that sit at a particle's place, (N,): 0 alone, 1 if all are there.

    The place is a cell of a grid; of two grids, one shifted by half a cell, the fuller cell counts. Merged particles
    hide each other: drawn larger by this share, a cluster shows its mass.
    """
    counts = np.ones(len(coordinates), int)
    for inverse, found in _crowds(coordinates, cell):
        counts = np.maximum(counts, found[inverse])
    return (counts - 1) / max(len(coordinates) - 1, 1)


def crowd_colors(coordinates: np.ndarray, colors: np.ndarray, cell: float = 0.01) -> np.ndarray:
    """Colours (N, 3) in which particles at one place share their mean: a cluster shows where its members come from."""
    blended, counts = colors.copy(), np.ones(len(coordinates), int)
    for inverse, found in _crowds(coordinates, cell):
        means = np.column_stack([np.bincount(inverse, channel) for channel in colors.T]) / found[:, None]
        fuller = found[inverse] > counts
        blended[fuller], counts[fuller] = means[inverse[fuller]], found[inverse[fuller]]
    return blended


def check_labels(trajectory: "Trajectory", labels: Any) -> np.ndarray:
    """Labels as an array of shape (N,) or (T, N); huge label numbers are renumbered in their order."""
    labels = np.asarray(labels)
    allowed = (trajectory.count,), (len(trajectory), trajectory.count)
    if labels.shape not in allowed:
        raise ShapeError(f"Argument `labels` must have shape {allowed[0]} or {allowed[1]}, but has {labels.shape}.")
    if labels.max(initial=0) < 100_000:
        return labels
    kept = np.maximum(labels, -1)
    values, numbers = np.unique(kept, return_inverse=True)
    return numbers.reshape(labels.shape) - int(values[0] < 0)


def particle_colors(trajectory: "Trajectory", labels: Any = None, frame: int | None = None) -> np.ndarray:
    """One colour a particle, (N, 3): by the given labels, else the trajectory's own, else the place in the first frame.

    Labels of shape (T, N) are read at `frame`; without a frame, at the first one.
    """
    run = first_run(trajectory)
    if labels is None and run.labels is not None:
        labels = run.labels
    if labels is None:
        return position_colors(projection(run)(frame_points(run, 0)))
    labels = check_labels(run, labels)
    return style.label_colors(labels if labels.ndim == 1 else labels[0 if frame is None else frame])


WIDE, SQUARE, MATRIX = (1.0, 0.62), (0.75, 0.75), (0.8, 0.64)


def new_axes(ax: "Axes | None", shape: tuple[float, float] = WIDE) -> "Axes":
    """The given axes, or those of a new figure that belongs to no window; its shape is in widths of the theme."""
    if ax is not None:
        return ax
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = style.current().width
    figure = Figure(figsize=(shape[0] * width, shape[1] * width), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def inches(ax: "Axes") -> float:
    """The shorter side of the axes in inches, before any layout."""
    box, figure = ax.get_position(), ax.figure
    return float(min(box.width * figure.get_figwidth(), box.height * figure.get_figheight()))  # type: ignore[union-attr]


def wants_log(times: np.ndarray) -> bool:
    """Whether saved times ask for a logarithmic axis: half of the frames lie in the first 15 % of the time."""
    times = np.asarray(times, float)
    if len(times) < 3 or not np.all(times >= 0) or not times[-1] > 0:
        return False
    positive = times[times > 0]
    return bool(np.median(times) < 0.15 * times[-1] and positive[-1] > 20 * positive[0])


def time_axis(ax: "Axes", times: np.ndarray, log: bool | str = "auto", *, axis: str = "x") -> bool:
    """Scale and label a time axis; returns whether it is logarithmic.

    On a logarithmic axis a first frame at t = 0 cannot be shown: `drawn_times` puts it at half the first positive time.
    """
    times = np.asarray(times, float)
    log = wants_log(times) if log == "auto" else bool(log) and bool(np.any(times > 0))
    scale, limits, label = (
        (ax.set_xscale, ax.set_xlim, ax.set_xlabel) if axis == "x" else (ax.set_yscale, ax.set_ylim, ax.set_ylabel)
    )
    scale("log" if log else "linear")
    shown = drawn_times(times, log)
    if shown[-1] > shown[0]:
        limits(shown[0], shown[-1])
    label("time $t$")
    return log


def drawn_times(times: np.ndarray, log: bool) -> np.ndarray:
    """The times as drawn: on a logarithmic axis, times ≤ 0 move to half the first positive time."""
    times = np.asarray(times, float)
    positive = times[times > 0]
    if not log or positive.size == 0:
        return times
    return np.maximum(times, positive[0] / 2)


def set_title(ax: "Axes", trajectory: "Trajectory | None", fallback: str = "") -> None:
    """Title the axes by the run's title, made harmless and short enough for the axes."""
    title = str((trajectory.metadata or {}).get("title") or "") if trajectory is not None else ""
    points = ax.get_position().width * ax.figure.get_figwidth() * 72  # type: ignore[union-attr]
    limit = int(np.clip(points / (0.58 * style.current().font_size), 16, 90))
    ax.set_title(style.clean(title or fallback, limit))


def rotation(azimuth: float, elevation: float) -> np.ndarray:
    """The camera of a 3-D picture: rows are right, up and towards the viewer (angles in degrees)."""
    a, e = np.radians(azimuth), np.radians(elevation)
    toward = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
    right = np.array([-np.sin(a), np.cos(a), 0.0])
    return np.stack([right, np.cross(toward, right), toward])
