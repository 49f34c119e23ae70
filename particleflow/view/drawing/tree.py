"""Which clusters merge and when: the merge tree, alone or beside the trajectories with a common time axis."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.errors import ShapeError
from particleflow.view import style
from particleflow.view.drawing.base import (
    MAX_LINES,
    angles,
    drawn_times,
    emptiest_angle,
    frame_points,
    gather,
    mark_changes,
    new_axes,
    new_figure,
    projection,
    run_of_particles,
    set_title,
    thinned,
    time_axis,
    title_figure,
)
from particleflow.view.drawing.colors import check_labels, particle_colors
from particleflow.view.drawing.paths import kymograph
from particleflow.view.drawing.wording import name_ticks
from particleflow.view.findings import merge_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory import Trajectory


@dataclass(frozen=True)
class Leaves:
    """Where branches begin: `births` (L,), `sizes` (L,) in particles, order `along` (L,), and `colors` (L, 3)."""

    births: np.ndarray
    sizes: np.ndarray
    along: np.ndarray
    colors: np.ndarray


@dataclass(frozen=True)
class Joint:
    """Nodes `left` and `right` become node `made` at `time`; `inside` are its leaves."""

    left: int
    right: int
    made: int
    time: float
    inside: np.ndarray


def check_merges(merges: Any) -> np.ndarray:
    """Merges as an array (M, 4) of rows (a, b, time, size), sorted by time; a tree of the analysis is unpacked."""
    rows = merge_rows(merges)
    if rows.ndim != 2 or rows.shape[1] < 4:
        raise ShapeError(f"Argument `merges` must have rows (a, b, time, size), but has shape {rows.shape}.")
    return rows[np.argsort(rows[:, 2], kind="stable"), :4]


def tree_joints(merges: np.ndarray, along: np.ndarray) -> list[Joint]:
    """The joints of a tree over leaves 0 … L − 1; node L + i is made by the i-th merge.

    Rows may name clusters by such node numbers (SciPy's linkage) or by any leaf inside them; which one is meant is read
    off the largest number.
    """
    count = len(along)
    numbered = merges.size > 0 and merges[:, :2].max() >= count
    owner = np.arange(count)
    members = {leaf: np.array([leaf]) for leaf in range(count)}
    joints = []
    for index, (first, second, time, _) in enumerate(merges):
        pair = [int(name) if numbered or not 0 <= name < count else int(owner[int(name)]) for name in (first, second)]
        if pair[0] == pair[1] or not members.keys() >= set(pair):
            raise ShapeError(
                f"Row {index} of `merges` joins {first:g} and {second:g}, which are not two separate clusters."
            )
        left, right = sorted(pair, key=lambda node: float(along[members[node]].mean()))
        inside = np.concatenate([members.pop(left), members.pop(right)])
        members[count + index] = inside
        owner[inside] = count + index
        joints.append(Joint(left, right, count + index, float(time), inside))
    return joints


def leaf_places(joints: list[Joint], along: np.ndarray) -> np.ndarray:
    """A place in 0 … L − 1 for every leaf such that no two branches cross."""
    roots = {leaf: np.array([leaf]) for leaf in range(len(along))}
    for joint in joints:
        del roots[joint.left], roots[joint.right]
        roots[joint.made] = joint.inside
    ordered = sorted(roots.values(), key=lambda inside: float(along[inside].mean()))
    places = np.empty(len(along))
    places[np.concatenate(ordered)] = np.arange(len(along))
    return places


def _particle_places(run: Any) -> np.ndarray:
    """Where a particle starts along the picture beside the tree."""
    view = projection(run)
    coordinates = view(frame_points(run, 0))
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
    for frame in range(len(labels) - 1, -1, -1):  # backwards, so that the first appearance has the last word
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
    """Draw merges (a, b, time, size) as a tree with time upwards (or rightwards) and leaves in an uncrossed order.

    Leaves are particles, or with `labels` (T, N) the labels, born in their first frame. A branch is as wide as the
    square root of its share of particles and has their mean colour; clusters that have not merged by the end run to
    the last time. `merges` may also be a `MergeTree` of the analysis (with its labels). An ensemble shows its run 0.
    """
    from matplotlib.collections import LineCollection

    run = run_of_particles(trajectory, "A merge tree")
    ax = new_axes(ax, about=trajectory)
    log = time_axis(ax, run.times, log, axis="y" if vertical else "x")
    leaves = find_leaves(run, labels)
    rows = check_merges(merges)
    segments, colors, sizes = tree_branches(rows, leaves, drawn_times(run.times, log))
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
    joints = tree_joints(rows, leaves.along)
    order = np.argsort(leaf_places(joints, leaves.along))
    roots = np.arange(len(order))
    for joint in joints:
        roots[joint.inside] = joint.made
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


def tree_branches(rows: np.ndarray, leaves: Leaves, times: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Segments (K, 2, (time, place)), colours (K, 3) and sizes (K,): a stem for every node, a bar for every merge."""
    joints = tree_joints(rows, leaves.along)
    places = leaf_places(joints, leaves.along)
    start, end = float(times[0]), float(times[-1])
    tip = {leaf: (max(float(leaves.births[leaf]), start), float(places[leaf])) for leaf in range(len(places))}
    inside = {leaf: np.array([leaf]) for leaf in tip}
    segments, shades, sizes = [], [], []

    def add(first: tuple[float, float], last: tuple[float, float], shown: np.ndarray, size: float) -> None:
        segments.append([first, last])
        weights = np.maximum(leaves.sizes[shown], 1e-12)
        shades.append(weights @ leaves.colors[shown] / weights.sum())
        sizes.append(size)

    for joint in joints:
        time = float(np.clip(joint.time, start, end))
        weights = [float(leaves.sizes[inside[part]].sum()) for part in (joint.left, joint.right)]
        ends = [tip[part][1] for part in (joint.left, joint.right)]
        for part, weight in zip((joint.left, joint.right), weights, strict=True):
            add(tip[part], (time, tip[part][1]), inside[part], weight)
            del tip[part]
        add((time, ends[0]), (time, ends[1]), joint.inside, min(weights))
        inside[joint.made] = joint.inside
        tip[joint.made] = (time, float(np.average(ends, weights=np.maximum(weights, 1e-12))))
    for node, place in tip.items():
        add(place, (end, place[1]), inside[node], float(leaves.sizes[inside[node]].sum()))
    return np.array(segments).reshape(-1, 2, 2), np.array(shades).reshape(-1, 3), np.array(sizes)


def kymograph_with_tree(
    trajectory: "Trajectory", merges: Any, *, labels: Any = None, log: bool | str = "auto", figure: Any = None
) -> np.ndarray:
    """Draw the kymograph and the merge tree side by side, time upwards in both; returns the two axes.

    `labels` (T, N) are the clusters that the merges name, if these are not particles; both pictures are coloured by
    place.
    """
    if figure is None:
        figure = new_figure((1.25, 0.8), trajectory)
        title_figure(figure, trajectory, "Merge tree")
    axes = figure.subplots(1, 2, sharey=True, width_ratios=[1.15, 1.0])
    kymograph(trajectory, log=log, vertical=True, words=False, ax=axes[0])  # they stand at the leaves
    merge_tree(trajectory, merges, labels=labels, log=log, ax=axes[1])
    axes[0].set_title("trajectories")
    axes[1].set_title("merge tree")
    axes[1].set_ylabel("")
    axes[1].tick_params(labelleft=False)
    return axes
