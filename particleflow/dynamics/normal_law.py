"""Normal laws and affine fields: what a Gaussian that stays Gaussian needs.

    N(a, S) of mass e^{c},  S = F Fᵀ          v(a + ξ) = u + B ξ

A law is kept by a factor F of its covariance, not by the covariance itself: S = F Fᵀ is never indefinite, whatever
rounding does, F may be singular, and a cloud that moves with an affine field, x_j = a + F z_j with z_j fixed, moves
with F. Under ẋ = v(x) the law follows

    ȧ = u,    Ḟ = B F,    hence    Ṡ = B S + S Bᵀ.

Every integral against a law is a *tilt*: e^{⟨k, ξ⟩ + ½⟨ξ, Λ ξ⟩} N(a, S) is again a normal law, with some mass, as long
as S⁻¹ − Λ is positive definite. Where it is not, the mass is infinite, and everything is NaN.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from particleflow._support.arrays import apply_linear_map
from particleflow._support.representation import shown
from particleflow.measure import Measure


class Affine(eqx.Module):
    """The field v(a + ξ) = u + B ξ about the mean a of a law: `offset` u and `matrix` B."""

    offset: Float[Array, " d"]
    matrix: Float[Array, "d d"]

    @staticmethod
    def of(field: Any, mean: Float[Array, " d"]) -> "Affine":
        """A field of points (m, d) that is known to be affine, read off at the mean."""

        def at_one(point: Array) -> Array:
            return field(point[None])[0]

        return Affine(at_one(mean), jax.jacfwd(at_one)(mean))

    def plus(self, other: "Affine") -> "Affine":
        """The sum of two fields about one mean."""
        return Affine(self.offset + other.offset, self.matrix + other.matrix)

    def times(self, factor: Any) -> "Affine":
        """A multiple of the field."""
        return Affine(factor * self.offset, factor * self.matrix)

    def mapped(self, linear_map: Array, name: str) -> "Affine":
        """A v for a map A that is a number, a diagonal or a matrix."""
        return Affine(
            apply_linear_map(linear_map, self.offset[None], name)[0],
            apply_linear_map(linear_map, self.matrix.T, name).T,
        )

    def __repr__(self) -> str:
        return shown(self)


class Normal(eqx.Module):
    """The law e^{log_mass} N(mean, factor factorᵀ)."""

    mean: Float[Array, " d"]
    factor: Float[Array, "d d"]
    log_mass: Float[Array, ""]

    @staticmethod
    def of(measure: Measure) -> "Normal":
        """The law with the mass, mean and covariance of a measure; its factor is the symmetric root."""
        shares = jnp.exp(measure.log_weights - measure.log_mass)
        mean, covariance = first_moments(measure.points, shares)
        return Normal(mean, spd_power(covariance, 0.5), measure.log_mass)

    @property
    def covariance(self) -> Float[Array, "d d"]:
        """S = F Fᵀ."""
        return self.factor @ self.factor.T

    @property
    def dimension(self) -> int:
        """The dimension d of the space."""
        return self.mean.shape[0]

    def identity(self) -> Affine:
        """The field x itself."""
        return Affine(self.mean, jnp.eye(self.dimension, dtype=self.mean.dtype))

    def probability(self) -> "Normal":
        """The same law of mass one."""
        return Normal(self.mean, self.factor, jnp.zeros_like(self.log_mass))

    def pushed(self, field: Affine, size: Any) -> "Normal":
        """The image under the explicit step x + size · v(x)."""
        return Normal(self.mean + size * field.offset, self.factor + size * field.matrix @ self.factor, self.log_mass)

    def tilted(self, slope: Float[Array, " d"], bend: Float[Array, "d d"]) -> "Normal":
        """e^{⟨k, ξ⟩ + ½⟨ξ, Λ ξ⟩} times the law, for `slope` k and a symmetric `bend` Λ; NaN where its mass is infinite.

        With C Cᵀ = 1 − Fᵀ Λ F:  the factor is F C⁻ᵀ, the mean moves by F C⁻ᵀ C⁻¹ Fᵀ k, the mass is multiplied with
        e^{½|C⁻¹ Fᵀ k|²}/det C. Nothing is divided by F.
        """
        inner = self.factor.T @ bend @ self.factor
        root = jnp.linalg.cholesky(jnp.eye(self.dimension, dtype=inner.dtype) - 0.5 * (inner + inner.T))
        pulled = solve_triangular(root, self.factor.T @ slope, lower=True)
        factor = solve_triangular(root, self.factor.T, lower=True).T
        log_mass = 0.5 * jnp.sum(jnp.square(pulled)) - jnp.sum(jnp.log(jnp.diagonal(root)))
        return Normal(self.mean + factor @ pulled, factor, self.log_mass + log_mass)

    def log_density(self, points: Float[Array, "n d"]) -> Float[Array, " n"]:
        """log of the density of N(mean, S) at some points, of the probability law."""
        standard = jnp.linalg.solve(self.factor, (points - self.mean[None, :]).T)
        _, log_volume = jnp.linalg.slogdet(self.factor)
        constant = 0.5 * self.dimension * jnp.log(2 * jnp.pi).astype(points.dtype) + log_volume
        return -0.5 * jnp.sum(jnp.square(standard), axis=0) - constant

    def cloud(self) -> Measure:
        """The 2d points a ± √d F e_k of equal weight: polynomials up to degree three have the integrals of the law."""
        root = jnp.sqrt(jnp.asarray(self.dimension, self.mean.dtype))
        points = self.mean[None, :] + root * jnp.concatenate([self.factor.T, -self.factor.T])
        share = -jnp.log(jnp.asarray(2 * self.dimension, self.mean.dtype))
        return Measure(points, jnp.broadcast_to(share + self.log_mass, (2 * self.dimension,)))

    def __repr__(self) -> str:
        return shown(self)


def first_moments(
    points: Float[Array, "*runs n d"], shares: Float[Array, "*runs n"]
) -> tuple[Float[Array, "*runs d"], Float[Array, "*runs d d"]]:
    """The mean and the covariance of points whose shares sum to one."""
    mean = jnp.einsum("...n,...nd->...d", shares, points)
    centred = points - mean[..., None, :]
    return mean, jnp.einsum("...n,...nd,...ne->...de", shares, centred, centred)


def spd_power(matrix: Float[Array, "*runs d d"], power: float) -> Float[Array, "*runs d d"]:
    """Aᵖ of a symmetric matrix without negative eigenvalues, for p = ½ or −½.

    Its derivative is that of the matrix function, also where eigenvalues agree. A negative eigenvalue, which can only
    be rounding, counts as zero.
    """
    return jnp.vectorize(lambda each: _spd_power(each, power), signature="(d,d)->(d,d)")(matrix)


def _spectral(matrix: Array, power: float) -> tuple[Array, Array, Array]:
    values, vectors = jnp.linalg.eigh(0.5 * (matrix + matrix.T))
    values = jnp.maximum(values, 0.0)
    return values, values**power, vectors


def _spd_power_forward(matrix: Array, power: float) -> Array:
    _, powers, vectors = _spectral(matrix, power)
    return (vectors * powers[None, :]) @ vectors.T


_spd_power = jax.custom_jvp(_spd_power_forward, nondiff_argnums=(1,))


@_spd_power.defjvp
def _spd_power_jvp(power: float, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """d(Aᵖ)_ij = (λ_iᵖ − λ_jᵖ)/(λ_i − λ_j) dA_ij in the eigenbasis, written without a difference of eigenvalues."""
    roots, _, vectors = _spectral(primals[0], power)
    roots = jnp.sqrt(roots)
    total = roots[:, None] + roots[None, :]
    quotient = 1 / jnp.where(total > 0, total, jnp.inf)
    if power < 0:  # (1/r_i − 1/r_j)/(r_i² − r_j²) = −1/(r_i r_j (r_i + r_j))
        quotient = -quotient / (roots[:, None] * roots[None, :])
    change = vectors.T @ (0.5 * (tangents[0] + tangents[0].T)) @ vectors
    return _spd_power(primals[0], power), vectors @ (quotient * change) @ vectors.T
