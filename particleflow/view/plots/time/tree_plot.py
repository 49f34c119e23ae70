"""Which clusters merge and when: the merge tree, alone or beside the trajectories with a common time axis."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.clusters.tree_layout import (
    TreeBranch,
    grow_branches,
    order_leaves,
    place_branches,
    roots_of,
)
from particleflow.analysis.samples import gather, stored_points, thinned
from particleflow.errors import ShapeError
from particleflow.view import style
from particleflow.view.findings import merge_rows
from particleflow.view.plots.base import (
    MAX_LINES,
    angles,
    drawn_times,
    emptiest_angle,
    mark_changes,
    new_axes,
    new_figure,
    projection,
    run_of_particles,
    set_title,
    time_axis,
    title_figure,
)
from particleflow.view.plots.colors import check_labels, particle_colors
from particleflow.view.plots.space.paths import kymograph
from particleflow.view.plots.word_labels import name_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory.trajectory import Trajectory


@dataclass(frozen=True)
class Leaves:
    """Where branches begin: `births` (L,), `sizes` (L,) in particles, order `along` (L,), and `colors` (L, 3)."""

    births: np.ndarray
    sizes: np.ndarray
    along: np.ndarray
    colors: np.ndarray


def check_merges(merges: Any) -> np.ndarray:
    """Merges as an array (M, 4) of rows (a, b, time, size), sorted by time; a tree of the analysis is unpacked."""
    rows = merge_rows(merges)
    if rows.ndim != 2 or rows.shape[1] < 4:
        raise ShapeError(f"Argument `merges` must have rows (a, b, time, size), but has shape {rows.shape}.")
    return rows[np.argsort(rows[:, 2], kind="stable"), :4]


def _particle_places(run: Any) -> np.ndarray:
    """The places (N,) of particles in the first frame, on the axis of the picture beside the tree."""
    view = projection(run)
    coordinates = view(stored_points(run, 0))
    if view.kind != "circle":
        return coordinates[:, 0]
    seen = view(gather(run, thinned(len(run), 60), thinned(run.count, MAX_LINES)))
    return angles(coordinates, emptiest_angle(angles(seen)))


def find_leaves(run: Any, labels: Any = None) -> Leaves:
    """The leaves of a tree: the particles, or with labels (T, N) the clusters, each from the frame it appears in."""
    places, colors = _particle_places(run), particle_colors(run)
    if labels is None:
        return Leaves(np.full(run.count, run.times[0]), np.ones(run.count), places, colors)
    labels = np.atleast_2d(check_labels(run, labels))
    count = int(labels.max(initial=-1)) + 1
    births, sizes, along = np.full(count, float(run.times[-1])), np.zeros(count), np.zeros(count)
    shades = np.zeros((count, 3))
    for frame in range(len(labels) - 1, -1, -1):  # backwards, so that a cluster's first frame overwrites later ones
        row = labels[frame]
        kept = row >= 0
        number = np.bincount(row[kept], minlength=count)
        here = number > 0
        births[here], sizes[here] = run.times[frame], number[here]
        along[here] = np.bincount(row[kept], places[kept], count)[here] / number[here]
        shades[here] = (
            np.stack([np.bincount(row[kept], tone[kept], count) for tone in colors.T], 1)[here] / number[here, None]
        )
    return Leaves(births, sizes, along, shades)


def merge_tree(
    trajectory: "Trajectory",
    merges: Any,
    *,
    labels: Any = None,
    log: bool | str = "auto",
    vertical: bool = True,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw merges (a, b, time, size) as a tree with time upwards (or rightwards), leaves ordered without crossings.

    Leaves are particles, or with `labels` (T, N) the labels, born in their first frame. A branch is as wide as the
    square root of its share of particles and has their mean colour; clusters that have not merged by the end run to
    the last time. An ensemble shows its run 0.

    Parameters: `merges`, rows or a `MergeTree` of the analysis (with its `labels`); `log`, a logarithmic time axis
    (True, False, or "auto": where the frames are spaced like that); `vertical`, time upwards; `ax`, the axes to draw
    on, else new ones. Returns the axes.
    """
    from matplotlib.collections import LineCollection

    run = run_of_particles(trajectory, "A merge tree")
    ax = new_axes(ax, about=trajectory)
    log = time_axis(ax, run.times, log, axis="y" if vertical else "x")
    leaves = find_leaves(run, labels)
    rows = check_merges(merges)
    segments, colors, sizes = tree_segments(rows, leaves, drawn_times(run.times, log))
    lines = segments[..., ::-1] if vertical else segments
    widths = style.current().line_width * (0.45 + 2.6 * np.sqrt(sizes / max(run.count, 1)))
    ax.add_collection(LineCollection(list(lines), colors=colors, linewidths=widths, capstyle="round"), autolim=False)
    limits, ticks = (ax.set_xlim, ax.set_xticks) if vertical else (ax.set_ylim, ax.set_yticks)
    limits(-1, len(leaves.along))
    ticks([])
    if run.words is not None:
        _name_leaves(ax, run, rows, leaves, labels, vertical)
    (ax.set_xlabel if vertical else ax.set_ylabel)("particles, by cluster" if labels is None else "clusters")
    mark_changes(ax, run, axis="y" if vertical else "x")
    set_title(ax, run)
    return ax


def _name_leaves(ax: "Axes", run: Any, rows: np.ndarray, leaves: Leaves, labels: Any, vertical: bool) -> None:
    """Words at the leaves, or of the clusters that they end in, as far as there is room for them."""
    branches, inside, order = branches_and_leaves(rows, leaves, float(run.times[0]), float(run.times[-1]))
    roots = np.arange(len(order))
    for number in range(len(order), len(branches)):
        roots[inside[number]] = number
    box = ax.get_position()
    length = box.width * ax.figure.get_figwidth() if vertical else box.height * ax.figure.get_figheight()  # type: ignore[union-attr]
    words = _leaf_words(run.words, None if labels is None else np.atleast_2d(check_labels(run, labels)))
    name_ticks(ax, "x" if vertical else "y", [words[leaf] for leaf in order], roots[order], 0.95 * 72 * length)


def _leaf_words(words: np.ndarray, labels: Any) -> list[list[str]]:
    """The words of every leaf: that of a particle, or those of the particles of a label in its first frame."""
    if labels is None:
        return [[word] for word in words.tolist()]
    values, first = np.unique(labels, return_index=True)
    frames = first // labels.shape[1]
    found = [[""]] * (int(values.max(initial=-1)) + 1)
    for value, frame in zip(values.tolist(), frames.tolist(), strict=True):
        if value >= 0:
            found[value] = words[labels[frame] == value].tolist()
    return found


def branches_and_leaves(
    rows: np.ndarray, leaves: Leaves, begin: float, end: float
) -> tuple[list[TreeBranch], list[np.ndarray], np.ndarray]:
    """The placed branches of a tree, the leaves inside each of them, and all leaves (L,) in their order."""
    branches = grow_branches(rows, leaves.births, leaves.sizes, begin=begin, end=end)
    inside = order_leaves(branches, leaves.along)
    for branch, members in zip(branches, inside, strict=True):
        branch.size = float(leaves.sizes[members].sum())
    roots = sorted(roots_of(branches), key=lambda root: float(leaves.along[inside[root]].mean()))
    order = np.concatenate([inside[root] for root in roots])
    place_branches(branches, order.tolist(), range(len(branches)))
    return branches, inside, order


def tree_segments(rows: np.ndarray, leaves: Leaves, times: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Segments (K, 2, (time, place)), colours (K, 3) and sizes (K,): a stem for every branch, a bar for every merge."""
    branches, inside, _ = branches_and_leaves(rows, leaves, float(times[0]), float(times[-1]))
    segments, shades, sizes = [], [], []

    def add(first: tuple[float, float], last: tuple[float, float], number: int, size: float) -> None:
        segments.append([first, last])
        weights = np.maximum(leaves.sizes[inside[number]], 1e-12)
        shades.append(weights @ leaves.colors[inside[number]] / weights.sum())
        sizes.append(size)

    def add_stem(number: int) -> None:
        branch = branches[number]
        add((branch.birth, branch.place), (branch.death, branch.place), number, branch.size)

    for number, branch in enumerate(branches):
        parts = [branches[child] for child in branch.children]
        for child in branch.children:
            add_stem(child)
        if parts:
            low, high = (part.place for part in parts)
            add((branch.birth, low), (branch.birth, high), number, min(part.size for part in parts))
    for root in roots_of(branches):
        add_stem(root)
    return np.array(segments).reshape(-1, 2, 2), np.array(shades).reshape(-1, 3), np.array(sizes)


def kymograph_with_tree(
    trajectory: "Trajectory", merges: Any, *, labels: Any = None, log: bool | str = "auto", figure: Any = None
) -> np.ndarray:
    """Draw the kymograph and the merge tree side by side, time upwards in both; returns the two axes.

    Both pictures are coloured by place.

    Parameters: `merges`, rows (a, b, time, size) or a `MergeTree`; `labels` (T, N), the clusters that the merges name,
    if these are not particles; `log`, a logarithmic time axis (True, False, or "auto": where the frames are spaced like
    that); `figure`, the figure to draw on, else a new one.
    """
    if figure is None:
        figure = new_figure((1.25, 0.8), trajectory)
        title_figure(figure, trajectory, "Merge tree")
    axes = figure.subplots(1, 2, sharey=True, width_ratios=[1.15, 1.0])
    kymograph(trajectory, log=log, vertical=True, words=False, ax=axes[0])  # words stand at the leaves of the tree
    merge_tree(trajectory, merges, labels=labels, log=log, ax=axes[1])
    axes[0].set_title("trajectories")
    axes[1].set_title("merge tree")
    axes[1].set_ylabel("")
    axes[1].tick_params(labelleft=False)
    return axes
