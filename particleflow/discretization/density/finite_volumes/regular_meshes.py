"""Regular meshes: the circle, and boxes in R^d, with walls or closed to a torus.

Along each axis the density in a cell is a straight line through its mean, with the slope of Harten and Osher (1987),

    s_i = minmod(Δ_{i−½} + ½ minmod(D_{i−1}, D_i), Δ_{i+½} − ½ minmod(D_i, D_{i+1})),    |s_i| ≤ 2ρ_i,

Δ the differences of neighbours and D the differences of those. It makes no new extrema, up to third order, and unlike
slopes that vanish at every extremum it is of second order at those that are smooth. The last condition keeps both ends
of the line from being negative.
"""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow.discretization.density.finite_volumes.mesh import (
    AbstractMesh,
    CellGeometry,
    FaceGeometry,
    GridShape,
    HasBoundary,
    Nodes,
    product,
)

_NODES = 8  # Gauss nodes along an axis of a cell: enough for a density that jumps inside of one


class AbstractRegular(AbstractMesh):
    """A grid of equal cells; the last axis runs fastest.

    There are `sides` cells of length `spacings` along each axis, and the axes that are `closed` are rings.
    """

    sides: eqx.AbstractVar[tuple[int, ...]]
    closed: eqx.AbstractVar[tuple[bool, ...]]

    @property
    @abc.abstractmethod
    def spacings(self) -> Float[Array, " k"]:
        """The length of a cell along each axis."""

    @abc.abstractmethod
    def placed(self, coordinates: list[Any]) -> Any:
        """The points (n, d) at some coordinates along the axes, in cells from the middle of the first one."""

    @abc.abstractmethod
    def direction(self, axis: int, coordinates: list[Any]) -> Float[Array, "m d"]:
        """The unit vectors along an axis at some coordinates."""

    @property
    def count(self) -> int:
        """The product of all sides."""
        return product(self.sides)

    @property
    def cells(self) -> CellGeometry:
        """The middles of the cells, and their volumes, which are all the same."""
        volumes = jnp.broadcast_to(jnp.prod(self.spacings), (self.count,))
        return CellGeometry(self.placed(self._coordinates(self.sides)), volumes)

    @property
    def faces(self) -> FaceGeometry:
        """The faces across the first axis, then those across the next; normal and distance are along that axis."""
        points = [self.placed(self._face_coordinates(axis)) for axis in self._axes]
        normals = [self.direction(axis, self._face_coordinates(axis)) for axis in self._axes]
        distances = [jnp.full(product(_face_sides(self, axis)), self.spacings[axis]) for axis in self._axes]
        return FaceGeometry(*map(jnp.concatenate, (points, normals, distances)))

    def beside(self, values: Float[Array, " n"]) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """The cells before and after every face."""
        grid = values.reshape(self.sides)
        return self._joined([self._pairs(grid, grid, axis) for axis in self._axes])

    def reconstructed(self, density: Float[Array, " n"]) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """ρ_i + ½ s_i before a face and ρ_{i+1} − ½ s_{i+1} after it."""
        grid = density.reshape(self.sides)
        found = []
        for axis in self._axes:
            half = 0.5 * _slopes(grid, axis, closed=self.closed[axis])
            found.append(self._pairs(grid + half, grid - half, axis))
        return self._joined(found)

    def onto_cells(self, left: Float[Array, " m"], right: Float[Array, " m"]) -> Float[Array, " n"]:
        """The sum over the 2k faces of a cell, each over the length of the cell across it: A_f/V_i."""
        total = jnp.zeros(self.sides, left.dtype)
        begin = 0
        for axis in self._axes:
            shape = _face_sides(self, axis)
            end = begin + product(shape)
            mine, theirs = (part[begin:end].reshape(shape) / self.spacings[axis] for part in (left, right))
            if self.closed[axis]:
                total = total + mine + jnp.roll(theirs, 1, axis)
            else:
                total = total + _beyond(mine, axis, last=True) + _beyond(theirs, axis, last=False)
            begin = end
        return total.reshape(-1)

    def nodes(self) -> Nodes:
        """Gauss points along every axis."""
        places, weights = np.polynomial.legendre.leggauss(_NODES)
        inner = np.meshgrid(*[0.5 * places] * len(self.sides), indexing="ij")
        shares = np.prod(np.meshgrid(*[0.5 * weights] * len(self.sides), indexing="ij"), axis=0).ravel()
        cells = np.meshgrid(*[np.arange(side, dtype=float) for side in self.sides], indexing="ij")
        coordinates = [
            (cell.ravel()[:, None] + part.ravel()[None, :]).ravel() for cell, part in zip(cells, inner, strict=True)
        ]
        points = np.asarray(self.placed(coordinates)).reshape(self.count, len(shares), -1)
        return Nodes(points, np.broadcast_to(shares, (self.count, len(shares))))

    @property
    def _axes(self) -> range:
        return range(len(self.sides))

    def _coordinates(self, shape: tuple[int, ...], across: int | None = None) -> list[Array]:
        dtype = self.spacings.dtype
        steps = [jnp.arange(n).astype(dtype) + (0.5 if axis == across else 0.0) for axis, n in enumerate(shape)]
        return [each.ravel() for each in jnp.meshgrid(*steps, indexing="ij")]

    def _face_coordinates(self, axis: int) -> list[Array]:
        return self._coordinates(_face_sides(self, axis), across=axis)

    def _pairs(self, before: Array, after: Array, axis: int) -> tuple[Array, Array]:
        """What the cells before and after each face across an axis have of two grids."""
        if self.closed[axis]:
            return before, jnp.roll(after, -1, axis)
        last = self.sides[axis] - 1
        return _taken(before, axis, 0, last), _taken(after, axis, 1, last + 1)

    @staticmethod
    def _joined(pairs: list[tuple[Array, Array]]) -> tuple[Array, Array]:
        left, right = zip(*pairs, strict=True)
        return jnp.concatenate([each.ravel() for each in left]), jnp.concatenate([each.ravel() for each in right])


class Circle(AbstractRegular):
    """The circle {|x| = radius} in the plane, cut into equal arcs, the middle of the first one at angle 0."""

    radius: Float[Array, ""]
    sides: tuple[int, ...] = eqx.field(static=True)
    closed: tuple[bool, ...] = eqx.field(static=True)

    @staticmethod
    def of(radius: Array, cells: int) -> "Circle":
        """The circle in so many arcs."""
        return Circle(radius=radius, sides=(cells,), closed=(True,))

    @property
    def spacings(self) -> Float[Array, " k"]:
        """2πR/n, the length of an arc."""
        return (2 * np.pi / self.count) * self.radius[None]

    def placed(self, coordinates: list[Any]) -> Any:
        """R (cos θ, sin θ)."""
        angles = (2 * np.pi / self.count) * coordinates[0]
        return self.radius * jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)

    def direction(self, axis: int, coordinates: list[Any]) -> Float[Array, "m d"]:
        """(−sin θ, cos θ)."""
        angles = (2 * np.pi / self.count) * coordinates[0]
        return jnp.stack([-jnp.sin(angles), jnp.cos(angles)], axis=1)

    def containing(self, points: np.ndarray) -> np.ndarray:
        """The arc whose middle is nearest in angle."""
        angles = np.arctan2(points[:, 1], points[:, 0])
        return np.rint(angles / (2 * np.pi) * self.count).astype(int) % self.count


class Box(AbstractRegular, HasBoundary):
    """The box from `low` to `high` in R^d, with walls, or along some axes closed."""

    low: Float[Array, " d"]
    high: Float[Array, " d"]
    sides: tuple[int, ...] = eqx.field(static=True)
    closed: tuple[bool, ...] = eqx.field(static=True)

    @property
    def spacings(self) -> Float[Array, " k"]:
        """The lengths (high − low)/n of a cell along each axis."""
        return (self.high - self.low) / jnp.asarray(self.sides, self.low.dtype)

    def placed(self, coordinates: list[Any]) -> Any:
        """low + (coordinate + ½) · spacing."""
        steps = jnp.stack([jnp.asarray(each) for each in coordinates], axis=1) + 0.5
        return self.low[None, :] + steps.astype(self.low.dtype) * self.spacings[None, :]

    def direction(self, axis: int, coordinates: list[Any]) -> Float[Array, "m d"]:
        """The unit vector of the axis."""
        unit = np.eye(len(self.sides))[axis]
        return jnp.broadcast_to(jnp.asarray(unit, self.low.dtype), (len(coordinates[0]), len(self.sides)))

    def at_walls(self) -> np.ndarray:
        """The first and last cells along axes that are not closed."""
        outer = np.zeros(self.sides, bool)
        for axis in self._axes:
            if not self.closed[axis]:
                np.moveaxis(outer, axis, 0)[[0, -1], ...] = True
        return np.flatnonzero(outer)

    def seams(self) -> tuple[Float[Array, "k d"], Float[Array, "k d"]] | None:
        """The faces at the end of every axis that closes, and the same at its beginning."""
        ends, begins = [], []
        for axis in self._axes:
            if self.closed[axis]:
                last = self.placed(self._face_coordinates(axis)).reshape((*self.sides, -1))
                last = _taken(last, axis, self.sides[axis] - 1, self.sides[axis]).reshape((-1, len(self.sides)))
                ends.append(last)
                begins.append(last.at[:, axis].set(self.low[axis]))
        return (jnp.concatenate(ends), jnp.concatenate(begins)) if ends else None

    def containing(self, points: np.ndarray) -> np.ndarray:
        """The box of the grid around a point; its upper end belongs to the last one."""
        low, high = np.asarray(self.low), np.asarray(self.high)
        share = (points - low) / (high - low)
        outside: np.ndarray = np.asarray(~((share >= 0) & (share <= 1)).all(axis=1))
        steps = np.minimum((np.where(outside[:, None], 0.0, share) * self.sides).astype(int), np.array(self.sides) - 1)
        cells: np.ndarray = np.asarray(np.ravel_multi_index(tuple(steps.T), self.sides))
        return np.where(outside, -1, cells)


def grid_shape(mesh: AbstractMesh) -> GridShape | None:
    """The regular grid that the cells of a mesh are, with the cells and all faces as queries; None for other meshes."""
    if not isinstance(mesh, AbstractRegular):
        return None
    faces = tuple(_face_sides(mesh, axis) for axis in range(len(mesh.sides)))
    return GridShape(mesh.sides, mesh.closed, ((mesh.sides,), faces))


def _face_sides(mesh: AbstractRegular, axis: int) -> tuple[int, ...]:
    """How many faces across an axis there are along each axis: walls have none, for nothing passes them."""
    own = mesh.sides[axis] - (0 if mesh.closed[axis] else 1)
    return (*mesh.sides[:axis], own, *mesh.sides[axis + 1 :])


def _slopes(grid: Array, axis: int, *, closed: bool) -> Array:
    """s_i of every cell along an axis; beyond walls the density is mirrored."""
    width = [(2, 2) if each == axis else (0, 0) for each in range(grid.ndim)]
    padded = jnp.pad(grid, width, mode="wrap" if closed else "symmetric")
    first = jnp.diff(padded, axis=axis)
    second = jnp.diff(first, axis=axis)
    count = grid.shape[axis]
    bend = _minmod(_taken(second, axis, 0, count + 1), _taken(second, axis, 1, count + 2))
    behind = _taken(first, axis, 1, count + 1) + 0.5 * _taken(bend, axis, 0, count)
    ahead = _taken(first, axis, 2, count + 2) - 0.5 * _taken(bend, axis, 1, count + 1)
    most = 2 * jnp.maximum(grid, 0.0)
    return jnp.clip(_minmod(behind, ahead), -most, most)


def _minmod(one: Array, other: Array) -> Array:
    """The smaller one of two numbers of one sign, else 0."""
    smaller = jnp.where(jnp.abs(one) < jnp.abs(other), one, other)
    return jnp.where(one * other > 0, smaller, 0.0)


def _taken(array: Array, axis: int, begin: int, end: int) -> Array:
    return array[(slice(None),) * axis + (slice(begin, end),)]


def _beyond(array: Array, axis: int, *, last: bool) -> Array:
    """One more row of zeros along an axis, at its end or at its beginning."""
    width = [((0, 1) if last else (1, 0)) if each == axis else (0, 0) for each in range(array.ndim)]
    return jnp.pad(array, width)
