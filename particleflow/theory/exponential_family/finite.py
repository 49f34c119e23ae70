"""Natural exponential families on finitely many points: tokens, one-hot outcomes, independent coins."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array, is_concrete
from particleflow.errors import ArgumentError, ShapeError
from particleflow.kernels.base import safe_log
from particleflow.kernels.inner_product import Attention
from particleflow.measure import Measure
from particleflow.summation.auto import Auto
from particleflow.summation.local_mean import local_covariance, local_moments
from particleflow.theory.exponential_family.base import AbstractNaturalFamily, check_dimension


class Empirical(AbstractNaturalFamily):
    """The base measure Σ_j w_j δ_{y_j} of some tokens: the mean is the output of softmax attention.

    Parameters: the `measure`, whose values are its own points.
    """

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


class Multinoulli(AbstractNaturalFamily):
    """One-hot vectors with base weights w: G(θ) = log Σ_k w_k e^{θ_k}, and the mean is a softmax.

    Parameters: `weights` w (d,) ≥ 0, not all zero.
    """

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
        """One-hot vectors drawn with probabilities softmax(θ + log w)."""
        drawn = jax.random.categorical(key, self.checked(parameter) + safe_log(self.weights), shape=(count,))
        return jax.nn.one_hot(drawn, self.dimension, dtype=self.weights.dtype)


class Bernoulli(AbstractNaturalFamily):
    """d independent coins in {0, 1} with counting base measure: G(θ) = Σ_k log(1 + e^{θ_k}).

    Parameters: `dimension` d.
    """

    dimension: int = eqx.field(static=True)

    def __check_init__(self):
        check_dimension(self.dimension, 1)

    def log_normalizer(self, parameter: Float[Array, " d"]) -> Float[Array, ""]:
        """Σ_k log(1 + e^{θ_k})."""
        return jnp.sum(jax.nn.softplus(self.checked(parameter)))

    def mean(self, parameter: Float[Array, " d"]) -> Float[Array, " d"]:
        """The probabilities σ(θ) = 1/(1 + e^{−θ})."""
        return jax.nn.sigmoid(self.checked(parameter))

    def covariance(self, parameter: Float[Array, " d"]) -> Float[Array, "d d"]:
        """diag(p(1 − p)) for p the mean."""
        parameter = self.checked(parameter)
        return jnp.diag(jax.nn.sigmoid(parameter) * jax.nn.sigmoid(-parameter))

    def sample(self, key: Array, parameter: Float[Array, " d"], count: int) -> Float[Array, "count d"]:
        """Independent tosses of coins with probabilities σ(θ)."""
        parameter = self.checked(parameter)
        tossed = jax.random.bernoulli(key, jax.nn.sigmoid(parameter)[None, :], shape=(count, self.dimension))
        return tossed.astype(parameter.dtype)
