"""What estimators share: a kernel by its name and bandwidth or as it is, data as a measure, compiled readings.

scikit-learn calls the width of a kernel its bandwidth: the `width` of a Gaussian, the `radius` of a kernel that ends.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from particleflow import kernels as k
from particleflow.errors import ArgumentError, check_kind
from particleflow.local import local_mean, log_normalizer
from particleflow.measure import Measure
from particleflow.summation import AbstractSummation

KERNELS: dict[str, Callable[[Any], k.AbstractRadialKernel]] = {
    "gaussian": k.Gaussian,
    "laplace": k.Laplace,
    "cauchy": k.Cauchy,
    "flat": k.Ball,
    "epanechnikov": k.Epanechnikov,
    "triangle": k.Triangle,
}
RULES = ("scott", "silverman")
_LEAST_QUERIES = 64  # fewer are filled up, so that few programs are compiled


def kernel_of(kernel: Any, bandwidth: Any, points: np.ndarray) -> k.AbstractKernel:
    """A kernel from its name and bandwidth, a number or a rule of thumb; a kernel of one's own as it is.

    scott: h = n^{−1/(d+4)}; silverman: h = (n (d + 2)/4)^{−1/(d+4)}, for data of unit variance.
    """
    if not isinstance(kernel, str):
        check_kind(kernel, k.AbstractKernel, "kernel", f"a kernel, or one of {', '.join(map(repr, KERNELS))}")
        return kernel
    if kernel not in KERNELS:
        raise ArgumentError(f"Argument `kernel` must be one of {', '.join(map(repr, KERNELS))}, but is {kernel!r}.")
    return KERNELS[kernel](bandwidth_of(bandwidth, points))


def bandwidth_of(bandwidth: Any, points: np.ndarray) -> float:
    """A positive number, from a number or a rule of thumb."""
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
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ArgumentError(f"Argument `{name}` must be a positive integer, but is {value!r}.")


def check_share(value: Any, name: str) -> None:
    """Raise unless an argument lies between 0 and 1."""
    if not 0 < value < 1:
        raise ArgumentError(f"Argument `{name}` must be between 0 and 1, but is {value!r}.")


def samples_of(estimator: Any, X: Any) -> np.ndarray:
    """The rows of X, checked as scikit-learn does; their width is kept for queries."""
    return np.asarray(validate_data(estimator, X, dtype=np.float64))


def pairs_of(estimator: Any, X: Any, y: Any, **how: Any) -> tuple[np.ndarray, np.ndarray]:
    """The rows of X and as many targets."""
    points, targets = validate_data(estimator, X, y, dtype=np.float64, **how)
    return np.asarray(points), np.asarray(targets)


def queries_of(estimator: Any, X: Any) -> np.ndarray:
    """The rows of X as queries to an estimator that was fitted, as wide as its samples."""
    check_is_fitted(estimator)
    return np.asarray(validate_data(estimator, X, reset=False, dtype=np.float64))


def measure_of(points: np.ndarray, values: np.ndarray | None, sample_weight: Any) -> Measure:
    """Samples as a probability measure, each at its index as its position, equal where no weights are given."""
    weights = _check_sample_weight(sample_weight, points, dtype=np.float64, ensure_non_negative=True)
    places = np.arange(len(points), dtype=np.float64)
    return Measure.weighted(points.astype(np.float64), weights / weights.sum(), values, places)


def read(function: Callable[..., Array], points: np.ndarray, *given: Any) -> np.ndarray:
    """What a compiled function (queries, *given) says of each query, as NumPy's; queries are padded to 2ᵏ of them.

    So an estimator that is asked for 100, 101 and 120 points compiles once.
    """
    count = len(points)
    padded = max(_LEAST_QUERIES, 1 << (count - 1).bit_length())
    queries = jnp.asarray(np.concatenate([points, np.broadcast_to(points[:1], (padded - count, points.shape[1]))]))
    return np.array(compiled(function)(queries.astype(jnp.float64), *given))[:count]


_COMPILED: dict[Callable[..., Array], Callable[..., Array]] = {}


def compiled(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function of a module, compiled once for all estimators."""
    return _COMPILED.setdefault(function, eqx.filter_jit(function))


def means_at(queries: Array, kernel: k.AbstractKernel, measure: Measure, how: AbstractSummation) -> Array:
    """m at every query, as a function to `read`."""
    return local_mean(kernel, measure, queries, summation=how)


def log_masses_at(queries: Array, kernel: k.AbstractKernel, measure: Measure, how: AbstractSummation) -> Array:
    """G at every query, as a function to `read`."""
    return log_normalizer(kernel, measure, queries, summation=how)
