"""Where particles live: flat spaces, spheres, the places where a layer normalises, and spaces with inertia."""

from particleflow.dynamics.geometry.base import (
    AbstractGeometry,
    Facts,
    check_start,
    directions,
    norms,
    project_out,
    retracted,
)
from particleflow.dynamics.geometry.geometry_capabilities import (
    CarriesFields,
    MovesLaws,
    NormalisesTheSet,
    Restoring,
    Unconstrained,
    carried_fields,
    carried_names,
    for_weights,
    lifted,
    moving_laws,
)
from particleflow.dynamics.geometry.inertial import Inertial
from particleflow.dynamics.geometry.norm_placement import Ngpt, PeriNorm, PostNorm, PreNorm, ResidualStream, SqrtScaled
from particleflow.dynamics.geometry.round_sphere import round_radius
from particleflow.dynamics.geometry.set_norm import SetNorm
from particleflow.dynamics.geometry.spaces import AbstractSphere, Euclidean, LayerNorm, Rescaled, RmsNorm, Sphere

__all__ = [
    "AbstractGeometry",
    "AbstractSphere",
    "CarriesFields",
    "Euclidean",
    "Facts",
    "Inertial",
    "LayerNorm",
    "MovesLaws",
    "Ngpt",
    "NormalisesTheSet",
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
    "Unconstrained",
    "carried_fields",
    "carried_names",
    "check_start",
    "directions",
    "for_weights",
    "lifted",
    "moving_laws",
    "norms",
    "project_out",
    "retracted",
    "round_radius",
]


def __dir__() -> list[str]:
    return __all__
