"""Quadratic kernels under a normal law: log-mass and local mean in closed form.

A kernel is quadratic if log K(x, y) is a polynomial of degree two in both points, as attention, L2 attention and the
Gaussian are. About the mean a of a law, with x = a + ξ and y = a + η,

    log K = k₀ + ⟨p, ξ⟩ + ⟨r, η⟩ + ½⟨ξ, P ξ⟩ + ⟨ξ, C η⟩ + ½⟨η, R η⟩,

whose coefficients are its derivatives at (a, a). So K dN(a, S) is the law tilted by (r + Cᵀξ, R), and with M the
covariance of that tilt the moments of the one operator are polynomials, too:

    m(a + ξ) = a + M (r + Cᵀ ξ),    G(a + ξ) = G(a) + ⟨p + C M r, ξ⟩ + ½⟨ξ, (P + C M Cᵀ) ξ⟩.

For attention K = exp β⟨Qx, Ky⟩ this is m(x) = a + S A x with A = β KᵀQ: M = S, C = Aᵀ and r = A a.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.dynamics.normal_law import Affine, Normal, spd_power
from particleflow.kernels.base import AbstractKernel


class Expansion(NamedTuple):
    """The coefficients k₀, p, r, P, C, R of log K about (a, a)."""

    value: Float[Array, ""]
    query_slope: Float[Array, " d"]
    key_slope: Float[Array, " d"]
    query_bend: Float[Array, "d d"]
    cross: Float[Array, "d d"]
    key_bend: Float[Array, "d d"]

    @staticmethod
    def of(kernel: AbstractKernel, mean: Float[Array, " d"]) -> "Expansion":
        """The derivatives of log K at (a, a): all of it, if the kernel is quadratic."""

        def log_kernel(pair: Array) -> Array:
            return kernel.log_pair(pair[0], pair[1])

        pair = jnp.stack([mean, mean])
        slopes, bends = jax.grad(log_kernel)(pair), jax.hessian(log_kernel)(pair)
        return Expansion(
            log_kernel(pair), slopes[0], slopes[1], bends[0, :, 0, :], bends[0, :, 1, :], bends[1, :, 1, :]
        )


class LocalLaw(NamedTuple):
    """The moments of a quadratic kernel under a law: G(a + ξ) = `log_mass` + ⟨`slope`, ξ⟩ + ½⟨ξ, `bend` ξ⟩ and m."""

    log_mass: Float[Array, ""]
    slope: Float[Array, " d"]
    bend: Float[Array, "d d"]
    mean: Affine


def local_law(kernel: AbstractKernel, law: Normal) -> LocalLaw:
    """G and m of a quadratic kernel under a law; NaN where ∫ K dN is infinite."""
    form = Expansion.of(kernel, law.mean)
    near = law.tilted(form.key_slope, form.key_bend)
    across = form.cross @ near.covariance
    return LocalLaw(
        form.value + near.log_mass,
        form.query_slope + across @ form.key_slope,
        form.query_bend + across @ form.cross.T,
        Affine(near.mean, across.T),
    )


def weighted_mean(local: LocalLaw, law: Normal) -> Affine:
    """The affine field nearest to e^{G} m in the mean square of the law: that of unnormalised attention.

    u = E[v] and B = E[∇v] = E[v ξᵀ] S⁻¹ (Stein). With Z, ν and W the mass, mean and covariance of the probability law
    tilted by e^{G}, and m = m₀ + B₀ ξ:

        u = Z (m₀ + B₀ ν),    B = Z (B₀ + (m₀ + B₀ ν) kᵀ)(1 + W Λ),    k and Λ the slope and bend of G.

    NaN once the integral diverges: for K = e^{β⟨x, y⟩} and a centred law where β times a variance reaches one.
    """
    outer = law.probability().tilted(local.slope, local.bend)
    mass = jnp.exp(local.log_mass + outer.log_mass)
    offset = local.mean.offset + local.mean.matrix @ (outer.mean - law.mean)
    stretched = outer.covariance @ local.bend + jnp.eye(law.dimension, dtype=law.mean.dtype)
    slope = (local.mean.matrix + offset[:, None] * local.slope[None, :]) @ stretched
    return Affine(mass * offset, mass * slope)


def coupled_mean(kernel: AbstractKernel, law: Normal) -> Affine:
    """The local mean under doubly stochastic weights, E[y | x] of the coupling of the law with itself.

    Potentials f(x) + g(y) are quadratic, so the coupling is normal: covariance [[S, X], [Xᵀ, S]] with the precision
    −C off the diagonal. With S = F Fᵀ, X = F Y Fᵀ and D = Fᵀ C F this is D = Y (1 − YᵀY)⁻¹, hence

        Y = D φ(DᵀD),  φ(A) = 2 (1 + √(1 + 4A))⁻¹,        m(a + ξ) = a + F φ(DᵀD) Fᵀ Cᵀ ξ.

    On the line with K = e^{axy} and variance s the slope is (√(1 + 4a²s²) − 1)/(2as).
    """
    cross = Expansion.of(kernel, law.mean).cross
    inner = law.factor.T @ cross @ law.factor
    one = jnp.eye(law.dimension, dtype=inner.dtype)
    root = spd_power(one + 4 * inner.T @ inner, 0.5)
    shrunk = 2 * jnp.linalg.solve(one + root, law.factor.T @ cross.T)
    return Affine(law.mean, law.factor @ shrunk)
