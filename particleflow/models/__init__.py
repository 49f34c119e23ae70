"""The localization method: models that are local means or log-masses, as estimators in scikit-learn's conventions.

    regression       targets as values: m(x), or the local polynomial
    classification   one-hot classes as values: argmax m(x)
    kernel_density   the log-mass: G(x) less the integral of the kernel
    clustering       points as values, iterated: x ← m(x)
    hopfield         patterns as points and values, iterated: memories
    propagation      labels as values of points that stay, iterated
    denoising        samples as points and values: E[x₀ | x], and the score
    neighbourhoods   label propagation along weights of local reconstructions
    images           pixels as points: segmentation; patches as points, colours as values: non-local means
    autoregression   next values as values, times as positions: forecasts
    fuzzy            rules as points, their consequents as values
    imputation       known coordinates as values, distances over the coordinates known in both
    local_models     any loss or regressor made local, once or repeatedly; equivalent kernels

Parameters are stored as they are given, `fit` sets attributes with a trailing underscore, arrays are NumPy's. All sums
over kernels are those of `particleflow.summation.local_mean`.
"""

from importlib.util import find_spec

if find_spec("sklearn") is None:
    raise ImportError("particleflow.models needs scikit-learn: pip install 'particleflow[learn]'.")

from particleflow.models.autoregression import LocalAutoregression
from particleflow.models.classification import KernelClassifier
from particleflow.models.clustering import MeanShiftClustering, estimate_bandwidth
from particleflow.models.denoising import Denoiser
from particleflow.models.fuzzy import FuzzyRules
from particleflow.models.hopfield import Hopfield
from particleflow.models.images import Segments, non_local_means, non_local_weights, segmented
from particleflow.models.imputation import LocalImputer
from particleflow.models.kernel_density import KernelDensity
from particleflow.models.local_models import LocalEstimator, Localization, equivalent_kernel
from particleflow.models.neighbourhoods import LinearNeighbourhoodPropagation, reconstruction_weights
from particleflow.models.propagation import LabelPropagation
from particleflow.models.regression import KernelRegression, LocalLinearRegression

__all__ = [
    "Denoiser",
    "FuzzyRules",
    "Hopfield",
    "KernelClassifier",
    "KernelDensity",
    "KernelRegression",
    "LabelPropagation",
    "LinearNeighbourhoodPropagation",
    "LocalAutoregression",
    "LocalEstimator",
    "LocalImputer",
    "LocalLinearRegression",
    "Localization",
    "MeanShiftClustering",
    "Segments",
    "equivalent_kernel",
    "estimate_bandwidth",
    "non_local_means",
    "non_local_weights",
    "reconstruction_weights",
    "segmented",
]


def __dir__() -> list[str]:
    return __all__
