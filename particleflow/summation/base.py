"""How moments are summed, apart from what is summed.

A summation takes any kernel and any measure and returns, for every query x,

    G(x) = log Σ_j w_j K(x, y_j),    m(x) = Σ_j w_j K(x, y_j) z_j / Σ_j w_j K(x, y_j).
"""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array

from particleflow._arrays import as_float_array, check_same_dtype, strong_dtype_leaves
from particleflow.errors import ShapeError
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.moments import Moments


class AbstractSummation(eqx.Module):
    """A way to evaluate moments."""

    @abc.abstractmethod
    def moments(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Moments:
        """The moments of `measure` under `kernel`, seen from each of `queries` (an array (m, d), or `Sites`)."""


def as_query_sites(queries: Any) -> Sites:
    """Queries as sites with a leading axis; an array is points without positions."""
    if isinstance(queries, Measure):
        return queries.sites
    sites = queries if isinstance(queries, Sites) else Sites(queries)
    points = as_float_array(sites.points, "queries")
    if points.ndim != 2 or points.shape[1] == 0:
        raise ShapeError(f"Argument `queries` must have shape (m, d), but has {points.shape}.")
    count = points.shape[0]
    positions, values = (
        None if array is None else as_float_array(array, f"queries.{name}")
        for name, array in (("positions", sites.positions), ("values", sites.values))
    )
    if positions is not None and positions.shape != (count,):
        raise ShapeError(
            f"Argument `queries.positions` must have shape ({count},), one number a query, but has {positions.shape}."
        )
    if values is not None and (values.ndim not in (1, 2) or values.shape[0] != count):
        raise ShapeError(
            f"Argument `queries.values` must have shape ({count},) or ({count}, k), but has {values.shape}."
        )
    return Sites(points, positions, values)


def check_precision(kernel: AbstractKernel, measure: Measure, queries: Sites) -> None:
    """Raise if kernel, measure and queries do not share one precision."""
    inside_kernel = {f"kernel.{path}": leaf for path, leaf in strong_dtype_leaves(kernel).items()}
    inside_queries = {f"queries.{name}": getattr(queries, name) for name in ("positions", "values")}
    check_same_dtype(points=measure.points, queries=queries.points, **inside_queries, **inside_kernel)


def value_columns(measure: Measure) -> Array:
    """The carried values as a matrix, one row a point."""
    carried = measure.carried
    return carried[:, None] if carried.ndim == 1 else carried


def logits_of(kernel: AbstractKernel, queries: Sites, sources: Sites, log_weights: Array) -> Array:
    """The matrix log K(x_i, y_j) + log w_j, checked for its shape."""
    logits = kernel.log_matrix(queries, sources)
    expected = (queries.points.shape[0], sources.points.shape[0])
    if logits.shape != expected:
        raise ShapeError(
            f"The kernel {type(kernel).__name__} must return shape {expected}, but returned {logits.shape}."
        )
    return logits + log_weights[None, :]
