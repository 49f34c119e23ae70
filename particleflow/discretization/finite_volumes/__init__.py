"""Finite volumes: a density by its means over the cells of a mesh."""

from particleflow.discretization.finite_volumes.convolution import GridConvolution
from particleflow.discretization.finite_volumes.interpolation import NodeInterpolation
from particleflow.discretization.finite_volumes.meshes import AbstractMesh
from particleflow.discretization.finite_volumes.regular import Box, Circle
from particleflow.discretization.finite_volumes.sphere import VoronoiSphere
from particleflow.discretization.finite_volumes.volumes import Cells, FiniteVolumes

__all__ = [
    "AbstractMesh",
    "Box",
    "Cells",
    "Circle",
    "FiniteVolumes",
    "GridConvolution",
    "NodeInterpolation",
    "VoronoiSphere",
]


def __dir__() -> list[str]:
    return __all__
