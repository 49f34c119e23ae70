"""What estimators share: kernels by name and bandwidth, checked data as measures, compiled evaluations at queries.

scikit-learn calls the width of a kernel its bandwidth: the `width` of a Gaussian, the `radius` of a kernel that ends.
"""

from collections.abc import Callable
from numbers import Number
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from particleflow import kernels as k
from particleflow.errors import ArgumentError, ShapeError, check_kind, whole_number
from particleflow.measure import Measure
from particleflow.summation import AbstractSummation
from particleflow.summation.local_mean import attention_weights, local_mean, local_moments, log_normalizer

KERNELS: dict[str, Callable[[Any], k.AbstractRadialKernel]] = {
    "gaussian": k.Gaussian,
    "laplace": k.Laplace,
    "cauchy": k.Cauchy,
    "flat": k.Ball,
    "epanechnikov": k.Epanechnikov,
    "triangle": k.Triangle,
}
RULES = ("scott", "silverman")
_LEAST_QUERIES = 64  # fewer queries are padded to this number, so that few programs are compiled


def kernel_of(kernel: Any, bandwidth: Any, points: np.ndarray) -> k.AbstractKernel:
    """A kernel of the package, from its name and bandwidth; a kernel object is returned unchanged.

    Parameters: `kernel`, a key of `KERNELS` or a kernel; `bandwidth`, a number or a rule of `bandwidth_of`; `points`
    (n, d), to which the rule is applied.
    """
    if not isinstance(kernel, str):
        check_kind(kernel, k.AbstractKernel, "kernel", f"a kernel, or one of {', '.join(map(repr, KERNELS))}")
        return kernel
    if kernel not in KERNELS:
        raise ArgumentError(f"Argument `kernel` must be one of {', '.join(map(repr, KERNELS))}, but is {kernel!r}.")
    return KERNELS[kernel](bandwidth_of(bandwidth, points))


def bandwidth_of(bandwidth: Any, points: np.ndarray) -> float:
    """A positive number, from a number or a rule of thumb for points (n, d) of unit variance.

    scott      h = n^{−1/(d+4)}                  Scott, Multivariate density estimation (1992)
    silverman  h = (n (d + 2)/4)^{−1/(d+4)}      Silverman, Density estimation for statistics and data analysis (1986)
    """
    count, dimension = points.shape
    if isinstance(bandwidth, str):
        if bandwidth not in RULES:
            raise ArgumentError(f"Argument `bandwidth` must be a number or one of {RULES}, but is {bandwidth!r}.")
        size = count if bandwidth == "scott" else count * (dimension + 2) / 4
        return float(size ** (-1 / (dimension + 4)))
    number = isinstance(bandwidth, int | float | np.integer | np.floating) and not isinstance(bandwidth, bool)
    if not (number and 0 < bandwidth < np.inf):
        raise ArgumentError(f"Argument `bandwidth` must be a positive number, but is {bandwidth!r}.")
    return float(bandwidth)


def check_count(value: Any, name: str) -> None:
    """Raise unless an argument is a positive integer."""
    whole_number(value, name)


def check_share(value: Any, name: str) -> None:
    """Raise unless an argument lies between 0 and 1."""
    if not 0 < value < 1:
        raise ArgumentError(f"Argument `{name}` must be between 0 and 1, but is {value!r}.")


def samples_of(estimator: Any, X: Any) -> np.ndarray:
    """The rows of X (n, d), checked by scikit-learn; the estimator's `n_features_in_` becomes d."""
    return np.asarray(validate_data(estimator, X, dtype=np.float64))


def pairs_of(estimator: Any, X: Any, y: Any, **how: Any) -> tuple[np.ndarray, np.ndarray]:
    """The rows of X (n, d) and as many targets, checked by scikit-learn; `how` are options of its `validate_data`."""
    points, targets = validate_data(estimator, X, y, dtype=np.float64, **how)
    return np.asarray(points), np.asarray(targets)


def queries_of(estimator: Any, X: Any) -> np.ndarray:
    """The rows of X as queries to a fitted estimator, refused if they do not have as many features as its samples."""
    check_is_fitted(estimator)
    return np.asarray(validate_data(estimator, X, reset=False, dtype=np.float64))


def weights_of(sample_weight: Any, count: int) -> np.ndarray:
    """One weight ≥ 0 for each of `count` samples, not all zero; None or one number stand for equal weights."""
    given = 1.0 if sample_weight is None else sample_weight
    given = np.full(count, given) if isinstance(given, Number) else given
    weights = check_array(given, ensure_2d=False, dtype="float64", input_name="sample_weight")
    if weights.shape != (count,):
        raise ShapeError(f"Argument `sample_weight` must have shape ({count},), but has {weights.shape}.")
    if (weights < 0).any():
        raise ArgumentError(f"Argument `sample_weight` must not be negative, but holds {weights.min():g}.")
    if not weights.any():
        raise ArgumentError("Argument `sample_weight` gives the samples no mass: every weight is zero.")
    return weights


def measure_of(points: np.ndarray, values: np.ndarray | None, sample_weight: Any) -> Measure:
    """Samples as a probability measure: weights that sum to one, and the index of a sample as its position.

    Parameters: `points` (n, d); `values` (n,) or (n, k), None for the points themselves; `sample_weight` (n,) ≥ 0, a
    number, or None for equal weights.
    """
    weights = weights_of(sample_weight, len(points))
    places = np.arange(len(points), dtype=np.float64)
    return Measure.weighted(points.astype(np.float64), weights / weights.sum(), values, places)


def read(function: Callable[..., Array], points: np.ndarray, *given: Any) -> np.ndarray:
    """Evaluate a compiled function (queries, *given) at every row of `points`, as a NumPy array.

    Queries are padded to a power of two, so that 100, 101 and 120 points share one compiled program.
    """
    count = len(points)
    padded = max(_LEAST_QUERIES, 1 << (count - 1).bit_length())
    queries = jnp.asarray(np.concatenate([points, np.broadcast_to(points[:1], (padded - count, points.shape[1]))]))
    return np.array(compiled(function)(queries.astype(jnp.float64), *given))[:count]


_COMPILED: dict[Callable[..., Array], Callable[..., Array]] = {}


def compiled(function: Callable[..., Array]) -> Callable[..., Array]:
    """The compiled form of a module-level function, shared by all estimators."""
    return _COMPILED.setdefault(function, eqx.filter_jit(function))


def means_at(queries: Array, kernel: k.AbstractKernel, measure: Measure, how: AbstractSummation) -> Array:
    """The local mean m at every query, in the order of arguments that `read` passes on."""
    return local_mean(kernel, measure, queries, summation=how)


def log_masses_at(queries: Array, kernel: k.AbstractKernel, measure: Measure, how: AbstractSummation) -> Array:
    """The log-mass G at every query, in the order of arguments that `read` passes on."""
    return log_normalizer(kernel, measure, queries, summation=how)


def attention_weights_at(queries: Array, kernel: k.AbstractKernel, measure: Measure) -> Array:
    """K(x, x_i) w_i / Σ_j K(x, x_j) w_j for every query, (m, n), in the order of arguments that `read` passes on."""
    return attention_weights(kernel, measure, queries)


def seen_means_at(queries: Any, kernel: k.AbstractKernel, measure: Measure, how: AbstractSummation) -> Array:
    """The local mean m at every query, NaN where the kernel vanishes at every sample."""
    moments = local_moments(kernel, measure, queries, summation=how)
    nothing = jnp.isneginf(moments.log_mass)
    return jnp.where(nothing.reshape(nothing.shape + (1,) * (moments.mean.ndim - 1)), jnp.nan, moments.mean)
