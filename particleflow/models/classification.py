"""Classification: the local mode, argmax_k Σ_{y_i = k} K(x, x_i).

With one-hot vectors as values the local mean is the vector of class probabilities P(k | x), and for two classes as ±1
it is P(+) − P(−), whose sign decides.
"""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from particleflow.kernels import AbstractKernel
from particleflow.measure import Measure
from particleflow.models.base import kernel_of, means_at, measure_of, pairs_of, queries_of, read
from particleflow.summation import AbstractSummation, Auto


class KernelClassifier(ClassifierMixin, BaseEstimator):
    """The class of most weight around a query: attention with classes as values.

    Parameters: `kernel`, `bandwidth`, `summation` as for `KernelRegression`. Where a kernel of finite support reaches
    no sample, the probabilities are the shares of the classes among the samples.

    Attributes: `classes_`, `kernel_`, `measure_`, `n_features_in_`.
    """

    kernel_: AbstractKernel
    measure_: Measure

    def __init__(self, kernel: Any = "gaussian", bandwidth: Any = 1.0, summation: AbstractSummation | None = None):
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.summation = summation

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "KernelClassifier":
        """Store the samples, with one-hot classes as values, as `measure_`."""
        points, labels = pairs_of(self, X, y)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        self.kernel_ = kernel_of(self.kernel, self.bandwidth, points)
        self.measure_ = measure_of(points, np.eye(len(self.classes_))[numbers], sample_weight)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """P(k | x) = Σ_{y_i = k} K(x, x_i) / Σ_i K(x, x_i)."""
        points = queries_of(self, X)
        found = read(means_at, points, self.kernel_, self.measure_, self.summation or Auto())
        usual = np.exp(np.asarray(self.measure_.log_weights)) @ np.asarray(self.measure_.carried)
        return np.where(found.sum(axis=1, keepdims=True) > 0, found, usual[None, :])

    def predict(self, X: Any) -> np.ndarray:
        """The class of largest probability, the first of equals."""
        shares = self.predict_proba(X)
        return self.classes_[np.argmax(shares, axis=1)]

    def decision_function(self, X: Any) -> np.ndarray:
        """P(second class) − P(first) of two classes, the local mean of ±1; of more classes their probabilities."""
        shares = self.predict_proba(X)
        return shares[:, 1] - shares[:, 0] if shares.shape[1] == 2 else shares
