"""Which clusters merge and when: the merge tree, alone or beside the trajectories with a common time axis."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.clusters.separation import CHAINS
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
    hatch_span,
    height_left,
    mark_changes,
    new_axes,
    new_figure,
    projection,
    run_of_particles,
    set_title,
    time_axis,
    title_figure,
)
from particleflow.view.plots.colors import check_labels, has_labels, may_blend, particle_colors
from particleflow.view.plots.crowds import nested_shares
from particleflow.view.plots.space.paths import kymograph
from particleflow.view.plots.word_labels import name_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory.trajectory import Trajectory

_BRACKET_OPACITY = 0.22  # of the bar from the frame before a merge to the frame after it
_LEAST_STRIPE = 0.7  # points: narrower ones would blur to a colour that is not there, and are left out
STRIPES_NOTE = "stripes of a branch: shares of the {} in it"
SPLITS_NOTE = "branches that begin late split off"


@dataclass(frozen=True)
class Leaves:
    """Where branches begin: `births` (L,), `sizes` (L,) in particles, order `along` (L,), and colours.

    `parts` (L, K) are the particles of each leaf in each of the colours `tones` (K, 3); without tones, parts are the
    mean colours (L, 3) of leaves.
    """

    births: np.ndarray
    sizes: np.ndarray
    along: np.ndarray
    parts: np.ndarray
    tones: np.ndarray | None = None

    def bands(self, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The colours (k, 3) of a branch with these leaves and the shares (k,) of its width, the whole width first."""
        if self.tones is None:
            weights = np.maximum(self.sizes[members], 1e-12)
            return (weights @ self.parts[members] / weights.sum())[None], np.ones(1)
        held = self.parts[members].sum(axis=0)
        here = np.flatnonzero(held)
        shares = nested_shares(np.zeros(len(here), int), self.tones[here], held[here])
        order = np.argsort(-shares, kind="stable")
        return self.tones[here[order]], shares[order]


def check_merges(merges: Any) -> np.ndarray:
    """Merges as rows (a, b, time, size), sorted by time; those of the analysis end with the half width of the time."""
    rows = merge_rows(merges)
    if rows.ndim != 2 or rows.shape[1] < 4:
        raise ShapeError(f"Argument `merges` must have rows (a, b, time, size), but has shape {rows.shape}.")
    return rows[np.argsort(rows[:, 2], kind="stable"), :5]


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
    parts, tones = colors, None
    if not may_blend(run, None):
        tones, number = np.unique(colors, axis=0, return_inverse=True)
        parts = np.eye(len(tones))[number.ravel()]
    if labels is None:
        return Leaves(np.full(run.count, run.times[0]), np.ones(run.count), places, parts, tones)
    labels = np.atleast_2d(check_labels(run, labels))
    count = int(labels.max(initial=-1)) + 1
    births, sizes, along = np.full(count, float(run.times[-1])), np.zeros(count), np.zeros(count)
    held = np.zeros((count, parts.shape[1]))
    for frame in range(len(labels) - 1, -1, -1):  # backwards, so that a cluster's first frame overwrites later ones
        row = labels[frame]
        kept = row >= 0
        number = np.bincount(row[kept], minlength=count)
        here = number > 0
        births[here], sizes[here] = run.times[frame], number[here]
        along[here] = np.bincount(row[kept], places[kept], count)[here] / number[here]
        held[here] = np.stack([np.bincount(row[kept], each[kept], count) for each in parts.T], 1)[here]
    return Leaves(births, sizes, along, held if tones is not None else held / np.maximum(sizes, 1)[:, None], tones)


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
    square root of its share of particles; a branch of several labels (or last clusters) has stripes as wide as their
    shares, the largest outside; colours of first places are averaged. Clusters that have not merged by the end run to
    the last time. A merge of the analysis is drawn in the middle between the two frames that it happened between, with
    a light bar from one to the other. Times at which clusters are not separated are hatched. An ensemble shows its run
    0.

    Parameters: `merges`, rows or a `MergeTree` of the analysis (with its `labels`); `log`, a logarithmic time axis
    (True, False, or "auto": where the frames are spaced like that); `vertical`, time upwards; `ax`, the axes to draw
    on, else new ones. Returns the axes.
    """
    from matplotlib.collections import LineCollection, PolyCollection

    run = run_of_particles(trajectory, "A merge tree")
    leaves, rows = find_leaves(run, labels), check_merges(merges)
    ax = new_axes(ax, about=trajectory, note=tree_note(run, leaves, rows))
    log = time_axis(ax, run.times, log, unit=run.facts.time_unit, axis="y" if vertical else "x")
    segments, colors, sizes, shares = tree_segments(rows, leaves, drawn_times(run.times, log))
    bars = bracket_bars(rows, leaves, drawn_times(run.times, log))
    lines, boxes = (each[..., ::-1] if vertical else each for each in (segments, bars))
    widths = style.current().line_width * (0.45 + 2.6 * np.sqrt(sizes / max(run.count, 1))) * shares
    seen = (shares == 1) | (widths >= _LEAST_STRIPE)
    stems = LineCollection(list(lines[seen]), colors=colors[seen], linewidths=widths[seen], capstyle="round")
    ax.add_collection(stems, autolim=False)
    shade = style.current().muted
    ax.add_collection(PolyCollection(list(boxes), facecolor=shade, alpha=_BRACKET_OPACITY, zorder=1), autolim=False)
    limits, ticks = (ax.set_xlim, ax.set_xticks) if vertical else (ax.set_ylim, ax.set_yticks)
    limits(-1, len(leaves.along))
    ticks([])
    for span in getattr(merges, "not_separated", ()):
        hatch_span(ax, span, CHAINS, axis="y" if vertical else "x")
    if run.words is not None:
        _name_leaves(ax, run, rows, leaves, labels, vertical)
    (ax.set_xlabel if vertical else ax.set_ylabel)("particles, by cluster" if labels is None else "clusters")
    mark_changes(ax, run, axis="y" if vertical else "x")
    set_title(ax, run)
    return ax


def tree_note(run: Any, leaves: Leaves, rows: np.ndarray) -> str:
    """Small print on stripes, where a branch holds several labels or clusters, and on branches that begin late."""
    striped = bool((tree_segments(rows, leaves, run.times)[3] < 1).any())
    late = bool((leaves.births > leaves.births.min(initial=np.inf)).any())
    stripes = STRIPES_NOTE.format("labels" if has_labels(run, None) else "clusters")
    return " · ".join([stripes] * striped + [SPLITS_NOTE] * late)


def _name_leaves(ax: "Axes", run: Any, rows: np.ndarray, leaves: Leaves, labels: Any, vertical: bool) -> None:
    """Words at the leaves, or of the clusters that they end in, as far as there is room for them."""
    branches, inside, order = branches_and_leaves(rows, leaves, float(run.times[0]), float(run.times[-1]))
    roots = np.arange(len(order))
    for number in range(len(order), len(branches)):
        roots[inside[number]] = number
    box = ax.get_position()
    length = 0.95 * 72 * box.width * ax.figure.get_figwidth() if vertical else height_left(ax)  # type: ignore[union-attr]
    words = _leaf_words(run.words, None if labels is None else np.atleast_2d(check_labels(run, labels)))
    name_ticks(ax, "x" if vertical else "y", [words[leaf] for leaf in order], roots[order], length)


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
    branches = grow_branches(rows[:, :4], leaves.births, leaves.sizes, begin=begin, end=end)
    inside = order_leaves(branches, leaves.along)
    for branch, members in zip(branches, inside, strict=True):
        branch.size = float(leaves.sizes[members].sum())
    roots = sorted(roots_of(branches), key=lambda root: float(leaves.along[inside[root]].mean()))
    order = np.concatenate([inside[root] for root in roots])
    place_branches(branches, order.tolist(), range(len(branches)))
    return branches, inside, order


def tree_segments(
    rows: np.ndarray, leaves: Leaves, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Segments (K, 2, (time, place)), colours (K, 3), sizes (K,) and shares (K,) of their width, in drawing order.

    Every branch has a stem and every merge a bar; one of several colours is drawn once for each, narrower each time.
    """
    branches, inside, _ = branches_and_leaves(rows, leaves, float(times[0]), float(times[-1]))
    segments, shades, sizes, widths = [], [], [], []

    def add(first: tuple[float, float], last: tuple[float, float], number: int, size: float) -> None:
        for color, share in zip(*leaves.bands(inside[number]), strict=True):
            segments.append([first, last])
            shades.append(color)
            sizes.append(size)
            widths.append(share)

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
    order = np.argsort(-np.array(widths), kind="stable")  # the stripes inside lie over all joints
    return (
        np.array(segments).reshape(-1, 2, 2)[order], np.array(shades).reshape(-1, 3)[order],
        np.array(sizes)[order], np.array(widths)[order],
    )  # fmt: skip


def bracket_bars(rows: np.ndarray, leaves: Leaves, times: np.ndarray) -> np.ndarray:
    """Boxes (M, 4, (time, place)): for every merge the saved times around it, across its two parts.

    There are none where the rows have no half widths.
    """
    branches = branches_and_leaves(rows, leaves, float(times[0]), float(times[-1]))[0]
    boxes = []
    for merged, row in zip(branches[len(leaves.births) :], rows if rows.shape[1] > 4 else (), strict=False):
        low, high = (branches[child].place for child in merged.children)
        before, after = np.clip((row[2] - row[4], row[2] + row[4]), times[0], times[-1])
        boxes.append([(before, low), (before, high), (after, high), (after, low)])
    return np.array(boxes).reshape(-1, 4, 2)


def kymograph_with_tree(
    trajectory: "Trajectory", merges: Any, *, labels: Any = None, log: bool | str = "auto", figure: Any = None
) -> np.ndarray:
    """Draw the kymograph and the merge tree side by side, time upwards in both; returns the two axes.

    Both pictures have the same colours.

    Parameters: `merges`, rows (a, b, time, size) or a `MergeTree`; `labels` (T, N), the clusters that the merges name,
    if these are not particles; `log`, a logarithmic time axis (True, False, or "auto": where the frames are spaced like
    that); `figure`, the figure to draw on, else a new one.
    """
    if figure is None:
        run = run_of_particles(trajectory, "A merge tree")
        figure = new_figure((1.25, 0.8), trajectory, tree_note(run, find_leaves(run, labels), check_merges(merges)))
        title_figure(figure, trajectory, "Merge tree")
    axes = figure.subplots(1, 2, sharey=True, width_ratios=[1.15, 1.0])
    kymograph(trajectory, log=log, vertical=True, words=False, ax=axes[0])  # words stand at the leaves of the tree
    merge_tree(trajectory, merges, labels=labels, log=log, ax=axes[1])
    axes[0].set_title("trajectories")
    axes[1].set_title("merge tree")
    axes[1].set_ylabel("")
    axes[1].tick_params(labelleft=False)
    return axes
