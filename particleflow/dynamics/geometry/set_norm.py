"""Normalisation of the whole set: all particles together are brought to a given mean and covariance.

Layer norm acts on the coordinates of one token; this acts on the tokens of one coordinate, as batch norm does. With
ȳ and S_y the weighted mean and covariance of the set, m and S = L Lᵀ those it is brought to,

    diagonal    N(y)_i = m_i + √(S_ii/(S_y)_ii) (y − ȳ)_i
    full        N(y) = m + L (L⁻¹ S_y L⁻ᵀ)^{−½} L⁻¹ (y − ȳ),    which does not depend on the choice of L.

An explicit layer is x ← N(x + h f(x)). In its limit h → 0 the velocity loses an affine field, which depends on
the whole set: with E over the set, ξ = x − m and C = E[v ξᵀ],

    ẋ = v − E[v] − A ξ,    diagonal A = diag(C_ii/S_ii),    full A = ½(C + Cᵀ) S⁻¹,

so that mean and variances (or the covariance) stand still. The field is known anywhere, not only at the particles.
"""

from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array, as_linear_map, is_concrete
from particleflow.dynamics.geometry.base import AbstractGeometry, Facts
from particleflow.dynamics.geometry.geometry_capabilities import MovesLaws, NormalisesTheSet, Restoring, State
from particleflow.dynamics.normal_law import Affine, Normal, first_moments, spd_power
from particleflow.errors import ArgumentError, ShapeError

_FLAT = 1e-12  # a variance below this part of the largest entry of the covariance counts as 0


class SetNorm(AbstractGeometry, MovesLaws, NormalisesTheSet):
    """All particles together have the mean `mean`, and variances or a covariance `variance`: x ← N(x + h f(x)).

    N(y) = m + T (y − ȳ), T a diagonal or a symmetric root; in the limit h → 0, ẋ = v − E[v] − A (x − m).

    The particles are not constrained one by one. The state may have any mean and covariance; drifts see, and files
    hold, N of it, so the constraint holds to rounding. Noise is projected like a velocity, hence the particles diffuse
    on the set of all clouds of this mean and covariance, and noise that all share does nothing.

    Parameters: `covariance`, "diagonal" for the variance of every coordinate, "full" for the covariance; `mean`, a
    number or a vector; `variance`, a number, a vector, or for "full" a matrix.
    """

    covariance: Literal["diagonal", "full"] = eqx.field(static=True)
    mean: Float[Array, "..."]
    variance: Float[Array, "..."]
    log_weights: Float[Array, "*runs n"] | None

    def __init__(self, covariance: Literal["diagonal", "full"] = "full", mean: Any = 0.0, variance: Any = 1.0):
        self.covariance = covariance
        self.mean = as_float_array(mean, "mean")
        self.variance = as_linear_map(variance, "variance")
        self.log_weights = None

    def __check_init__(self):
        if self.covariance not in ("diagonal", "full"):
            raise ArgumentError(f"Argument `covariance` must be 'diagonal' or 'full', but is {self.covariance!r}.")
        if self.mean.ndim > 1:
            raise ShapeError(f"Argument `mean` must be a number or a vector, but has shape {self.mean.shape}.")
        if self.variance.ndim == 2 and self.covariance == "diagonal":
            raise ArgumentError("Argument `variance` is a matrix, which goes with covariance = 'full' only.")
        if is_concrete(self.variance):
            _check_variance(np.asarray(self.variance, float))

    def holds_covariance(self, dimension: int) -> bool:
        """True where all of the covariance is given; on the line its diagonal is all."""
        return self.covariance == "full" or dimension == 1

    def for_weights(self, log_weights: Float[Array, "*runs n"]) -> "SetNorm":
        """The same geometry for particles of these weights; without them all weights are equal."""
        return eqx.tree_at(lambda each: each.log_weights, self, log_weights, is_leaf=lambda leaf: leaf is None)

    def retract(self, state: State) -> State:
        """The normalised set N(y) = m + T (y − ȳ)."""
        mean, covariance = first_moments(state, self._shares(state))
        moved = jnp.einsum("...nd,...ed->...ne", state - mean[..., None, :], self._matrix(covariance))
        return self._target_mean(state)[..., None, :] + moved

    def observe(self, state: State, time: Any = 0.0) -> State:
        """The normalised set N(y): drifts see what is stored."""
        return self.retract(state)

    def tangent(self, state: State, velocity: State, time: Any = 0.0) -> State:
        """T⁻¹ (v − E[v] − A ξ) for N(y) = m + T (y − ȳ)."""
        shares, points = self._shares(state), self.retract(state)
        kept = velocity - self.restoring(points, velocity, shares, jnp.zeros((), state.dtype)).at(points)
        return jnp.linalg.solve(self._matrix(first_moments(state, shares)[1]), kept.T).T

    def diffuse(self, state: State, increment: State, time: Any = 0.0) -> State:
        """The part of an increment that keeps mean and covariance, as of a velocity (Stratonovich)."""
        return self.tangent(state, increment, time)

    def advance(self, state: State, velocity: State, size: Any, time: Any = 0.0) -> State:
        """N(N(y) + size · v)."""
        return self.retract(self.retract(state) + size * velocity)

    def restoring(self, points: State, velocity: State, shares: Float[Array, " n"], heat: Any) -> Restoring:
        """The affine field E[v] + A ξ to be taken off, from the velocities of the whole set."""
        mean, covariance = first_moments(points, shares)
        cross = (shares[:, None] * velocity).T @ (points - mean[None, :])
        return Restoring(mean, shares @ velocity, self._slope(covariance, cross, heat))

    def retract_law(self, law: Normal) -> Normal:
        """The law of N(y)."""
        return Normal(self._target_mean(law.factor), self._matrix(law.covariance) @ law.factor, law.log_mass)

    def tangent_law(self, law: Normal, field: Affine, heat: Any) -> Affine:
        """v − u − A ξ, A with the spreading by diffusion: C = B S + heat."""
        slope = self._slope(law.covariance, field.matrix @ law.covariance, heat)
        return Affine(jnp.zeros_like(field.offset), field.matrix - slope)

    def advance_law(self, law: Normal, field: Affine, size: Any) -> Normal:
        """The law of N(x + size · v(x))."""
        return self.retract_law(self.retract_law(law).pushed(field, size))

    def facts(self, dimension: int) -> Facts:
        """Flat: no particle is constrained by itself."""
        return Facts("flat", None, "the particles of a normalised set")

    def check_spread(self, points: Float[Array, "*runs n d"]) -> None:
        """Raise unless the set spreads in every direction, so that it can be brought to this mean and covariance."""
        if is_concrete(points) and is_concrete(self._shares(points)):
            _, covariance = first_moments(points, self._shares(points))
            spread = np.linalg.eigvalsh(np.asarray(covariance, float)).min(axis=-1)
            if self.covariance == "diagonal":
                spread = np.asarray(jnp.diagonal(covariance, axis1=-2, axis2=-1), float).min(axis=-1)
            if not (spread > _FLAT * np.abs(np.asarray(covariance)).max()).all():
                raise ArgumentError(
                    f"The start must spread in every direction to be normalised as a set (covariance = "
                    f"{self.covariance!r}), but does not: it needs more particles than dimensions, in general position."
                )

    def _shares(self, state: Float[Array, "*runs n d"]) -> Float[Array, "*runs n"]:
        if self.log_weights is None:
            return jnp.full(state.shape[:-1], 1 / state.shape[-2], state.dtype)
        weights = jnp.exp(self.log_weights - jnp.max(self.log_weights, axis=-1, keepdims=True))
        return weights / jnp.sum(weights, axis=-1, keepdims=True)

    def _target_mean(self, like: Float[Array, "*n d"]) -> Float[Array, " d"]:
        dimension = like.shape[-1]
        if self.mean.ndim == 1 and self.mean.shape != (dimension,):
            raise ShapeError(f"Argument `mean` must hold {dimension} numbers, but has shape {self.mean.shape}.")
        return jnp.broadcast_to(self.mean.astype(like.dtype), (*like.shape[:-2], dimension))

    def _target_root(self, dimension: int, dtype: Any) -> Float[Array, "d d"]:
        """L with L Lᵀ the covariance that the set is brought to."""
        if self.variance.ndim and self.variance.shape[-1] != dimension:
            raise ShapeError(f"Argument `variance` has shape {self.variance.shape}, but the points have {dimension}.")
        variance = self.variance.astype(dtype)
        if self.variance.ndim == 2:
            return spd_power(variance, 0.5)
        return jnp.diag(jnp.sqrt(jnp.broadcast_to(variance, (dimension,))))

    def _matrix(self, covariance: Float[Array, "*runs d d"]) -> Float[Array, "*runs d d"]:
        """T of N(y) = m + T (y − ȳ)."""
        root = self._target_root(covariance.shape[-1], covariance.dtype)
        if self.covariance == "diagonal":
            scales = jnp.diagonal(root) / jnp.sqrt(jnp.diagonal(covariance, axis1=-2, axis2=-1))
            return scales[..., :, None] * jnp.eye(covariance.shape[-1], dtype=covariance.dtype)
        back = jnp.linalg.inv(root)
        whitened = jnp.einsum("ab,...bc,dc->...ad", back, covariance, back)
        return jnp.einsum("ab,...bc,cd->...ad", root, spd_power(whitened, -0.5), back)

    def _slope(self, covariance: Float[Array, "d d"], cross: Float[Array, "d d"], heat: Any) -> Float[Array, "d d"]:
        """A from C = E[v ξᵀ] + heat."""
        cross = cross + heat * jnp.eye(len(cross), dtype=cross.dtype)
        if self.covariance == "diagonal":
            return jnp.diag(jnp.diagonal(cross) / jnp.diagonal(covariance))
        return jnp.linalg.solve(covariance, 0.5 * (cross + cross.T)).T


def _check_variance(variance: np.ndarray) -> None:
    if variance.ndim < 2:
        if not (variance > 0).all():
            raise ArgumentError(f"Argument `variance` must be positive, but is {variance.tolist()}.")
        return
    if variance.shape[0] != variance.shape[1] or not np.allclose(variance, variance.T):
        raise ArgumentError("Argument `variance` must be a symmetric matrix, but is not.")
    smallest = float(np.linalg.eigvalsh(variance).min())
    if not smallest > 0:
        raise ArgumentError(f"Argument `variance` must be positive definite, but has the eigenvalue {smallest:.3g}.")
