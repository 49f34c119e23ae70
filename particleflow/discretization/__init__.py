"""How a measure is carried by numbers that time can move."""

from particleflow.discretization.base import AbstractDiscretization, Noise
from particleflow.discretization.particles import Cloud, Particles
from particleflow.discretization.present import Present

__all__ = ["AbstractDiscretization", "Cloud", "Noise", "Particles", "Present"]


def __dir__() -> list[str]:
    return __all__
