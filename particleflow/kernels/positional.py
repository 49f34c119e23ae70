"""Kernels K₂(t, s) of positions in a sequence, to be multiplied with a kernel K₁(x, y) of points.

t is the position of the query, s that of the source. Positions are token indices or times; they never move.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._arrays import as_nonnegative, as_positive
from particleflow.kernels.base import AbstractMatrixKernel, positions_of


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


def _lags(xs: Any, ys: Any) -> Float[Array, "m n"]:
    return positions_of(xs, "query")[:, None] - positions_of(ys, "measure")[None, :]
