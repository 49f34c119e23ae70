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

from particleflow._arrays import as_float_array
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
from particleflow.kernels.forms import Bilinear, Radial, Separable
from particleflow.measure import Measure, Sites


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
        """φ and ψ."""
        return Separable(lambda xs: _images(self, xs, "query"), lambda ys: _images(self, ys, "measure"))


class FeatureExponential(AbstractMatrixKernel):
    """K(x, y) = exp(φ(x)·ψ(y)) for a query map φ and a key map ψ: attention on learned features."""

    query_map: Callable[..., Array] = eqx.field(converter=as_function)
    key_map: Callable[..., Array] = eqx.field(converter=as_function)
    with_positions: bool = eqx.field(static=True, default=False)

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix φ(x_i)·ψ(y_j)."""
        return inner_products(_images(self, xs, "query"), _images(self, ys, "measure"))

    def bilinear(self) -> Bilinear:
        """θ = φ, s = ψ, no offsets."""
        return Bilinear(lambda xs: _images(self, xs, "query"), lambda ys: _images(self, ys, "measure"))

    def vanishes(self) -> bool:
        """Never."""
        return False


class Pullback(AbstractMatrixKernel):
    """K(x, y) = kernel(φ(x), ψ(y)), with x and y from spaces that may differ: a heterogeneous kernel on X×Y.

    Forms and facts are those of the kernel, seen through the maps.
    """

    kernel: AbstractKernel
    query_map: Callable[..., Array] = eqx.field(converter=as_function)
    key_map: Callable[..., Array] = eqx.field(converter=as_function)
    with_positions: bool = eqx.field(static=True, default=False)

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log kernel(φ(x_i), ψ(y_j))."""
        return self.kernel.log_matrix(self._query_image(xs), self._key_image(ys))

    def bilinear(self) -> Bilinear | None:
        """Features and offsets of the images."""
        form = self.kernel.bilinear()
        return form and form.seen_through(self._query_image, self._key_image)

    def radial(self) -> Radial | None:
        """The same profile, of the images."""
        form = self.kernel.radial()
        return form and form.seen_through(self._query_image, self._key_image)

    def factors(self) -> tuple[AbstractKernel, ...]:
        """The factors, each pulled back."""
        parts = self.kernel.factors()
        maps = self.query_map, self.key_map, self.with_positions
        return (self,) if len(parts) == 1 else tuple(Pullback(part, *maps) for part in parts)

    def among(self, measure: Measure) -> AbstractKernel:
        """Of the kernel, if it counts points, amid images."""
        return (
            Pullback(
                self.kernel.among(measure.with_points(_images(self, measure.sites, "measure"))),
                self.query_map,
                self.key_map,
                self.with_positions,
            )
            if self.counts_points()
            else self
        )

    def counts_points(self) -> bool:
        """Where the kernel does."""
        return self.kernel.counts_points()

    def vanishes(self) -> bool:
        """Where the kernel does."""
        return self.kernel.vanishes()

    def inverse_temperature(self) -> Float[Array, ""] | None:
        """That of the kernel."""
        return self.kernel.inverse_temperature()

    def _query_image(self, sites: Any) -> Any:
        return _replaced(sites, _images(self, sites, "query"))

    def _key_image(self, sites: Any) -> Any:
        return _replaced(sites, _images(self, sites, "measure"))


class Discrete(AbstractMatrixKernel):
    """K(i, j) = exp log_table[i, j] on letters of an alphabet.

    A point is its letter's index (see `Measure.of_symbols`). With one letter a particle this is the free N×N
    kernel of a sample. The table may hold −∞: letters that do not see each other.
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
        """The matrix φ(x_i)·ψ(y_j)."""
        return inner_products(_rows(self.query_table, xs, "queries"), _rows(self.key_table, ys, "points"))

    def bilinear(self) -> Bilinear:
        """θ = φ and s = ψ, the rows of the tables; no offsets."""
        return Bilinear(
            lambda xs: _rows(self.query_table, xs, "queries"), lambda ys: _rows(self.key_table, ys, "points")
        )

    def vanishes(self) -> bool:
        """Never."""
        return False


class SelfLocalized(AbstractPairKernel):
    """K(x, f(x), y, f(y)) from a function that returns its logarithm; f are the values that the sites carry.

    Nothing is known of the function, so no form is offered, and the kernel counts as one that may vanish.
    """

    log_function: Callable[[Array, Array, Array, Array], Array] = eqx.field(converter=as_function)

    def log_pair(self, x: Any, y: Any) -> Float[Array, ""]:
        """log K(x, f(x), y, f(y))."""
        return self.log_function(points_of(x), values_of(x, "query"), points_of(y), values_of(y, "measure"))


class OnValues(AbstractMatrixKernel):
    """K(x, y) = kernel(f(x), f(y)): a kernel of the values that the sites carry.

    Times a kernel of the points it is the bilateral filter (Tomasi and Manduchi 1998). Forms and facts are those of the
    kernel, with values in place of points.
    """

    kernel: AbstractKernel

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log kernel(f(x_i), f(y_j))."""
        return self.kernel.log_matrix(_query_values(xs), _key_values(ys))

    def bilinear(self) -> Bilinear | None:
        """Features and offsets of the values."""
        form = self.kernel.bilinear()
        return form and form.seen_through(_query_values, _key_values)

    def radial(self) -> Radial | None:
        """The same profile, of the values."""
        form = self.kernel.radial()
        return form and form.seen_through(_query_values, _key_values)

    def factors(self) -> tuple[AbstractKernel, ...]:
        """The factors, each on values."""
        parts = self.kernel.factors()
        return (self,) if len(parts) == 1 else tuple(OnValues(part) for part in parts)

    def among(self, measure: Measure) -> AbstractKernel:
        """Of the kernel, if it counts points, amid values."""
        return (
            OnValues(self.kernel.among(measure.with_points(_key_values(measure.sites))))
            if self.counts_points()
            else self
        )

    def counts_points(self) -> bool:
        """Where the kernel does."""
        return self.kernel.counts_points()

    def vanishes(self) -> bool:
        """Where the kernel does."""
        return self.kernel.vanishes()

    def inverse_temperature(self) -> Float[Array, ""] | None:
        """That of the kernel."""
        return self.kernel.inverse_temperature()


def _query_values(sites: Any) -> Float[Array, "m k"]:
    values = values_of(sites, "query")
    return values.reshape(len(values), -1)


def _key_values(sites: Any) -> Float[Array, "n k"]:
    values = values_of(sites, "measure")
    return values.reshape(len(values), -1)


def _images(maps: FeatureProduct | FeatureExponential | Pullback, sites: Any, role: str) -> Float[Array, "m k"]:
    """What the map of a role makes of sites."""
    feature_map = maps.query_map if role == "query" else maps.key_map
    points = points_of(sites)
    return (
        jax.vmap(feature_map)(points, positions_of(sites, role))
        if maps.with_positions
        else jax.vmap(feature_map)(points)
    )


def _replaced(sites: Any, points: Array) -> Any:
    return sites._replace(points=points) if isinstance(sites, Sites) else points


def _rows(table: Float[Array, "a k"], sites: Any, role: str) -> Float[Array, "m k"]:
    """The rows of a table at the letters of some sites."""
    points = points_of(sites)
    if points.ndim != 2 or points.shape[1] != 1:
        raise ShapeError(
            f"A discrete kernel reads letters from points of one coordinate, but the {role} have shape {points.shape}."
        )
    return rows_at(table, points[:, 0], f"The letters of the {role}")
