"""Meshes: how a space is cut into cells, and what a conservative scheme needs of that.

Cells C_i of volume V_i tile the space; a face f of area A_f lies between a left and a right cell, with its middle at
x_f and its normal n_f from left to right. What is known for the cells is their mean density ρ_i, and

    V_i dρ_i/dt = − Σ_f ± A_f F_f,    F_f = ⟨v(x_f), n_f⟩ ρ_f − T (ρ_right − ρ_left)/d_f,

with the temperature T, and ρ_f from the upwind side. What leaves one cell enters another one, so that mass is kept
whatever the fluxes are. A mesh reconstructs ρ_f to second order without making it negative.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float


class Nodes(NamedTuple):
    """Quadrature over every cell: q points each, (n, q, d), and their weights in the mean over the cell, (n, q)."""

    points: np.ndarray
    weights: np.ndarray


class CellGeometry(NamedTuple):
    """The cells: middles, where a mean over the cell is the value to second order, and length, area or volume V_i."""

    centres: Float[Array, "n d"]
    volumes: Float[Array, " n"]


class FaceGeometry(NamedTuple):
    """The faces between cells: middles x_f, unit normals n_f from left to right cell, and distances d_f of the two.

    Normals are tangent to the space; distances are those of the middles of both cells, along the space.
    """

    points: Float[Array, "m d"]
    normals: Float[Array, "m d"]
    distances: Float[Array, " m"]


class AbstractMesh(eqx.Module):
    """A space cut into n cells with m faces in R^d, and the two halves of a conservative scheme on them.

    `reconstructed` leads from means over cells to densities at faces, `onto_cells` from fluxes back to cells.
    """

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """The number n of cells."""

    @property
    @abc.abstractmethod
    def cells(self) -> CellGeometry:
        """The middles and volumes of all cells."""

    @property
    @abc.abstractmethod
    def faces(self) -> FaceGeometry:
        """The middles, normals and distances of all faces."""

    @abc.abstractmethod
    def beside(self, values: Float[Array, " n"]) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """The values of the cells left and right of every face."""

    @abc.abstractmethod
    def reconstructed(self, density: Float[Array, " n"]) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """The density at every face from its left and its right cell, limited: never negative where ρ is not."""

    @abc.abstractmethod
    def onto_cells(self, left: Float[Array, " m"], right: Float[Array, " m"]) -> Float[Array, " n"]:
        """Σ_f A_f (what a face gives to this side)/V_i of every cell."""

    @abc.abstractmethod
    def nodes(self) -> Nodes:
        """The places at which a density is evaluated for its means over cells, outside of compiled programs."""

    @abc.abstractmethod
    def containing(self, points: np.ndarray) -> np.ndarray:
        """The cell that each point lies in, outside of compiled programs; −1 for a point outside of all."""


class HasBoundary(eqx.Module):
    """The mesh ends somewhere: at walls that nothing passes, or at seams where two of its ends are one."""

    @abc.abstractmethod
    def at_walls(self) -> np.ndarray:
        """The numbers of the cells at walls."""

    @abc.abstractmethod
    def seams(self) -> tuple[Float[Array, "k d"], Float[Array, "k d"]] | None:
        """Pairs of points that are one because the mesh closes there, at which velocities must agree; None for none."""


class MeshPlaces(NamedTuple):
    """The middles and volumes of all cells, and the middles of all faces."""

    centres: Float[Array, "n d"]
    volumes: Float[Array, " n"]
    faces: Float[Array, "m d"]


@eqx.filter_jit
def mesh_places(mesh: AbstractMesh) -> MeshPlaces:
    """Where cells and faces are, as one compiled program, for when a run begins."""
    return MeshPlaces(*mesh.cells, mesh.faces.points)


class GridShape(NamedTuple):
    """Cells on a regular grid: `sides`, how many along each axis, and `closed`, which axes close to a ring.

    `queries` are the sets of places at which sums over the cells are needed, each as the grids that it consists of: the
    cells alone, and all faces, one grid for each axis. Along every axis places follow each other as cells do.
    """

    sides: tuple[int, ...]
    closed: tuple[bool, ...]
    queries: tuple[tuple[tuple[int, ...], ...], ...]


def product(numbers: Any) -> int:
    """The product of whole numbers."""
    return int(np.prod(np.asarray(numbers, int)))
