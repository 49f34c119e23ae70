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

from particleflow._arrays import as_float_array, check_same_dtype, is_concrete
from particleflow._shown import shown
from particleflow.errors import ArgumentError, ShapeError
from particleflow.kernels.base import safe_log
from particleflow.kernels.inner import Attention
from particleflow.local import local_covariance, local_moments
from particleflow.measure import Measure
from particleflow.sphere_sampling import sample_von_mises_fisher
from particleflow.summation.auto import Auto

__all__ = [
    "AbstractExponentialFamily",
    "Bernoulli",
    "Empirical",
    "GaussianBase",
    "Multinoulli",
    "Tilted",
    "UniformSphereBase",
]

# Nodes of the quadrature on the sphere: exact to rounding in every dimension up to the concentration below.
_JACOBI_NODES = 256
_LARGE_CONCENTRATION = 1000.0


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

    def checked(self, parameter: Any, name: str = "parameter") -> Float[Array, " d"]:
        """The parameter as an array, or an error if it is not one vector of this family's dimension."""
        array = as_float_array(parameter, name)
        if array.shape != (self.dimension,):
            raise ShapeError(f"Argument `{name}` must have shape ({self.dimension},), but has {array.shape}.")
        return array

    def entropy(self, parameter: Float[Array, " d"]) -> Float[Array, ""]:
        """−∫ log(dp/dh) dp = G(θ) − ⟨θ, ∇G(θ)⟩, the entropy relative to the base measure."""
        parameter = self.checked(parameter)
        return self.log_normalizer(parameter) - jnp.dot(parameter, self.mean(parameter))

    def divergence(self, first: Float[Array, " d"], second: Float[Array, " d"]) -> Float[Array, ""]:
        """KL(p_first ‖ p_second) = G(θ₂) − G(θ₁) − ⟨θ₂ − θ₁, ∇G(θ₁)⟩."""
        first, second = self.checked(first, "first"), self.checked(second, "second")
        gap = self.log_normalizer(second) - self.log_normalizer(first)
        return gap - jnp.dot(second - first, self.mean(first))

    def tilted(self, parameter: Float[Array, " d"]) -> "Tilted":
        """The family whose base measure is p(· | parameter)."""
        return Tilted(self, self.checked(parameter))

    def __repr__(self) -> str:
        return shown(self)


class Tilted(AbstractExponentialFamily):
    """The same family seen from another base measure: G̃(θ) = G(θ₀ + θ) − G(θ₀)."""

    family: AbstractExponentialFamily
    origin: Float[Array, " d"]

    def __init__(self, family: AbstractExponentialFamily, origin: Any):
        self.family = family
        self.origin = as_float_array(origin, "origin")

    def __check_init__(self):
        self.family.checked(self.origin, "origin")

    @property
    def dimension(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The dimension of y and θ."""
        return self.family.dimension

    def log_normalizer(self, parameter: Float[Array, " d"]) -> Float[Array, ""]:
        """G(θ₀ + θ) − G(θ₀)."""
        there = self.family.log_normalizer(self.origin + self.checked(parameter))
        return there - self.family.log_normalizer(self.origin)

    def mean(self, parameter: Float[Array, " d"]) -> Float[Array, " d"]:
        """∇G(θ₀ + θ)."""
        return self.family.mean(self.origin + self.checked(parameter))

    def covariance(self, parameter: Float[Array, " d"]) -> Float[Array, "d d"]:
        """∇²G(θ₀ + θ)."""
        return self.family.covariance(self.origin + self.checked(parameter))

    def sample(self, key: Array, parameter: Float[Array, " d"], count: int) -> Float[Array, "count d"]:
        """Independent draws from p(· | θ₀ + θ)."""
        return self.family.sample(key, self.origin + self.checked(parameter), count)


class Empirical(AbstractExponentialFamily):
    """The base measure Σ_j w_j δ_{y_j} of some tokens: the mean is the output of softmax attention."""

    measure: Measure

    def __init__(self, measure: Measure):
        self.measure = measure

    def __check_init__(self):
        if self.measure.values is not None:
            raise ArgumentError(
                "The base measure of an exponential family must carry its own points, not other values."
            )

    @property
    def dimension(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The dimension of y and θ."""
        return self.measure.dimension

    def log_normalizer(self, parameter: Float[Array, " d"]) -> Float[Array, ""]:
        """log Σ_j w_j e^{⟨θ, y_j⟩}."""
        return local_moments(Attention(), self.measure, self.checked(parameter)).log_mass

    def mean(self, parameter: Float[Array, " d"]) -> Float[Array, " d"]:
        """Σ_j w_j e^{⟨θ, y_j⟩} y_j / Σ_j w_j e^{⟨θ, y_j⟩}."""
        return local_moments(Attention(), self.measure, self.checked(parameter)).mean

    def covariance(self, parameter: Float[Array, " d"]) -> Float[Array, "d d"]:
        """The covariance of the tokens under softmax weights."""
        return local_covariance(Attention(), self.measure, self.checked(parameter))

    def sample(self, key: Array, parameter: Float[Array, " d"], count: int) -> Float[Array, "count d"]:
        """Tokens drawn with softmax weights."""
        drawn = Auto().draw(key, Attention(), self.measure, self.checked(parameter)[None], count)
        return self.measure.points[drawn[0]]


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
        check_same_dtype(centre=self.centre, spread=self.spread)
        if is_concrete(self.spread):
            spread = np.asarray(self.spread)
            if not np.allclose(spread, spread.T):
                raise ArgumentError("Argument `spread` must be a symmetric matrix, but is not.")
            least = np.linalg.eigvalsh(spread).min()
            if least <= 0:
                raise ArgumentError(f"Argument `spread` must be positive definite, but has the eigenvalue {least:.6g}.")

    @property
    def dimension(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The dimension of y and θ."""
        return self.centre.shape[0]

    def log_normalizer(self, parameter: Float[Array, " d"]) -> Float[Array, ""]:
        """⟨θ, a⟩ + ½⟨θ, Sθ⟩."""
        parameter = self.checked(parameter)
        return jnp.dot(parameter, self.centre) + 0.5 * jnp.dot(parameter, self.spread @ parameter)

    def mean(self, parameter: Float[Array, " d"]) -> Float[Array, " d"]:
        """a + Sθ."""
        return self.centre + self.spread @ self.checked(parameter)

    def covariance(self, parameter: Float[Array, " d"]) -> Float[Array, "d d"]:
        """S, whatever θ."""
        self.checked(parameter)
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
        if self.weights.ndim != 1 or self.weights.size == 0:
            raise ShapeError(f"Argument `weights` must have shape (d,) with d ≥ 1, but has {self.weights.shape}.")
        if not is_concrete(self.weights):
            return
        if bool(jnp.any(self.weights < 0)):
            raise ArgumentError(f"Argument `weights` must not be negative, but holds {float(jnp.min(self.weights))}.")
        if not bool(jnp.any(self.weights > 0)):
            raise ArgumentError("Argument `weights` gives the family no mass: every weight is zero.")

    @property
    def dimension(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of outcomes."""
        return self.weights.shape[0]

    def log_normalizer(self, parameter: Float[Array, " d"]) -> Float[Array, ""]:
        """log Σ_k w_k e^{θ_k}."""
        return jax.nn.logsumexp(self.checked(parameter) + safe_log(self.weights))

    def mean(self, parameter: Float[Array, " d"]) -> Float[Array, " d"]:
        """softmax(θ + log w)."""
        return jax.nn.softmax(self.checked(parameter) + safe_log(self.weights))

    def covariance(self, parameter: Float[Array, " d"]) -> Float[Array, "d d"]:
        """diag(p) − p pᵀ for p the mean."""
        mean = self.mean(parameter)
        return jnp.diag(mean) - jnp.outer(mean, mean)

    def sample(self, key: Array, parameter: Float[Array, " d"], count: int) -> Float[Array, "count d"]:
        """One-hot draws."""
        drawn = jax.random.categorical(key, self.checked(parameter) + safe_log(self.weights), shape=(count,))
        return jax.nn.one_hot(drawn, self.dimension, dtype=self.weights.dtype)


class Bernoulli(AbstractExponentialFamily):
    """d independent coins in {0, 1} with counting base measure: G(θ) = Σ_k log(1 + e^{θ_k})."""

    dimension: int = eqx.field(static=True)

    def __check_init__(self):
        _check_dimension(self.dimension, 1)

    def log_normalizer(self, parameter: Float[Array, " d"]) -> Float[Array, ""]:
        """Σ_k log(1 + e^{θ_k})."""
        return jnp.sum(jax.nn.softplus(self.checked(parameter)))

    def mean(self, parameter: Float[Array, " d"]) -> Float[Array, " d"]:
        """The logistic function of θ."""
        return jax.nn.sigmoid(self.checked(parameter))

    def covariance(self, parameter: Float[Array, " d"]) -> Float[Array, "d d"]:
        """diag(p(1 − p)) for p the mean."""
        parameter = self.checked(parameter)
        return jnp.diag(jax.nn.sigmoid(parameter) * jax.nn.sigmoid(-parameter))

    def sample(self, key: Array, parameter: Float[Array, " d"], count: int) -> Float[Array, "count d"]:
        """Coin tosses."""
        parameter = self.checked(parameter)
        tossed = jax.random.bernoulli(key, jax.nn.sigmoid(parameter)[None, :], shape=(count, self.dimension))
        return tossed.astype(parameter.dtype)


class UniformSphereBase(AbstractExponentialFamily):
    """The uniform distribution on the unit sphere S^{d−1}, d ≥ 2: tilting gives von Mises–Fisher.

    G depends on κ = |θ| alone. The projection t of a uniform point on an axis has density ∝ (1 − t²)^{(d−3)/2},
    so G(κ) = log Σ_i w_i e^{κ t_i} with Gauss–Jacobi nodes: an exponential family on the line. Towards κ = 0 the
    Taylor series takes over, and above a thousand, where the nodes become too few, Olver's expansion.
    """

    dimension: int = eqx.field(static=True)

    def __check_init__(self):
        _check_dimension(self.dimension, 2)

    def log_normalizer(self, parameter: Float[Array, " d"]) -> Float[Array, ""]:
        """log[Γ(d/2) (2/κ)^{d/2−1} I_{d/2−1}(κ)], κ = |θ|."""
        parameter = self.checked(parameter)
        square = jnp.sum(jnp.square(parameter))
        # |θ| has no second derivative at 0, but G has; the series is cut at the cube of its argument.
        small = square < float(np.cbrt(jnp.finfo(parameter.dtype).eps))
        concentration = jnp.sqrt(jnp.where(small, 1.0, square))
        large = concentration > _LARGE_CONCENTRATION
        nodes, log_weights = _gauss_jacobi(self.dimension, parameter.dtype)
        near = jax.nn.logsumexp(jnp.where(large, 1.0, concentration) * nodes + log_weights)
        far = _olver(self.dimension, jnp.where(large, concentration, _LARGE_CONCENTRATION))
        return jnp.where(small, _taylor(self.dimension, square), jnp.where(large, far, near))

    def mean(self, parameter: Float[Array, " d"]) -> Float[Array, " d"]:
        """A_d(κ) θ/κ with A_d = I_{d/2} / I_{d/2−1}."""
        return jax.grad(self.log_normalizer)(self.checked(parameter))

    def covariance(self, parameter: Float[Array, " d"]) -> Float[Array, "d d"]:
        """∇²G(θ); I/d at θ = 0."""
        return jax.hessian(self.log_normalizer)(self.checked(parameter))

    def sample(self, key: Array, parameter: Float[Array, " d"], count: int) -> Float[Array, "count d"]:
        """Von Mises–Fisher draws with concentration |θ| about θ/|θ|."""
        return sample_von_mises_fisher(key, self.checked(parameter), count)


def _taylor(dimension: int, square: Array) -> Array:
    """log ₀F₁(; a; x) = x/a − x²/(2a²(a + 1)) + 2x³/(3a³(a + 1)(a + 2)) + O(x⁴) with a = d/2, x = κ²/4."""
    a, x = dimension / 2, square / 4
    return x / a - jnp.square(x) / (2 * a**2 * (a + 1)) + 2 * x**3 / (3 * a**3 * (a + 1) * (a + 2))


def _gauss_jacobi(dimension: int, dtype) -> tuple[Array, Array]:
    """Nodes and log-weights of the projection of a uniform point on an axis."""
    from scipy.special import roots_jacobi

    exponent = (dimension - 3) / 2
    nodes, weights = roots_jacobi(_JACOBI_NODES, exponent, exponent)
    with np.errstate(divide="ignore"):  # in high dimensions the outermost nodes weigh nothing
        log_weights = np.log(weights / weights.sum())
    return jnp.asarray(nodes, dtype), jnp.asarray(log_weights, dtype)


def _olver(dimension: int, concentration: Array) -> Array:
    """G for large κ: I_ν(κ) ≈ e^r (κ/(ν + r))^ν (2πr)^{−1/2} (1 + Σ_k u_k), r = √(ν² + κ²), ν = d/2 − 1.

    With q = ν²/r² the terms are polynomials in q over r^k, so that ν = 0 needs no case of its own; the first
    one left out is of order 1/r⁴.
    """
    from scipy.special import gammaln

    order = dimension / 2 - 1
    radius = jnp.sqrt(order**2 + jnp.square(concentration))
    q = order**2 / jnp.square(radius)
    first = (3 - 5 * q) / 24
    second = (81 - 462 * q + 385 * q**2) / 1152
    third = (30375 - 369603 * q + 765765 * q**2 - 425425 * q**3) / 414720
    series = jnp.log1p((first + (second + third / radius) / radius) / radius)
    constant = float(gammaln(dimension / 2) + order * np.log(2) - 0.5 * np.log(2 * np.pi))
    return radius + constant - order * jnp.log(order + radius) - 0.5 * jnp.log(radius) + series


def _check_dimension(dimension: Any, least: int) -> None:
    if not isinstance(dimension, int) or dimension < least:
        raise ArgumentError(f"Argument `dimension` must be an integer of at least {least}, but is {dimension!r}.")


def __dir__() -> list[str]:
    return __all__
