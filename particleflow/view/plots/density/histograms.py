"""Histograms of a run, frame by frame, which show a million particles as a few cells.

The drawn number of a particle is its angle on a circle, the cosine with a direction on a sphere, else its first
coordinate or principal component. Every histogram counts all particles, by mass. A density has its own cells instead,
or on a sphere the mean of those in a band.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from particleflow.analysis.density.cells import Cells, cells_of, densities_of
from particleflow.analysis.reading import frame_weights
from particleflow.analysis.samples import gather, stored_points, thinned
from particleflow.view.plots.base import angles, emptiest_angle, is_crowd, projection

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

_CELLS = (20, 90, 240)  # of a histogram: the fewest; the most of a cloud; the most of a crowd
_MOST_OWN_CELLS = 600  # of a density: neighbours of more are taken together
_FOLLOWED, _LOOKED_AT = 2000, 12  # particles, and frames of a crowd, that decide where a circle is cut open


@dataclass(frozen=True)
class Ruler:
    """The number by which points are drawn, (N, d) ↦ (N,), with its name and its ends."""

    measure: Callable[[np.ndarray], np.ndarray]
    name: str
    ends: tuple[float, float]


def cell_count(particles: int) -> int:
    """The number of cells of a histogram of N particles: max(clip(2√N, 20, 90), min(√N / 3, 240))."""
    root, (fewest, most, finest) = np.sqrt(particles), _CELLS
    return int(max(np.clip(2 * root, fewest, most), min(root / 3, finest)))


def ruler_of(run: "Trajectory", frames: np.ndarray) -> Ruler:
    """The ruler of one run, for the frames that are drawn: they decide its ends, and where a circle is cut open."""
    view = projection(run)
    if view.kind == "circle":
        looked_at = frames[thinned(len(frames), _LOOKED_AT)] if is_crowd(run) else frames  # reading takes longest
        cut = emptiest_angle(angles(view(gather(run, looked_at, thinned(run.count, _FOLLOWED)))))
        return Ruler(lambda points: angles(view(points), cut), "angle θ", (cut, cut + 2 * np.pi))
    if view.spherical:
        mean = frame_weights(run, 0) @ stored_points(run, 0) / view.radius
        length = float(np.linalg.norm(mean))
        axis = mean / length if length > 1e-3 else np.eye(run.dimension)[0]
        name = "cosine with the first mean direction" if length > 1e-3 else "$x_1$"
        return Ruler(lambda points: points @ axis / view.radius, name, (-1.0, 1.0))
    low, high = np.inf, -np.inf
    for frame in frames:
        places = view(stored_points(run, int(frame)))[:, 0]
        known = places[np.isfinite(places)]
        low, high = min(low, float(known.min(initial=np.inf))), max(high, float(known.max(initial=-np.inf)))
    low, high = (low, high) if low <= high else (0.0, 1.0)
    pad = 0.02 * (high - low) or 0.5
    return Ruler(lambda points: view(points)[:, 0], view.labels[0], (low - pad, high + pad))


def densities(
    run: "Trajectory", frames: np.ndarray, ruler: Ruler, cells: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The edges (G + 1,) of the cells and the density (T, G) of the mass in them, one frame after the other."""
    own = cells_of(run)
    if own is not None:
        return _of_cells(run, frames, ruler, own, cells)
    low, high = ruler.ends
    cells = cells or cell_count(run.count)
    edges, rows = np.linspace(low, high, cells + 1), []
    for frame in frames:
        places = (ruler.measure(stored_points(run, int(frame))) - low) * (cells / (high - low))
        known = np.isfinite(places)
        cell = np.clip(places[known].astype(np.int64), 0, cells - 1)
        rows.append(np.bincount(cell, frame_weights(run, int(frame))[known], cells))
    return edges, np.stack(rows) / np.diff(edges)


def _of_cells(
    run: "Trajectory", frames: np.ndarray, ruler: Ruler, own: Cells, bands: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """The same of a density: its cells as they are, in the plane their sums along the second axis.

    On a sphere the mean density of a band, times the area 2πR² of a band of unit height: bands that have more cells
    than others by chance have no more mass. The circle is cut open where there is least mass over time.
    """
    found = densities_of(run, own, frames)
    if own.kind == "sphere":
        return _in_bands(found, ruler, own, bands or cell_count(run.count))
    edges, along = own.edges[0], own.ordered(found)
    if own.kind == "plane":
        along = along @ np.diff(own.edges[1])
    mean = along.mean(axis=0)
    if own.kind == "circle" and mean.max() > 1.2 * mean.min():
        cut = int(mean.argmin())
        along, edges = np.roll(along, -cut, axis=1), np.concatenate([edges[cut:-1], edges[: cut + 1] + 2 * np.pi])
        edges = edges - 2 * np.pi * (edges[0] > 0)
    return _taken_together(edges, along, bands or _MOST_OWN_CELLS)


def _taken_together(edges: np.ndarray, along: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """At most `most` cells, with neighbours merged: cells finer than pixels would be lost in a picture."""
    size = -(-along.shape[1] // most)
    if size == 1:
        return edges, along
    first = np.arange(0, along.shape[1], size)
    masses = np.add.reduceat(along * np.diff(edges), first, axis=1)
    edges = np.append(edges[first], edges[-1])
    return edges, masses / np.diff(edges)


def _in_bands(found: np.ndarray, ruler: Ruler, own: Cells, bands: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges (G + 1,) of bands of equal height on a sphere, and 2πR² times the mean density in each, (T, G)."""
    assert own.radius is not None
    edges = np.linspace(*ruler.ends, bands + 1)
    band = np.clip(np.searchsorted(edges, ruler.measure(own.points), side="right") - 1, 0, bands - 1)
    areas = np.bincount(band, own.volumes, bands)
    masses = np.stack([np.bincount(band, row * own.volumes, bands) for row in found])
    filled = np.interp(np.arange(bands), np.flatnonzero(areas > 0), np.arange(np.count_nonzero(areas > 0)))
    means = masses[:, areas > 0] / areas[areas > 0]  # a band without a cell is like its neighbour
    return edges, 2 * np.pi * own.radius**2 * means[:, np.rint(filled).astype(int)]


def around(angle: np.ndarray, weights: np.ndarray, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """The cell (N,) of every angle, 0 at −π, and the density (cells,) of their mass on the circle, 1/2π if even."""
    cell = np.minimum((np.mod(angle + np.pi, 2 * np.pi) * (cells / (2 * np.pi))).astype(np.int64), cells - 1)
    return cell, np.bincount(cell, weights, cells) * (cells / (2 * np.pi))
