"""How many particles are where: histograms of a run, frame by frame, which draw a million particles as a few cells.

The drawn number of a particle is its angle on a circle, the cosine with a direction on a sphere, else its first
coordinate or principal component. Every histogram counts all particles, by mass.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from particleflow.analysis.frames import frame_weights
from particleflow.view.drawing.base import angles, emptiest_angle, frame_points, gather, is_crowd, projection, thinned

if TYPE_CHECKING:
    from particleflow.trajectory import Trajectory

_CELLS = (20, 90, 240)  # the fewest; the most of a cloud; the most of a crowd
_FOLLOWED, _LOOKED_AT = 2000, 12  # particles, and frames of a crowd, that say where a circle is cut open


@dataclass(frozen=True)
class Ruler:
    """The drawn number of points (N, d) ↦ (N,), what it is called, and its ends."""

    measure: Callable[[np.ndarray], np.ndarray]
    name: str
    ends: tuple[float, float]


def cell_count(particles: int) -> int:
    """How many cells a histogram has: twice the root of the number of particles up to 90, a crowd's a third of it."""
    root, (fewest, most, finest) = np.sqrt(particles), _CELLS
    return int(max(np.clip(2 * root, fewest, most), min(root / 3, finest)))


def ruler_of(run: "Trajectory", frames: np.ndarray) -> Ruler:
    """The ruler of one run, for the frames that are drawn."""
    view = projection(run)
    if view.kind == "circle":
        looked_at = frames[thinned(len(frames), _LOOKED_AT)] if is_crowd(run) else frames  # reading takes longest
        cut = emptiest_angle(angles(view(gather(run, looked_at, thinned(run.count, _FOLLOWED)))))
        return Ruler(lambda points: angles(view(points), cut), "angle θ", (cut, cut + 2 * np.pi))
    if view.spherical:
        mean = frame_weights(run, 0) @ frame_points(run, 0) / view.radius
        length = float(np.linalg.norm(mean))
        axis = mean / length if length > 1e-3 else np.eye(run.dimension)[0]
        name = "cosine with the first mean direction" if length > 1e-3 else "$x_1$"
        return Ruler(lambda points: points @ axis / view.radius, name, (-1.0, 1.0))
    low, high = np.inf, -np.inf
    for frame in frames:
        places = view(frame_points(run, int(frame)))[:, 0]
        known = places[np.isfinite(places)]
        low, high = min(low, float(known.min(initial=np.inf))), max(high, float(known.max(initial=-np.inf)))
    low, high = (low, high) if low <= high else (0.0, 1.0)
    pad = 0.02 * (high - low) or 0.5
    return Ruler(lambda points: view(points)[:, 0], view.labels[0], (low - pad, high + pad))


def densities(
    run: "Trajectory", frames: np.ndarray, ruler: Ruler, cells: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The edges (G + 1,) of the cells and the density (T, G) of the mass in them, one frame after the other."""
    low, high = ruler.ends
    cells = cells or cell_count(run.count)
    edges, rows = np.linspace(low, high, cells + 1), []
    for frame in frames:
        places = (ruler.measure(frame_points(run, int(frame))) - low) * (cells / (high - low))
        known = np.isfinite(places)
        cell = np.clip(places[known].astype(np.int64), 0, cells - 1)
        rows.append(np.bincount(cell, frame_weights(run, int(frame))[known], cells))
    return edges, np.stack(rows) / np.diff(edges)


def around(angle: np.ndarray, weights: np.ndarray, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """The cell (N,) of every angle, 0 at −π, and the density (cells,) of their mass on the circle, 1/2π if even."""
    cell = np.minimum((np.mod(angle + np.pi, 2 * np.pi) * (cells / (2 * np.pi))).astype(np.int64), cells - 1)
    return cell, np.bincount(cell, weights, cells) * (cells / (2 * np.pi))
