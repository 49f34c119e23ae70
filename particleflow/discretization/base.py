"""Discretizations: how μ_t is carried by a *state*, any pytree of arrays that an integrator can move.

A flow is the equation for μ_t; a discretization turns it into an ODE (or SDE) for a state:

    state(0) = begin(flow, μ_0),    d state/dt = velocity(flow, t, state),    μ_t = measure(flow, t, state).

Integration, events, observables, ensembles, checkpoints and the store know only states and what is below. A leaf of
the state that never moves (weights, token positions) is left out of the integration: its velocity is None. Between two
windows of a run a discretization may go on with another state, of other shapes, that stands for the same measure
(`between`, `alike`).
"""

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._shown import shown
from particleflow.errors import ArgumentError
from particleflow.flow import Flow
from particleflow.initial.densities import Density
from particleflow.measure import Measure
from particleflow.normal import Normal

if TYPE_CHECKING:
    from particleflow.discretization.gathering import Gathered
    from particleflow.initial.densities import Density

# Fields of these names are the points and the masses of the measure that a frame stands for.
POINTS, MASSES = "points", "masses"


class Noise(NamedTuple):
    """A Brownian motion that drives a state: the shape of its increments, and what an increment does to a state.

    `act(time, state, increment)` returns a change of the state, None for leaves that it leaves alone.
    """

    shape: tuple[int, ...]
    act: Callable[[Any, Any, Array], Any]


class AbstractDiscretization(eqx.Module):
    """How a measure is carried; see the module's first lines.

    `atoms`: whether the points of the measure are particles; else they are places at which a density is known, of which
    each stands for all that is near it: two of them are no pair of particles, and their number means nothing.
    """

    atoms: ClassVar[bool] = True

    @abc.abstractmethod
    def begin(self, flow: Flow, measure: Measure) -> Any:
        """The state from which the integrator starts."""

    @abc.abstractmethod
    def measure(self, flow: Flow, time: Any, state: Any) -> Measure:
        """The measure that a state stands for, weights included."""

    @abc.abstractmethod
    def velocity(self, flow: Flow, time: Any, state: Any) -> Any:
        """d state/dt; None for leaves that never move."""

    @abc.abstractmethod
    def fields(self, flow: Flow, time: Any, state: Any) -> dict[str, Array]:
        """What a frame stores, by name: `points`, `masses`, and whatever a run needs to go on.

        Points that are not among the fields never move, and are stored once.
        """

    def step(self, flow: Flow, time: Any, state: Any, size: Any) -> Any:
        """One explicit layer: state + size · velocity, unless a discretization knows better."""
        rate = self.velocity(flow, time, state)
        return jax.tree_util.tree_map(
            lambda move, leaf: leaf if move is None else leaf + size * move, rate, state, is_leaf=lambda x: x is None
        )

    def bounded_velocity(self, flow: Flow, time: Any, state: Any) -> tuple[Any, Any]:
        """d state/dt, and the longest Euler step along it that leads to a state again; any, unless said otherwise."""
        return self.velocity(flow, time, state), jnp.inf

    def solvers(self) -> tuple[str, ...]:
        """The solvers that move a state to states only, the usual one first; empty where every solver does."""
        return ()

    def motion(self, flow: Flow, time: Any, state: Any) -> Float[Array, "n d"]:
        """How the points of the measure move: the derivative of `measure` along d state/dt, unless said otherwise."""
        rate = self.velocity(flow, time, state)
        moving, fixed = split(state, rate)

        def points(time: Any, moving: Any) -> Array:
            return self.measure(flow, time, eqx.combine(moving, fixed)).points

        time = jnp.asarray(time)
        return jax.jvp(points, (time, moving), (jnp.ones_like(time), eqx.filter(rate, eqx.is_array)))[1]

    def log_density(self, flow: Flow, time: Any, state: Any) -> Float[Array, " n"] | None:
        """log dμ/dx at the points of the measure, x the length, area or volume of the geometry; None if unknown."""
        return None

    def ends_meet(self) -> bool:
        """Whether the points of the measure are in a box that closes to a torus."""
        return False

    def laid_out(self, flow: Flow, start: Any) -> Any:
        """What a run is begun with, on points that can carry it; what is given, unless said otherwise.

        Called outside of compiled programs. Parameters: `start`, a measure, points, or an initial density.
        """
        return start

    def knowing(self, flow: Flow, measure: Measure, drawn: Float[Array, "n d"], density: "Density | None") -> Measure:
        """The start with what the law says that it was drawn from; as it is, unless said otherwise.

        Called outside of compiled programs. Parameters: the `measure` on its geometry; its points as they were `drawn`;
        the `density` of their law, None where nobody knows it.
        """
        return measure

    def prepared(self, flow: Flow, measure: Measure) -> Flow:
        """The flow with sums that suit the points of a measure that is laid out; the same, unless said otherwise.

        Runs of unlike flows are not asked.
        """
        return flow

    def trouble(self, flow: Flow, time: Any, state: Any) -> str | None:
        """Why a state that is finite cannot go on with the steps it was given, as a sentence; None if unknown."""
        return None

    def seen(self, flow: Flow, time: Any, state: Any) -> Measure:
        """The measure that drifts look at: that of the state, unless a geometry shows them something else."""
        return self.measure(flow, time, state)

    def condensed(self, state: Any) -> tuple["AbstractDiscretization", Any]:
        """The same measure on as few points as are known, for sums over all pairs: as it is, unless said otherwise."""
        return self, state

    def canonical(self, flow: Flow, time: Any, state: Any) -> Any:
        """The one of all states that stand for the same measure: itself, unless several do (rescaled on a sphere)."""
        return state

    def gathered(self, flow: Flow, measure: Measure, distance: float) -> "Gathered":
        """The state that the measure begins with, its particles of one place as one point; see `gathering`.

        Refused where a state is not made of particles, or where they differ by more than their places.
        """
        raise ArgumentError(
            f"Particles of one place cannot be taken together (`merge`): the discretization {type(self).__name__} "
            "does not carry the measure by particles."
        )

    def noises(self, flow: Flow, state: Any) -> tuple[Noise, ...]:
        """The Brownian motions that drive the state; none where noise is part of the velocity (diffusion)."""
        return ()

    def resolution(self) -> float:
        """The distance up to which two particles may become one; 0 where they never do."""
        return 0.0

    def between(self, flow: Flow, time: Array, state: Any, layer: float | None) -> Any:
        """The state that a run goes on with after a window; that with which it has ended, unless said otherwise.

        Called outside of compiled programs. It must depend on its arguments alone, so that a resumed run repeats it.
        Parameters: `layer`, the size of an explicit layer, None for a flow in continuous time.
        """
        return state

    def alike(self, states: Sequence[Any]) -> Sequence[Any]:
        """The states of all runs, as `between` left them, in equal shapes, of which there should be few."""
        return states

    def is_closed_form(self) -> bool:
        """Whether velocities come from formulas, and nothing is summed over pairs of points."""
        return False

    def statistics(self, states: Any) -> dict[str, Any]:
        """What the card of a run should say, by name; every array of `states` has a leading axis of runs."""
        return {}

    def check(self, flow: Flow, measure: Measure, *, flow_per_run: bool = False) -> None:
        """Raise if a run of this flow cannot begin with this measure.

        The arrays of an ensemble's measures, and with `flow_per_run` those of its flows, have a leading axis of runs.
        """

    def __repr__(self) -> str:
        return shown(self)


def retracted_density(how: AbstractDiscretization, flow: Flow, density: Density) -> Density:
    """What normalising the whole set makes of a density: N is affine; without such a demand, the density itself.

    Mean and covariance are those that the discretization sees of it: a box must be wide enough before and after.
    """
    if not flow.geometry.whole_set:
        return density
    law = Normal.of(how.laid_out(flow, density))
    seen = flow.geometry.retract_law(law)
    matrix = jnp.linalg.solve(law.factor.T, seen.factor.T).T  # N(y) = mean + M (y − centre), so that M F is its factor
    return density.mapped(*(np.asarray(each, float) for each in (law.mean, matrix, seen.mean)))


def split(state: Any, rate: Any) -> tuple[Any, Any]:
    """The leaves of a state that have a velocity, and the others."""
    moves = jax.tree_util.tree_map(lambda leaf: leaf is not None, rate, is_leaf=lambda leaf: leaf is None)
    return eqx.partition(state, moves)
