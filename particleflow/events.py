"""When to stop: each event is a number that crosses zero, located by root finding."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from particleflow._arrays import as_positive, as_scalar
from particleflow.errors import ArgumentError
from particleflow.flow import Flow
from particleflow.kernels.base import squared_distances
from particleflow.measure import Measure
from particleflow.observables import Observable, diameter, energy, name_of


class AbstractEvent(eqx.Module):
    """The run stops when `level` changes its sign."""

    @abc.abstractmethod
    def level(self, flow: Flow, time: Any, measure: Measure) -> Float[Array, ""]:
        """A continuous function of the state, zero at the event."""

    @abc.abstractmethod
    def describe(self) -> str:
        """What has happened, in a few words."""

    def has_happened(self, flow: Flow, time: Any, measure: Measure) -> Bool[Array, ""]:
        """Whether a run that begins here is over before it begins; a level that is merely crossed never is."""
        return jnp.asarray(False)


class Clustered(AbstractEvent):
    """All pairs of particles are within `distance`."""

    distance: Float[Array, ""]

    def __init__(self, distance: Any):
        self.distance = as_positive(distance, "distance")

    def level(self, flow: Flow, time: Any, measure: Measure) -> Float[Array, ""]:
        """diameter − distance."""
        return diameter(flow, time, measure) - self.distance

    def describe(self) -> str:
        """What has happened, in a few words."""
        return f"all particles are within {float(self.distance):g} of each other"

    def has_happened(self, flow: Flow, time: Any, measure: Measure) -> Bool[Array, ""]:
        """All pairs are close already."""
        return self.level(flow, time, measure) <= 0


class Merged(AbstractEvent):
    """At threshold `distance` only n − `merges` clusters (single linkage) are left.

    The k-th merge happens when the k-th shortest edge of the minimal spanning tree comes down to the threshold.
    """

    merges: int
    distance: Float[Array, ""]

    def __init__(self, merges: int, distance: Any):
        self.merges = merges
        self.distance = as_positive(distance, "distance")

    def __check_init__(self):
        if not isinstance(self.merges, int) or self.merges < 1:
            raise ArgumentError(f"Argument `merges` must be a positive integer, but is {self.merges!r}.")

    def level(self, flow: Flow, time: Any, measure: Measure) -> Float[Array, ""]:
        """(k-th shortest edge of the spanning tree) − distance."""
        edges = jnp.sort(spanning_edges(measure.points))
        return edges[min(self.merges, measure.count - 1) - 1] - self.distance

    def describe(self) -> str:
        """What has happened, in a few words."""
        return f"merge number {self.merges} at distance {float(self.distance):g}"

    def has_happened(self, flow: Flow, time: Any, measure: Measure) -> Bool[Array, ""]:
        """So few clusters are left already."""
        return self.level(flow, time, measure) <= 0


class EnergyReached(AbstractEvent):
    """The interaction energy comes to `value`."""

    value: Float[Array, ""]

    def __init__(self, value: Any):
        self.value = as_scalar(value, "value")

    def level(self, flow: Flow, time: Any, measure: Measure) -> Float[Array, ""]:
        """energy − value."""
        return energy(flow, time, measure) - self.value

    def describe(self) -> str:
        """What has happened, in a few words."""
        return f"the energy reached {float(self.value):g}"


class Reached(AbstractEvent):
    """A scalar observable comes to `value`."""

    observable: Observable = eqx.field(static=True)
    value: Float[Array, ""]

    def __init__(self, observable: Observable, value: Any):
        self.observable = observable
        self.value = as_scalar(value, "value")

    def level(self, flow: Flow, time: Any, measure: Measure) -> Float[Array, ""]:
        """observable − value."""
        return self.observable(flow, time, measure) - self.value

    def describe(self) -> str:
        """What has happened, in a few words."""
        return f"{name_of(self.observable)} reached {float(self.value):g}"


class BlewUp(AbstractEvent):
    """A particle is farther than `radius` from the origin."""

    radius: Float[Array, ""]

    def __init__(self, radius: Any):
        self.radius = as_positive(radius, "radius")

    def level(self, flow: Flow, time: Any, measure: Measure) -> Float[Array, ""]:
        """radius − max |x|."""
        return self.radius - jnp.sqrt(jnp.max(jnp.sum(jnp.square(measure.points), axis=1)))

    def describe(self) -> str:
        """What has happened, in a few words."""
        return f"a particle left the ball of radius {float(self.radius):g}"

    def has_happened(self, flow: Flow, time: Any, measure: Measure) -> Bool[Array, ""]:
        """A particle is outside already."""
        return self.level(flow, time, measure) <= 0


def spanning_edges(points: Float[Array, "n d"]) -> Float[Array, " n-1"]:
    """The lengths of the n − 1 edges of the minimal spanning tree, by Prim's algorithm in O(n) memory."""
    count = points.shape[0]
    far = jnp.asarray(jnp.inf, points.dtype)

    def grow(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        reach, inside = state
        nearest = jnp.argmin(jnp.where(inside, far, reach))
        length = reach[nearest]
        to_new = squared_distances(points[nearest][None, :], points)[0]
        return (jnp.minimum(reach, to_new), inside.at[nearest].set(True)), length

    first = squared_distances(points[:1], points)[0]
    inside = jnp.zeros(count, bool).at[0].set(True)
    _, squares = jax.lax.scan(grow, (first, inside), None, length=count - 1)
    return jnp.sqrt(squares)
