"""Capabilities: what some discretizations can do beside the core that all share.

A capability is a small abstract class that a discretization inherits after `AbstractDiscretization`. Code that needs
one tests `isinstance(discretization, Capability)`; the functions at the end do so where several callers need the same
answer for discretizations without it.
"""

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float

from particleflow.dynamics.flow import Flow
from particleflow.dynamics.initial.density import Density
from particleflow.errors import ArgumentError
from particleflow.measure import Measure

if TYPE_CHECKING:
    from particleflow.discretization.base import AbstractDiscretization
    from particleflow.discretization.particles.merged_points import MergedPoints


class Noise(NamedTuple):
    """A Brownian motion that drives a state: the shape of its increments, and what an increment does to a state.

    `act(time, state, increment)` returns a change of the state, None for leaves that it leaves alone.
    """

    shape: tuple[int, ...]
    act: Callable[[Any, Any, Array], Any]


class DrivenByNoise(eqx.Module):
    """Brownian motions drive the state itself; elsewhere temperature is diffusion, a part of the velocity."""

    @abc.abstractmethod
    def noises(self, flow: Flow, state: Any) -> tuple[Noise, ...]:
        """The independent Brownian motions that drive this state."""


class CarriesDensity(eqx.Module):
    """The points of the measure are fixed places at which a density is known, not particles.

    Each stands for all mass near it: two of them are no pair of particles, and their number means nothing.
    """

    @abc.abstractmethod
    def project(self, flow: Flow, start: Any) -> Any:
        """Convert the start of a run to a measure on this discretization's points.

        Called outside of compiled programs. Parameters: `start`, a measure, points, a density or an initial kind.
        """


class HasLogDensity(eqx.Module):
    """The density of the measure is known at its points."""

    @abc.abstractmethod
    def log_density(self, flow: Flow, time: Any, state: Any) -> Float[Array, " n"]:
        """log dμ/dx at the points of the measure, x the length, area or volume of the geometry."""


class StartsFromSamplingLaw(eqx.Module):
    """The start of a run can be completed from the law that its points were drawn from."""

    @abc.abstractmethod
    def from_sampling_law(
        self, flow: Flow, measure: Measure, drawn: Float[Array, "n d"], density: Density | None
    ) -> Measure:
        """Attach what follows from the density of the sampling law, if that is known.

        Called outside of compiled programs. Parameters: the `measure` on its geometry; its points as they were `drawn`;
        the `density` of their law, None where it is unknown.
        """


class SpecialisesSums(eqx.Module):
    """The points never move, so that exact sums over them can be faster than sums over any points."""

    @abc.abstractmethod
    def specialise_sums(self, flow: Flow, measure: Measure) -> Flow:
        """The same flow with exact sums made for the points of a projected measure; not for runs of unlike flows."""


class BoundedSteps(eqx.Module):
    """Only Euler steps up to some length lead from states to states, as for a density that must stay positive."""

    @abc.abstractmethod
    def bounded_velocity(self, flow: Flow, time: Any, state: Any) -> tuple[Any, Any]:
        """d state/dt, and the length of the longest Euler step along it that leads to a valid state."""

    @abc.abstractmethod
    def solvers(self) -> tuple[str, ...]:
        """The names of the solvers whose steps are made of such Euler steps, the default one first."""


class InBox(eqx.Module):
    """The points may fill a box, with walls or closed to a torus."""

    periodic: eqx.AbstractVar[bool]


class ClosedForm(eqx.Module):
    """Velocities come from formulas; nothing is summed over pairs of points."""


class HasCanonicalState(eqx.Module):
    """Several states stand for one measure, as rescaled vectors stand for one point of a sphere."""

    @abc.abstractmethod
    def canonical(self, flow: Flow, time: Any, state: Any) -> Any:
        """The representative of all states that stand for the same measure."""


class Diagnosable(eqx.Module):
    """The reason why a run cannot go on can be read from its state."""

    @abc.abstractmethod
    def diagnose(self, flow: Flow, time: Any, state: Any) -> str | None:
        """Diagnose a finite state that cannot advance by the steps it was given: a sentence, None if unknown."""


class MovesRows(eqx.Module):
    """What moves is one array with a row a particle, so that several devices can each hold some of the rows."""

    @abc.abstractmethod
    def moving_rows(self, state: Any) -> Array:
        """The array of a state that moves; nothing else does."""


class HasStatistics(eqx.Module):
    """The card of a run shows numbers of this discretization."""

    @abc.abstractmethod
    def statistics(self, states: Any) -> dict[str, Any]:
        """Entries for the card of a run, by name; every array of `states` has a leading axis of runs."""


class Coalescing(eqx.Module):
    """Particles in one place can be carried by one point, of their total weight."""

    @abc.abstractmethod
    def resolution(self) -> float:
        """The distance up to which two particles may become one during a run; 0 where they never do."""

    @abc.abstractmethod
    def after_window(self, flow: Flow, time: Array, state: Any, layer: float | None) -> Any:
        """The state that the next window of a run begins with: the very same one where nothing merges.

        Called outside of compiled programs. A function of its arguments alone, so that a resumed run repeats it.
        Parameters: `layer`, the size of an explicit layer, None for a flow in continuous time.
        """

    @abc.abstractmethod
    def pad_states(self, states: Sequence[Any]) -> Sequence[Any]:
        """Pad the runs' states to one shape, from a small set, so that few programs compile."""

    @abc.abstractmethod
    def carriers(self, state: Any) -> tuple["AbstractDiscretization", Any]:
        """The points that carry the particles as a state of their own, for sums over all pairs."""

    @abc.abstractmethod
    def merge_points(self, flow: Flow, measure: Measure, distance: float) -> "MergedPoints":
        """The initial state with particles linked by distances of at most `distance` as one point."""


def noises_of(discretization: "AbstractDiscretization", flow: Flow, state: Any) -> tuple[Noise, ...]:
    """The Brownian motions that drive a state; none where noise is part of the velocity."""
    return discretization.noises(flow, state) if isinstance(discretization, DrivenByNoise) else ()


def resolution_of(discretization: "AbstractDiscretization") -> float:
    """The distance up to which two particles may become one during a run; 0 where they never do."""
    return discretization.resolution() if isinstance(discretization, Coalescing) else 0.0


def merge_points(
    discretization: "AbstractDiscretization", flow: Flow, measure: Measure, distance: float
) -> "MergedPoints":
    """The initial state with nearby particles as one point; refused where the state is not made of particles."""
    if not isinstance(discretization, Coalescing):
        raise ArgumentError(
            f"Particles of one place cannot be taken together (`merge`): the discretization "
            f"{type(discretization).__name__} does not carry the measure by particles."
        )
    return discretization.merge_points(flow, measure, distance)
