"""Discretizations: how μ_t is carried by a *state*, any pytree of arrays that an integrator can move.

A flow is the equation for μ_t; a discretization turns it into an ODE (or SDE) for a state:

    state(0) = begin(flow, μ_0),    d state/dt = velocity(flow, t, state),    μ_t = measure(flow, t, state).

Integration, events, observables, ensembles, checkpoints and the store use only states and the methods below. A leaf of
the state that never moves (weights, token positions) is left out of the integration: its velocity is None. What only
some discretizations can do is in `discretization_capabilities`.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.representation import shown
from particleflow.discretization.discretization_capabilities import CarriesDensity
from particleflow.dynamics.flow import Flow
from particleflow.dynamics.geometry import NormalisesTheSet, moving_laws
from particleflow.dynamics.initial.density import Density
from particleflow.dynamics.normal_law import Normal
from particleflow.measure import Measure

# Fields of these names are the points and the masses of the measure that a frame stands for.
POINTS, MASSES = "points", "masses"


class AbstractDiscretization(eqx.Module):
    """How a measure is carried by a state.

    A new discretization defines `begin`, `measure`, `velocity` and `fields`, and inherits the capabilities it has.
    """

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
        """One explicit layer: state + size · velocity, where a discretization has no other map."""
        rate = self.velocity(flow, time, state)
        return jax.tree_util.tree_map(
            lambda move, leaf: leaf if move is None else leaf + size * move, rate, state, is_leaf=lambda x: x is None
        )

    def point_velocity(self, flow: Flow, time: Any, state: Any) -> Float[Array, "n d"]:
        """The velocity of the points of the measure: the derivative of `measure(...).points` along d state/dt.

        Where points are fixed places of a density, it is the velocity of the flow at these places instead.
        """
        rate = self.velocity(flow, time, state)
        moving, fixed = split(state, rate)

        def points(time: Any, moving: Any) -> Array:
            return self.measure(flow, time, eqx.combine(moving, fixed)).points

        time = jnp.asarray(time)
        return jax.jvp(points, (time, moving), (jnp.ones_like(time), eqx.filter(rate, eqx.is_array)))[1]

    def observed(self, flow: Flow, time: Any, state: Any) -> Measure:
        """The measure that drifts act on: that of the state, with points as the geometry observes them."""
        return self.measure(flow, time, state)

    def check(self, flow: Flow, measure: Measure, *, flow_per_run: bool = False) -> None:
        """Raise if a run of this flow cannot begin with this measure.

        The arrays of an ensemble's measures, and with `flow_per_run` those of its flows, have a leading axis of runs.
        """

    def __repr__(self) -> str:
        return shown(self)


def retracted_density(how: CarriesDensity, flow: Flow, density: Density) -> Density:
    """The density of N(x), N the normalisation of a whole set, which is affine; on other geometries the density itself.

    Mean and covariance are those of the projected density: a box must be wide enough before and after.
    """
    if not isinstance(flow.geometry, NormalisesTheSet):
        return density
    law = Normal.of(how.project(flow, density))
    after = moving_laws(flow.geometry).retract_law(law)
    matrix = jnp.linalg.solve(law.factor.T, after.factor.T).T  # N(y) = mean + M (y − centre), so that M F is its factor
    return density.mapped(*(np.asarray(each, float) for each in (law.mean, matrix, after.mean)))


def split(state: Any, rate: Any) -> tuple[Any, Any]:
    """The leaves of a state that have a velocity, and the others."""
    moves = jax.tree_util.tree_map(lambda leaf: leaf is not None, rate, is_leaf=lambda leaf: leaf is None)
    return eqx.partition(state, moves)
