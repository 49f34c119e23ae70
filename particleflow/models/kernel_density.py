"""Density: the log-mass of the samples, log p(x) = G(x) − log ∫ K(x, y) dy.

The gradient of log p under a Gaussian kernel, its score, is (m(x) − x)/width²: MeanShift ascends log p.
"""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from particleflow.errors import ArgumentError
from particleflow.kernels import AbstractKernel
from particleflow.kernels.capabilities import log_integral
from particleflow.measure import Measure
from particleflow.models.base import kernel_of, log_masses_at, measure_of, queries_of, read, samples_of
from particleflow.summation import AbstractSummation, Auto


class KernelDensity(BaseEstimator):
    """The density p(x) = Σ_i w_i K(x, x_i) / ∫ K of samples smoothed by a kernel (Rosenblatt 1956, Parzen 1962).

    Parameters: `kernel`, `bandwidth`, `summation` as for `KernelRegression`; the kernel must have a known integral (of
    the named ones, all but "cauchy").

    Attributes: `kernel_`, `measure_`, `log_integral_`, `n_features_in_`.
    """

    kernel_: AbstractKernel
    measure_: Measure

    def __init__(self, kernel: Any = "gaussian", bandwidth: Any = 1.0, summation: AbstractSummation | None = None):
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.summation = summation

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "KernelDensity":
        """Store the samples as `measure_`, and log ∫ K as `log_integral_`."""
        points = samples_of(self, X)
        self.kernel_ = kernel_of(self.kernel, self.bandwidth, points)
        integral = log_integral(self.kernel_, points.shape[1])
        if integral is None:
            raise ArgumentError(
                f"Argument `kernel` must have a finite integral that is known, but {self.kernel_!r} has none in "
                f"dimension {points.shape[1]}."
            )
        self.log_integral_ = float(integral)
        self.measure_ = measure_of(points, None, sample_weight)
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """log p at every row of X; −∞ where a kernel of finite support reaches no sample."""
        points = queries_of(self, X)
        return read(log_masses_at, points, self.kernel_, self.measure_, self.summation or Auto()) - self.log_integral_

    def score(self, X: Any, y: Any = None) -> float:
        """The log-likelihood Σ log p of the rows of X."""
        return float(np.sum(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draws of p: a sample chosen by its weight, plus a draw of the kernel (Gaussian and flat kernels only).

        Parameters: `n_samples`; `random_state`.
        """
        check_is_fitted(self)
        rng = check_random_state(random_state)
        points, weights = np.asarray(self.measure_.points), np.exp(np.asarray(self.measure_.log_weights))
        chosen = points[rng.choice(len(points), size=n_samples, p=weights / weights.sum())]
        apart = rng.normal(size=chosen.shape)
        form = self.kernel_.radial()
        curve = form.shape(points.shape[1]) if form is not None and form.of_points else None
        if curve is not None and curve.curve == "gaussian":
            return chosen + apart * float(np.sqrt(0.5) / curve.scale)
        if curve is not None and curve.curve == "ball":
            lengths = rng.uniform(size=(n_samples, 1)) ** (1 / points.shape[1]) * float(np.sqrt(curve.power))
            return chosen + lengths * apart / np.linalg.norm(apart, axis=1, keepdims=True)
        raise ArgumentError(f"Only Gaussian and flat kernels can be drawn from, but the kernel is {self.kernel_!r}.")
