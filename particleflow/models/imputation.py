"""Missing values: an unknown coordinate is the local mean over the samples in which it is known.

x̂_a = Σ_{i: x_ia known} K(x, x_i) x_ia / Σ_{i: x_ia known} K(x, x_i),    K of the coordinates known in both
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from particleflow.errors import ArgumentError
from particleflow.kernels import AbstractKernel, PartlyObserved, observed
from particleflow.measure import Measure
from particleflow.models.base import kernel_of, log_masses_at, means_at, read
from particleflow.summation import AbstractSummation, Auto


class LocalImputer(TransformerMixin, BaseEstimator):
    """Replace NaN by local means over the fitted samples.

    Parameters: `kernel`, a name with a `bandwidth` or a radial kernel object, of the distance over the coordinates that
    are known in both samples, scaled up to all of them; `summation`. Where the kernel reaches no sample in which a
    feature is known, the mean of the feature is taken.

    Attributes: `kernel_`; `points_`, the samples as encoded by `kernels.observed`; `means_` of the features;
    `n_features_in_`.
    """

    kernel_: AbstractKernel

    def __init__(self, kernel: Any = "gaussian", bandwidth: Any = 1.0, summation: AbstractSummation | None = None):
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.summation = summation

    def fit(self, X: Any, y: Any = None) -> "LocalImputer":
        """Store the samples with their missing values, and the means of the features."""
        samples = np.asarray(validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan"))
        known = ~np.isnan(samples)
        if not known.any(axis=0).all():
            feature = int(np.argmin(known.any(axis=0)))
            raise ArgumentError(f"Feature {feature} is missing in every sample, so there is nothing to impute it from.")
        self.kernel_ = PartlyObserved(kernel_of(self.kernel, self.bandwidth, samples))
        self.points_ = np.array(observed(jnp.asarray(np.where(known, samples, 0.0)), known))
        self.means_ = np.nanmean(samples, axis=0)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """X with every NaN replaced; known values are unchanged."""
        check_is_fitted(self)
        rows = np.array(validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan"))
        known, how = ~np.isnan(rows), self.summation or Auto()
        queries = np.array(observed(jnp.asarray(np.where(known, rows, 0.0)), known))
        samples, theirs = np.split(self.points_, 2, axis=1)
        for feature in np.flatnonzero(~known.all(axis=0)):
            donors = Measure.weighted(self.points_, theirs[:, feature], samples[:, feature])
            gaps = ~known[:, feature]
            found, masses = (read(each, queries[gaps], self.kernel_, donors, how) for each in (means_at, log_masses_at))
            rows[gaps, feature] = np.where(np.isneginf(masses), self.means_[feature], found)
        return rows

    def __sklearn_tags__(self) -> Any:
        """scikit-learn's tags of this estimator: NaN is allowed in its input."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
