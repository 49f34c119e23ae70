"""Checks of a run before anything is compiled: kinds of arguments, precision, shapes, observables, events.

Fields, observables and events are traced with `jax.eval_shape`, which finds shapes and precisions without computing.
"""

import warnings
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from particleflow._support.arrays import as_number, check_same_dtype, shapes_of, strong_dtype_leaves, strong_leaves
from particleflow._support.default_device import computing_platform
from particleflow.discretization import AbstractDiscretization, Present
from particleflow.discretization.discretization_capabilities import noises_of, resolution_of
from particleflow.dynamics.drifts.base import Interaction
from particleflow.dynamics.drifts.layers import HasDepth
from particleflow.dynamics.drifts.total_support import check_total_support
from particleflow.dynamics.flow import Flow
from particleflow.errors import ArgumentError, ShapeError, check_kind
from particleflow.measure import Measure
from particleflow.simulation.events import AbstractEvent
from particleflow.simulation.observables import Observable, measured, name_of
from particleflow.simulation.stepping import MAP, Method

# The observable that an ensemble with an event adds by itself: the time at which each run stopped.
EVENT_TIME = "event_time"
_TIME_SLACK = 1e-6  # of a time, by which the last frame may be rounded


def check_arguments(discretization: Any, observe: Any, event: Any) -> None:
    """Check the types of a discretization, observables and an event; refuse classes in place of objects."""
    if discretization is not None:
        check_kind(discretization, AbstractDiscretization, "discretization", "a discretization, such as Particles()")
    if event is not None:
        check_kind(event, AbstractEvent, "event", "an event, such as events.Clustered(0.1)")
    check_kind(observe, Iterable, "observe", "a list of observables, such as [observables.energy]")
    for index, each in enumerate(observe):
        if isinstance(each, type):
            check_kind(each, (), f"observe[{index}]", "an observable")


def check_begin(flow: Flow, discretization: AbstractDiscretization, measure: Measure, *, flow_per_run: bool) -> None:
    """Raise unless every run can begin: its start on the geometry of its own flow, all arrays in one precision."""
    if not all(leaf.dtype == measure.points.dtype for leaf in strong_leaves((flow, discretization))):
        check_same_dtype(start=measure.points, **strong_dtype_leaves(flow), **strong_dtype_leaves(discretization))
    discretization.check(flow, measure, flow_per_run=flow_per_run)


def check_present(
    flow: Flow, discretization: AbstractDiscretization, start: Measure, begin: Any, method: Method
) -> Present:
    """Check that the velocity at the start has the structure and shapes of the state, and that noise can act on it.

    Returns the `Present` at the start.

    Parameters: `start` of one run, `begin`, its time, and `method`, which needs a velocity unless it is a map.
    """
    time = as_number(begin, start.points.dtype)
    state = discretization.begin(flow, start)
    moved = shapes_of(_stepped if method.solver == MAP else _moved, discretization, flow, time, state)
    for move, leaf in zip(*_matched(moved, state), strict=True):
        if move is not None and move.shape != leaf.shape:
            raise ShapeError(f"The drift must return shape {leaf.shape}, one velocity a particle, but {move.shape}.")
    if method.noisy:
        for noise in noises_of(discretization, flow, state):
            increment = jnp.zeros(noise.shape, time.dtype)
            jax.eval_shape(lambda each=noise, zero=increment: each.act(time, state, zero))
    return Present(flow, discretization, time, state)


def _moved(discretization: AbstractDiscretization, flow: Flow, time: Any, state: Any) -> Any:
    """The velocity of a state."""
    return discretization.velocity(flow, time, state)


def _stepped(discretization: AbstractDiscretization, flow: Flow, time: Any, state: Any) -> Any:
    """The state after an explicit layer, whose size does not matter for its shape."""
    return discretization.step(flow, time, state, size=time)


def check_depth(flow: Flow, end: float) -> None:
    """Raise where a run goes on after the last layer of a network, which would be repeated without being named."""
    leaves = jax.tree_util.tree_leaves(flow.drift, is_leaf=lambda node: isinstance(node, HasDepth))
    for network in leaves:
        depth = network.depth() if isinstance(network, HasDepth) else None
        if depth is not None and end > depth * (1 + _TIME_SLACK):
            raise ArgumentError(
                f"The network ends after layer {depth:g}, but the run goes on to t = {end:g}, where its last layer "
                f"would act again and again: end it at {depth:g}, or name the layer to repeat (`layer = 2` of "
                "trained_layers, `shared = true` of random_layers)."
            )


def check_interactions(present: Present) -> tuple[Interaction, ...]:
    """The interactions at present; raises if a kernel of Sinkhorn attention cannot be made doubly stochastic."""
    found = present.flow.interactions(present.time)
    for each in found:
        if each.normalization == "sinkhorn":
            check_total_support(each.bound_kernel(present.observed), each.data or present.observed)
    return found


def _matched(rate: Any, state: Any) -> tuple[list[Any], list[Any]]:
    """The leaves of a velocity, None for leaves that never move, and those of the state, in the same order."""

    def is_none(leaf: Any) -> bool:
        return leaf is None

    leaves = [jax.tree_util.tree_flatten(tree, is_leaf=is_none) for tree in (rate, state)]
    if leaves[0][1] != leaves[1][1]:
        raise ShapeError(f"The velocity of a state must have its structure {leaves[1][1]}, but has {leaves[0][1]}.")
    return leaves[0][0], leaves[1][0]


def check_functions(present: Present, observe: tuple[Observable, ...], event: AbstractEvent | None) -> None:
    """Raise unless observables have names of their own and real values, and the event is one number."""
    named: dict[str, Observable] = {}
    for observable in observe:
        name = name_of(observable)
        if name == EVENT_TIME:
            raise ArgumentError(f"An observable must not be called {EVENT_TIME!r}: ensembles use that name themselves.")
        if name in named:
            raise ArgumentError(
                f"Two observables have the name {name!r}, so that only one could be stored: {_shown(named[name])} and "
                f"{_shown(observable)}; give one of them another `name`."
            )
        named[name] = observable
        found = jax.eval_shape(lambda each=observable: measured(each, present))
        if jnp.issubdtype(found.dtype, jnp.complexfloating):
            raise ArgumentError(
                f"The observable {name} must be real, but is {found.dtype}; observe its parts, such as "
                "jnp.stack([z.real, z.imag])."
            )
    if event is not None and (shape := jax.eval_shape(lambda: event.level(present)).shape) != ():
        raise ShapeError(f"An event must be one number, but {type(event).__name__} has shape {shape}.")


def check_precision(precision: Any) -> None:
    """Warn of double precision where a device has none of its own."""
    if computing_platform() == "tpu" and jnp.dtype(precision) == jnp.float64:
        warnings.warn(
            "A TPU emulates double precision, many times slower than single precision: use precision = 'float32'.",
            stacklevel=2,
        )


def check_resolution(discretization: AbstractDiscretization, event: AbstractEvent | None) -> None:
    """Raise if an event depends on distances within which the discretization merges particles."""
    asked = None if event is None else event.linking_distance()
    if asked is not None and asked <= resolution_of(discretization):
        raise ArgumentError(
            f"The event depends on distances of {asked:g}, but particles within {resolution_of(discretization):g} of "
            "each other may be merged (`coalesce`); give the event a larger distance, or merge at a smaller one."
        )


def _shown(observable: Observable) -> str:
    """An observable for a message: a function by the name it is imported by, anything else by its `repr`."""
    name = getattr(observable, "__qualname__", None)
    return repr(observable) if name is None else f"{observable.__module__}.{name}"
