"""The states of particles: every one by itself, or several that are carried by one point.

    μ = Σ_j w_j δ_{x_j} over n particles = Σ_g W_g δ_{y_g} over m ≤ n points,    x_j = y_{g(j)},  W_g = Σ_{g(j) = g} w_j

The two sums are one measure, so a drift that sees nothing but the measure moves both alike. Frames and observables that
count particles are shown the first; sums over all pairs go over the second.
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
    """What the integrator moves (a residual stream, say), and what stays with every particle."""

    moving: eqx.AbstractVar[Float[Array, "m d"]]

    @abc.abstractmethod
    def on(self, points: Float[Array, "m d"]) -> Measure:
        """The measure that drifts sum over, on some points."""

    @property
    @abc.abstractmethod
    def point_log_weights(self) -> Float[Array, " m"]:
        """The log-weights of the points that move."""

    @abc.abstractmethod
    def each(self, rows: Array) -> Array:
        """What every particle has of something that is known for every point."""

    @abc.abstractmethod
    def particles(self, points: Float[Array, "m d"]) -> Measure:
        """The same measure as `on`, particle by particle."""

    @abc.abstractmethod
    def moved(self, moving: Float[Array, "m d"]) -> "AbstractCloud":
        """The same particles in other places."""

    @abc.abstractmethod
    def rate(self, velocity: Float[Array, "m d"]) -> "AbstractCloud":
        """The velocity of the state, where this is that of what moves: None for all that stays."""

    @abc.abstractmethod
    def condensed(self) -> "Cloud":
        """The points that carry the particles, as particles."""


class Cloud(AbstractCloud):
    """Particles, each of which is a point of its own."""

    moving: Float[Array, "n d"]
    log_weights: Float[Array, " n"] | None
    values: Float[Array, "n *k"] | None = None
    positions: Float[Array, " n"] | None = None

    def on(self, points: Float[Array, "n d"]) -> Measure:
        """The measure of these weights, values and positions on some points."""
        return Measure(points, self.log_weights, self.values, self.positions)

    @property
    def point_log_weights(self) -> Any:
        """Those of the particles."""
        return self.log_weights

    def each(self, rows: Array) -> Array:
        """The rows themselves."""
        return rows

    def particles(self, points: Float[Array, "n d"]) -> Measure:
        """The same as `on`."""
        return self.on(points)

    def moved(self, moving: Float[Array, "n d"]) -> "Cloud":
        """The same particles in other places."""
        return Cloud(moving, self.log_weights, self.values, self.positions)

    def rate(self, velocity: Float[Array, "n d"]) -> "Cloud":
        """The velocity, and None for all that stays."""
        return Cloud(velocity, None)

    def condensed(self) -> "Cloud":
        """Itself."""
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
    def alone(cloud: Cloud) -> "Coalesced":
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

    def on(self, points: Float[Array, "m d"]) -> Measure:
        """The measure of the points that carry the particles; they have no positions, since several particles would."""
        return Measure(points, self.log_masses)

    @property
    def point_log_weights(self) -> Any:
        """The sums of those of the particles."""
        return self.log_masses

    def each(self, rows: Array) -> Array:
        """The row of the point that carries a particle, for every particle."""
        return rows[self.members]

    def particles(self, points: Float[Array, "m d"]) -> Measure:
        """Every particle where its point is, with its own weight and position."""
        return Measure(self.each(points), self.log_weights, None, self.positions)

    def moved(self, moving: Float[Array, "m d"]) -> "Coalesced":
        """The same particles in other places; what only fills up stays where it is."""
        return replace(self, moving=jnp.where(self._is_carrying(), moving, self.moving))

    def rate(self, velocity: Float[Array, "m d"]) -> "Coalesced":
        """The velocity, 0 for what only fills up, and None for all that stays.

        A point without weight that were drawn to a cluster would be stiff for no reason: the points that carry
        clusters feel no such force.
        """
        return Coalesced(jnp.where(self._is_carrying(), velocity, jnp.zeros_like(velocity)))

    def condensed(self) -> Cloud:
        """The points that carry the particles."""
        return Cloud(self.moving, self.log_masses)

    def filled(self, size: int) -> "Coalesced":
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
