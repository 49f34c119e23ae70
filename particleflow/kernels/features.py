"""Kernels built from maps, tables and functions that the user gives."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from particleflow._arrays import as_float_array
from particleflow.errors import ShapeError
from particleflow.kernels.base import (
    AbstractKernel,
    AbstractMatrixKernel,
    AbstractPairKernel,
    inner_products,
    points_of,
    rows_at,
    safe_log,
    values_of,
)
from particleflow.measure import Sites


class FeatureProduct(AbstractMatrixKernel):
    """K(x, y) = φ(x)·ψ(y) for a query map φ and a key map ψ with φ·ψ ≥ 0; a negative product shows as NaN."""

    query_map: Callable[[Array], Array]
    key_map: Callable[[Array], Array]

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log φ(x_i)·ψ(y_j)."""
        return safe_log(_feature_products(self.query_map, self.key_map, xs, ys))


class FeatureExponential(AbstractMatrixKernel):
    """K(x, y) = exp(φ(x)·ψ(y)) for a query map φ and a key map ψ."""

    query_map: Callable[[Array], Array]
    key_map: Callable[[Array], Array]

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix φ(x_i)·ψ(y_j)."""
        return _feature_products(self.query_map, self.key_map, xs, ys)


class Pullback(AbstractMatrixKernel):
    """K(x, y) = kernel(φ(x), ψ(y)), with x and y from spaces that may differ: a heterogeneous kernel on X×Y."""

    kernel: AbstractKernel
    query_map: Callable[[Array], Array]
    key_map: Callable[[Array], Array]

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log kernel(φ(x_i), ψ(y_j))."""
        return self.kernel.log_matrix(_mapped(self.query_map, xs), _mapped(self.key_map, ys))


class Discrete(AbstractMatrixKernel):
    """K(i, j) = exp log_table[i, j] on letters of an alphabet.

    A point is its letter's index (see `Measure.of_symbols`). With one letter a particle this is the free N×N
    kernel of a sample.
    """

    log_table: Float[Array, "a b"]

    def __init__(self, log_table: Any):
        self.log_table = as_float_array(log_table, "log_table", finite=False)

    def __check_init__(self):
        if self.log_table.ndim != 2 or 0 in self.log_table.shape:
            raise ShapeError(f"Argument `log_table` must be a matrix, but has shape {self.log_table.shape}.")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log_table[x_i, y_j]."""
        rows = _rows(self.log_table, xs, "queries")
        return _rows(rows.T, ys, "points").T


class Embedded(AbstractMatrixKernel):
    """K(i, j) = exp(φ_i·ψ_j) from a table of query embeddings φ and one of key embeddings ψ over an alphabet."""

    query_table: Float[Array, "a k"]
    key_table: Float[Array, "b k"]

    def __init__(self, query_table: Any, key_table: Any):
        self.query_table = as_float_array(query_table, "query_table")
        self.key_table = as_float_array(key_table, "key_table")

    def __check_init__(self):
        shapes = self.query_table.shape, self.key_table.shape
        if self.query_table.ndim != 2 or self.key_table.ndim != 2 or shapes[0][1] != shapes[1][1]:
            raise ShapeError(
                "Arguments `query_table` and `key_table` must be matrices with equally many columns, "
                f"but have shapes {shapes[0]} and {shapes[1]}."
            )

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix φ(x_i)·ψ(y_j)."""
        return inner_products(_rows(self.query_table, xs, "queries"), _rows(self.key_table, ys, "points"))


class SelfLocalized(AbstractPairKernel):
    """K(x, f(x), y, f(y)) from a function that returns its logarithm; f are the values that the sites carry."""

    log_function: Callable[[Array, Array, Array, Array], Array] = eqx.field(static=True)

    def log_pair(self, x: Any, y: Any) -> Float[Array, ""]:
        """log K(x, f(x), y, f(y))."""
        return self.log_function(points_of(x), values_of(x, "query"), points_of(y), values_of(y, "measure"))


class OnValues(AbstractMatrixKernel):
    """K(x, y) = kernel(f(x), f(y)): a kernel of the values that the sites carry, as in a bilateral filter."""

    kernel: AbstractKernel

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log kernel(f(x_i), f(y_j))."""
        queries, sources = values_of(xs, "query"), values_of(ys, "measure")
        return self.kernel.log_matrix(queries.reshape(len(queries), -1), sources.reshape(len(sources), -1))


def _feature_products(query_map: Callable, key_map: Callable, xs: Any, ys: Any) -> Array:
    return inner_products(jax.vmap(query_map)(points_of(xs)), jax.vmap(key_map)(points_of(ys)))


def _mapped(feature_map: Callable, sites: Any) -> Any:
    mapped = jax.vmap(feature_map)(points_of(sites))
    return sites._replace(points=mapped) if isinstance(sites, Sites) else mapped


def _rows(table: Float[Array, "a k"], sites: Any, role: str) -> Float[Array, "m k"]:
    """The rows of a table at the letters of some sites."""
    points = points_of(sites)
    if points.ndim != 2 or points.shape[1] != 1:
        raise ShapeError(
            f"A discrete kernel reads letters from points of one coordinate, but the {role} have shape {points.shape}."
        )
    return rows_at(table, points[:, 0], f"The letters of the {role}")
