"""Kernels K₂(t, s) of positions in a sequence, to be multiplied with a kernel K₁(x, y) of points.

t is the position of the query, s that of the source. Positions are token indices or times; they never move.
"""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._arrays import as_float_array, as_nonnegative, as_positive
from particleflow.errors import ShapeError
from particleflow.kernels.base import AbstractKernel, AbstractMatrixKernel, points_of, positions_of, rows_at
from particleflow.measure import Sites


class Causal(AbstractMatrixKernel):
    """K₂(t, s) = 1 where s ≤ t, else 0: nobody sees the future, everybody sees itself."""

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix of 0 where s_j ≤ t_i, else −∞."""
        lags = _lags(xs, ys)
        return jnp.where(lags >= 0, jnp.zeros_like(lags), -jnp.inf)


class StrictlyCausal(AbstractMatrixKernel):
    """K₂(t, s) = 1 where s < t, else 0; the first token sees nothing and stays."""

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix of 0 where s_j < t_i, else −∞."""
        lags = _lags(xs, ys)
        return jnp.where(lags > 0, jnp.zeros_like(lags), -jnp.inf)


class Window(AbstractMatrixKernel):
    """K₂(t, s) = 1 where |t − s| < radius, else 0."""

    radius: Float[Array, ""]

    def __init__(self, radius: Any):
        self.radius = as_positive(radius, "radius")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix of 0 where |t_i − s_j| < radius, else −∞."""
        lags = _lags(xs, ys)
        return jnp.where(jnp.abs(lags) < self.radius, jnp.zeros_like(lags), -jnp.inf)


class Alibi(AbstractMatrixKernel):
    """K₂(t, s) = exp(−slope |t − s|): attention with linear biases; times `Causal()` for the usual form."""

    slope: Float[Array, ""]

    def __init__(self, slope: Any):
        self.slope = as_nonnegative(slope, "slope")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix −slope |t_i − s_j|."""
        return -self.slope * jnp.abs(_lags(xs, ys))


class TimeGaussian(AbstractMatrixKernel):
    """K₂(t, s) = exp(−(t − s)² / (2 width²))."""

    width: Float[Array, ""]

    def __init__(self, width: Any):
        self.width = as_positive(width, "width")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix −(t_i − s_j)² / (2 width²)."""
        return -0.5 * jnp.square(_lags(xs, ys) / self.width)


class AbstractEncoding(eqx.Module):
    """A vector p(t) for every position t."""

    @abc.abstractmethod
    def vectors(self, positions: Float[Array, " n"], dimension: int) -> Float[Array, "n d"]:
        """The encodings of some positions."""


class Sinusoidal(AbstractEncoding):
    """p(t)_{2i} = scale · sin(t/base^{2i/d}), p(t)_{2i+1} = scale · cos(t/base^{2i/d})."""

    scale: Float[Array, ""]
    base: Float[Array, ""]

    def __init__(self, scale: Any = 1.0, base: Any = 10000.0):
        self.scale = as_nonnegative(scale, "scale")
        self.base = as_positive(base, "base")

    def vectors(self, positions: Float[Array, " n"], dimension: int) -> Float[Array, "n d"]:
        """The sines and cosines, in turn."""
        index = jnp.arange(dimension)
        even = (index - index % 2).astype(positions.dtype)
        angles = positions[:, None] * jnp.exp(-even / dimension * jnp.log(self.base)).astype(positions.dtype)[None, :]
        return self.scale * jnp.where((index % 2 == 0)[None, :], jnp.sin(angles), jnp.cos(angles))


class PositionTable(AbstractEncoding):
    """p(t) from a table with one row a position, as a learned encoding is given."""

    table: Float[Array, "n d"]

    def __init__(self, table: Any):
        self.table = as_float_array(table, "table")

    def __check_init__(self):
        if self.table.ndim != 2:
            raise ShapeError(f"Argument `table` must be a matrix, but has shape {self.table.shape}.")

    def vectors(self, positions: Float[Array, " n"], dimension: int) -> Float[Array, "n d"]:
        """The rows of the table."""
        if self.table.shape[1] != dimension:
            raise ShapeError(f"Argument `table` must have {dimension} columns, but has {self.table.shape[1]}.")
        return rows_at(self.table, positions, "The positions")


class Encoded(AbstractMatrixKernel):
    """kernel(x + p(t), y + p(s)): absolute position encodings are added to what the kernel sees, not to the values."""

    kernel: AbstractKernel
    encoding: AbstractEncoding

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log kernel(x_i + p(t_i), y_j + p(s_j))."""
        return self.kernel.log_matrix(self._shifted(xs, "query"), self._shifted(ys, "measure"))

    def _shifted(self, sites: Any, role: str) -> Sites:
        points = points_of(sites)
        return sites._replace(points=points + self.encoding.vectors(positions_of(sites, role), points.shape[-1]))


def _lags(xs: Any, ys: Any) -> Float[Array, "m n"]:
    return positions_of(xs, "query")[:, None] - positions_of(ys, "measure")[None, :]
