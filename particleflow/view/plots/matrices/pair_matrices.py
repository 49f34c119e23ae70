"""Figures of pairs of particles: their similarity over time, Gram matrices and attention matrices."""

from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.attention.attention_statistics import attention_matrix
from particleflow.analysis.clusters.clusters import unit_directions
from particleflow.analysis.clusters.last_clusters import frame_clusters
from particleflow.analysis.clusters.similarity_histogram import MOST_PAIRED, similarity_histogram
from particleflow.analysis.reading import first_run, frame_weights
from particleflow.analysis.run_character import character_of
from particleflow.analysis.samples import stored_points, thinned
from particleflow.errors import ArgumentError, ShapeError
from particleflow.trajectory.facts import StoredInteraction
from particleflow.view import style
from particleflow.view.plots.base import (
    MATRIX,
    WORD_MATRIX,
    angles,
    drawn_times,
    inches,
    mark_changes,
    new_axes,
    projection,
    run_of_particles,
    sample_note,
    set_title,
    time_axis,
)
from particleflow.view.plots.colors import check_labels, own_labels
from particleflow.view.plots.word_labels import name_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory.trajectory import Trajectory

MAX_MATRIX = 1024  # particles along a side of a matrix
MAX_ATTENTION = 2048  # particles of which the whole matrix is computed
_NAMED = 100.0  # from the least to the greatest value of a logarithmic scale: two powers of ten have their names on it
_BY_CLUSTER, _BY_LABEL = "by cluster", "by cluster, then by label"
_BY_WORD, _BY_PLACE, _BY_POSITION = "by cluster, then by word", "neighbours side by side", "in sequence"
_ALONE = {_BY_LABEL: "by label", _BY_WORD: "by word"}  # where all particles are one cluster


def similarity(trajectory: "Trajectory", *, log: bool | str = "auto", ax: "Axes | None" = None) -> "Axes":
    """Draw the density of all pairwise similarities against time, one column a frame, colours logarithmic in the share.

    The similarity is the cosine on a sphere and of the hidden states of a network, and the distance elsewhere. Of more
    than 200 particles that many, evenly chosen, are paired. An ensemble shows its run 0.

    Parameters: `log`, a logarithmic time axis (True, False, or "auto": where the frames are spaced like that); `ax`,
    the axes to draw on, else new ones. Returns the axes.
    """
    from matplotlib.colors import LogNorm

    run = run_of_particles(trajectory, "A histogram of similarities")
    ax = new_axes(ax, about=trajectory, note=sample_note(run, MOST_PAIRED))
    shown, edges, shares = similarity_histogram(run)
    log = time_axis(ax, run.times, log, unit=run.facts.time_unit)
    times = drawn_times(run.times, log)[shown]
    paired = min(run.count, MOST_PAIRED)
    floor = 1.0 / max(paired * (paired - 1) // 2, 10)
    shares = np.maximum(shares.T, floor / 2)
    mesh = ax.pcolormesh(
        edges_between(times, log),
        edges,
        shares,
        cmap=style.colormap("density"),
        norm=LogNorm(floor / 2, 1.0),
        rasterized=True,
    )
    color_bar(ax, mesh, "share of pairs")
    ax.set_ylim(edges[0], edges[-1] + 0.015 * (edges[-1] - edges[0]))
    inner = "cosine of two particles" if run.facts.is_network else r"similarity $\langle x_i, x_j\rangle$"
    ax.set_ylabel(inner if edges[0] < 0 else "distance $|x_i - x_j|$")
    mark_changes(ax, run)
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
    """Draw the colour scale of an image, named by a label, at the right of the axes."""
    # an inset of the axes stays as tall as a square matrix, which a bar beside them would not
    bar: Any = ax.figure.colorbar(image, cax=ax.inset_axes((1.025, 0.0, 0.035, 1.0)))
    bar.outline.set_visible(False)
    bar.set_label(label)
    if bar.long_axis.get_scale() == "log" and bar.vmax >= _NAMED * bar.vmin:
        bar.minorticks_off()  # powers of ten say enough; forty small ticks take as long as the rest of a figure


def particle_order(trajectory: "Trajectory", frame: int, labels: Any = None) -> tuple[np.ndarray, str]:
    """An order that puts clusters side by side, inside of them equal words or labels, and the name of that order.

    Clusters are the given labels (N,) or (T, N), else those of the frame. They follow each other along the line or
    circle, else as the leaves of a linkage; so do the particles of one cluster and label. The name goes to the axes.
    """
    run = first_run(trajectory)
    points = np.nan_to_num(stored_points(run, frame))
    along = _along(run, points)
    clusters = _clusters(run, frame, labels)[along]
    _, number = np.unique(clusters, return_inverse=True)
    middle = (np.bincount(number, np.arange(len(along))) / np.bincount(number))[number]
    labelled = own_labels(run) if run.words is None else _word_numbers(run.words)
    own = np.zeros(len(along)) if labelled is None else check_labels(run, labelled)[along]
    count = int(number.max()) + 1
    most = len(along) / 2 if labels is None else len(along) - 1  # every particle its own cluster is no order by cluster
    clustered = 1 < count <= most and (labels is not None or character_of(run).gathers)
    by_own = _BY_LABEL if run.words is None else _BY_WORD
    if labelled is not None and count < len(along):
        name = _ALONE[by_own] if count == 1 else by_own
    else:
        name = _BY_CLUSTER if clustered else _BY_PLACE
    return along[np.lexsort([own, number, middle])], name


def _clusters(run: "Trajectory", frame: int, labels: Any) -> np.ndarray:
    """The clusters of a frame (N,): the given labels (N,) or (T, N), else those that are found."""
    clusters = frame_clusters(run, frame) if labels is None else check_labels(run, labels)
    return clusters if clusters.ndim == 1 else clusters[frame]


def _word_numbers(words: np.ndarray) -> np.ndarray:
    """The different words numbered as they appear."""
    number = {word: place for place, word in enumerate(dict.fromkeys(words.tolist()))}
    return np.array([number[word] for word in words.tolist()])


def _along(run: Any, points: np.ndarray) -> np.ndarray:
    """Particles in the order of their places on a line or circle, else as the leaves of a linkage."""
    view = projection(run)
    if view.kind in ("line", "circle"):
        coordinates = view(points)
        return np.argsort(angles(coordinates) if view.kind == "circle" else coordinates[:, 0], kind="stable")
    return _linkage_order(points)


def _linkage_order(points: np.ndarray) -> np.ndarray:
    """The leaf order of average linkage; of at most 1,024 particles, evenly chosen."""
    from scipy.cluster.hierarchy import leaves_list, linkage

    chosen = thinned(len(points), MAX_MATRIX)
    return chosen if len(chosen) < 3 else chosen[leaves_list(linkage(points[chosen], "average"))]


def gram(trajectory: "Trajectory", frame: int = -1, *, labels: Any = None, ax: "Axes | None" = None) -> "Axes":
    """Draw the matrix of inner products ⟨x_i, x_j⟩ of one frame, particles ordered so that clusters are blocks.

    On a sphere of radius R they are divided by R². Of the hidden states of a network, whose lengths differ, the matrix
    of cosines is drawn, on a scale from −1 to 1.

    An ensemble shows its run 0; more than 1,024 particles are thinned evenly.

    Parameters: the index of the `frame`; `labels` (N,) or (T, N), the clusters, else those of the frame; `ax`, the axes
    to draw on, else new ones. Returns the axes.
    """
    run = run_of_particles(trajectory, "A matrix of inner products")
    order, name = particle_order(run, frame, labels)
    order = order[thinned(len(order), MAX_MATRIX)]
    points, cosines = stored_points(run, frame)[order], run.facts.is_network
    points = unit_directions(points) if cosines else points / projection(run).radius
    label = r"cosine of $x_i$ and $x_j$" if cosines else r"inner product $\langle x_i, x_j\rangle$"
    shape = MATRIX if run.words is None else WORD_MATRIX
    ax = new_axes(ax, shape, about=trajectory, note=sample_note(run, MAX_MATRIX))
    _matrix(points @ points.T, label, ax, 1.0 if cosines else None)
    ax.set(xlabel=f"particle $j$, {name}", ylabel=f"particle $i$, {name}")
    _name_sides(ax, run, order, frame, labels)
    set_title(ax, run, time=float(run.times[frame]))
    return ax


def attention(
    source: Any, frame: int = -1, *, beta: float | None = None, labels: Any = None, ax: "Axes | None" = None
) -> "Axes":
    """Draw an attention matrix: a given one (n, n), or that of one frame of a trajectory.

    Of a trajectory it is the first attention that moves it, with its Q, K, mask and normalisation as stored, or with
    `beta` softmax_j β⟨x_i, x_j⟩. Colours show the weight times n, so that 1 is an even spread, on a logarithmic scale;
    what is masked stays empty. A given matrix is drawn in its own order; particles of a trajectory are ordered as in
    `gram`, or by their places in the sequence where the mask depends on these.

    Parameters: `source`, a matrix or a trajectory of at most 2,048 particles; the index of the `frame`; `beta`, instead
    of the stored interaction; `labels` (N,) or (T, N), the clusters, else those of the frame; `ax`, the axes to draw
    on, else new ones. Returns the axes.
    """
    if hasattr(source, "__array__"):
        if np.ndim(source) != 2:
            raise ShapeError(f"An attention matrix must have two axes, but has shape {np.shape(source)}.")
        return _attention_matrix(np.asarray(source, float), new_axes(ax, MATRIX))
    run = first_run(source)
    time = float(run.times[frame])
    acting, weights, order, name = acting_attention(run, frame, beta, labels)
    order = order[thinned(len(order), MAX_MATRIX)]
    shape = MATRIX if run.words is None else WORD_MATRIX
    ax = new_axes(ax, shape, about=source, note=sample_note(run, MAX_MATRIX))
    _attention_matrix(weights[np.ix_(order, order)], ax, run.count)
    ax.set(xlabel=f"attends to particle $j$, {name}", ylabel=f"particle $i$, {name}")
    _name_sides(ax, run, order, frame, labels)
    set_title(ax, run, f"β = {acting.beta:g}", time=time)
    return ax


def acting_attention(
    run: "Trajectory", frame: int, beta: float | None = None, labels: Any = None
) -> tuple[StoredInteraction, np.ndarray, np.ndarray, str]:
    """The attention of a frame, its weights (N, N), the order to show particles in, and its name."""
    stored = character_of(run).attention_at(float(run.times[frame]))
    if beta is None and stored is None:
        raise ArgumentError(
            "Argument `beta` must be given to compute attention from a trajectory that does not store the attention "
            "that moves it, but is None."
        )
    acting = stored if beta is None else StoredInteraction("attention", "inner", beta)
    assert acting is not None
    weights = interaction_matrix(run, frame, acting)
    if acting.positions is not None and acting.positions.factors:
        places = np.arange(run.count) if run.positions is None else np.asarray(run.positions)
        return acting, weights, np.argsort(places, kind="stable"), _BY_POSITION
    return acting, weights, *particle_order(run, frame, labels)


def interaction_matrix(run: "Trajectory", frame: int, acting: StoredInteraction) -> np.ndarray:
    """The attention weights (N, N) of one frame of one run, mask, weights and normalisation included."""
    if run.count > MAX_ATTENTION:
        raise ArgumentError(
            f"An attention matrix is drawn of at most {MAX_ATTENTION} particles, but the run has {run.count}: "
            "compute a part of it with `analysis.attention_matrix` and draw that."
        )
    return attention_matrix(
        stored_points(run, frame), acting.beta or 0.0, query=acting.query, key=acting.key, positional=acting.positions,
        positions=run.positions, weights=frame_weights(run, frame), normalization=acting.normalization or "row",
    )  # fmt: skip


def _attention_matrix(weights: np.ndarray, ax: "Axes", count: int | None = None) -> "Axes":
    """The weights times their number; exact zeros are empty."""
    from matplotlib.colors import LogNorm

    scaled = np.nan_to_num(weights) * (count or weights.shape[1])
    seen = np.maximum(scaled, 1e-3)
    shown = np.ma.masked_where(scaled == 0, seen)
    lowest = float(np.min(seen, initial=1.0, where=scaled > 0))
    ends = min(lowest, 1 / 3) / 1.5, max(float(scaled.max()), 3.0)  # only masked entries have the colour of the page
    image = ax.imshow(shown, cmap=style.colormap("density"), norm=LogNorm(*ends), interpolation="nearest")
    color_bar(ax, image, "attention weight × $n$")
    ax.set(xlabel="attends to particle $j$", ylabel="particle $i$")
    _frame_matrix(ax)
    return ax


def _name_sides(ax: "Axes", run: "Trajectory", order: np.ndarray, frame: int, labels: Any) -> None:
    """Words along both sides of a matrix in the order shown, where the particles have words and these fit."""
    if run.words is not None:
        words, clusters = [[word] for word in run.words[order].tolist()], _clusters(run, frame, labels)[order]
        length = 0.78 * 72 * inches(ax)  # the layout leaves less than all
        for side in "xy":
            name_ticks(ax, side, words, clusters, length)


def _frame_matrix(ax: "Axes") -> None:
    """A frame on all four sides, and ticks at whole numbers."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(True)
    ax.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[attr-defined]
    ax.yaxis.get_major_locator().set_params(integer=True)  # type: ignore[attr-defined]


def _matrix(values: np.ndarray, label: str, ax: "Axes", reach: float | None = None) -> None:
    """A matrix in diverging colours, whose scale reaches equally far on both sides of zero, as far as its values."""
    reach = reach or float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    image = ax.imshow(values, cmap=style.colormap("diverging"), interpolation="nearest", vmin=-reach, vmax=reach)
    color_bar(ax, image, label)
    _frame_matrix(ax)
