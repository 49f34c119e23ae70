"""Localization kernels K(x, y) ≥ 0: one class each, with the formula first.

    inner        exp β⟨Qx, Ky⟩ and its relatives            stationary   functions of |x − y|
    positional   functions of token index or time           features     maps, tables and functions of one's own
    nearest      neighbourhoods of the k nearest points     algebra      products, mixtures, multiples
    unlike       rules, points with gaps, pairs of points   forms        what fast methods ask a kernel for

`base` has the classes to inherit from and the arithmetic of all pairs, `description` writes a kernel for metadata.
"""

from particleflow.kernels.affine import AffineAttention
from particleflow.kernels.algebra import Mixture, Product, Scaled, Symmetrised, Transposed
from particleflow.kernels.base import (
    AbstractKernel,
    AbstractMatrixKernel,
    AbstractPairKernel,
    points_of,
    positions_of,
    values_of,
)
from particleflow.kernels.features import (
    Discrete,
    Embedded,
    FeatureExponential,
    FeatureProduct,
    OnValues,
    Pullback,
    SelfLocalized,
)
from particleflow.kernels.forms import Bilinear, Radial, Separable
from particleflow.kernels.inner import (
    Attention,
    Constant,
    Cosine,
    Rectified,
    Sigmoid,
    SigmoidExponential,
    SquaredDistanceAttention,
)
from particleflow.kernels.linearised import LinearisedAttention
from particleflow.kernels.nearest import Nearest
from particleflow.kernels.positional import (
    Alibi,
    Causal,
    Encoded,
    Others,
    Placed,
    PositionMatrix,
    PositionTable,
    Sinusoidal,
    StrictlyCausal,
    TimeGaussian,
    Window,
)
from particleflow.kernels.stationary import (
    AbstractRadialKernel,
    Ball,
    Cauchy,
    Epanechnikov,
    Gaussian,
    InverseDistance,
    Laplace,
    StudentT,
    Triangle,
)
from particleflow.kernels.unlike import HigherOrder, Membership, PartlyObserved, observed

__all__ = [
    "AbstractKernel",
    "AbstractMatrixKernel",
    "AbstractPairKernel",
    "AbstractRadialKernel",
    "AffineAttention",
    "Alibi",
    "Attention",
    "Ball",
    "Bilinear",
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
    "HigherOrder",
    "InverseDistance",
    "Laplace",
    "LinearisedAttention",
    "Membership",
    "Mixture",
    "Nearest",
    "OnValues",
    "Others",
    "PartlyObserved",
    "Placed",
    "PositionMatrix",
    "PositionTable",
    "Product",
    "Pullback",
    "Radial",
    "Rectified",
    "Scaled",
    "SelfLocalized",
    "Separable",
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
    "observed",
    "points_of",
    "positions_of",
    "values_of",
]


def __dir__() -> list[str]:
    return __all__
