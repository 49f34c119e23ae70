"""The colours of particles: by label, by the cluster that they end in, or by the place that they come from."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.clusters.last_clusters import last_clusters
from particleflow.analysis.reading import first_run
from particleflow.analysis.run_character import character_of
from particleflow.analysis.samples import stored_points
from particleflow.analysis.shape import principal_components
from particleflow.errors import ShapeError
from particleflow.view import style
from particleflow.view.plots.base import cached_by_run, projection

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

_ONE_SIDED = 0.9  # length of the mean direction from the origin
_NEAREST = 0.25  # mean distances, added to those of clusters so that the weight of a pair stays finite


def particle_colors(trajectory: "Trajectory", labels: Any = None, frame: int | None = None) -> np.ndarray:
    """One colour a particle, (N, 3): by the given labels, else the trajectory's own, else the cluster it ends in.

    A run without a few tight clusters at its end is coloured by the places in its first frame, or in the sequence where
    the mask depends on these. Labels of shape (T, N) are read at `frame`; without a frame, at the first one.
    """
    run = first_run(trajectory)
    if labels is None:
        labels = own_labels(run)
    if labels is None:
        found = colored_clusters(run)
        return _first_colors(run) if found is None else found.colors[found.labels]
    labels = check_labels(run, labels)
    return style.label_colors(labels if labels.ndim == 1 else labels[0 if frame is None else frame])


def _first_colors(run: "Trajectory") -> np.ndarray:
    """Colours by the particles' first places in space, or by their positions in the sequence."""
    acting = character_of(run).attention
    if acting is None or acting.positions is None or not acting.positions.factors:
        return position_colors(projection(run)(stored_points(run, 0)))
    return position_colors(
        np.arange(run.count, dtype=float)[:, None] if run.positions is None else run.positions[:, None]
    )


def own_labels(run: "Trajectory") -> np.ndarray | None:
    """The labels stored with the particles of a run; None without labels, or where all are equal."""
    return None if run.labels is None or np.ptp(run.labels) == 0 else run.labels


def may_blend(run: "Trajectory", labels: Any) -> bool:
    """Whether merged particles show their mean colour: true for colours of first places, which are no categories.

    The mean colour of two labels or clusters could be that of a third: they are drawn as rings (see `crowds`).
    """
    return not has_labels(run, labels) and colored_clusters(run) is None


def has_labels(run: "Trajectory", labels: Any) -> bool:
    """Whether particles are coloured by labels, given ones or their own."""
    return labels is not None or own_labels(run) is not None


@dataclass(frozen=True)
class ColoredClusters:
    """The last clusters of a run: the frame they were found in, each particle's one (N,), and their colours.

    `categories` (k,) are numbers of the palette, the same in every theme of ours; `colors` (k, 3) are those of the
    theme in use.
    """

    frame: int
    labels: np.ndarray
    categories: np.ndarray
    colors: np.ndarray


@cached_by_run
def colored_clusters(run: "Trajectory") -> ColoredClusters | None:
    """The last clusters of one run (see `analysis.clusters.last_clusters`) with a colour for each; None without any."""
    found = last_clusters(run)
    if found is None:
        return None
    chosen = contrasting_categories(found.centres)
    return ColoredClusters(found.frame, found.labels, chosen, style.palette(int(chosen.max()) + 1)[chosen])


def contrasting_categories(centres: np.ndarray, known: dict[int, int] | None = None) -> np.ndarray:
    """Numbers of the palette (k,) for clusters at (k, d), such that near clusters have unlike hues.

    Minimises Σ_{i<j} w_ij / (difference of the colours i, j), w_ij = (¼ + distance/mean distance)⁻², by exchanging two
    colours, or one for an unused one, as long as that helps. Colours are compared in the light theme (or in that of the
    user), so that a cluster has one category in figures, movie and page, light or dark.

    Parameters: `known`, cluster → its number, of those that keep theirs.
    """
    count, kept = len(centres), dict(known or {})
    theme = style.current() if style.current().own else style.THEMES["light"]
    table = style.palette(max(count, len(theme.categories), *(number + 1 for number in kept.values())), theme)
    unlike = style.differences(table)
    distance = np.linalg.norm(centres[:, None] - centres[None], axis=-1)
    weight = (_NEAREST + distance / (distance.sum() / max(count * (count - 1), 1) or 1.0)) ** -2.0
    np.fill_diagonal(weight, 0.0)
    chosen, fixed = _begun(len(table), kept), np.isin(np.arange(len(table)), list(kept))

    def cost(order: np.ndarray) -> float:
        used = order[:count]
        return float((weight / (unlike[np.ix_(used, used)] + np.eye(count))).sum())

    lowest, improved = cost(chosen), True
    while improved:
        improved = False
        for first in np.flatnonzero(~fixed[:count]).tolist():
            for second in np.flatnonzero(~fixed[first + 1 :]) + first + 1:
                other = chosen.copy()
                other[[first, second]] = other[[second, first]]
                if (tried := cost(other)) < lowest - 1e-9:
                    chosen, lowest, improved = other, tried, True
    return chosen[:count]


def _begun(size: int, known: dict[int, int]) -> np.ndarray:
    """All numbers of a palette (size,), those of clusters first: known ones at their clusters, the others in order."""
    spare = iter([number for number in range(size) if number not in known.values()])
    return np.array([known[place] if place in known else next(spare) for place in range(size)])


def position_colors(coordinates: np.ndarray) -> np.ndarray:
    """Colours (N, 3) by place: by order (1-D), by angle (2-D), by longitude and latitude (3-D).

    A cloud in space that lies in one direction from the origin is coloured by the angle around its middle.
    """
    theme = style.current()
    if coordinates.shape[-1] == 1:
        order = np.argsort(np.argsort(coordinates[:, 0], kind="stable"), kind="stable")
        return style.ordered_colors(order / max(len(order) - 1, 1), theme)
    if coordinates.shape[-1] == 3 and _is_one_sided(coordinates):
        coordinates = principal_components(coordinates, 2)(coordinates)
    centred = coordinates - (0 if coordinates.shape[-1] == 3 else np.nanmean(coordinates, axis=0))
    angle = np.nan_to_num(np.arctan2(centred[:, 1], centred[:, 0]))
    if coordinates.shape[-1] == 2:
        return style.cyclic_colors(angle, theme)
    low, high = theme.lightness
    height = np.nan_to_num(centred[:, 2] / np.maximum(np.linalg.norm(centred, axis=-1), 1e-300))
    return style.oklch(low + (high - low) * (height + 1) / 2, np.full(height.shape, 0.13), angle + 0.5)


def _is_one_sided(coordinates: np.ndarray) -> bool:
    """Whether the directions of points (N, 3) are so alike that longitude and latitude would not tell them apart."""
    lengths = np.linalg.norm(coordinates, axis=-1, keepdims=True)
    directions = coordinates[np.isfinite(lengths[:, 0])] / np.maximum(lengths[np.isfinite(lengths[:, 0])], 1e-300)
    return len(directions) > 1 and bool(np.linalg.norm(directions.mean(axis=0)) > _ONE_SIDED)


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
