"""The states of particles: every one by itself, or several that are carried by one point.

    μ = Σ_j w_j δ_{x_j} over n particles = Σ_g W_g δ_{y_g} over m ≤ n points,    x_j = y_{g(j)},  W_g = Σ_{g(j) = g} w_j

The two sums are one measure, so a drift that sees nothing but the measure moves both alike. Frames and observables that
count particles use the first; sums over all pairs go over the second.
"""

import abc
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow.measure import Measure


class AbstractCloud(eqx.Module):
    """The rows that the integrator moves (points, or a residual stream), and what stays with every particle."""

    moving: eqx.AbstractVar[Float[Array, "m d"]]

    @abc.abstractmethod
    def measure_at(self, points: Float[Array, "m d"]) -> Measure:
        """The measure that drifts sum over, on some points."""

    @property
    @abc.abstractmethod
    def point_log_weights(self) -> Float[Array, " m"]:
        """The log-weights of the points that move."""

    @abc.abstractmethod
    def per_particle(self, rows: Array) -> Array:
        """Rows that belong to points, repeated for the particles that each point carries."""

    @abc.abstractmethod
    def particle_measure(self, points: Float[Array, "m d"]) -> Measure:
        """The same measure as `measure_at`, particle by particle."""

    @abc.abstractmethod
    def moved(self, moving: Float[Array, "m d"]) -> "AbstractCloud":
        """The same particles in other places."""

    @abc.abstractmethod
    def rate(self, velocity: Float[Array, "m d"]) -> "AbstractCloud":
        """The velocity of the state, where this is that of what moves: None for all that stays."""

    @abc.abstractmethod
    def carriers(self) -> "Cloud":
        """The points that carry the particles, as particles."""


class Cloud(AbstractCloud):
    """Particles, each of which is a point of its own."""

    moving: Float[Array, "n d"]
    log_weights: Float[Array, " n"] | None
    values: Float[Array, "n *k"] | None = None
    positions: Float[Array, " n"] | None = None

    def measure_at(self, points: Float[Array, "n d"]) -> Measure:
        """The measure of these weights, values and positions on some points."""
        return Measure(points, self.log_weights, self.values, self.positions)

    @property
    def point_log_weights(self) -> Any:
        """The log-weights of the particles."""
        return self.log_weights

    def per_particle(self, rows: Array) -> Array:
        """The rows themselves: every particle is a point."""
        return rows

    def particle_measure(self, points: Float[Array, "n d"]) -> Measure:
        """The same measure as `measure_at` gives."""
        return self.measure_at(points)

    def moved(self, moving: Float[Array, "n d"]) -> "Cloud":
        """The same particles in other places."""
        return Cloud(moving, self.log_weights, self.values, self.positions)

    def rate(self, velocity: Float[Array, "n d"]) -> "Cloud":
        """The velocity, and None for all that stays."""
        return Cloud(velocity, None)

    def carriers(self) -> "Cloud":
        """The cloud itself: every particle carries itself."""
        return self


class Coalesced(AbstractCloud):
    """Particles of which several may be carried by one point, and what merging has done to them so far.

    Parameters: the points that are `moving` and their `log_masses`: the first `carrying` of them stand for particles,
    the others, of weight zero and at rest, only fill up the arrays; `members`, the point that carries a particle, for
    every particle; `log_weights` and `positions` of the particles; `displacement`, how far merging has moved the
    particles of a point in all, at most; `log_energy_bound`, the sum of what every merge can have changed of log E.
    """

    moving: Float[Array, "m d"]
    log_masses: Any = None
    carrying: Any = None
    members: Any = None
    log_weights: Any = None
    positions: Any = None
    displacement: Any = None
    log_energy_bound: Any = None

    @staticmethod
    def uncoalesced(cloud: Cloud) -> "Coalesced":
        """Particles that are still carried one by one."""
        count, dtype = cloud.moving.shape[0], cloud.moving.dtype
        return Coalesced(
            cloud.moving,
            cloud.log_weights,
            jnp.asarray(count, jnp.int32),
            jnp.asarray(np.arange(count, dtype=np.int32)),
            cloud.log_weights,
            cloud.positions,
            jnp.zeros(count, dtype),
            jnp.zeros((), dtype),
        )

    def measure_at(self, points: Float[Array, "m d"]) -> Measure:
        """The measure of the points that carry the particles; without positions, in which their particles differ."""
        return Measure(points, self.log_masses)

    @property
    def point_log_weights(self) -> Any:
        """The sums of those of the particles."""
        return self.log_masses

    def per_particle(self, rows: Array) -> Array:
        """The row of the point that carries a particle, for every particle."""
        return rows[self.members]

    def particle_measure(self, points: Float[Array, "m d"]) -> Measure:
        """Every particle where its point is, with its own weight and position."""
        return Measure(self.per_particle(points), self.log_weights, None, self.positions)

    def moved(self, moving: Float[Array, "m d"]) -> "Coalesced":
        """The same particles in other places; what only fills up stays where it is."""
        return replace(self, moving=jnp.where(self._is_carrying(), moving, self.moving))

    def rate(self, velocity: Float[Array, "m d"]) -> "Coalesced":
        """The velocity, 0 for what only fills up, and None for all that stays.

        Points of weight zero are kept at rest, because a weightless point that is drawn to a cluster would make the
        equation stiff.
        """
        return Coalesced(jnp.where(self._is_carrying(), velocity, jnp.zeros_like(velocity)))

    def carriers(self) -> Cloud:
        """The points that carry the particles."""
        return Cloud(self.moving, self.log_masses)

    def padded(self, size: int) -> "Coalesced":
        """The same in arrays of `size` points, at least as many as carry: others stand on the first, without weight.

        Works on NumPy arrays, outside of programs.
        """
        rows = np.concatenate([np.arange(self.carrying), np.zeros(size - self.carrying, int)])
        moving, masses, displacement = (
            np.asarray(leaf)[rows] for leaf in (self.moving, self.log_masses, self.displacement)
        )
        masses[self.carrying :], displacement[self.carrying :] = -np.inf, 0
        return replace(self, moving=moving, log_masses=masses, displacement=displacement)

    def _is_carrying(self) -> Array:
        return (jax.lax.iota(jnp.int32, self.moving.shape[0]) < self.carrying)[:, None]
