"""The cells of a density: the length or area of the cell around each of its fixed points, and which cells touch.

A run that is carried by a density stores points that stay and masses that change. A cell is the set of places that are
nearer to its point than to any other: intervals of the line, arcs of the circle, rectangles of a lattice in the plane,
Voronoi cells of the sphere S². With the length or area V_i of a cell, its density is

    ρ_i = m_i / V_i.

Finite volumes on the sphere store the middles of the cells around a Fibonacci lattice, of which the lattice is known.
Points on the rings of Gauss and Legendre, as those of spherical harmonics, have the areas of that rule instead: cells
around the poles would be 6 % too large. Where there are no such cells (scattered points in the plane, more dimensions)
a run is shown by its points and their masses.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from particleflow._support.sphere_lattice import fibonacci
from particleflow.analysis.reading import FloatArray, IntArray, first_run, frame_points, frame_weights, masses_of
from particleflow.analysis.shape import common_norm
from particleflow.errors import ArgumentError

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

_MIDDLE = 0.25  # spacings: the largest distance of a cell's middle from the lattice point that the cell surrounds
_SAME = 1e-6  # of the extent of a lattice: coordinates that differ by less count as equal


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of a `kind` ("line", "circle", "plane", "sphere") around `points` (N, d), of length or area `volumes` (N,).

    `neighbours` (N, k) are the cells that touch each cell, filled up with the cell itself. `edges` are the ends of the
    cells along the line (N + 1,) or in angles (N + 1,), whose cells follow each other in the `order` (N,); in the plane
    along both axes, (n + 1,) and (m + 1,), where the order is that of the first axis, then the second. `corners`
    (N, k, 3) are those of the cells on the unit sphere, the last one repeated; `radius` is that of circle and sphere.
    `closed` is true for a box whose opposite ends meet (a torus).
    """

    kind: str
    points: FloatArray
    volumes: FloatArray
    neighbours: IntArray
    order: IntArray
    edges: tuple[FloatArray, ...] = ()
    corners: FloatArray | None = None
    radius: float | None = None
    closed: bool = False

    @property
    def even(self) -> float:
        """The density of a unit mass spread evenly, 1 / Σ V_i."""
        return 1.0 / float(self.volumes.sum())

    @property
    def shape(self) -> tuple[int, ...]:
        """How many cells there are along each axis of the picture."""
        return tuple(len(edge) - 1 for edge in self.edges)

    def ordered(self, values: FloatArray) -> FloatArray:
        """Values (..., N) of the cells along the axes of the picture: (..., N), or (..., n, m) in the plane."""
        return values[..., self.order].reshape(*values.shape[:-1], *self.shape)

    def distances(self, cells: IntArray, others: IntArray) -> FloatArray:
        """Distances (n, m) of the points of cells (n,) from those of others (m,); on a torus the shortest ones."""
        apart = np.abs(self.points[cells, None] - self.points[others][None])
        if self.closed:
            apart = np.minimum(apart, np.array([edge[-1] - edge[0] for edge in self.edges]) - apart)
        return np.linalg.norm(apart, axis=-1)


def is_density(trajectory: "Trajectory") -> bool:
    """Return whether a run is carried by masses on points that stay."""
    return masses_of(trajectory) is not None


def refuse_threshold(threshold: float | None) -> None:
    """Refuse a linking distance for a density, where it would mean nothing."""
    if threshold is not None:
        raise ArgumentError(
            f"A threshold ({threshold:g}) is a distance of particles, but this run is a density, whose points stay; "
            "its peaks are found without one."
        )


def cells_of(trajectory: "Trajectory") -> Cells | None:
    """Return the cells of a density, of an ensemble those of its run 0; None of particles, or where there are none."""
    if not is_density(trajectory):
        return None
    run = first_run(trajectory)
    points = frame_points(run, 0)
    if run.dimension > 3 or len(points) < 3 or not np.array_equal(points, frame_points(run, -1)):
        return None
    radius = common_norm(run, points)
    return _cells(points.tobytes(), points.shape, radius, run.facts.ends_meet)


def densities_of(trajectory: "Trajectory", cells: Cells, frames: IntArray) -> FloatArray:
    """Return the densities m_i / V_i in some frames of one run, (frames, N).

    trajectory: one run; cells: those of the run; frames: (k,) indices.
    """
    return np.stack([frame_weights(trajectory, int(frame)) for frame in frames]) / cells.volumes


@lru_cache(maxsize=8)
def _cells(buffer: bytes, shape: tuple[int, int], radius: float | None, closed: bool) -> Cells | None:
    """The cells of points given by their bytes, remembered: every frame of a density has the same points."""
    points = np.frombuffer(buffer).reshape(shape)
    makers = {(1, False): _line, (2, True): _circle, (2, False): _lattice, (3, True): _sphere}
    make = makers.get((shape[1], radius is not None))
    return None if make is None else make(points, radius, closed)


def _line(points: FloatArray, _: float | None, closed: bool) -> Cells | None:
    """Intervals between the middles of neighbours on the line."""
    order = np.argsort(points[:, 0], kind="stable")
    edges = _between(points[order, 0])
    return _in_a_row("line", points, order, edges, np.diff(edges), closed=closed)


def _circle(points: FloatArray, radius: float | None, _: bool) -> Cells | None:
    """Arcs between the middle angles of neighbours, of length radius · angle."""
    assert radius is not None
    angles = np.arctan2(points[:, 1], points[:, 0])
    order = np.argsort(angles, kind="stable")
    around = np.concatenate([angles[order[-1:]] - 2 * np.pi, angles[order], angles[order[:1]] + 2 * np.pi])
    edges = (around[1:] + around[:-1]) / 2
    return _in_a_row("circle", points, order, edges, radius * np.diff(edges), closed=True, radius=radius)


def _in_a_row(
    kind: str,
    points: FloatArray,
    order: IntArray,
    edges: FloatArray,
    widths: FloatArray,
    *,
    closed: bool,
    radius: float | None = None,
) -> Cells | None:
    """Cells that follow each other on a line or circle; None where two points coincide."""
    if not (widths > 0).all():
        return None
    before, after = np.roll(order, 1), np.roll(order, -1)
    if not closed:
        before[0], after[-1] = order[0], order[-1]
    volumes, neighbours = np.empty(len(order)), np.empty((len(order), 2), dtype=np.int64)
    volumes[order], neighbours[order] = widths, np.column_stack([before, after])
    return Cells(kind, points, volumes, neighbours, order, (edges,), None, radius, closed and radius is None)


def _between(values: FloatArray) -> FloatArray:
    """Edges halfway between increasing values; outer cells extend equally far outwards and inwards."""
    middle = (values[1:] + values[:-1]) / 2
    return np.concatenate([[2 * values[0] - middle[0]], middle, [2 * values[-1] - middle[-1]]])


def _lattice(points: FloatArray, _: float | None, closed: bool) -> Cells | None:
    """Rectangles around the points of a full lattice, every x with every y once; None for other points."""
    axes, places = [], []
    for column in points.T:
        rounded = np.round((column - column.min()) / (np.ptp(column) or 1.0) / _SAME)
        first, place = np.unique(rounded, return_index=True, return_inverse=True)[1:]
        axes.append(column[first])
        places.append(place)
    n, m = len(axes[0]), len(axes[1])
    number = places[0] * m + places[1]
    if n * m != len(points) or min(n, m) < 2 or len(np.unique(number)) != n * m:
        return None
    order = np.argsort(number)
    grid = np.pad(order.reshape(n, m), 1, "wrap") if closed else np.pad(order.reshape(n, m), 1, constant_values=-1)
    steps = [(i, j) for i in (0, 1, 2) for j in (0, 1, 2) if (i, j) != (1, 1)]
    found = np.stack([grid[i : i + n, j : j + m].ravel() for i, j in steps], axis=-1)
    neighbours = np.empty((n * m, len(steps)), dtype=np.int64)
    neighbours[order] = np.where(found < 0, order[:, None], found)
    edges = _between(axes[0]), _between(axes[1])
    volumes = np.empty(n * m)
    volumes[order] = np.outer(np.diff(edges[0]), np.diff(edges[1])).ravel()
    return Cells("plane", points, volumes, neighbours, order, edges, closed=closed)


def _sphere(points: FloatArray, radius: float | None, _: bool) -> Cells | None:
    """Voronoi cells on the sphere around the points, or around the Fibonacci lattice that they are the middles of.

    Cells touch where the convex hull of the points has an edge (the Delaunay triangulation of the sphere).
    """
    from scipy.spatial import ConvexHull, QhullError, SphericalVoronoi

    assert radius is not None
    units = points / np.linalg.norm(points, axis=1, keepdims=True)
    lattice = fibonacci(len(units))
    spacing = np.sqrt(4 * np.pi / len(units))
    units = lattice if np.abs(units - lattice).max() < _MIDDLE * spacing else units
    try:
        voronoi = SphericalVoronoi(units)
        triangles = ConvexHull(units).simplices
        voronoi.sort_vertices_of_regions()
        areas = voronoi.calculate_areas()
    except (QhullError, ValueError):  # all on one circle, or two at one place
        return None
    areas = areas if (gauss := _gauss_areas(units)) is None else gauss
    pairs = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    pairs = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)
    begin = np.searchsorted(pairs[:, 0], np.arange(len(points)))
    place = np.arange(len(pairs)) - begin[pairs[:, 0]]
    neighbours = np.repeat(np.arange(len(points))[:, None], int(place.max()) + 1, axis=1)
    neighbours[pairs[:, 0], place] = pairs[:, 1]
    most = max(map(len, voronoi.regions))
    corners = voronoi.vertices[[region + region[-1:] * (most - len(region)) for region in voronoi.regions]]
    volumes = radius**2 * areas
    return Cells("sphere", points, volumes, neighbours, np.arange(len(points)), (), corners, radius)


def _gauss_areas(units: FloatArray) -> FloatArray | None:
    """The areas 2π w_k / m of m points on each of the rings at the nodes of Gauss and Legendre; None for others."""
    rounded = np.round(units[:, 2], 9)
    levels, ring, sizes = np.unique(rounded, return_inverse=True, return_counts=True)
    if len(levels) > 2 * np.sqrt(len(units)) or len(levels) < 2 or np.ptp(sizes) > 0:
        return None
    nodes, weights = np.polynomial.legendre.leggauss(len(levels))
    return (2 * np.pi * weights / sizes[0])[ring] if np.abs(nodes - levels).max() < 1e-5 else None
