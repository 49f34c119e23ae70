"""Kernels of the distance |x − y|: smooth ones, heavy-tailed ones, and ones that vanish beyond a radius."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._arrays import as_positive
from particleflow.kernels.base import AbstractMatrixKernel, distances, points_of, safe_log, squared_distances


class Gaussian(AbstractMatrixKernel):
    """K(x, y) = exp(−|x − y|² / (2 width²)); on the unit sphere the attention kernel of β = 1/width²."""

    width: Float[Array, ""]

    def __init__(self, width: Any):
        self.width = as_positive(width, "width")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix −|x_i − y_j|² / (2 width²)."""
        return -0.5 * squared_distances(points_of(xs), points_of(ys)) / jnp.square(self.width)


class Laplace(AbstractMatrixKernel):
    """K(x, y) = exp(−|x − y| / width)."""

    width: Float[Array, ""]

    def __init__(self, width: Any):
        self.width = as_positive(width, "width")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix −|x_i − y_j| / width."""
        return -distances(points_of(xs), points_of(ys)) / self.width


class Cauchy(AbstractMatrixKernel):
    """K(x, y) = 1 / (1 + |x − y|² / width²)."""

    width: Float[Array, ""]

    def __init__(self, width: Any):
        self.width = as_positive(width, "width")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix −log(1 + |x_i − y_j|² / width²)."""
        return -jnp.log1p(squared_distances(points_of(xs), points_of(ys)) / jnp.square(self.width))


class StudentT(AbstractMatrixKernel):
    """K(x, y) = (1 + |x − y|² / (ν width²))^{−(ν + d)/2}, the density of Student's t in d dimensions."""

    width: Float[Array, ""]
    freedom: Float[Array, ""]

    def __init__(self, width: Any, freedom: Any):
        self.width = as_positive(width, "width")
        self.freedom = as_positive(freedom, "freedom")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix −(ν + d)/2 · log(1 + |x_i − y_j|² / (ν width²))."""
        queries, points = points_of(xs), points_of(ys)
        squares = squared_distances(queries, points)
        relative = squares / (self.freedom * jnp.square(self.width))
        return -0.5 * (self.freedom + points.shape[-1]) * jnp.log1p(relative)


class Ball(AbstractMatrixKernel):
    """K(x, y) = 1 where |x − y| < radius, else 0: bounded confidence."""

    radius: Float[Array, ""]

    def __init__(self, radius: Any):
        self.radius = as_positive(radius, "radius")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix of 0 inside and −∞ outside the ball."""
        inside = squared_distances(points_of(xs), points_of(ys)) < jnp.square(self.radius)
        return jnp.where(inside, 0.0, -jnp.inf).astype(points_of(ys).dtype)


class Epanechnikov(AbstractMatrixKernel):
    """K(x, y) = max(0, 1 − |x − y|² / radius²)."""

    radius: Float[Array, ""]

    def __init__(self, radius: Any):
        self.radius = as_positive(radius, "radius")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log max(0, 1 − |x_i − y_j|² / radius²)."""
        squares = squared_distances(points_of(xs), points_of(ys)) / jnp.square(self.radius)
        return safe_log(jnp.maximum(1 - squares, 0.0))


class Triangle(AbstractMatrixKernel):
    """K(x, y) = max(0, 1 − |x − y| / radius)."""

    radius: Float[Array, ""]

    def __init__(self, radius: Any):
        self.radius = as_positive(radius, "radius")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log max(0, 1 − |x_i − y_j| / radius)."""
        return safe_log(jnp.maximum(1 - distances(points_of(xs), points_of(ys)) / self.radius, 0.0))
