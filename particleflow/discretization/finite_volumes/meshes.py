"""Meshes: how a space is cut into cells, and what a conservative scheme has to know of that.

Cells C_i of volume V_i tile the space; a face f of area A_f lies between a left and a right cell, with its middle at
x_f and its normal n_f from left to right. What is known for the cells is their mean density ρ_i, and

    V_i dρ_i/dt = − Σ_f ± A_f F_f,    F_f = ⟨v(x_f), n_f⟩ ρ_f − T (ρ_right − ρ_left)/d_f,

with ρ_f from the side that the velocity comes from. What leaves one cell enters another one, so that mass is kept
whatever the fluxes are. A mesh says how ρ_f is found to second order without becoming negative.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float


class Nodes(NamedTuple):
    """Places in every cell, and their weights in the mean over the cell: (n, q, d) and (n, q)."""

    points: np.ndarray
    weights: np.ndarray


class Charted(NamedTuple):
    """Places in squares that make up a surface: the number of the square (n,), and coordinates in [−1, 1] (n, 2)."""

    chart: np.ndarray
    coordinates: np.ndarray


class AbstractCharts(abc.ABC):
    """A surface that is made of `count` squares; outside of programs."""

    count: int

    @abc.abstractmethod
    def charted(self, points: np.ndarray) -> Charted:
        """Which square every point lies in, and where in it."""

    @abc.abstractmethod
    def at(self, charted: Charted) -> np.ndarray:
        """The points at places in squares."""


class AbstractMesh(eqx.Module):
    """Cells and their faces; see the module's first lines. There are n cells and m faces in R^d."""

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """The number n of cells."""

    @property
    @abc.abstractmethod
    def centres(self) -> Float[Array, "n d"]:
        """The middles of the cells, where a mean over the cell is the value to second order."""

    @property
    @abc.abstractmethod
    def volumes(self) -> Float[Array, " n"]:
        """Length, area or volume V_i of every cell."""

    @property
    @abc.abstractmethod
    def face_points(self) -> Float[Array, "m d"]:
        """The middle x_f of every face."""

    @property
    @abc.abstractmethod
    def normals(self) -> Float[Array, "m d"]:
        """The unit normals n_f, tangent to the space, from the left cell to the right one."""

    @property
    @abc.abstractmethod
    def distances(self) -> Float[Array, " m"]:
        """The distance d_f of the two middles beside a face, along the space."""

    @abc.abstractmethod
    def beside(self, values: Float[Array, " n"]) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """What the cells left and right of every face have."""

    @abc.abstractmethod
    def reconstructed(self, density: Float[Array, " n"]) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """The density at every face as its left and its right cell tell it, limited: never negative where ρ is not."""

    @abc.abstractmethod
    def onto_cells(self, left: Float[Array, " m"], right: Float[Array, " m"]) -> Float[Array, " n"]:
        """Σ_f A_f (what a face gives to this side)/V_i of every cell."""

    @abc.abstractmethod
    def nodes(self) -> Nodes:
        """Where a density is looked at for its means over the cells, outside of programs."""

    @abc.abstractmethod
    def containing(self, points: np.ndarray) -> np.ndarray:
        """The cell that each point lies in, outside of programs; −1 for a point outside of all."""

    def grid(self) -> "GridShape | None":
        """The regular grid that the cells are, None where they are none."""
        return None

    def charts(self) -> AbstractCharts | None:
        """The squares of which the surface is made that the cells are on, None where it is not made of such."""
        return None

    def seams(self) -> tuple[Float[Array, "k d"], Float[Array, "k d"]] | None:
        """Pairs of points that are one because the mesh closes there, at which velocities must agree; None for none."""
        return None

    def at_walls(self) -> np.ndarray:
        """The cells at walls that nothing passes; none unless a mesh has some."""
        return np.zeros(0, int)


class Places(NamedTuple):
    """The middles and volumes of all cells, and the middles of all faces."""

    centres: Float[Array, "n d"]
    volumes: Float[Array, " n"]
    faces: Float[Array, "m d"]


@eqx.filter_jit
def places(mesh: AbstractMesh) -> Places:
    """Where cells and faces are, as one compiled program, for when a run begins."""
    return Places(mesh.centres, mesh.volumes, mesh.face_points)


class GridShape(NamedTuple):
    """Cells on a regular grid: their numbers along each axis, which axes close, and along which faces are asked.

    `queries` are the grids of places, each as many as its numbers say along each axis, in the order of the places:
    those of the cells alone, and those of all faces. Along every axis places follow each other as cells do.
    """

    sides: tuple[int, ...]
    closed: tuple[bool, ...]
    queries: tuple[tuple[tuple[int, ...], ...], ...]


def product(numbers: Any) -> int:
    """The product of whole numbers."""
    return int(np.prod(np.asarray(numbers, int)))
