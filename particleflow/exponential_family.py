"""Exponential families p(y | θ) = exp(⟨θ, y⟩ − G(θ)) h(dy): the Laplace view of attention.

The base measure h alone decides everything:

    G(θ) = log ∫ e^{⟨θ, y⟩} h(dy),    mean = ∇G(θ),    covariance = ∇²G(θ).

For the empirical measure of tokens and θ = βq, the mean is the output of attention for the query q: one step of
attention is one step of gradient ascent on G, taken at every query at once.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._arrays import as_float_array
from particleflow.errors import ArgumentError, ShapeError
from particleflow.kernels.base import safe_log
from particleflow.kernels.inner import Attention
from particleflow.local import local_covariance, local_moments
from particleflow.measure import Measure
from particleflow.sphere_sampling import sample_von_mises_fisher


class AbstractExponentialFamily(eqx.Module):
    """A family of tilted measures; a parameter θ is one vector (d,)."""

    dimension: eqx.AbstractVar[int]

    @abc.abstractmethod
    def log_normalizer(self, parameter: Float[Array, " d"]) -> Float[Array, ""]:
        """G(θ) = log ∫ e^{⟨θ, y⟩} h(dy)."""

    @abc.abstractmethod
    def mean(self, parameter: Float[Array, " d"]) -> Float[Array, " d"]:
        """∇G(θ), the expectation of y."""

    @abc.abstractmethod
    def covariance(self, parameter: Float[Array, " d"]) -> Float[Array, "d d"]:
        """∇²G(θ), the covariance of y."""

    @abc.abstractmethod
    def sample(self, key: Array, parameter: Float[Array, " d"], count: int) -> Float[Array, "count d"]:
        """Independent draws from p(· | θ)."""

    def entropy(self, parameter: Float[Array, " d"]) -> Float[Array, ""]:
        """−∫ log(dp/dh) dp = G(θ) − ⟨θ, ∇G(θ)⟩, the entropy relative to the base measure."""
        return self.log_normalizer(parameter) - jnp.dot(parameter, self.mean(parameter))

    def divergence(self, first: Float[Array, " d"], second: Float[Array, " d"]) -> Float[Array, ""]:
        """KL(p_first ‖ p_second) = G(θ₂) − G(θ₁) − ⟨θ₂ − θ₁, ∇G(θ₁)⟩."""
        gap = self.log_normalizer(second) - self.log_normalizer(first)
        return gap - jnp.dot(second - first, self.mean(first))

    def tilted(self, parameter: Float[Array, " d"]) -> "Tilted":
        """The family whose base measure is p(· | parameter)."""
        return Tilted(self, as_float_array(parameter, "parameter"))


class Tilted(AbstractExponentialFamily):
    """The same family seen from another base measure: G̃(θ) = G(θ₀ + θ) − G(θ₀)."""

    family: AbstractExponentialFamily
    origin: Float[Array, " d"]

    def __check_init__(self):
        if self.origin.shape != (self.family.dimension,):
            raise ShapeError(f"Argument `parameter` must have shape ({self.family.dimension},), but {self.origin.shape}.")

    @property
    def dimension(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The dimension of y and θ."""
        return self.family.dimension

    def log_normalizer(self, parameter: Float[Array, " d"]) -> Float[Array, ""]:
        """G(θ₀ + θ) − G(θ₀)."""
        return self.family.log_normalizer(self.origin + parameter) - self.family.log_normalizer(self.origin)

    def mean(self, parameter: Float[Array, " d"]) -> Float[Array, " d"]:
        """∇G(θ₀ + θ)."""
        return self.family.mean(self.origin + parameter)

    def covariance(self, parameter: Float[Array, " d"]) -> Float[Array, "d d"]:
        """∇²G(θ₀ + θ)."""
        return self.family.covariance(self.origin + parameter)

    def sample(self, key: Array, parameter: Float[Array, " d"], count: int) -> Float[Array, "count d"]:
        """Independent draws from p(· | θ₀ + θ)."""
        return self.family.sample(key, self.origin + parameter, count)


class Empirical(AbstractExponentialFamily):
    """The base measure Σ_j w_j δ_{y_j} of some tokens: the mean is the output of softmax attention."""

    measure: Measure

    def __check_init__(self):
        if self.measure.values is not None:
            raise ArgumentError("The base measure of an exponential family must carry its own points, not other values.")

    @property
    def dimension(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The dimension of y and θ."""
        return self.measure.dimension

    def log_normalizer(self, parameter: Float[Array, " d"]) -> Float[Array, ""]:
        """log Σ_j w_j e^{⟨θ, y_j⟩}."""
        return local_moments(Attention(), self.measure, parameter).log_mass

    def mean(self, parameter: Float[Array, " d"]) -> Float[Array, " d"]:
        """Σ_j w_j e^{⟨θ, y_j⟩} y_j / Σ_j w_j e^{⟨θ, y_j⟩}."""
        return local_moments(Attention(), self.measure, parameter).mean

    def covariance(self, parameter: Float[Array, " d"]) -> Float[Array, "d d"]:
        """The covariance of the tokens under softmax weights."""
        return local_covariance(Attention(), self.measure, parameter)

    def sample(self, key: Array, parameter: Float[Array, " d"], count: int) -> Float[Array, "count d"]:
        """Tokens drawn with softmax weights."""
        logits = Attention().log_matrix(parameter[None], self.measure.points)[0] + self.measure.log_weights
        return self.measure.points[jax.random.categorical(key, logits, shape=(count,))]


class GaussianBase(AbstractExponentialFamily):
    """The base measure N(a, S): G(θ) = ⟨θ, a⟩ + ½⟨θ, Sθ⟩, and tilting moves the centre to a + Sθ."""

    centre: Float[Array, " d"]
    spread: Float[Array, "d d"]

    def __init__(self, centre: Any, spread: Any):
        self.centre = as_float_array(centre, "centre")
        self.spread = as_float_array(spread, "spread")

    def __check_init__(self):
        if self.centre.ndim != 1 or self.spread.shape != self.centre.shape * 2:
            raise ShapeError(
                "Arguments `centre` and `spread` must have shapes (d,) and (d, d), "
                f"but have {self.centre.shape} and {self.spread.shape}."
            )
        spread = np.asarray(self.spread)
        if not np.allclose(spread, spread.T) or np.linalg.eigvalsh(spread).min() <= 0:
            raise ArgumentError("Argument `spread` must be a symmetric positive definite matrix, but is not.")

    @property
    def dimension(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The dimension of y and θ."""
        return self.centre.shape[0]

    def log_normalizer(self, parameter: Float[Array, " d"]) -> Float[Array, ""]:
        """⟨θ, a⟩ + ½⟨θ, Sθ⟩."""
        return jnp.dot(parameter, self.centre) + 0.5 * jnp.dot(parameter, self.spread @ parameter)

    def mean(self, parameter: Float[Array, " d"]) -> Float[Array, " d"]:
        """a + Sθ."""
        return self.centre + self.spread @ parameter

    def covariance(self, parameter: Float[Array, " d"]) -> Float[Array, "d d"]:
        """S, whatever θ."""
        return self.spread

    def sample(self, key: Array, parameter: Float[Array, " d"], count: int) -> Float[Array, "count d"]:
        """Draws from N(a + Sθ, S)."""
        noise = jax.random.normal(key, (count, self.dimension), self.centre.dtype)
        return self.mean(parameter)[None, :] + noise @ jnp.linalg.cholesky(self.spread).T


class Multinoulli(AbstractExponentialFamily):
    """One-hot vectors with base weights w: G(θ) = log Σ_k w_k e^{θ_k}, and the mean is a softmax."""

    weights: Float[Array, " d"]

    def __init__(self, weights: Any):
        self.weights = as_float_array(weights, "weights")

    def __check_init__(self):
        if self.weights.ndim != 1 or not bool(jnp.all(self.weights >= 0)) or not bool(jnp.any(self.weights > 0)):
            raise ArgumentError("Argument `weights` must be a vector, not negative and not all zero.")

    @property
    def dimension(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of outcomes."""
        return self.weights.shape[0]

    def log_normalizer(self, parameter: Float[Array, " d"]) -> Float[Array, ""]:
        """log Σ_k w_k e^{θ_k}."""
        return jax.nn.logsumexp(parameter + safe_log(self.weights))

    def mean(self, parameter: Float[Array, " d"]) -> Float[Array, " d"]:
        """softmax(θ + log w)."""
        return jax.nn.softmax(parameter + safe_log(self.weights))

    def covariance(self, parameter: Float[Array, " d"]) -> Float[Array, "d d"]:
        """diag(p) − p pᵀ for p the mean."""
        mean = self.mean(parameter)
        return jnp.diag(mean) - jnp.outer(mean, mean)

    def sample(self, key: Array, parameter: Float[Array, " d"], count: int) -> Float[Array, "count d"]:
        """One-hot draws."""
        drawn = jax.random.categorical(key, parameter + safe_log(self.weights), shape=(count,))
        return jax.nn.one_hot(drawn, self.dimension, dtype=self.weights.dtype)


class Bernoulli(AbstractExponentialFamily):
    """d independent coins in {0, 1} with counting base measure: G(θ) = Σ_k log(1 + e^{θ_k})."""

    dimension: int

    def __check_init__(self):
        _check_dimension(self.dimension, 1)

    def log_normalizer(self, parameter: Float[Array, " d"]) -> Float[Array, ""]:
        """Σ_k log(1 + e^{θ_k})."""
        return jnp.sum(jax.nn.softplus(parameter))

    def mean(self, parameter: Float[Array, " d"]) -> Float[Array, " d"]:
        """The logistic function of θ."""
        return jax.nn.sigmoid(parameter)

    def covariance(self, parameter: Float[Array, " d"]) -> Float[Array, "d d"]:
        """diag(p(1 − p)) for p the mean."""
        return jnp.diag(jax.nn.sigmoid(parameter) * jax.nn.sigmoid(-parameter))

    def sample(self, key: Array, parameter: Float[Array, " d"], count: int) -> Float[Array, "count d"]:
        """Coin tosses."""
        tossed = jax.random.bernoulli(key, jax.nn.sigmoid(parameter), shape=(count, self.dimension))
        return tossed.astype(parameter.dtype)


class UniformSphereBase(AbstractExponentialFamily):
    """The uniform distribution on the unit sphere S^{d−1}, d ≥ 2: tilting gives von Mises–Fisher.

    G depends on κ = |θ| alone. The projection t of a uniform point on an axis has density ∝ (1 − t²)^{(d−3)/2},
    so G(κ) = log Σ_i w_i e^{κ t_i} with Gauss–Jacobi nodes: an exponential family on the line. `nodes` of them
    are exact to rounding for κ up to about nodes²/20.
    """

    dimension: int
    nodes: int = 256

    def __check_init__(self):
        _check_dimension(self.dimension, 2)

    def _projection(self, dtype) -> tuple[Array, Array]:
        from scipy.special import roots_jacobi

        exponent = (self.dimension - 3) / 2
        nodes, weights = roots_jacobi(self.nodes, exponent, exponent)
        return jnp.asarray(nodes, dtype), jnp.asarray(np.log(weights / weights.sum()), dtype)

    def log_normalizer(self, parameter: Float[Array, " d"]) -> Float[Array, ""]:
        """log[Γ(d/2) (2/κ)^{d/2−1} I_{d/2−1}(κ)], κ = |θ|."""
        nodes, log_weights = self._projection(parameter.dtype)
        square = jnp.sum(jnp.square(parameter))
        small = square < 1e-8  # |θ| has no second derivative at 0, but G has: its Taylor series takes over
        concentration = jnp.sqrt(jnp.where(small, 1.0, square))
        far = jax.nn.logsumexp(concentration * nodes + log_weights)
        d = self.dimension
        return jnp.where(small, square / (2 * d) - jnp.square(square) / (4 * d * d * (d + 2)), far)

    def mean(self, parameter: Float[Array, " d"]) -> Float[Array, " d"]:
        """A_d(κ) θ/κ with A_d = I_{d/2} / I_{d/2−1}."""
        return jax.grad(self.log_normalizer)(parameter)

    def covariance(self, parameter: Float[Array, " d"]) -> Float[Array, "d d"]:
        """∇²G(θ); I/d at θ = 0."""
        return jax.hessian(self.log_normalizer)(parameter)

    def sample(self, key: Array, parameter: Float[Array, " d"], count: int) -> Float[Array, "count d"]:
        """Von Mises–Fisher draws with concentration |θ| about θ/|θ|."""
        return sample_von_mises_fisher(key, parameter, count)


def _check_dimension(dimension: Any, least: int) -> None:
    if not isinstance(dimension, int) or dimension < least:
        raise ArgumentError(f"Argument `dimension` must be an integer of at least {least}, but is {dimension!r}.")
