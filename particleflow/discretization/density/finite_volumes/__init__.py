"""Finite volumes: a density by its means over the cells of a mesh."""

from particleflow.discretization.density.finite_volumes.grid_convolution import GridConvolution
from particleflow.discretization.density.finite_volumes.mesh import AbstractMesh
from particleflow.discretization.density.finite_volumes.node_sums import NodeInterpolation
from particleflow.discretization.density.finite_volumes.regular_meshes import Box, Circle
from particleflow.discretization.density.finite_volumes.volumes import CellDensities, FiniteVolumes
from particleflow.discretization.density.finite_volumes.voronoi_sphere import VoronoiSphere

__all__ = [
    "AbstractMesh",
    "Box",
    "CellDensities",
    "Circle",
    "FiniteVolumes",
    "GridConvolution",
    "NodeInterpolation",
    "VoronoiSphere",
]


def __dir__() -> list[str]:
    return __all__
