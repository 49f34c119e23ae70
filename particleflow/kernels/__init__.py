"""Localization kernels K(x, y) ≥ 0: one class each, with the formula first."""

from particleflow.kernels.algebra import Mixture, Product, Scaled, Symmetrised, Transposed
from particleflow.kernels.base import AbstractKernel, AbstractMatrixKernel, AbstractPairKernel
from particleflow.kernels.features import (
    Discrete,
    Embedded,
    FeatureExponential,
    FeatureProduct,
    OnValues,
    Pullback,
    SelfLocalized,
)
from particleflow.kernels.inner import (
    Attention,
    Constant,
    Cosine,
    Rectified,
    Sigmoid,
    SigmoidExponential,
    SquaredDistanceAttention,
)
from particleflow.kernels.positional import (
    Alibi,
    Causal,
    Encoded,
    PositionTable,
    Sinusoidal,
    StrictlyCausal,
    TimeGaussian,
    Window,
)
from particleflow.kernels.stationary import Ball, Cauchy, Epanechnikov, Gaussian, Laplace, StudentT, Triangle

__all__ = [
    "AbstractKernel",
    "AbstractMatrixKernel",
    "AbstractPairKernel",
    "Alibi",
    "Attention",
    "Ball",
    "Cauchy",
    "Causal",
    "Constant",
    "Cosine",
    "Discrete",
    "Embedded",
    "Encoded",
    "Epanechnikov",
    "FeatureExponential",
    "FeatureProduct",
    "Gaussian",
    "Laplace",
    "Mixture",
    "OnValues",
    "PositionTable",
    "Product",
    "Pullback",
    "Rectified",
    "Scaled",
    "SelfLocalized",
    "Sigmoid",
    "SigmoidExponential",
    "Sinusoidal",
    "SquaredDistanceAttention",
    "StrictlyCausal",
    "StudentT",
    "Symmetrised",
    "TimeGaussian",
    "Transposed",
    "Triangle",
    "Window",
]
