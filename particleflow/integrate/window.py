"""One window of a run, solved by diffrax.

A run is cut into windows of saved times. Window boundaries and everything carried over them depend on the
scenario alone, never on wall time, so a run that is resumed at a boundary repeats the uninterrupted one bit for bit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Bool, Float

from particleflow.errors import ArgumentError
from particleflow.events import AbstractEvent
from particleflow.flow import Flow
from particleflow.integrate.implicit import TABLEAUX, Implicit, newton_to_rounding
from particleflow.integrate.stepping import (
    Bisection,
    Carrying,
    ExplicitMap,
    GridNoise,
    Numbers,
    OnGrid,
    error_controller,
)
from particleflow.measure import Measure
from particleflow.observables import Observable, name_of

_EXPLICIT: dict[str, Callable[[], diffrax.AbstractSolver]] = {
    "bosh3": diffrax.Bosh3,
    "dopri5": diffrax.Dopri5,
    "dopri8": diffrax.Dopri8,
    "euler": diffrax.Euler,
    "heun": diffrax.Heun,
    "midpoint": diffrax.Midpoint,
    "ralston": diffrax.Ralston,
    "tsit5": diffrax.Tsit5,
}
ADAPTIVE_SOLVERS = (*(name for name in _EXPLICIT if name != "euler"), *TABLEAUX)
STOCHASTIC_SOLVERS = ("heun", "midpoint", "ralston")
MAP = "map"
_STAGES = {
    "bosh3": 3,
    "dopri5": 6,
    "dopri8": 14,
    "euler": 1,
    "heun": 2,
    "midpoint": 2,
    "ralston": 2,
    "tsit5": 6,
    MAP: 1,
}

ADJOINTS: dict[str, Callable[[], diffrax.AbstractAdjoint]] = {
    "recursive_checkpoint": diffrax.RecursiveCheckpointAdjoint,
    "direct": diffrax.DirectAdjoint,
    "forward": diffrax.ForwardMode,
    "backsolve": diffrax.BacksolveAdjoint,
}


@dataclass(frozen=True)
class Method:
    """How time is stepped: a solver by its diffrax name, adaptive steps unless `step` is given."""

    solver: str
    adaptive: bool
    noisy: bool
    max_steps: int
    adjoint: str = "recursive_checkpoint"

    def __post_init__(self):
        known = (*_EXPLICIT, *TABLEAUX, MAP)
        if self.solver not in known:
            raise ArgumentError(f"Argument `solver` must be one of {', '.join(known)}, but is {self.solver!r}.")
        if self.adjoint not in ADJOINTS:
            raise ArgumentError(f"Argument `adjoint` must be one of {', '.join(ADJOINTS)}, but is {self.adjoint!r}.")


class Window(eqx.Module):
    """What one window gives: frames, the state and step size at its end, and how it went."""

    times: Float[Array, " k"]
    points: Float[Array, "k n d"]
    observables: dict[str, Array]
    end_time: Float[Array, ""]
    state: Float[Array, "n d"]
    proposed: Float[Array, ""]
    accepted: Array
    rejected: Array
    evaluations: Array
    succeeded: Bool[Array, ""]
    stopped_by_event: Bool[Array, ""]
    ran_out_of_steps: Bool[Array, ""]


def frame(
    observe: tuple[Observable, ...], flow: Flow, start: Measure, state: Float[Array, "n d"], time: Array
) -> dict[str, Array]:
    """What is saved of a state: the points, put back on the geometry, and every observable of just these points."""
    measure = start.with_points(flow.geometry.retract(state))
    return {"points": measure.points, **{name_of(f): jnp.asarray(f(flow, time, measure)) for f in observe}}


compiled_frame = eqx.filter_jit(frame)


def solve_window(
    method: Method,
    observe: tuple[Observable, ...],
    event: AbstractEvent | None,
    flow: Flow,
    start: Measure,
    state: Float[Array, "n d"],
    begin: Float[Array, ""],
    times: Float[Array, " k"],
    proposed: Float[Array, ""],
    numbers: Numbers,
) -> Window:
    """Solve from `begin` to the last of `times` and save at each of them.

    `proposed` is the step size to begin with, 0 for none; `start` gives weights, positions and values, `state` the
    points to move.
    """

    def saved(time: Array, y: Array, args: Any) -> dict[str, Array]:
        return frame(observe, flow, start, y, time)

    solution = diffrax.diffeqsolve(
        _terms(method, flow, start, numbers),
        _solver(method, flow, start, counted=True),
        t0=begin,
        t1=times[-1],
        dt0=proposed if method.adaptive else numbers.step,
        y0=state,
        saveat=diffrax.SaveAt(
            subs=(diffrax.SubSaveAt(ts=times, fn=saved), diffrax.SubSaveAt(t1=True)), controller_state=True
        ),
        stepsize_controller=_controller(method, begin, times, numbers),
        max_steps=method.max_steps,
        throw=False,
        adjoint=ADJOINTS[method.adjoint](),
        event=None if event is None else _as_diffrax_event(event, flow, start),
    )
    assert solution.ys is not None
    assert solution.ts is not None
    frames, last = solution.ys
    carried: Any = solution.controller_state
    tried = solution.stats["num_steps"]
    return Window(
        times=solution.ts[0],
        points=frames.pop("points"),
        observables=frames,
        end_time=solution.ts[1][0],
        state=last[0],
        proposed=carried.proposed,
        accepted=solution.stats["num_accepted_steps"],
        rejected=solution.stats["num_rejected_steps"],
        evaluations=1 + carried.evaluations if method.solver in TABLEAUX else tried * _STAGES[method.solver],
        succeeded=solution.result == diffrax.RESULTS.successful,
        stopped_by_event=solution.result == diffrax.RESULTS.event_occurred,
        ran_out_of_steps=solution.result == diffrax.RESULTS.max_steps_reached,
    )


def final_state(
    method: Method, flow: Flow, start: Measure, begin: Array, end: Array, numbers: Numbers
) -> Float[Array, "n d"]:
    """The points at time `end`, as a differentiable function of flow and start."""
    solution = diffrax.diffeqsolve(
        _terms(method, flow, start, numbers),
        _solver(method, flow, start, counted=False),
        t0=begin,
        t1=end,
        dt0=None if method.adaptive else numbers.step,
        y0=start.points,
        stepsize_controller=(
            error_controller(begin, end, numbers) if method.adaptive else OnGrid(numbers.origin, numbers.step)
        ),
        max_steps=method.max_steps,
        adjoint=ADJOINTS[method.adjoint](),
    )
    assert solution.ys is not None
    return flow.geometry.retract(solution.ys[0])


def _solver(method: Method, flow: Flow, start: Measure, *, counted: bool) -> diffrax.AbstractSolver:
    if method.solver == MAP:
        return ExplicitMap(flow, start)
    if method.solver not in TABLEAUX:
        return _EXPLICIT[method.solver]()
    if method.adaptive:
        return Implicit(method.solver, counted)
    return Implicit(method.solver, counted, newton_to_rounding(start.points.dtype))


class _Velocity(eqx.Module):
    """The field of a flow; a module and no closure, so that every adjoint sees what it depends on."""

    flow: Flow
    start: Measure

    def __call__(self, t: Any, y: Array, args: Any) -> Array:
        return self.flow.velocity(t, y, self.start)


def _terms(method: Method, flow: Flow, start: Measure, numbers: Numbers) -> Any:
    field = diffrax.ODETerm(_Velocity(flow, start))
    if not method.noisy:
        return field
    assert numbers.key is not None
    own, common = jax.random.split(numbers.key)
    shape = start.points.shape
    paths = (
        (own, shape, flow.temperature),
        (common, (1, shape[1]), flow.common_temperature),
    )
    noises = [
        diffrax.ControlTerm(_diffusion(flow, temperature, size), GridNoise(key, numbers, size, start.points.dtype))
        for key, size, temperature in paths
    ]
    return diffrax.MultiTerm(field, *noises)


def _diffusion(flow: Flow, temperature: Array, size: tuple[int, ...]) -> Callable:
    def field(t: Any, y: Array, args: Any) -> lx.AbstractLinearOperator:
        def act(increment: Array) -> Array:
            noise = jnp.sqrt(2 * temperature) * jnp.broadcast_to(increment, y.shape)
            return flow.geometry.tangent(y, noise, t)

        return lx.FunctionLinearOperator(act, jax.ShapeDtypeStruct(size, y.dtype))

    return field


def _controller(method: Method, begin: Array, times: Array, numbers: Numbers) -> diffrax.AbstractStepSizeController:
    if not method.adaptive:
        return OnGrid(numbers.origin, numbers.step)
    pid = error_controller(begin, times[-1], numbers)
    # The interpolation of implicit methods has order three: they step on every saved time instead.
    stops = times if method.solver in TABLEAUX else None
    return Carrying(pid=pid, rtol=numbers.rtol, atol=numbers.atol, norm=pid.norm, stops=stops)


def _as_diffrax_event(event: AbstractEvent, flow: Flow, start: Measure) -> diffrax.Event:
    def level(t: Any, y: Array, args: Any, **_: Any) -> Array:
        return event.level(flow, t, start.with_points(flow.geometry.retract(y)))

    return diffrax.Event(level, Bisection(rtol=1e-12, atol=1e-12))
