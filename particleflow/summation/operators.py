"""Signed kernels, as operators on the values that a measure carries.

Write K f for the function x ↦ ∫ K(x, y) f(y) dμ(y) = e^{G(x)} m(x). A difference of kernels has no logarithm,
but as an operator it is a difference of two of these. Masses are exponentials again here: where G is beyond the range
of the numbers (709 in float64, 88 in float32) they overflow, and where a difference is small beside its two parts it
has fewer digits than they have.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import as_scalar
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure
from particleflow.summation.base import AbstractSummation
from particleflow.summation.local_mean import local_moments

__all__ = [
    "kernel_derivative",
    "kernel_difference",
    "laplacian",
    "smoothed",
]


def smoothed(
    kernel: AbstractKernel, measure: Measure, queries: Any, *, summation: AbstractSummation | None = None
) -> Float[Array, "m *k"]:
    """(K f)(x) = ∫ K(x, y) f(y) dμ(y), not normalised; 0 where a query sees nothing."""
    moments = local_moments(kernel, measure, queries, summation=summation)
    mass = jnp.exp(moments.log_mass)
    return mass.reshape(mass.shape + (1,) * (moments.mean.ndim - mass.ndim)) * moments.mean


def laplacian(
    kernel: AbstractKernel, measure: Measure, *, normalised: bool = False, summation: AbstractSummation | None = None
) -> Float[Array, "n *k"]:
    """(D − K) f at the points of the measure, with D(x) = ∫ K(x, y) dμ(y); f − K̃ f when `normalised`.

    The graph Laplacian of the kernel's weights, and that of the random walk (Coifman and Lafon, Diffusion maps, 2006).
    It is D (f − m), with one rounding of the difference, rather than D f − K f.
    """
    moments = local_moments(kernel, measure, measure, summation=summation)
    difference = measure.carried - moments.mean
    if normalised:
        return difference
    mass = jnp.exp(moments.log_mass)
    return mass.reshape(mass.shape + (1,) * (difference.ndim - 1)) * difference


def kernel_difference(
    first: AbstractKernel,
    second: AbstractKernel,
    measure: Measure,
    queries: Any,
    *,
    summation: AbstractSummation | None = None,
) -> Float[Array, "m *k"]:
    """((K₁ − K₂) f)(x): with two Gaussians the difference of Gaussians of edge detection (Marr and Hildreth 1980)."""
    return smoothed(first, measure, queries, summation=summation) - smoothed(
        second, measure, queries, summation=summation
    )


def kernel_derivative(
    family: Any, parameter: float, measure: Measure, queries: Any, *, summation: AbstractSummation | None = None
) -> Float[Array, "m *k"]:
    """−∂/∂h (K_h f)(x) for a family h ↦ K_h, such as the class `Gaussian`: the limit of (K_h − K_{h+δ}) f / δ.

    Taken by forward differentiation, not by a quotient: exact to rounding. A family of flat kernels (`Ball`) has the
    derivative 0 almost everywhere, and 0 is what is returned.
    """
    dtype = measure.points.dtype
    at = as_scalar(parameter, "parameter").astype(dtype)
    family(at)  # checks the number, which is traced inside the derivative
    _, slope = jax.jvp(
        lambda h: smoothed(family(h), measure, queries, summation=summation), (at,), (jnp.ones((), dtype),)
    )
    return -slope


def __dir__() -> list[str]:
    return __all__
