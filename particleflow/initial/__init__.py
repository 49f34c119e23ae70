"""Where particles begin: clouds that are drawn, clouds that are laid out, and clouds that are read.

`UniformSphere(dim=3).sample(key, 512)` gives points; `.start(key, 512)` gives a measure, with labels where a cloud has
them. Kinds that know the density their points are drawn from say it: `.density(key)`. Clouds whose size is their own
(a grid, a text, an image, a file) are called without a count.
"""

from particleflow.initial.base import AbstractInitial, Start
from particleflow.initial.clouds import Gaussian, Mixture, Moons, Rings, UniformSphere
from particleflow.initial.densities import Density
from particleflow.initial.files import FromFile
from particleflow.initial.laws import CircleWave, DensityFunction, UniformBox, VonMisesFisher
from particleflow.initial.layouts import Equiangular, GaussHermite, Grid, Quantiles, UniformCircle
from particleflow.initial.tokens import ImagePatches, TextTokens

__all__ = [
    "AbstractInitial",
    "CircleWave",
    "Density",
    "DensityFunction",
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
    "UniformBox",
    "UniformCircle",
    "UniformSphere",
    "VonMisesFisher",
]


def __dir__() -> list[str]:
    return __all__
