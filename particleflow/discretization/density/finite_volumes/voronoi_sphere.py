"""The sphere S² cut into the Voronoi cells of a Fibonacci lattice: any number of cells, nearly equal, without poles.

The lattice winds around the sphere by the golden angle, at equal steps of height; its cells are hexagons but for a few,
and no axis of coordinates is crowded (Swinbank and Purser, Fibonacci grids, 2006). A face is the arc between two cells,
on the great circle midway between their generators g: its normal is (g_right − g_left)/|g_right − g_left| all along
it, and the line of the generators crosses it at a right angle, which is what a flux from two values needs.

In a cell the density is ρ_i + φ_i ⟨∇ρ_i, x − c_i⟩ about its centroid c_i, with the gradient of least squares over the
neighbours and the largest φ_i ≤ 1 for which no face sees less or more than the cell and its neighbours have (Barth and
Jespersen 1989).
"""

from functools import lru_cache
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from particleflow._support.sphere_lattice import fibonacci
from particleflow.discretization.density.finite_volumes.mesh import AbstractMesh, CellGeometry, FaceGeometry, Nodes


class Charted(NamedTuple):
    """Places in squares that make up a surface: the number of the square (n,), and coordinates in [−1, 1] (n, 2)."""

    chart: np.ndarray
    coordinates: np.ndarray


class VoronoiSphere(AbstractMesh):
    """The sphere {|x| = radius} in R³ in `number` cells; all other fields are those of the unit sphere."""

    radius: Float[Array, ""]
    unit_centres: Float[Array, "n 3"]
    areas: Float[Array, " n"]
    unit_faces: Float[Array, "m 3"]
    unit_normals: Float[Array, "m 3"]
    lengths: Float[Array, " m"]
    gaps: Float[Array, " m"]
    left: Int[Array, " m"]
    right: Int[Array, " m"]
    from_left: Float[Array, "m 3"]
    from_right: Float[Array, "m 3"]
    number: int = eqx.field(static=True)

    @staticmethod
    def of(radius: Array, cells: int) -> "VoronoiSphere":
        """The mesh with so many cells, in the precision of the radius."""
        parts = _cut(cells)
        arrays = {
            name: jnp.asarray(array, radius.dtype if array.dtype.kind == "f" else None)
            for name, array in parts._asdict().items()
            if name not in ("generators", "triangles", "triangle_areas", "triangle_cells")
        }
        return VoronoiSphere(radius=radius, number=cells, **arrays)

    @property
    def count(self) -> int:
        """The number of cells that the mesh was made with."""
        return self.number

    @property
    def cells(self) -> CellGeometry:
        """The centroids, and the areas on the sphere of this radius."""
        return CellGeometry(self.radius * self.unit_centres, jnp.square(self.radius) * self.areas)

    @property
    def faces(self) -> FaceGeometry:
        """The middles of the arcs; normals along the line of the two generators, whose arc is the distance."""
        return FaceGeometry(self.radius * self.unit_faces, self.unit_normals, self.radius * self.gaps)

    def beside(self, values: Float[Array, " n"]) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """The values of both cells."""
        return values[self.left], values[self.right]

    def reconstructed(self, density: Float[Array, " n"]) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """ρ_i + φ_i ⟨∇ρ_i, x_f − c_i⟩ from both sides."""
        mine, theirs = self.beside(density)
        # Least squares weigh every neighbour's difference; both sides of a face see one difference.
        gradient = self._summed((theirs - mine)[:, None] * self.from_left, (mine - theirs)[:, None] * self.from_right)
        rises = [
            jnp.sum(gradient[cell] * (self.unit_faces - self.unit_centres[cell]), axis=1)
            for cell in (self.left, self.right)
        ]
        lowest = jnp.minimum(density, self._extreme(jax.ops.segment_min, theirs, mine))
        highest = jnp.maximum(density, self._extreme(jax.ops.segment_max, theirs, mine))
        shares = [
            _largest_share(rise, (highest - density)[cell], (lowest - density)[cell])
            for rise, cell in zip(rises, (self.left, self.right), strict=True)
        ]
        share = self._extreme(jax.ops.segment_min, *shares)
        found = (
            jnp.maximum(density[cell] + share[cell] * rise, 0.0)
            for rise, cell in zip(rises, (self.left, self.right), strict=True)
        )
        left, right = found
        return left, right

    def onto_cells(self, left: Float[Array, " m"], right: Float[Array, " m"]) -> Float[Array, " n"]:
        """The sum over the arcs of a cell."""
        lengths = self.radius * self.lengths
        return self._summed(lengths * left, lengths * right) / self.cells.volumes

    def nodes(self) -> Nodes:
        """The middles of the triangles between the generator of a cell and its arcs, one for each arc."""
        parts = _cut(self.number)
        order = np.argsort(parts.triangle_cells, kind="stable")
        cells = parts.triangle_cells[order]
        place = np.arange(len(cells)) - np.searchsorted(cells, cells)
        points = np.repeat(np.asarray(parts.unit_centres)[:, None], place.max() + 1, axis=1)
        weights = np.zeros(points.shape[:2])
        points[cells, place] = parts.triangles[order]
        weights[cells, place] = parts.triangle_areas[order] / parts.areas[cells]
        return Nodes(float(self.radius) * points, weights)

    def containing(self, points: np.ndarray) -> np.ndarray:
        """The cell whose generator is nearest."""
        from scipy.spatial import KDTree

        directions = points / np.linalg.norm(points, axis=1, keepdims=True)
        return np.asarray(KDTree(_cut(self.number).generators).query(directions)[1])

    def charts(self) -> "CubeCharts":
        """The six sides of a cube around the sphere."""
        return CubeCharts(self.radius)

    def _summed(self, left: Array, right: Array) -> Array:
        """The sum over all faces of each cell."""
        one, other = (
            jax.ops.segment_sum(part, cell, self.number) for part, cell in ((left, self.left), (right, self.right))
        )
        return one + other

    def _extreme(self, segment: object, left: Array, right: Array) -> Array:
        """The least or largest number over all faces of each cell."""
        numbers, cells = jnp.concatenate([left, right]), jnp.concatenate([self.left, self.right])
        return segment(numbers, cells, self.number)  # pyright: ignore[reportCallIssue]


class CubeCharts:
    """The sphere of a `radius` as the six sides of a cube around it, in NumPy, outside of compiled programs."""

    count = 6

    def __init__(self, radius: Float[Array, ""]):
        self.radius = radius

    def charted(self, points: np.ndarray) -> Charted:
        """The chart of the largest coordinate and its sign, and longitude and latitude in it, both within π/4."""
        units = _directions(points)
        rows, axis = np.arange(len(units)), np.argmax(np.abs(units), axis=1)
        towards, beside, above = (units[rows, (axis + turn) % 3] for turn in range(3))
        angles = np.stack([np.arctan2(beside, np.abs(towards)), np.arcsin(above)], axis=1)
        return Charted(2 * axis + (towards < 0), 4 / np.pi * angles)

    def at(self, charted: Charted) -> np.ndarray:
        """The points of charted places, inverse to `charted`: every coordinate is an entire function of both angles."""
        rows, axis = np.arange(len(charted.chart)), charted.chart // 2
        longitude, latitude = np.pi / 4 * charted.coordinates.T
        sign = 1 - 2 * (charted.chart % 2)
        parts = (sign * np.cos(longitude) * np.cos(latitude), np.sin(longitude) * np.cos(latitude), np.sin(latitude))
        points = np.empty((len(rows), 3))
        for turn, part in enumerate(parts):
            points[rows, (axis + turn) % 3] = part
        return float(self.radius) * points


def _largest_share(rise: Array, most: Array, least: Array) -> Array:
    """The largest φ ≤ 1 with least ≤ φ rise ≤ most."""
    bound = jnp.where(rise > 0, most, least)
    some = rise != 0
    return jnp.where(some, jnp.minimum(1.0, bound / jnp.where(some, rise, 1.0)), 1.0)


class _Parts(NamedTuple):
    """The unit sphere in cells: generators, triangles from the generators to the arcs, and the fields of the mesh."""

    generators: np.ndarray
    triangles: np.ndarray
    triangle_areas: np.ndarray
    triangle_cells: np.ndarray
    unit_centres: np.ndarray
    areas: np.ndarray
    unit_faces: np.ndarray
    unit_normals: np.ndarray
    lengths: np.ndarray
    gaps: np.ndarray
    left: np.ndarray
    right: np.ndarray
    from_left: np.ndarray
    from_right: np.ndarray


@lru_cache(maxsize=4)
def _cut(cells: int) -> _Parts:
    """Cut the unit sphere into cells."""
    from scipy.spatial import SphericalVoronoi

    generators = fibonacci(cells)
    voronoi = SphericalVoronoi(generators)
    voronoi.sort_vertices_of_regions()
    cell = np.repeat(np.arange(cells), [len(region) for region in voronoi.regions])
    begin = np.concatenate(voronoi.regions)
    end = np.concatenate([np.roll(region, -1) for region in voronoi.regions])
    corners = (generators[cell], voronoi.vertices[begin], voronoi.vertices[end])
    triangle_areas, triangles = _triangle_areas(*corners), _directions(corners[0] + corners[1] + corners[2])
    areas = np.bincount(cell, weights=triangle_areas, minlength=cells)
    weighted = triangle_areas[:, None] * triangles
    centres = _directions(np.stack([np.bincount(cell, weights=column, minlength=cells) for column in weighted.T], 1))
    first, second = _paired(begin, end)
    left, right = cell[first], cell[second]
    ends = voronoi.vertices[begin[first]], voronoi.vertices[end[first]]
    apart = generators[right] - generators[left]
    from_left, from_right = _gradient_weights(centres, left, right)
    return _Parts(
        generators, triangles, triangle_areas, cell, centres, areas, _directions(ends[0] + ends[1]),
        _directions(apart), _arcs(ends[0] - ends[1]), _arcs(apart), left.astype(np.int32), right.astype(np.int32),
        from_left, from_right,
    )  # fmt: skip


def _paired(begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two sides of every arc: both cells have its two vertices."""
    order = np.lexsort((np.maximum(begin, end), np.minimum(begin, end)))
    return order[::2], order[1::2]


def _gradient_weights(centres: np.ndarray, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(Σ d dᵀ/|d|²)⁻¹ d/|d|² in the tangent plane of each cell, d the displacement to each neighbour."""
    sides = []
    for here, there in ((left, right), (right, left)):
        way = centres[there] - centres[here]
        way -= np.sum(way * centres[here], axis=1, keepdims=True) * centres[here]
        sides.append((here, way, 1 / np.sum(way**2, axis=1)))
    matrices = np.einsum("ni,nj->nij", centres, centres)  # makes the matrices regular, across the tangent plane
    for here, way, weight in sides:
        np.add.at(matrices, here, weight[:, None, None] * way[:, :, None] * way[:, None, :])
    inverse = np.linalg.inv(matrices)
    found = [np.einsum("nij,nj->ni", inverse[here], weight[:, None] * way) for here, way, weight in sides]
    return found[0], found[1]


def _triangle_areas(one: np.ndarray, two: np.ndarray, three: np.ndarray) -> np.ndarray:
    """The excess E of spherical triangles, tan(E/2) = |⟨a, b × c⟩|/(1 + ⟨a, b⟩ + ⟨b, c⟩ + ⟨c, a⟩) (Eriksson 1990)."""
    volume = np.abs(np.sum(one * np.cross(two, three), axis=1))
    cosines = sum(np.sum(a * b, axis=1) for a, b in ((one, two), (two, three), (three, one)))
    return 2 * np.arctan2(volume, 1 + cosines)


def _directions(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _arcs(chords: np.ndarray) -> np.ndarray:
    """The lengths of arcs of the unit sphere with these chords."""
    return 2 * np.arcsin(0.5 * np.linalg.norm(chords, axis=1))
