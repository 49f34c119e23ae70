"""Families of any statistic: p(x | θ) = exp(⟨θ, u(x)⟩ − G(θ)) h(dx).

The statistic u and the base measure h determine the family. Its log-normalizer is that of the image measure u(h), whose
points are statistics,

    G(θ) = log ∫ e^{⟨θ, u(x)⟩} h(dx) = log Σ_j w_j e^{⟨θ, u(x_j)⟩}.

h is given as a `Measure` (x_j, w_j): draws of h, all points of a finite space, or the nodes of a quadrature
(`base_measures`). Attention whose tokens are statistics is such a family.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array
from particleflow.errors import ArgumentError, ShapeError, check_kind
from particleflow.kernels.inner_product import Attention
from particleflow.measure import Measure
from particleflow.summation.auto import Auto
from particleflow.theory.exponential_family.base import AbstractExponentialFamily
from particleflow.theory.exponential_family.base_measures import hypercube
from particleflow.theory.exponential_family.finite import Empirical


class StatisticFamily(AbstractExponentialFamily):
    """The family of a statistic u and a base measure h, p(x | θ) = exp(⟨θ, u(x)⟩ − G(θ)) h(dx).

    Parameters: `function`, u of one point (d,), a vector (k,); `base`, the measure h on points (n, d).
    For example u(x) = (x, x²) on a quadrature of the line makes the normal laws:

        StatisticFamily(lambda x: jnp.concatenate([x, x**2]), base_measures.box(-30.0, 30.0, nodes=400))
    """

    function: Callable[[Array], Array] = eqx.field(static=True)
    base: Measure
    image: Empirical

    def __init__(self, function: Callable[[Any], Any], base: Measure):
        check_kind(base, Measure, "base", "a measure, such as base_measures.box(-1.0, 1.0, nodes=64)")
        if base.values is not None:
            raise ArgumentError("Argument `base` must carry its own points, but has values: make them a statistic.")
        self.function = function
        self.base = base
        self.image = Empirical(Measure(_statistics(function, base.points), base.log_weights))

    @property
    def dimension(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The dimension of u and θ."""
        return self.image.dimension

    def statistic(self, points: Float[Array, "n d"]) -> Float[Array, "n k"]:
        """u(x) of every point."""
        return _statistics(self.function, as_float_array(points, "points"))

    def log_normalizer(self, parameter: Float[Array, " k"]) -> Float[Array, ""]:
        """log Σ_j w_j e^{⟨θ, u(x_j)⟩}."""
        return self.image.log_normalizer(parameter)

    def mean(self, parameter: Float[Array, " k"]) -> Float[Array, " k"]:
        """∇G(θ), the expectation of u(x)."""
        return self.image.mean(parameter)

    def covariance(self, parameter: Float[Array, " k"]) -> Float[Array, "k k"]:
        """∇²G(θ), the covariance of u(x)."""
        return self.image.covariance(parameter)

    def probabilities(self, parameter: Float[Array, " k"]) -> Float[Array, " n"]:
        """w_j e^{⟨θ, u(x_j)⟩ − G(θ)} of every point of the base measure."""
        return jnp.exp(self.base.log_weights + self.log_density(parameter, self.base.points))

    def effective_count(self, parameter: Float[Array, " k"]) -> Float[Array, ""]:
        """1/Σ_j p_j²: how many points of the base measure carry p(· | θ).

        Draws and nodes represent h only where many of them carry probability: where this is a few, G is unreliable.
        """
        return 1 / jnp.sum(jnp.square(self.probabilities(parameter)))

    def sample(self, key: Array, parameter: Float[Array, " k"], count: int) -> Float[Array, "count d"]:
        """Points x of the base measure, drawn with p(· | θ)."""
        drawn = Auto().draw(key, Attention(), self.image.measure, self.checked(parameter)[None], count)
        return self.base.points[drawn[0]]


def boltzmann_machine(dimension: int, values: tuple[float, float] = (0.0, 1.0)) -> StatisticFamily:
    """Units that take one of two values, p(s) ∝ exp(Σ_i b_i s_i + Σ_{i<j} W_ij s_i s_j), by enumeration.

    The parameter is (b_1, …, b_d, W_12, W_13, …, W_{d−1,d}). The values ±1 make the Ising model. Given all others, a
    unit is a coin: see `Conditional`. Source: Ackley, Hinton and Sejnowski, A learning algorithm for Boltzmann machines
    (1985).
    """
    rows, columns = jnp.triu_indices(dimension, 1)

    def statistic(units: Array) -> Array:
        return jnp.concatenate([units, units[rows] * units[columns]])

    return StatisticFamily(statistic, hypercube(dimension, values))


def _statistics(function: Callable[[Array], Array], points: Float[Array, "n d"]) -> Float[Array, "n k"]:
    """u(x) of every point, checked to be one vector a point."""
    if points.ndim != 2:
        raise ShapeError(f"Argument `points` must have shape (n, d), but has {points.shape}.")
    found = jax.vmap(function)(points)
    if found.ndim != 2:
        raise ShapeError(
            f"Argument `function` must return one vector (k,) for a point (d,), but returns shape {found.shape[1:]}."
        )
    return found
