"""What some geometries can do beside the maps that all share.

A capability is a small abstract class that a geometry inherits after its base. Code that needs one tests
`isinstance(geometry, Capability)`; the functions at the end do so where geometries without it have a plain answer.
"""

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from particleflow.dynamics.normal_law import Affine, Normal
from particleflow.errors import ArgumentError

if TYPE_CHECKING:
    from particleflow.dynamics.geometry.base import AbstractGeometry

State = Float[Array, "n d"]


class Restoring(eqx.Module):
    """The affine field E[v] + A (x − mean) that normalising a whole set takes off its velocities.

    Parameters: the `mean` of the set, the `offset` E[v] and the `matrix` A.
    """

    mean: Float[Array, " d"]
    offset: Float[Array, " d"]
    matrix: Float[Array, "d d"]

    def at(self, points: Float[Array, "m d"]) -> Float[Array, "m d"]:
        """The field at some points, which need not be those of the set."""
        return self.offset[None, :] + (points - self.mean[None, :]) @ self.matrix.T


class Unconstrained(eqx.Module):
    """Drifts see the state itself, which moves by their velocity alone."""


class CarriesFields(eqx.Module):
    """A state holds more than its point, as a residual stream holds its norm."""

    @abc.abstractmethod
    def fields(self, state: State) -> dict[str, Array]:
        """What `retract` forgets of a state and a run needs, by name; saved beside the points."""

    @abc.abstractmethod
    def lift(self, points: State, fields: Mapping[str, Array]) -> State:
        """The state with these points and fields, so that a run can begin where another one ended."""


class NormalisesTheSet(eqx.Module):
    """The constraint is on all particles together, not on each alone: a mean and a covariance."""

    @abc.abstractmethod
    def for_weights(self, log_weights: Float[Array, "*runs n"]) -> Any:
        """The geometry of particles with these weights."""

    @abc.abstractmethod
    def holds_covariance(self, dimension: int) -> bool:
        """Whether the whole covariance of the set stays constant, whatever the drift."""

    @abc.abstractmethod
    def restoring(self, points: State, velocity: State, shares: Float[Array, " n"], heat: Any) -> Restoring:
        """The affine field that is taken off the velocities of the set.

        Parameters: `points` of the set, their `velocity` and their `shares`, which sum to one; `heat`, the temperature
        of a diffusion that acts beside it, 0 where noise moves the points one by one.
        """

    @abc.abstractmethod
    def check_spread(self, points: Float[Array, "*runs n d"]) -> None:
        """Raise unless the set spreads as it must to be normalised."""


class MovesLaws(eqx.Module):
    """Normal laws stay normal: `retract`, `tangent` and `advance` have counterparts for laws."""

    @abc.abstractmethod
    def retract_law(self, law: Normal) -> Normal:
        """The normal law on the space that a normal law of states stands for."""

    @abc.abstractmethod
    def tangent_law(self, law: Normal, field: Affine, heat: Any) -> Affine:
        """How a normal law moves under an affine field; `heat` is the temperature whose diffusion acts beside it."""

    @abc.abstractmethod
    def advance_law(self, law: Normal, field: Affine, size: Any) -> Normal:
        """Where one explicit step under an affine field leads a normal law."""


def carried_fields(geometry: "AbstractGeometry", state: State) -> dict[str, Array]:
    """What retracting a state forgets, by name; nothing where a state is its point."""
    return geometry.fields(state) if isinstance(geometry, CarriesFields) else {}


def lifted(geometry: "AbstractGeometry", points: State, fields: Mapping[str, Array]) -> State:
    """The state with these points and fields: the points themselves where nothing else is carried along."""
    return geometry.lift(points, fields) if isinstance(geometry, CarriesFields) else points


def carried_names(geometry: "AbstractGeometry", points: Any) -> list[str]:
    """The names of the fields that the states of these points carry along; only the points' shape is needed."""
    return sorted(jax.eval_shape(lambda given: carried_fields(geometry, lifted(geometry, given, {})), points))


def for_weights(geometry: "AbstractGeometry", log_weights: Float[Array, "*runs n"]) -> "AbstractGeometry":
    """The geometry of particles with these weights, which matter only where a whole set is normalised."""
    return geometry.for_weights(log_weights) if isinstance(geometry, NormalisesTheSet) else geometry


def moving_laws(geometry: "AbstractGeometry") -> MovesLaws:
    """The geometry as one that moves normal laws; refused where a Gaussian does not stay one."""
    if not isinstance(geometry, MovesLaws):
        raise ArgumentError(f"A Gaussian lives in flat space, but the geometry is {geometry.name}. Use particles.")
    return geometry
