"""Missing values: what a sample lacks is the local mean of those who have it.

x̂_a = Σ_{i: x_ia known} K(x, x_i) x_ia / Σ_{i: x_ia known} K(x, x_i),    K of the coordinates that both know
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
    """Fills in NaN by local means over the samples that it was fitted to.

    Parameters: `kernel`, a name with a `bandwidth` or a radial kernel of one's own, of the distance over coordinates
    that are known to both, scaled up to all of them; `summation`. Where no donor is seen, the mean of the feature.

    Attributes: `kernel_`; `points_`, the samples as `kernels.observed` has them; `means_` of the features;
    `n_features_in_`.
    """

    kernel_: AbstractKernel

    def __init__(self, kernel: Any = "gaussian", bandwidth: Any = 1.0, summation: AbstractSummation | None = None):
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.summation = summation

    def fit(self, X: Any, y: Any = None) -> "LocalImputer":
        """Keep the samples with their gaps."""
        samples = np.asarray(validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan"))
        known = ~np.isnan(samples)
        if not known.any(axis=0).all():
            feature = int(np.argmin(known.any(axis=0)))
            raise ArgumentError(f"Feature {feature} is missing in every sample: nobody can tell what it should be.")
        self.kernel_ = PartlyObserved(kernel_of(self.kernel, self.bandwidth, samples))
        self.points_ = np.array(observed(jnp.asarray(np.where(known, samples, 0.0)), known))
        self.means_ = np.nanmean(samples, axis=0)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """X with its gaps filled; what is known stays."""
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
        """Gaps are what it is for."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
