"""Who is near whom: pairwise similarity over time, Gram matrices and attention matrices."""

from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.frames import first_run
from particleflow.errors import ArgumentError, ShapeError
from particleflow.view import style
from particleflow.view.drawing.base import (
    MATRIX,
    angles,
    check_labels,
    drawn_times,
    frame_points,
    new_axes,
    projection,
    set_title,
    thinned,
    time_axis,
)
from particleflow.view.drawing.snapshots import format_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory import Trajectory

MAX_MATRIX = 1024
_ORDERED = "clusters side by side"


def pair_values(points: np.ndarray, spherical: bool, radius: float) -> np.ndarray:
    """The cosines ⟨x_i, x_j⟩/r² of points on a sphere, the distances |x_i − x_j| of others; each pair once."""
    rows, columns = np.triu_indices(len(points), k=1)
    if spherical:
        return ((points @ points.T) / radius**2)[rows, columns]
    return np.linalg.norm(points[rows] - points[columns], axis=-1)


def similarity_histogram(
    trajectory: "Trajectory", bins: int = 120, frames: int = 300, particles: int = 256
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The share of pairs in each bin of similarity: frame indices (T',), bin edges (bins + 1,), shares (T', bins).

    On a sphere the similarity is the cosine in [−1, 1], elsewhere the distance. At most `frames` frames and `particles`
    particles, evenly chosen, are read.
    """
    run = first_run(trajectory)
    view = projection(run)
    chosen = thinned(run.count, particles)
    shown = thinned(len(run), frames)
    top = 1.0 if view.spherical else _longest_distance(run, chosen)
    edges = np.linspace(-1.0 if view.spherical else 0.0, top, bins + 1)
    shares = np.zeros((len(shown), bins))
    for row, frame in enumerate(shown):
        values = pair_values(frame_points(run, int(frame))[chosen], view.spherical, view.radius)
        values = np.clip(values[np.isfinite(values)], edges[0], edges[-1])
        shares[row] = np.histogram(values, edges)[0] / max(values.size, 1)
    return shown, edges, shares


def _longest_distance(run: Any, chosen: np.ndarray) -> float:
    longest = 0.0
    for frame in thinned(len(run), 12):
        points = frame_points(run, int(frame))[chosen]
        points = points[np.isfinite(points).all(axis=-1)]
        longest = max(longest, float(pair_values(points, False, 1.0).max(initial=0.0)))
    return longest or 1.0


def similarity(trajectory: "Trajectory", *, log: bool | str = "auto", ax: "Axes | None" = None) -> "Axes":
    """Draw the density of all pairwise similarities against time, one column a frame, colours logarithmic in the share.

    The similarity is the cosine on a sphere and the distance elsewhere. An ensemble shows its run 0.
    """
    from matplotlib.colors import LogNorm

    run = first_run(trajectory)
    ax = new_axes(ax)
    shown, edges, shares = similarity_histogram(run)
    log = time_axis(ax, run.times, log)
    times = drawn_times(run.times, log)[shown]
    floor = 1.0 / max(min(run.count, 256) * (min(run.count, 256) - 1) // 2, 10)
    shares = np.maximum(shares.T, floor / 2)
    mesh = ax.pcolormesh(
        edges_between(times, log),
        edges,
        shares,
        cmap=style.colormap("density"),
        norm=LogNorm(floor / 2, 1.0),
        rasterized=True,
    )
    mesh.set_edgecolor("face")
    color_bar(ax, mesh, "share of pairs")
    ax.set_ylim(edges[0], edges[-1] + 0.015 * (edges[-1] - edges[0]))
    ax.set_ylabel(r"similarity $\langle x_i, x_j\rangle$" if edges[0] < 0 else "distance $|x_i - x_j|$")
    set_title(ax, run)
    return ax


def edges_between(values: np.ndarray, log: bool) -> np.ndarray:
    """Cell edges halfway (in log: at the geometric mean) between values; the outer ones are the end values."""
    values = np.log(values) if log else np.asarray(values, float)
    if len(values) == 1:
        edges = np.array([values[0] - 0.5, values[0] + 0.5])
    else:
        edges = np.concatenate([values[:1], (values[1:] + values[:-1]) / 2, values[-1:]])
    return np.exp(edges) if log else edges


def color_bar(ax: "Axes", image: Any, label: str) -> None:
    # inside the axes' own frame, so that it stays as tall as a square matrix
    bar = ax.figure.colorbar(image, cax=ax.inset_axes((1.025, 0.0, 0.035, 1.0)))
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.set_label(label)


def particle_order(trajectory: "Trajectory", frame: int, labels: Any = None) -> np.ndarray:
    """An order that puts neighbours side by side: by label, along the line or circle, else the leaves of a linkage."""
    run = first_run(trajectory)
    view = projection(run)
    coordinates = view(frame_points(run, frame))
    along = angles(coordinates) if view.kind == "circle" else coordinates[:, 0]
    if labels is None and run.labels is None:
        if view.kind in ("line", "circle"):
            return np.argsort(along, kind="stable")
        return _linkage_order(np.nan_to_num(frame_points(run, frame)))
    chosen = check_labels(run, run.labels if labels is None else labels)
    return np.lexsort([along, chosen if chosen.ndim == 1 else chosen[frame]])


def _linkage_order(points: np.ndarray) -> np.ndarray:
    """The leaf order of average linkage; of at most 1,024 particles, evenly chosen."""
    from scipy.cluster.hierarchy import leaves_list, linkage

    chosen = thinned(len(points), MAX_MATRIX)
    return chosen if len(chosen) < 3 else chosen[leaves_list(linkage(points[chosen], "average"))]


def gram(trajectory: "Trajectory", frame: int = -1, *, labels: Any = None, ax: "Axes | None" = None) -> "Axes":
    """Draw the matrix of inner products ⟨x_i, x_j⟩ of one frame, particles ordered so that clusters are blocks.

    An ensemble shows its run 0; more than 1,024 particles are thinned evenly.
    """
    run = first_run(trajectory)
    points = _ordered_points(run, frame, labels)
    scale = projection(run).radius ** 2
    ax = _matrix(points @ points.T / scale, r"inner product $\langle x_i, x_j\rangle$", ax)
    ax.set(xlabel=f"particle $j$, {_ORDERED}", ylabel=f"particle $i$, {_ORDERED}")
    ax.set_title(style.clean(f"t = {format_time(run.times[frame])}"))
    return ax


def _ordered_points(run: Any, frame: int, labels: Any) -> np.ndarray:
    order = particle_order(run, frame, labels)
    return frame_points(run, frame)[order[thinned(len(order), MAX_MATRIX)]]


def attention(
    source: Any, frame: int = -1, *, beta: float | None = None, labels: Any = None, ax: "Axes | None" = None
) -> "Axes":
    """Draw an attention matrix: a given one (n, n), or softmax_j β⟨x_i, x_j⟩ of one frame of a trajectory.

    Colours show the weight times n, so that 1 is an even spread, on a logarithmic scale. A given matrix is drawn in
    its own order; particles of a trajectory are ordered as in `gram`.
    """
    if hasattr(source, "__array__"):
        if np.ndim(source) != 2:
            raise ShapeError(f"An attention matrix must have two axes, but has shape {np.shape(source)}.")
        return _attention_matrix(np.asarray(source, float), ax)
    if beta is None:
        raise ArgumentError("Argument `beta` must be given to compute attention from a trajectory, but is None.")
    run = first_run(source)
    points = _ordered_points(run, frame, labels)
    logits = beta * (points @ points.T)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    ax = _attention_matrix(weights / weights.sum(axis=1, keepdims=True), ax)
    ax.set(xlabel=f"attends to particle $j$, {_ORDERED}", ylabel=f"particle $i$, {_ORDERED}")
    ax.set_title(style.clean(f"β = {beta:g}, t = {format_time(run.times[frame])}"))
    return ax


def _attention_matrix(weights: np.ndarray, ax: "Axes | None") -> "Axes":
    from matplotlib.colors import LogNorm

    count = weights.shape[1]
    scaled = np.maximum(np.nan_to_num(weights) * count, 1e-3)
    ax = new_axes(ax, MATRIX)
    top = max(float(scaled.max()), 10.0)
    image = ax.imshow(scaled, cmap=style.colormap("density"), norm=LogNorm(1e-3, top), interpolation="nearest")
    color_bar(ax, image, "attention weight × $n$")
    ax.set(xlabel="attends to particle $j$", ylabel="particle $i$")
    _frame_matrix(ax)
    return ax


def _frame_matrix(ax: "Axes") -> None:
    for side in ("top", "right"):
        ax.spines[side].set_visible(True)
    ax.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[attr-defined]
    ax.yaxis.get_major_locator().set_params(integer=True)  # type: ignore[attr-defined]


def _matrix(values: np.ndarray, label: str, ax: "Axes | None") -> "Axes":
    ax = new_axes(ax, MATRIX)
    reach = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    image = ax.imshow(values, cmap=style.colormap("diverging"), interpolation="nearest", vmin=-reach, vmax=reach)
    color_bar(ax, image, label)
    ax.set(xlabel="particle $j$", ylabel="particle $i$")
    _frame_matrix(ax)
    return ax
