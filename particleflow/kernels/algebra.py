"""New kernels from old: products, mixtures, multiples, symmetrisation. (Normalisation needs a measure: see `local`.)"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._arrays import as_nonnegative, is_concrete
from particleflow.errors import ArgumentError, ShapeError
from particleflow.kernels.base import AbstractKernel, AbstractMatrixKernel, safe_log


class Product(AbstractMatrixKernel):
    """K(x, y) = Π_l K_l(x, y)."""

    kernels: tuple[AbstractKernel, ...]

    def __check_init__(self):
        if not self.kernels:
            raise ArgumentError("Argument `kernels` must name at least one kernel, but is empty.")
        _check_kernels(self.kernels)

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix Σ_l log K_l(x_i, y_j)."""
        first, *others = (kernel.log_matrix(xs, ys) for kernel in self.kernels)
        return sum(others, start=first)


class Mixture(AbstractMatrixKernel):
    """K(x, y) = Σ_l w_l K_l(x, y) with weights w_l ≥ 0."""

    kernels: tuple[AbstractKernel, ...]
    weights: tuple[Float[Array, ""], ...]

    def __init__(self, kernels: Any, weights: Any):
        self.kernels = tuple(kernels)
        self.weights = tuple(as_nonnegative(weight, f"weights[{i}]") for i, weight in enumerate(weights))

    def __check_init__(self):
        if not self.kernels or len(self.weights) != len(self.kernels):
            raise ShapeError(
                "Arguments `kernels` and `weights` must be equally many and at least one, "
                f"but there are {len(self.kernels)} kernels and {len(self.weights)} weights."
            )
        _check_kernels(self.kernels)
        if all(is_concrete(weight) and float(weight) == 0 for weight in self.weights):
            raise ArgumentError("Argument `weights` gives the mixture no mass: every weight is zero.")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log Σ_l w_l K_l(x_i, y_j)."""
        pairs = zip(self.kernels, self.weights, strict=True)
        return _log_sum_exp(jnp.stack([kernel.log_matrix(xs, ys) + safe_log(weight) for kernel, weight in pairs]))


class Scaled(AbstractMatrixKernel):
    """K(x, y) = factor · kernel(x, y); the factor changes masses, never means."""

    kernel: AbstractKernel
    factor: Float[Array, ""]

    def __init__(self, kernel: AbstractKernel, factor: Any):
        self.kernel = kernel
        self.factor = as_nonnegative(factor, "factor")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log factor + log kernel(x_i, y_j)."""
        return safe_log(self.factor) + self.kernel.log_matrix(xs, ys)


class Transposed(AbstractMatrixKernel):
    """K(y, x): the same kernel seen from the other side."""

    kernel: AbstractKernel

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The matrix log K(y_j, x_i)."""
        return self.kernel.log_matrix(ys, xs).T


class Symmetrised(AbstractMatrixKernel):
    """½(K(x, y) + K(y, x)), or √(K(x, y) K(y, x)) with `mean = "geometric"`."""

    kernel: AbstractKernel
    mean: Literal["arithmetic", "geometric"] = "arithmetic"

    def __check_init__(self):
        if self.mean not in ("arithmetic", "geometric"):
            raise ArgumentError(f"Argument `mean` must be 'arithmetic' or 'geometric', but is {self.mean!r}.")

    def log_matrix(self, xs: Any, ys: Any) -> Float[Array, "m n"]:
        """The logarithm of the mean of both orders."""
        forward, backward = self.kernel.log_matrix(xs, ys), self.kernel.log_matrix(ys, xs).T
        if self.mean == "geometric":
            return 0.5 * (forward + backward)
        return _log_sum_exp(jnp.stack([forward, backward])) - jnp.log(2.0).astype(forward.dtype)


def _check_kernels(kernels: tuple[Any, ...]) -> None:
    for index, kernel in enumerate(kernels):
        if not isinstance(kernel, AbstractKernel):
            raise ArgumentError(f"Argument `kernels[{index}]` must be a kernel, but is {type(kernel).__name__}.")


def _log_sum_exp(stacked: Float[Array, "l m n"]) -> Float[Array, "m n"]:
    """log Σ_l exp stacked_l, with gradient 0 (not NaN) where every term vanishes."""
    highest = jax.lax.stop_gradient(jnp.max(stacked, axis=0))
    highest = jnp.where(jnp.isfinite(highest), highest, 0.0)
    return highest + safe_log(jnp.sum(jnp.exp(stacked - highest[None]), axis=0))
