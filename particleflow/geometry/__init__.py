"""Where particles live: flat spaces, spheres, and the places where a layer normalises."""

from particleflow.geometry.base import (
    AbstractGeometry,
    Facts,
    Restoring,
    check_retracted,
    directions,
    norms,
    project_out,
    retracted,
    retracted_by_run,
)
from particleflow.geometry.roundness import round_radius
from particleflow.geometry.schemes import Ngpt, PeriNorm, PostNorm, PreNorm, ResidualStream, SqrtScaled
from particleflow.geometry.spaces import AbstractSphere, Euclidean, LayerNorm, Rescaled, RmsNorm, Sphere
from particleflow.geometry.whole import SetNorm

__all__ = [
    "AbstractGeometry",
    "AbstractSphere",
    "Euclidean",
    "Facts",
    "LayerNorm",
    "Ngpt",
    "PeriNorm",
    "PostNorm",
    "PreNorm",
    "Rescaled",
    "ResidualStream",
    "Restoring",
    "RmsNorm",
    "SetNorm",
    "Sphere",
    "SqrtScaled",
    "check_retracted",
    "directions",
    "norms",
    "project_out",
    "retracted",
    "retracted_by_run",
    "round_radius",
]


def __dir__() -> list[str]:
    return __all__
