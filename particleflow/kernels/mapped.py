"""Kernels built from maps, tables and functions that the user gives.

A function is kept as a pytree: a network's weights are leaves, to be differentiated and swept like any parameter, and a
plain function has no leaves at all. So these kernels pass through `jax.jit` and `jax.grad` like all others. Two
functions are the same to the compiler only if they are the same object: a lambda made anew compiles anew.

A map is a function φ(x) of a point, or, with `with_positions`, a function φ(x, t) of a point and its position.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array
from particleflow.errors import ShapeError
from particleflow.kernels.base import (
    AbstractKernel,
    AbstractMatrixKernel,
    AbstractPairKernel,
    as_log_table,
    inner_products,
    points_of,
    positions_of,
    rows_at,
    safe_log,
    values_of,
)
from particleflow.kernels.capabilities import AbstractView
from particleflow.kernels.forms import Bilinear, Separable
from particleflow.measure import Sites


def as_function(function: Any) -> Any:
    """A function as a pytree whose leaves are arrays.

    Plain functions become `jax.tree_util.Partial`, which has no leaves; modules keep their arrays as leaves, and the
    plain functions inside them (the activation of a network) are wrapped in the same way.
    """
    return jax.tree_util.tree_map(lambda leaf: jax.tree_util.Partial(leaf) if callable(leaf) else leaf, function)


class FeatureProduct(AbstractMatrixKernel):
    """K(x, y) = φ(x)·ψ(y) for a query map φ and a key map ψ with φ·ψ ≥ 0; a negative product shows as NaN.

    Source: linear attention, Katharopoulos et al., Transformers are RNNs (2020); with random features that have the
    exponential as their mean, Choromanski et al., Rethinking attention with performers (2021).
    """

    query_map: Callable[..., Array] = eqx.field(converter=as_function)
    key_map: Callable[..., Array] = eqx.field(converter=as_function)
    with_positions: bool = eqx.field(static=True, default=False)

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log φ(x_i)·ψ(y_j)."""
        queries, keys = _images(self, xs, "query"), _images(self, ys, "measure")
        return safe_log(inner_products(queries, keys))

    def separable(self) -> Separable:
        """φ and ψ, as functions of sites."""
        return Separable(lambda xs: _images(self, xs, "query"), lambda ys: _images(self, ys, "measure"))


class FeatureExponential(AbstractMatrixKernel):
    """K(x, y) = exp(φ(x)·ψ(y)) for a query map φ and a key map ψ: attention on learned features."""

    query_map: Callable[..., Array] = eqx.field(converter=as_function)
    key_map: Callable[..., Array] = eqx.field(converter=as_function)
    with_positions: bool = eqx.field(static=True, default=False)

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix of exponents φ(x_i)·ψ(y_j)."""
        return inner_products(_images(self, xs, "query"), _images(self, ys, "measure"))

    def bilinear(self) -> Bilinear:
        """θ = φ, s = ψ, no offsets."""
        return Bilinear(lambda xs: _images(self, xs, "query"), lambda ys: _images(self, ys, "measure"))

    def vanishes(self) -> bool:
        """Never: an exponential is positive."""
        return False


class Pullback(AbstractView):
    """K(x, y) = kernel(φ(x), ψ(y)), with x and y from spaces that may differ: a heterogeneous kernel on X×Y.

    Forms and facts are those of the kernel, seen through the maps.
    """

    kernel: AbstractKernel
    query_map: Callable[..., Array] = eqx.field(converter=as_function)
    key_map: Callable[..., Array] = eqx.field(converter=as_function)
    with_positions: bool = eqx.field(static=True, default=False)

    def parts(self) -> tuple[AbstractKernel, ...]:
        """The kernel of the images."""
        return (self.kernel,)

    def with_parts(self, parts: tuple[AbstractKernel, ...]) -> AbstractKernel:
        """Another kernel of the same images."""
        return Pullback(parts[0], self.query_map, self.key_map, self.with_positions)

    def query_view(self, sites: Any) -> Any:
        """The queries at their images φ(x)."""
        return _replaced(sites, _images(self, sites, "query"))

    def key_view(self, sites: Any) -> Any:
        """The points of the measure at their images ψ(y)."""
        return _replaced(sites, _images(self, sites, "measure"))


class Discrete(AbstractMatrixKernel):
    """K(i, j) = exp log_table[i, j] on letters of an alphabet.

    A point is its letter's index (see `Measure.of_symbols`). With a letter of its own for every particle this is an
    arbitrary N×N kernel. The table may hold −∞, where K is 0.
    """

    log_table: Float[Array, "a b"] = eqx.field(converter=as_log_table)

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log_table[x_i, y_j]."""
        rows = _rows(self.log_table, xs, "queries")
        return _rows(rows.T, ys, "points").T


class Embedded(AbstractMatrixKernel):
    """K(i, j) = exp(φ_i·ψ_j) from a table of query embeddings φ and one of key embeddings ψ over an alphabet.

    A `Discrete` kernel whose log-table has low rank: a words × k table instead of words × words.
    """

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
        """The matrix of exponents φ(x_i)·ψ(y_j)."""
        return inner_products(_rows(self.query_table, xs, "queries"), _rows(self.key_table, ys, "points"))

    def bilinear(self) -> Bilinear:
        """θ = φ and s = ψ, the rows of the tables; no offsets."""
        return Bilinear(
            lambda xs: _rows(self.query_table, xs, "queries"), lambda ys: _rows(self.key_table, ys, "points")
        )

    def vanishes(self) -> bool:
        """Never: an exponential is positive."""
        return False


class SelfLocalized(AbstractPairKernel):
    """K(x, f(x), y, f(y)) from a function that returns its logarithm; f are the values that the sites carry.

    Nothing is known of the function, so no form is offered, and the kernel counts as one that may vanish.
    """

    log_function: Callable[[Array, Array, Array, Array], Array] = eqx.field(converter=as_function)

    def log_pair(self, x: Any, y: Any) -> Float[Array, ""]:
        """log K(x, f(x), y, f(y))."""
        return self.log_function(points_of(x), values_of(x, "query"), points_of(y), values_of(y, "measure"))


class OnValues(AbstractView):
    """K(x, y) = kernel(f(x), f(y)): a kernel of the values that the sites carry.

    Times a kernel of the points it is the bilateral filter (Tomasi and Manduchi 1998). Forms and facts are those of the
    kernel, with values in place of points.
    """

    kernel: AbstractKernel

    def parts(self) -> tuple[AbstractKernel, ...]:
        """The kernel of the values."""
        return (self.kernel,)

    def with_parts(self, parts: tuple[AbstractKernel, ...]) -> AbstractKernel:
        """Another kernel of the values."""
        return OnValues(parts[0])

    def query_view(self, sites: Any) -> Float[Array, "m k"]:
        """f(x), one row a query."""
        return _value_rows(sites, "query")

    def key_view(self, sites: Any) -> Float[Array, "n k"]:
        """f(y), one row a point of the measure."""
        return _value_rows(sites, "measure")


def _value_rows(sites: Any, role: str) -> Float[Array, "m k"]:
    """The values of sites as points: numbers become vectors of one coordinate."""
    values = values_of(sites, role)
    return values.reshape(len(values), -1)


def _images(maps: FeatureProduct | FeatureExponential | Pullback, sites: Any, role: str) -> Float[Array, "m k"]:
    """φ(x) of queries or ψ(y) of points of the measure, by `role`."""
    feature_map = maps.query_map if role == "query" else maps.key_map
    points = points_of(sites)
    return (
        jax.vmap(feature_map)(points, positions_of(sites, role))
        if maps.with_positions
        else jax.vmap(feature_map)(points)
    )


def _replaced(sites: Any, points: Array) -> Any:
    """Sites moved to other points; where they are a plain array, the points alone."""
    return sites._replace(points=points) if isinstance(sites, Sites) else points


def _rows(table: Float[Array, "a k"], sites: Any, role: str) -> Float[Array, "m k"]:
    """The rows of a table at the letters of some sites."""
    points = points_of(sites)
    if points.ndim != 2 or points.shape[1] != 1:
        raise ShapeError(
            f"A discrete kernel reads letters from points of one coordinate, but the {role} have shape {points.shape}."
        )
    return rows_at(table, points[:, 0], f"The letters of the {role}")
