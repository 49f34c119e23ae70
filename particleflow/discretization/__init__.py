"""How a measure is carried by numbers that time can move."""

from particleflow.discretization.base import AbstractDiscretization, Noise
from particleflow.discretization.characteristics import Characteristics
from particleflow.discretization.clouds import AbstractCloud, Cloud, Coalesced
from particleflow.discretization.finite_volumes import FiniteVolumes
from particleflow.discretization.gaussian import Gaussian
from particleflow.discretization.particles import Particles
from particleflow.discretization.present import Present
from particleflow.discretization.spectral import Spectral

__all__ = [
    "AbstractCloud",
    "AbstractDiscretization",
    "Characteristics",
    "Cloud",
    "Coalesced",
    "FiniteVolumes",
    "Gaussian",
    "Noise",
    "Particles",
    "Present",
    "Spectral",
]


def __dir__() -> list[str]:
    return __all__
