"""Where particles begin: clouds that are drawn, clouds that are laid out, and clouds that are read.

`UniformSphere(dim=3).sample(key, 512)` gives points; `.start(key, 512)` gives a measure, with labels where a cloud has
them. Clouds whose size is their own (a grid, a text, an image, a file) are called without a count.
"""

from particleflow.initial.base import AbstractInitial, Start
from particleflow.initial.clouds import Gaussian, Mixture, Moons, Rings, UniformSphere
from particleflow.initial.files import FromFile
from particleflow.initial.layouts import Equiangular, GaussHermite, Grid, Quantiles, UniformCircle
from particleflow.initial.tokens import ImagePatches, TextTokens

__all__ = [
    "AbstractInitial",
    "Equiangular",
    "FromFile",
    "GaussHermite",
    "Gaussian",
    "Grid",
    "ImagePatches",
    "Mixture",
    "Moons",
    "Quantiles",
    "Rings",
    "Start",
    "TextTokens",
    "UniformCircle",
    "UniformSphere",
]


def __dir__() -> list[str]:
    return __all__
