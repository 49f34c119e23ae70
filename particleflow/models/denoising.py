"""Denoising: under Gaussian noise, the posterior mean of a sample is a local mean.

If x = x₀ + σ ε with x₀ drawn from some samples, the best estimate of x₀ in mean square is the local mean of the samples
under the Gaussian of width σ, and its difference from x is σ² times the score of the smoothed density (Tweedie; Robbins
1956, Vincent 2011):

    E[x₀ | x] = m(x),    ∇ log p_σ(x) = (m(x) − x)/σ².

So a denoising autoencoder that minimises its loss on the samples exactly is a local mean. Along σ(t) = σ₀ e^{−t} the
flow ẋ = m_{σ(t)}(x) − x, MeanShift with decreasing width, transports the density p_{σ₀} to p_{σ(t)}: it turns a cloud
of width σ₀ into new samples (the probability flow of Song et al. 2021).
"""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from particleflow.kernels import Gaussian
from particleflow.measure import Measure
from particleflow.models.base import bandwidth_of, means_at, measure_of, queries_of, read, samples_of
from particleflow.summation import AbstractSummation, Auto


class Denoiser(TransformerMixin, BaseEstimator):
    """The least-squares estimate of a sample under noise: m(x) of the Gaussian kernel whose width is that of the noise.

    Parameters: `noise` σ; `summation`, `Auto()` if left out.

    Attributes: `kernel_`, `measure_`, `n_features_in_`.
    """

    measure_: Measure

    def __init__(self, noise: float = 1.0, summation: AbstractSummation | None = None):
        self.noise = noise
        self.summation = summation

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "Denoiser":
        """Store the samples as `measure_`, and the Gaussian of the noise as `kernel_`."""
        points = samples_of(self, X)
        self.kernel_ = Gaussian(bandwidth_of(self.noise, points))
        self.measure_ = measure_of(points, None, sample_weight)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """E[x₀ | x] = m(x) at every row of X."""
        points = queries_of(self, X)
        return read(means_at, points, self.kernel_, self.measure_, self.summation or Auto())

    def scores(self, X: Any) -> np.ndarray:
        """∇ log p_σ(x) = (m(x) − x)/σ² at every row of X."""
        found = self.transform(X)
        return (found - np.asarray(X, np.float64)) / float(self.kernel_.width) ** 2
