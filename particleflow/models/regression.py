"""Regression: the local mean of targets, and local polynomials.

    Nadaraya–Watson   ŷ(x) = m(x) = Σ_i K(x, x_i) w_i y_i / Σ_i K(x, x_i) w_i
    local polynomial  ŷ(x) = β₀ with β = argmin Σ_i K(x, x_i) w_i (y_i − Σ_a β_a (x_i − x)^a)²

Nadaraya–Watson fits a local constant: for a kernel of width σ and samples of density p on the line, its bias at x is
σ² (½ y'' + y' p'/p). That of the local linear fit is ½ σ² y'', also near the boundary (Fan 1992): it reproduces affine
data exactly.
"""

from itertools import combinations_with_replacement
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from particleflow.kernels import AbstractKernel, Others
from particleflow.measure import Measure, Sites
from particleflow.models.base import (
    attention_weights_at,
    check_count,
    compiled,
    kernel_of,
    measure_of,
    pairs_of,
    queries_of,
    read,
    seen_means_at,
)
from particleflow.summation import AbstractSummation, Auto
from particleflow.summation.local_mean import attention_weights, local_expectation


class KernelRegression(RegressorMixin, MultiOutputMixin, BaseEstimator):
    """Nadaraya–Watson regression, ŷ(x) = m(x): attention with targets as values.

    Parameters: `kernel`, a name ("gaussian", "laplace", "cauchy", "flat", "epanechnikov", "triangle") with a
    `bandwidth` (a number, "scott" or "silverman"), or a kernel object, for which the indices of samples are positions;
    `summation`, `Auto()` if left out. Where a kernel of finite support reaches no sample, the prediction is NaN.
    Sources: Nadaraya, On estimating regression (1964); Watson, Smooth regression analysis (1964).

    Attributes: `kernel_`, `measure_`, `n_features_in_`.
    """

    kernel_: AbstractKernel
    measure_: Measure

    def __init__(self, kernel: Any = "gaussian", bandwidth: Any = 1.0, summation: AbstractSummation | None = None):
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.summation = summation

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "KernelRegression":
        """Store samples and targets as `measure_`, and the kernel as `kernel_`; sums are computed by `predict`."""
        _keep(self, X, y, sample_weight)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The prediction ŷ at every row of X."""
        points = queries_of(self, X)
        return read(seen_means_at, points, self.kernel_, self.measure_, self.summation or Auto())

    def leave_one_out(self) -> np.ndarray:
        """ŷ_{−i}(x_i), the prediction at every sample from all others; NaN where the kernel reaches none of them."""
        check_is_fitted(self)
        points, measure = np.asarray(self.measure_.points), self.measure_
        return np.array(compiled(_from_others)(points, self.kernel_, measure, self.summation or Auto()))

    def attention(self, X: Any) -> np.ndarray:
        """The weight of every sample in every prediction, (queries, samples); rows sum to one."""
        points = queries_of(self, X)
        return read(attention_weights_at, points, self.kernel_, self.measure_)


class LocalLinearRegression(RegressorMixin, MultiOutputMixin, BaseEstimator):
    """Local polynomial regression: at every query a weighted least-squares fit of `degree`, read off at the query.

    The normal equations are local expectations of (1, x_i − x, …)(1, x_i − x, …)ᵀ; where they are singular (a constant
    feature, fewer samples than coefficients) the solution of least norm is taken.

    Parameters: as for `KernelRegression`; `degree`, 1 or more.

    Attributes: `kernel_`, `measure_`, `n_features_in_`.
    """

    kernel_: AbstractKernel
    measure_: Measure

    def __init__(
        self,
        kernel: Any = "gaussian",
        bandwidth: Any = 1.0,
        degree: int = 1,
        summation: AbstractSummation | None = None,
    ):
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.degree = degree
        self.summation = summation

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "LocalLinearRegression":
        """Store samples and targets as `measure_`, and the kernel as `kernel_`; sums are computed by `predict`."""
        check_count(self.degree, "degree")
        _keep(self, X, y, sample_weight)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The prediction ŷ at every row of X."""
        points = queries_of(self, X)
        powers = monomials(points.shape[1], int(self.degree))
        return read(_local_polynomial, points, self.kernel_, self.measure_, self.summation or Auto(), powers)

    def equivalent_kernel(self, X: Any) -> np.ndarray:
        """l_j(x) in ŷ(x) = Σ_j l_j(x) y_j, (queries, samples): the fit read as a mean, whatever the targets are.

        l_j(x) = K(x, x_j) w_j e₀ᵀ E⁻¹ φ_j with E = Σ_j K w_j φ_j φ_jᵀ. It reproduces polynomials: Σ_j l_j = 1 and
        Σ_j l_j (x_j − x)^a = 0 up to the degree. Unlike attention weights, l_j may be negative.
        """
        points = queries_of(self, X)
        powers = monomials(points.shape[1], int(self.degree))
        return read(_polynomial_weights, points, self.kernel_, self.measure_, powers)


def _keep(estimator: Any, X: Any, y: Any, sample_weight: Any) -> None:
    """Store checked samples and targets as `measure_`, and the kernel as `kernel_`."""
    points, targets = pairs_of(estimator, X, y, multi_output=True, y_numeric=True)
    estimator.kernel_ = kernel_of(estimator.kernel, estimator.bandwidth, points)
    estimator.measure_ = measure_of(points, targets.astype(np.float64), sample_weight)


def _from_others(queries: Array, kernel: AbstractKernel, measure: Measure, how: AbstractSummation) -> Array:
    """The local mean of all other samples at every sample: `Others` compares indices, which positions hold."""
    return seen_means_at(Sites(queries, measure.positions), kernel * Others(), measure, how)


def _local_polynomial(
    queries: Array,
    kernel: AbstractKernel,
    measure: Measure,
    how: AbstractSummation,
    powers: tuple[tuple[int, ...], ...],
) -> Array:
    """β₀ of the normal equations E[φφᵀ] β = E[φ y], φ the monomials of (x_i − x)/spread."""
    scale = _spread(measure)

    def equations(x: Array, y: Array, z: Array) -> Array:
        row = _monomials_at((y - x) / scale, powers)
        return jnp.outer(row, jnp.concatenate([row, jnp.atleast_1d(z)]))

    found = local_expectation(kernel, measure, queries, equations, summation=how)
    count = len(powers)
    inverse = jnp.linalg.pinv(found[:, :, :count], hermitian=True)
    values = jnp.einsum("ma,mak->mk", inverse[:, 0, :], found[:, :, count:])
    values = jnp.where(found[:, :1, 0] > 0, values, jnp.nan)
    return values[:, 0] if measure.carried.ndim == 1 else values


def _polynomial_weights(
    queries: Array, kernel: AbstractKernel, measure: Measure, powers: tuple[tuple[int, ...], ...]
) -> Float[Array, "m n"]:
    """The weight of every sample in β₀, NaN where the kernel reaches none; rounding is taken out by a second solution.

    With s the shares of the kernel, l = s · (Φ E⁺ e₀); its moments differ from e₀ by the rounding of E⁺, and the same
    formula with that difference in the place of e₀ corrects them.
    """
    shares, scale = attention_weights(kernel, measure, queries), _spread(measure)

    def at_one(query: tuple[Array, Array]) -> Array:
        x, share = query
        rows = jax.vmap(lambda y: _monomials_at((y - x) / scale, powers))(measure.points)
        inverse = jnp.linalg.pinv(rows.T @ (share[:, None] * rows), hermitian=True)
        first = jnp.zeros(len(powers), rows.dtype).at[0].set(1.0)
        weights = share * (rows @ (inverse @ first))
        return weights + share * (rows @ (inverse @ (first - weights @ rows)))

    reached = jnp.sum(shares, axis=1, keepdims=True) > 0
    found: Array = jax.lax.map(at_one, (queries, shares))
    return jnp.where(reached, found, jnp.nan)


def _monomials_at(apart: Float[Array, " d"], powers: tuple[tuple[int, ...], ...]) -> Float[Array, " p"]:
    """The monomials of one difference, the constant first."""
    return jnp.stack([jnp.prod(apart[jnp.asarray(each, int)]) if each else jnp.ones(()) for each in powers])


def _spread(measure: Measure) -> Float[Array, " d"]:
    """The standard deviation of every coordinate, 1 where the samples do not differ in it."""
    weights = jnp.exp(measure.log_weights)
    centred = measure.points - (weights @ measure.points)[None, :]
    spread = jnp.sqrt(weights @ jnp.square(centred))
    return jnp.where(spread > 0, spread, 1.0)


def monomials(dimension: int, degree: int) -> tuple[tuple[int, ...], ...]:
    """All monomials up to a degree, each by the coordinates that it multiplies: (), (0,), (1,), (0, 0), (0, 1), …"""
    parts = (combinations_with_replacement(range(dimension), each) for each in range(degree + 1))
    return tuple(each for part in parts for each in part)
