"""How a measure is carried by numbers that time can move."""

from particleflow.discretization.base import AbstractDiscretization, Noise
from particleflow.discretization.clouds import AbstractCloud, Cloud, Coalesced
from particleflow.discretization.finite_volumes import FiniteVolumes
from particleflow.discretization.particles import Particles
from particleflow.discretization.present import Present

__all__ = [
    "AbstractCloud",
    "AbstractDiscretization",
    "Cloud",
    "Coalesced",
    "FiniteVolumes",
    "Noise",
    "Particles",
    "Present",
]


def __dir__() -> list[str]:
    return __all__
