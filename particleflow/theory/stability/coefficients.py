"""The coefficients of a kernel on a sphere: its eigenvalues on harmonics.

On S^{d−1} a rotation-invariant kernel is a function k of the cosine t = ⟨x, y⟩/R². Averages are over the uniform
probability σ, and P_l is the Legendre polynomial of dimension d and degree l with P_l(1) = 1 (cos lθ on the
circle). By Funk and Hecke, every harmonic Y_l of degree l is an eigenfunction of K:

    ∫ k(⟨u, w⟩) Y_l(w) dσ(w) = λ_l Y_l(u),    λ_l = c_d ∫_0^π k(cos θ) P_l(cos θ) sin^{d−2}θ dθ,
    P_u ∫ k(⟨u, w⟩) w Y_l(w) dσ(w) = h_l ∇Y_l(u),    h_l = λ_l of h with h' = k.

The second line is the velocity of points under a harmonic perturbation. By parts, h_l = (1/d) λ_{l−1} of the same k on
S^{d+1}, so both need one integration only. For k = e^{βt} on the circle λ_l = I_l(β) and h_l = I_l(β)/β.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from particleflow.dynamics.drifts.base import Interaction
from particleflow.errors import ArgumentError
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Sites
from particleflow.theory.stability.quadrature import integral_over_angles

_PAIRS, _ROTATIONS = 12, 4  # random pairs and rotations on which invariance is tested
_SAME = 1e-9  # the largest admissible change of log K under rotation, in units of 1 + |log K|
_SCALE_ANGLES = np.pi * np.unique(
    np.concatenate([0.5 ** np.arange(30.0), np.linspace(0, 1, 257)])
)  # the angles at which the largest K is looked for


class Coefficients(NamedTuple):
    """λ_0, and λ_l and h_l of some degrees, all in units of e^{log_scale}, the largest value of K."""

    log_scale: float
    mass: float
    masses: np.ndarray
    pulls: np.ndarray


def coefficients(interaction: Interaction, degrees: np.ndarray, dimension: int, radius: float) -> Coefficients:
    """The coefficients of an interaction's kernel on the sphere of a radius in R^dimension, by adaptive quadrature.

    Parameters: `interaction`, one head; the `degrees` l ≥ 1; `dimension` d; `radius` R. Refused with the reason: a
    kernel of positions, a kernel of fixed data, and one that is not invariant under rotations and reflections.
    """
    _check_alone(interaction)
    check_invariant(interaction.kernel, dimension, radius)
    log_total = _log_total(dimension)
    scale = float(np.max(_log_profile(interaction.kernel, _SCALE_ANGLES, dimension, radius)))
    if not np.isfinite(scale):
        raise ArgumentError(
            f"The kernel {interaction.kernel!r} vanishes on the whole sphere, or has no finite maximum."
        )

    def integrand(angles: np.ndarray) -> np.ndarray:
        profile = np.exp(_log_profile(interaction.kernel, angles, dimension, radius) - scale)
        weight = profile * np.exp((dimension - 2) * np.log(np.sin(angles)) - log_total)
        above = np.sin(angles)[:, None] ** 2 * legendre(degrees - 1, dimension + 2, angles)
        return weight[:, None] * np.hstack([np.ones_like(weight)[:, None], legendre(degrees, dimension, angles), above])

    found = integral_over_angles(integrand)
    mass, masses, above = found[0], found[1 : len(degrees) + 1], found[len(degrees) + 1 :]
    # c_d/c_{d+2} = (d − 1)/d, and h_l = (1/d) λ_{l−1} on S^{d+1}: together 1/(d − 1).
    return Coefficients(scale, float(mass), masses, above / (dimension - 1))


def legendre(degrees: np.ndarray, dimension: int, angles: np.ndarray) -> np.ndarray:
    """P_l(cos θ), (angles, degrees): cos lθ for d = 2, Gegenbauer's C_l/C_l(1) of order d/2 − 1 for d ≥ 3."""
    from scipy.special import eval_gegenbauer

    if dimension == 2:
        return np.cos(degrees * angles[:, None])
    order = dimension / 2 - 1
    return eval_gegenbauer(degrees, order, np.cos(angles)[:, None]) / eval_gegenbauer(degrees, order, 1.0)


def _log_total(dimension: int) -> float:
    """log ∫_0^π sin^{d−2}θ dθ."""
    from scipy.special import gammaln

    return 0.5 * np.log(np.pi) + float(gammaln((dimension - 1) / 2) - gammaln(dimension / 2))


@eqx.filter_jit
def _log_pairs(kernel: AbstractKernel, first: Any, second: Any) -> Any:
    """log K of pairs of points (n, d), row by row; the value of a point is the point itself."""

    def pair(x: Any, y: Any) -> Any:
        return kernel.log_pair(Sites(x, None, x), Sites(y, None, y))

    return jax.vmap(pair)(first, second)


def _log_profile(kernel: AbstractKernel, angles: np.ndarray, dimension: int, radius: float) -> np.ndarray:
    """log k at angles (n,), padded to a power of two so that few programs are compiled."""
    filled = np.zeros(1 << max(len(angles) - 1, 1).bit_length())
    filled[: len(angles)] = angles
    first, second = np.zeros((2, len(filled), dimension))
    first[:, 0], second[:, 0], second[:, 1] = radius, radius * np.cos(filled), radius * np.sin(filled)
    return np.asarray(_log_pairs(kernel, jnp.asarray(first), jnp.asarray(second)))[: len(angles)]


def _check_alone(interaction: Interaction) -> None:
    """Refuse kernels of sequence positions and of fixed data: growth rates are for particles that move each other."""
    if interaction.positional is not None:
        raise ArgumentError("A density has no positions in a sequence, but the drift has a `positional` kernel.")
    if interaction.data is not None:
        raise ArgumentError("Growth rates are of particles that move each other, but the drift has fixed `data`.")


def check_invariant(kernel: AbstractKernel, dimension: int, radius: float) -> None:
    """Raise unless log K(Ox, Oy) = log K(x, y) for random pairs and random rotations and reflections O."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(2, _PAIRS, dimension))
    first, second = radius * points / np.linalg.norm(points, axis=2, keepdims=True)
    before = np.asarray(_log_pairs(kernel, jnp.asarray(first), jnp.asarray(second)))
    for turn in range(_ROTATIONS):
        matrix = np.linalg.qr(rng.normal(size=(dimension, dimension)))[0]
        matrix[:, 0] *= np.sign(np.linalg.det(matrix)) * (-1) ** turn  # every other one a reflection
        after = np.asarray(_log_pairs(kernel, jnp.asarray(first @ matrix.T), jnp.asarray(second @ matrix.T)))
        with np.errstate(invalid="ignore"):
            change = np.where(before == after, 0.0, np.abs(after - before))
        if not (change <= _SAME * (1 + np.abs(np.where(np.isfinite(before), before, 0.0)))).all():
            raise ArgumentError(
                "Growth rates of harmonics need a kernel invariant under rotations and reflections, but log K of "
                f"{kernel!r} changes by {np.nanmax(change):.3g}."
            )
