"""What can be seen to be wrong before anything is compiled."""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from particleflow._arrays import as_number, check_same_dtype, shapes_of, strong_dtype_leaves, strong_leaves
from particleflow.discretization import AbstractDiscretization, Present
from particleflow.drifts.base import Interaction
from particleflow.drifts.support import check_total_support
from particleflow.errors import ArgumentError, ShapeError, check_kind
from particleflow.events import AbstractEvent
from particleflow.flow import Flow
from particleflow.integrate import MAP, Method
from particleflow.measure import Measure
from particleflow.observables import Observable, measured, name_of

# The observable that an ensemble adds of its own when there is an event: since when each run stands still.
EVENT_TIME = "event_time"


def check_arguments(discretization: Any, observe: Any, event: Any) -> None:
    """Objects must be what their arguments ask for, before anybody asks them for anything."""
    if discretization is not None:
        check_kind(discretization, AbstractDiscretization, "discretization", "a discretization, such as Particles()")
    if event is not None:
        check_kind(event, AbstractEvent, "event", "an event, such as events.Clustered(0.1)")
    check_kind(observe, Iterable, "observe", "a list of observables, such as [observables.energy]")
    for index, each in enumerate(observe):
        if isinstance(each, type):
            check_kind(each, (), f"observe[{index}]", "an observable")


def check_begin(flow: Flow, discretization: AbstractDiscretization, measure: Measure, *, flow_per_run: bool) -> None:
    """Every run must be able to begin: on the geometry of its own flow, all in one precision."""
    if not all(leaf.dtype == measure.points.dtype for leaf in strong_leaves((flow, discretization))):
        check_same_dtype(start=measure.points, **strong_dtype_leaves(flow), **strong_dtype_leaves(discretization))
    discretization.check(flow, measure, flow_per_run=flow_per_run)


def check_present(
    flow: Flow, discretization: AbstractDiscretization, start: Measure, begin: Any, method: Method
) -> Present:
    """What moves must move as it is: the same arrays, in the same shapes."""
    time = as_number(begin, start.points.dtype)
    state = discretization.begin(flow, start)
    moved = shapes_of(_stepped if method.solver == MAP else _moved, discretization, flow, time, state)
    for move, leaf in zip(*_matched(moved, state), strict=True):
        if move is not None and move.shape != leaf.shape:
            raise ShapeError(f"The drift must return shape {leaf.shape}, one velocity a particle, but {move.shape}.")
    if method.noisy:
        for noise in discretization.noises(flow, state):
            increment = jnp.zeros(noise.shape, time.dtype)
            jax.eval_shape(lambda each=noise, zero=increment: each.act(time, state, zero))
    return Present(flow, discretization, time, state)


def _moved(discretization: AbstractDiscretization, flow: Flow, time: Any, state: Any) -> Any:
    return discretization.velocity(flow, time, state)


def _stepped(discretization: AbstractDiscretization, flow: Flow, time: Any, state: Any) -> Any:
    return discretization.step(flow, time, state, size=time)


def check_interactions(present: Present) -> tuple[Interaction, ...]:
    """What interacts at present; Sinkhorn attention needs a kernel that can be made doubly stochastic."""
    found = present.flow.interactions(present.time)
    for each in found:
        if each.normalization == "sinkhorn":
            check_total_support(each.kernel_among(present.seen), each.data or present.seen)
    return found


def _matched(rate: Any, state: Any) -> tuple[list[Any], list[Any]]:
    """The leaves of a velocity, None where there is none, beside those of the state."""

    def is_none(leaf: Any) -> bool:
        return leaf is None

    leaves = [jax.tree_util.tree_flatten(tree, is_leaf=is_none) for tree in (rate, state)]
    if leaves[0][1] != leaves[1][1]:
        raise ShapeError(f"The velocity of a state must have its structure {leaves[1][1]}, but has {leaves[0][1]}.")
    return leaves[0][0], leaves[1][0]


def check_functions(present: Present, observe: tuple[Observable, ...], event: AbstractEvent | None) -> None:
    """Observables and events say what they do not like while nothing is compiled yet."""
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


def check_resolution(discretization: AbstractDiscretization, event: AbstractEvent | None) -> None:
    """An event must not ask for distances that the discretization does not tell apart."""
    asked = None if event is None else event.linking_distance()
    if asked is not None and asked <= discretization.resolution():
        raise ArgumentError(
            f"The event looks at distances of {asked:g}, but particles within {discretization.resolution():g} of each "
            "other may become one (`coalesce`); give the event a larger distance, or merge at a smaller one."
        )


def _shown(observable: Observable) -> str:
    """A function by the name it is imported by, everything else as it prints itself."""
    name = getattr(observable, "__qualname__", None)
    return repr(observable) if name is None else f"{observable.__module__}.{name}"
