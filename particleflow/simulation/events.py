"""When to stop: an event happens where its level, a function of the present, crosses zero; root finding locates it.

In every step the level is evaluated at both ends, at three places in between, and at the extrema of parabolas through
these. An adaptive step in which such parabolas do not fit the level is halved, down to 1/1024 of a window. So the first
crossing is found, also where the level comes back within the same step, unless it crosses zero by less than the error
of the parabolas, a small part of its range over the step. Fixed steps are searched at the same places but not halved.
The step of the event is repeated so that it ends there: the time is that of the solver, not of an interpolation.

Explicit layers and noisy steps have states at their ends only: a level that crosses and comes back within one step has
not crossed. A map ends with the layer that has crossed; the path of a noisy run is taken as straight over that step,
and it ends where this line crosses.

Particles of weight zero do not count.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from particleflow._support.arrays import as_positive, as_scalar
from particleflow._support.representation import shown
from particleflow.discretization import Present
from particleflow.errors import ArgumentError, whole_number
from particleflow.kernels.base import squared_distances
from particleflow.measure import Measure
from particleflow.simulation.observables import Observable, diameter, energy, largest_variance, measured, name_of

__all__ = [
    "AbstractEvent",
    "BlewUp",
    "Clustered",
    "EnergyReached",
    "Merged",
    "Reached",
    "SpreadReached",
    "spanning_edges",
]


class AbstractEvent(eqx.Module):
    """A condition that ends a run: it stops where `level` changes its sign. Subclass it for events of your own."""

    @abc.abstractmethod
    def level(self, present: Present) -> Float[Array, ""]:
        """A continuous function of the state, zero at the event."""

    @abc.abstractmethod
    def describe(self) -> str:
        """What has happened, in a few words."""

    def has_happened(self, present: Present) -> Bool[Array, ""]:
        """Whether the event has already happened at the start of a run; False for events that need a crossing."""
        return jnp.asarray(False)

    def linking_distance(self) -> float | None:
        """The distance up to which this event counts particles as one, also used by analyses; None without one."""
        return None

    def __repr__(self) -> str:
        return shown(self)


class Clustered(AbstractEvent):
    """All pairs of particles are within `distance`."""

    distance: Float[Array, ""]

    def __init__(self, distance: Any):
        self.distance = as_positive(distance, "distance")

    def level(self, present: Present) -> Float[Array, ""]:
        """The diameter less the distance: max |x_i − x_j| − distance."""
        return diameter(present) - self.distance

    def describe(self) -> str:
        """What has happened, in a few words."""
        return f"all particles are within {float(self.distance):g} of each other"

    def linking_distance(self) -> float:
        """The distance of the event."""
        return float(self.distance)

    def has_happened(self, present: Present) -> Bool[Array, ""]:
        """Whether all pairs are close already."""
        return self.level(present) <= 0


class Merged(AbstractEvent):
    """At threshold `distance` only n − `merges` clusters (single linkage) are left.

    The k-th merge happens when the k-th shortest edge of the minimal spanning tree comes down to the threshold; it
    never does where no more than k particles have weight, and more merges than particles are refused.
    """

    merges: int = eqx.field(static=True)
    distance: Float[Array, ""]

    def __init__(self, merges: int, distance: Any):
        self.merges = merges
        self.distance = as_positive(distance, "distance")

    def __check_init__(self):
        whole_number(self.merges, "merges")

    def level(self, present: Present) -> Float[Array, ""]:
        """(k-th shortest edge of the spanning tree) − distance."""
        measure = present.of_particles("The event counts particles that merge")
        if self.merges >= measure.count:
            raise ArgumentError(
                f"Argument `merges` must be less than the number of particles, {measure.count}, but is {self.merges}."
            )
        points = present.reduced.measure
        # Particles that are carried by one point are joined by edges of length zero, which come first.
        joined = jnp.sum(jnp.isfinite(measure.log_weights)) - jnp.sum(jnp.isfinite(points.log_weights))
        ends = jnp.asarray([0.0, jnp.inf], points.points.dtype)
        edges = jnp.concatenate([ends[:1], jnp.sort(spanning_edges(points)), ends[1:]])
        return edges[jnp.clip(self.merges - joined, 0, points.count)] - self.distance

    def describe(self) -> str:
        """What has happened, in a few words."""
        return f"merge number {self.merges} at distance {float(self.distance):g}"

    def linking_distance(self) -> float:
        """The distance of the event."""
        return float(self.distance)

    def has_happened(self, present: Present) -> Bool[Array, ""]:
        """Whether so few clusters are left already."""
        return self.level(present) <= 0


class EnergyReached(AbstractEvent):
    """The interaction energy reaches `value`."""

    value: Float[Array, ""]

    def __init__(self, value: Any):
        self.value = as_scalar(value, "value")

    def level(self, present: Present) -> Float[Array, ""]:
        """The interaction energy less the value."""
        return energy(present) - self.value

    def describe(self) -> str:
        """What has happened, in a few words."""
        return f"the energy reached {float(self.value):g}"


class Reached(AbstractEvent):
    """A scalar observable reaches `value`."""

    observable: Observable = eqx.field(static=True)
    value: Float[Array, ""]

    def __init__(self, observable: Observable, value: Any):
        self.observable = observable
        self.value = as_scalar(value, "value")

    def level(self, present: Present) -> Float[Array, ""]:
        """The observable less the value."""
        return measured(self.observable, present) - self.value

    def describe(self) -> str:
        """What has happened, in a few words."""
        return f"{name_of(self.observable)} reached {float(self.value):g}"


class BlewUp(AbstractEvent):
    """A particle is farther than `radius` from the origin."""

    radius: Float[Array, ""]

    def __init__(self, radius: Any):
        self.radius = as_positive(radius, "radius")

    def level(self, present: Present) -> Float[Array, ""]:
        """radius − max |x|."""
        measure = present.of_particles("The event looks for the farthest particle")
        squares = jnp.sum(jnp.square(measure.points), axis=1)
        return self.radius - jnp.sqrt(jnp.max(jnp.where(measure.log_weights > -jnp.inf, squares, 0.0)))

    def describe(self) -> str:
        """What has happened, in a few words."""
        return f"a particle left the ball of radius {float(self.radius):g}"

    def has_happened(self, present: Present) -> Bool[Array, ""]:
        """Whether a particle is outside already."""
        return self.level(present) <= 0


class SpreadReached(AbstractEvent):
    """The largest variance of the measure, the largest eigenvalue of its covariance, reaches `variance`.

    A Gaussian under softmax attention on the line, V = 1, has the variance s₀/(1 − 2βs₀t), which is infinite at time
    1/(2βs₀). A variance λ is reached λ/λ̇ before such a pole, so a large `variance` stops the run just before it; the
    observable `blow_up_time` estimates the time of the pole.
    """

    variance: Float[Array, ""]

    def __init__(self, variance: Any):
        self.variance = as_positive(variance, "variance")

    def level(self, present: Present) -> Float[Array, ""]:
        """log(variance/λ), λ the largest variance: smooth where λ has a pole."""
        return jnp.log(self.variance) - jnp.log(largest_variance(present))

    def describe(self) -> str:
        """What has happened, in a few words."""
        return f"the largest variance reached {float(self.variance):g}"

    def has_happened(self, present: Present) -> Bool[Array, ""]:
        """Whether the largest variance is as large already."""
        return self.level(present) <= 0


def spanning_edges(measure: Measure) -> Float[Array, " n-1"]:
    """The lengths of the edges of the minimal spanning tree of all points with weight, by Prim's algorithm.

    Memory is O(n). There are n − 1 edges; where k points have no weight, k of them are infinitely long.
    """
    points = measure.points
    far = jnp.asarray(jnp.inf, points.dtype)
    absent = jnp.isneginf(measure.log_weights)
    root = jnp.argmin(absent)

    def reached_from(index: Array) -> Array:
        return jnp.where(absent, far, squared_distances(points[index][None, :], points)[0])

    def grow(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        reach, inside = state
        nearest = jnp.argmin(jnp.where(inside, far, reach))
        length = jnp.where(inside[nearest], far, reach[nearest])
        return (jnp.minimum(reach, reached_from(nearest)), inside.at[nearest].set(True)), length

    inside = absent.at[root].set(True)
    _, squares = jax.lax.scan(grow, (reached_from(root), inside), None, length=measure.count - 1)
    return jnp.sqrt(squares)


def __dir__() -> list[str]:
    return __all__
