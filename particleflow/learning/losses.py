"""Losses of a kernel, which are small where the kernel fits some data.

    LeaveOneOut             mean_i |z_i − m_{−i}(x_i)|²                       prediction from all others
    Reconstruction          mean_i |x_i − m_{−i}(x_i)|²                       ‖X − K̃X‖²/n under K̃_ii = 0
    LeaveOneOutLikelihood   −mean_i log p_{−i}(x_i)                           density from all others
    Evidence                −log N(y; 0, K(X, X) + noise² 1) / n              marginal likelihood of a Gaussian process
    Contrast                mean_i [log Σ_j K(x_i, y_j) − log K(x_i, y_i)]    InfoNCE: matching of pairs

m_{−i} and p_{−i} are computed with `kernel * Others()`, which vanishes for a point and itself. The constraint excludes
the trivial solution of min ‖X − K̃X‖², a kernel so narrow that K̃ is the identity.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array, as_positive
from particleflow.errors import ArgumentError, ShapeError
from particleflow.kernels import AbstractKernel, Others
from particleflow.kernels.capabilities import log_integral
from particleflow.measure import Measure
from particleflow.summation import AbstractSummation, Auto
from particleflow.summation.local_mean import local_moments, log_normalizer


def _numbered(points: Any, values: Any = None) -> Measure:
    """Samples as a uniform measure with their indices as positions, which `Others` compares."""
    points = as_float_array(points, "points")
    if points.ndim != 2 or len(points) < 2:
        raise ShapeError(f"Argument `points` must have shape (n, d) with at least two rows, but has {points.shape}.")
    return Measure.uniform(points, values, jnp.arange(len(points), dtype=points.dtype))


class LeaveOneOut(eqx.Module):
    """mean_i l(z_i, m_{−i}(x_i)): how well every value is predicted from all others.

    `loss` is "squared", |z − m|², or "log", the cross-entropy −log Σ_k z_k m_k for one-hot values.
    Where the kernel reaches no other sample, the prediction is the mean of all.

    Parameters: `points` (n, d), or letters (n, 1) for a kernel of an alphabet; `targets` (n,) or (n, k); `loss`;
    `summation`.
    """

    measure: Measure
    loss: str = eqx.field(static=True)
    summation: AbstractSummation

    def __init__(self, points: Any, targets: Any, loss: str = "squared", summation: AbstractSummation | None = None):
        if loss not in ("squared", "log"):
            raise ArgumentError(f"Argument `loss` must be 'squared' or 'log', but is {loss!r}.")
        self.measure = _numbered(points, targets)
        self.loss = loss
        self.summation = summation or Auto()

    def __call__(self, kernel: AbstractKernel) -> Float[Array, ""]:
        """The mean of l(z_i, m_{−i}(x_i)) over all samples."""
        targets = self.measure.carried.reshape(self.measure.count, -1)
        moments = local_moments(kernel * Others(), self.measure, self.measure, summation=self.summation)
        nothing = jnp.isneginf(moments.log_mass)[:, None]
        found = jnp.where(nothing, jnp.mean(targets, axis=0)[None, :], moments.mean.reshape(targets.shape))
        if self.loss == "squared":
            return jnp.mean(jnp.sum(jnp.square(targets - found), axis=1))
        tiny = jnp.finfo(found.dtype).tiny
        return -jnp.mean(jnp.log(jnp.maximum(jnp.sum(targets * found, axis=1), tiny)))


class Reconstruction(eqx.Module):
    """‖X − K̃X‖²_F / n under the constraint K̃_ii = 0: how well every point is the local mean of all others.

    Parameters: `points` (n, d); `summation`.
    """

    predicted: LeaveOneOut

    def __init__(self, points: Any, summation: AbstractSummation | None = None):
        self.predicted = LeaveOneOut(points, points, summation=summation)

    def __call__(self, kernel: AbstractKernel) -> Float[Array, ""]:
        """The mean squared distance of points from their reconstructions."""
        return self.predicted(kernel)


class LeaveOneOutLikelihood(eqx.Module):
    """−mean_i log p_{−i}(x_i), p_{−i}(x) = Σ_{j≠i} K(x, x_j)/((n − 1) ∫ K): the density of every point from all others.

    Maximum likelihood without that constraint would make the kernel infinitely narrow (Habbema et al. 1974, Duin 1976).
    Parameters: `points` (n, d); `summation`.
    """

    measure: Measure
    summation: AbstractSummation

    def __init__(self, points: Any, summation: AbstractSummation | None = None):
        self.measure = _numbered(points)
        self.summation = summation or Auto()

    def __call__(self, kernel: AbstractKernel) -> Float[Array, ""]:
        """−mean_i log p_{−i}(x_i) under a kernel of known integral."""
        integral = log_integral(kernel, self.measure.dimension)
        if integral is None:
            raise ArgumentError(
                f"A density needs a kernel of known integral, but {kernel!r} has none in dimension "
                f"{self.measure.dimension}."
            )
        count = self.measure.count
        log_masses = log_normalizer(kernel * Others(), self.measure, self.measure, summation=self.summation)
        return integral - jnp.mean(log_masses) - float(np.log(count / (count - 1)))


class Observed(eqx.Module):
    """A kernel as the covariance of a function that is observed with errors: y = f(x) + N(0, noise²)."""

    kernel: AbstractKernel
    noise: Float[Array, ""]

    def __init__(self, kernel: AbstractKernel, noise: Any = 0.1):
        self.kernel = kernel
        self.noise = as_positive(noise, "noise")


class Evidence(eqx.Module):
    """−log N(y; 0, C)/n with C = K(X, X) + noise² 1: the marginal likelihood of y, all functions integrated out.

    The model is `Observed(kernel, noise)`; K must be positive definite (Gaussian, Laplace, attention with Q = K, their
    products and multiples), else the loss is NaN. Here K is a covariance, not a localization, and its
    matrix is formed, unlike in other losses. Source: Rasmussen and Williams, Gaussian processes (2006), equation 5.8.

    Parameters: `points` (n, d); `targets` (n,) or (n, k), columns independent.
    """

    measure: Measure

    def __init__(self, points: Any, targets: Any):
        self.measure = _numbered(points, targets)

    def __call__(self, model: Observed) -> Float[Array, ""]:
        """The negative log evidence divided by n, the mean over columns of y."""
        sites, count = self.measure.sites, self.measure.count
        targets = self.measure.carried.reshape(count, -1)
        covariance = jnp.exp(model.kernel.log_matrix(sites, sites))
        covariance = covariance + jnp.square(model.noise) * jnp.eye(count, dtype=targets.dtype)
        factor = jnp.linalg.cholesky(covariance)
        white = jax.scipy.linalg.solve_triangular(factor, targets, lower=True)
        log_determinant = 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))
        surprise = 0.5 * jnp.sum(jnp.square(white)) / targets.shape[1]
        return (surprise + 0.5 * log_determinant + 0.5 * count * float(np.log(2 * np.pi))) / count


class Contrast(eqx.Module):
    """mean_i [G(x_i) − log K(x_i, y_i)] + log n, G the log-normalizer under (1/n) Σ_j δ_{y_j}: InfoNCE.

    It is the cross-entropy of choosing, for every query, its own key among all n by softmax (van den Oord et al. 2018):
    the log-normalizer of the exponential family on the keys at the parameter x_i, less its exponent at y_i. The
    mutual information of pairs is at least log n less this loss.

    Parameters: pairs of `queries` (n, d) and `keys` (n, d'); `summation`.
    """

    queries: Measure
    keys: Measure
    summation: AbstractSummation

    def __init__(self, queries: Any, keys: Any, summation: AbstractSummation | None = None):
        self.queries, self.keys = _numbered(queries), _numbered(keys)
        if self.queries.count != self.keys.count:
            raise ShapeError(
                f"There must be as many queries as keys, but there are {self.queries.count} and {self.keys.count}."
            )
        self.summation = summation or Auto()

    def __call__(self, kernel: AbstractKernel) -> Float[Array, ""]:
        """The mean of −log softmax at the key that belongs to a query."""
        log_masses = log_normalizer(kernel, self.keys, self.queries.sites, summation=self.summation)
        own = jax.vmap(kernel.log_pair)(self.queries.sites, self.keys.sites)
        return jnp.mean(log_masses - own) + float(np.log(self.keys.count))
