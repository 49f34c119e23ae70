"""The base classes of exponential families, by what each requires.

AbstractLogNormalizer        G, ∇G and ∇²G alone: entropy, divergence, likelihood and the fit to a mean
AbstractExponentialFamily    points as well: the statistic, densities, draws, tilted base measures
AbstractNaturalFamily        the statistic is the point itself
"""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array
from particleflow._support.representation import shown
from particleflow.errors import ShapeError, whole_number
from particleflow.theory.exponential_family.fitting import matched


class AbstractLogNormalizer(eqx.Module):
    """A convex function G(θ) of one vector (d,), and what follows from convex duality alone.

    The gradient ∇G maps parameters to means; its inverse is the gradient of the conjugate G*(m) = sup_θ ⟨θ, m⟩ − G(θ).
    Source: Wainwright and Jordan, Graphical models, exponential families, and variational inference (2008), section 3.
    """

    dimension: eqx.AbstractVar[int]

    @abc.abstractmethod
    def log_normalizer(self, parameter: Float[Array, " d"]) -> Float[Array, ""]:
        """G(θ) = log ∫ e^{⟨θ, u(y)⟩} h(dy)."""

    @abc.abstractmethod
    def mean(self, parameter: Float[Array, " d"]) -> Float[Array, " d"]:
        """∇G(θ), the expectation of the statistic u(y)."""

    @abc.abstractmethod
    def covariance(self, parameter: Float[Array, " d"]) -> Float[Array, "d d"]:
        """∇²G(θ), the covariance of the statistic u(y)."""

    def entropy(self, parameter: Float[Array, " d"]) -> Float[Array, ""]:
        """−∫ log(dp/dh) dp = G(θ) − ⟨θ, ∇G(θ)⟩ = −G*(∇G(θ)), the entropy relative to the base measure."""
        parameter = self.checked(parameter)
        return self.log_normalizer(parameter) - jnp.dot(parameter, self.mean(parameter))

    def divergence(self, first: Float[Array, " d"], second: Float[Array, " d"]) -> Float[Array, ""]:
        """KL(p_first ‖ p_second) = G(θ₂) − G(θ₁) − ⟨θ₂ − θ₁, ∇G(θ₁)⟩, the Bregman divergence of G."""
        first, second = self.checked(first, "first"), self.checked(second, "second")
        gap = self.log_normalizer(second) - self.log_normalizer(first)
        return gap - jnp.dot(second - first, self.mean(first))

    def log_likelihood(self, parameter: Float[Array, " d"], mean: Float[Array, " d"]) -> Float[Array, ""]:
        """⟨θ, m⟩ − G(θ), the mean log-density of draws whose statistics have the mean m.

        It is concave, with the gradient m − ∇G(θ): ascending it moves the mean of the family to that of the draws.
        """
        parameter = self.checked(parameter)
        return jnp.dot(parameter, self.checked(mean, "mean")) - self.log_normalizer(parameter)

    def fit(
        self, mean: Float[Array, " d"], start: Float[Array, " d"] | None = None, max_steps: int = 256
    ) -> Float[Array, " d"]:
        """The θ with ∇G(θ) = m (moment matching), which maximises the likelihood.

        Parameters: the `mean` m, inside the convex hull of the statistics; `start` of the search, 0 if left out; at
        most `max_steps` steps of Levenberg and Marquardt. A mean that no member has is refused.
        """
        mean = self.checked(mean, "mean")
        return matched(self, mean, jnp.zeros_like(mean) if start is None else self.checked(start, "start"), max_steps)

    def checked(self, parameter: Any, name: str = "parameter") -> Float[Array, " d"]:
        """The parameter as an array, or an error if it is not one vector of this family's dimension."""
        array = as_float_array(parameter, name)
        if array.shape != (self.dimension,):
            raise ShapeError(f"Argument `{name}` must have shape ({self.dimension},), but has {array.shape}.")
        return array

    def __repr__(self) -> str:
        return shown(self)


class AbstractExponentialFamily(AbstractLogNormalizer):
    """The measures p(y | θ) = exp(⟨θ, u(y)⟩ − G(θ)) h(dy): a log-normalizer G with points y to evaluate and draw.

    A parameter θ is one vector (d,). A family whose statistic u is the point itself inherits `AbstractNaturalFamily`.
    """

    @abc.abstractmethod
    def statistic(self, points: Float[Array, "n *d"]) -> Float[Array, "n k"]:
        """The statistic u(y) of every point."""

    @abc.abstractmethod
    def sample(self, key: Array, parameter: Float[Array, " d"], count: int) -> Float[Array, "count d"]:
        """Independent draws from p(· | θ)."""

    def log_density(self, parameter: Float[Array, " d"], points: Float[Array, "n *d"]) -> Float[Array, " n"]:
        """log dp(· | θ)/dh = ⟨θ, u(y)⟩ − G(θ) of every point, with respect to the base measure."""
        parameter = self.checked(parameter)
        return self.statistic(points) @ parameter - self.log_normalizer(parameter)

    def maximum_likelihood(self, points: Float[Array, "n *d"], weights: Any = None) -> Float[Array, " d"]:
        """The θ under which draws, with `weights` proportional to their multiplicities, are most likely."""
        statistics = self.statistic(as_float_array(points, "points"))
        if weights is None:
            return self.fit(jnp.mean(statistics, axis=0))
        shares = as_float_array(weights, "weights")
        return self.fit(shares @ statistics / jnp.sum(shares))

    def tilted(self, parameter: Float[Array, " d"]) -> "Tilted":
        """The family whose base measure is p(· | parameter)."""
        return Tilted(self, self.checked(parameter))


class AbstractNaturalFamily(AbstractExponentialFamily):
    """A natural exponential family: the statistic is the point itself, u(y) = y."""

    def statistic(self, points: Float[Array, "n *d"]) -> Float[Array, "n k"]:
        """u(y) = y, the points unchanged."""
        return points


class Tilted(AbstractExponentialFamily):
    """The family with the base measure p(· | θ₀): G̃(θ) = G(θ₀ + θ) − G(θ₀), and p̃(· | θ) = p(· | θ₀ + θ).

    Parameters: the `family` G; the `origin` θ₀.
    """

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
        """G̃(θ) = G(θ₀ + θ) − G(θ₀)."""
        there = self.family.log_normalizer(self.origin + self.checked(parameter))
        return there - self.family.log_normalizer(self.origin)

    def mean(self, parameter: Float[Array, " d"]) -> Float[Array, " d"]:
        """∇G̃(θ) = ∇G(θ₀ + θ)."""
        return self.family.mean(self.origin + self.checked(parameter))

    def covariance(self, parameter: Float[Array, " d"]) -> Float[Array, "d d"]:
        """∇²G̃(θ) = ∇²G(θ₀ + θ)."""
        return self.family.covariance(self.origin + self.checked(parameter))

    def statistic(self, points: Float[Array, "n *d"]) -> Float[Array, "n k"]:
        """The statistic u(y), that of the original family."""
        return self.family.statistic(points)

    def sample(self, key: Array, parameter: Float[Array, " d"], count: int) -> Float[Array, "count d"]:
        """Independent draws from p(· | θ₀ + θ)."""
        return self.family.sample(key, self.origin + self.checked(parameter), count)


def check_dimension(dimension: Any, least: int) -> None:
    """Raise unless a dimension is an integer ≥ `least`."""
    whole_number(dimension, "dimension", least)
