"""Localization as an operator on models: loc(M) is M, fitted for every query with the weights of a kernel.

    loss        loc_K(l)  = θ̂(x) = argmin_θ ∫ K(x, y) l(y, z(y), θ) dμ(y)            `pf.localize`
    estimator   loc_K(M)  = ŷ(x) = M fitted with sample weights K(x, x_i) w_i, read at x
    twice       loc_K(loc_L(M)) = loc_{KL}(M)                                          kernels multiply

Weights multiply, so that localizations compose like their kernels: associative, commutative, with the constant kernel
as the identity. Localizing twice is localizing once where K² = K, for kernels of the values 0 and 1; a Gaussian of
width h becomes one of width h/√2. A local mean of local means is another composition, that of transitions: `Composed`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone, is_regressor
from sklearn.utils.validation import has_fit_parameter

from particleflow.errors import ArgumentError, check_kind
from particleflow.kernels import AbstractKernel
from particleflow.measure import Measure
from particleflow.models.base import attention_weights_at, kernel_of, measure_of, pairs_of, queries_of, read
from particleflow.summation.localization import Localized, localize

_LEAST_SHARE = 1e-300  # a sample of less weight is left out: solvers divide by weights


@dataclass(frozen=True)
class Localization:
    """loc_K, which makes a model local: `Localization(K)(M)`, and `Localization(K) @ Localization(L)` to compose.

    M may be a loss l(point, value, θ), which becomes `Localized`; a scikit-learn regressor whose `fit` takes
    `sample_weight`, which becomes a `LocalEstimator`; or what either of these returned, which is localized again.
    """

    kernel: AbstractKernel

    def __post_init__(self) -> None:
        check_kind(self.kernel, AbstractKernel, "kernel", "a kernel, such as kernels.Gaussian(0.3)")

    def __call__(self, model: Any) -> Any:
        """The local model: `Localized` or a `LocalEstimator`. The kernel of a local one is multiplied by this one."""
        if isinstance(model, Localized):
            return localize(model.loss, model.kernel * self.kernel, summation=model.summation, steps=model.steps)
        if isinstance(model, BaseEstimator):
            return LocalEstimator(model, self.kernel)
        return localize(model, self.kernel)

    def __matmul__(self, inner: "Localization") -> "Localization":
        """The composition: `(a @ b)(M)` is `a(b(M))`."""
        return Localization(inner.kernel * self.kernel)


class LocalEstimator(MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    """A regressor that is fitted anew for every query, to samples weighted by the kernel, and read at the query.

    Of the mean it is `KernelRegression`, of a line `LocalLinearRegression`. Every query costs a fit. Sample weights are
    the shares of the kernel times the number of samples, so that a penalty of the estimator keeps its size, and a
    constant kernel changes nothing. Where the kernel reaches no sample, the prediction is NaN.

    Parameters: `estimator`, a regressor whose `fit` takes `sample_weight`, `LinearRegression()` if left out; `kernel`
    and `bandwidth` as for `KernelRegression`.

    Attributes: `estimator_`, `kernel_`, `measure_`, `n_features_in_`.
    """

    kernel_: AbstractKernel
    measure_: Measure

    def __init__(self, estimator: Any = None, kernel: Any = "gaussian", bandwidth: Any = 1.0):
        self.estimator = estimator
        self.kernel = kernel
        self.bandwidth = bandwidth

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "LocalEstimator":
        """Store samples and targets as `measure_`, and the kernel as `kernel_`; fits are made by `predict`."""
        from sklearn.linear_model import LinearRegression  # takes long to import

        points, targets = pairs_of(self, X, y, y_numeric=True)
        self.estimator_ = LinearRegression() if self.estimator is None else self.estimator
        if not (is_regressor(self.estimator_) and has_fit_parameter(self.estimator_, "sample_weight")):
            raise ArgumentError(
                "Argument `estimator` must be a regressor whose `fit` takes `sample_weight`, the only way in for a "
                f"kernel, but is {self.estimator_!r}."
            )
        self.kernel_ = kernel_of(self.kernel, self.bandwidth, points)
        self.measure_ = measure_of(points, targets.astype(np.float64), sample_weight)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The prediction at every row of X, each from a fit of its own."""
        queries = queries_of(self, X)
        shares = read(attention_weights_at, queries, self.kernel_, self.measure_)
        return np.array([self._at_one(query, share) for query, share in zip(queries, shares, strict=True)])

    def _at_one(self, query: np.ndarray, shares: np.ndarray) -> float:
        """The estimator of one query, fitted to the samples that it sees."""
        seen = shares > _LEAST_SHARE
        if not seen.any():
            return float("nan")
        points, targets = np.asarray(self.measure_.points)[seen], np.asarray(self.measure_.carried)[seen]
        local = _unfitted(self.estimator_).fit(points, targets, sample_weight=shares[seen] * len(shares))
        return float(local.predict(query[None])[0])


def equivalent_kernel(model: Any, X: Any, queries: Any) -> np.ndarray:
    """l_j(x) in ŷ(x) = Σ_j l_j(x) y_j of any regressor that is linear in its targets, (queries, samples).

    Local means and local polynomials are such, and so are kernel ridge regression and Gaussian processes of given
    kernels, with l(x) = (K + λI)⁻¹ k(x). The model is fitted to n targets at once, each 1 at one sample and 0 at all
    others; one more fit checks that its predictions are linear, and others are refused.

    Parameters: `model`, a regressor that takes several targets, cloned; `X` (n, d), its samples; `queries` (m, d).
    """
    points, asked = np.asarray(X, np.float64), np.asarray(queries, np.float64)
    weights = np.asarray(_unfitted(model).fit(points, np.eye(len(points))).predict(asked))
    targets = np.column_stack([np.arange(len(points)) / len(points), np.cos(np.arange(len(points)))])
    gap = np.abs(_unfitted(model).fit(points, targets).predict(asked) - weights @ targets)
    if not np.nanmax(gap, initial=0.0) <= 1e-6 * max(1.0, np.nanmax(np.abs(weights))):
        raise ArgumentError(
            f"Argument `model` must be linear in its targets, but predictions of {model!r} differ by "
            f"{np.nanmax(gap):.2g} from the sum of those of single targets: it has no equivalent kernel."
        )
    return weights


def _unfitted(model: Any) -> Any:
    """A copy of an estimator with its parameters, and without what it has been fitted to."""
    return clone(model)
