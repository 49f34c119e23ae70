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
import optimistix as optx
from jaxtyping import Array, Bool, Float

from particleflow.errors import ArgumentError
from particleflow.events import AbstractEvent
from particleflow.flow import Flow
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


def _newton() -> Any:
    """Newton's method to the tolerances of the steps.

    The usual choice keeps one Jacobian for a whole step. Attention turns within 1/β, so that fails in every merge
    and half of all steps are rejected.
    """
    return diffrax.with_stepsize_controller_tols(optx.Newton)()


_SOLVERS: dict[str, Callable[[], diffrax.AbstractSolver]] = {
    "bosh3": diffrax.Bosh3,
    "dopri5": diffrax.Dopri5,
    "dopri8": diffrax.Dopri8,
    "euler": diffrax.Euler,
    "heun": diffrax.Heun,
    "implicit_euler": lambda: diffrax.ImplicitEuler(root_finder=_newton()),
    "kvaerno3": lambda: diffrax.Kvaerno3(root_finder=_newton()),
    "kvaerno4": lambda: diffrax.Kvaerno4(root_finder=_newton()),
    "kvaerno5": lambda: diffrax.Kvaerno5(root_finder=_newton()),
    "midpoint": diffrax.Midpoint,
    "ralston": diffrax.Ralston,
    "tsit5": diffrax.Tsit5,
}
ADAPTIVE_SOLVERS = tuple(name for name in _SOLVERS if name != "euler")
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
    counted: bool = False

    def __post_init__(self):
        known = (*_SOLVERS, MAP)
        if self.solver not in known:
            raise ArgumentError(f"Argument `solver` must be one of {', '.join(known)}, but is {self.solver!r}.")
        if self.adjoint not in ADJOINTS:
            raise ArgumentError(f"Argument `adjoint` must be one of {', '.join(ADJOINTS)}, but is {self.adjoint!r}.")

    def evaluations(self, steps: int) -> int | None:
        """The number of field evaluations of `steps` tried steps: fixed for explicit methods, else only if counted."""
        if self.counted:
            jax.effects_barrier()
            return _tally.total
        return steps * _STAGES[self.solver] if self.solver in _STAGES else None


class _Tally:
    """Counts field evaluations from inside compiled code, for implicit methods, where no formula gives the number."""

    total = 0

    def add(self) -> None:
        """One more."""
        self.total += 1


_tally = _Tally()


def restart_tally() -> None:
    """Begin to count field evaluations at zero."""
    jax.effects_barrier()
    _tally.total = 0


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
    succeeded: Bool[Array, ""]
    stopped_by_event: Bool[Array, ""]
    ran_out_of_steps: Bool[Array, ""]


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

    def saved(time: Array, y: Array, args: Any) -> dict[str, Any]:
        measure = start.with_points(flow.geometry.retract(y))
        return {"points": measure.points, **{name_of(f): jnp.asarray(f(flow, time, measure)) for f in observe}}

    solution = diffrax.diffeqsolve(
        _terms(method, flow, start, numbers),
        _solver(method, flow, start),
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
    return Window(
        times=solution.ts[0],
        points=frames.pop("points"),
        observables=frames,
        end_time=solution.ts[1][0],
        state=last[0],
        proposed=carried.proposed if method.adaptive else numbers.step,
        accepted=solution.stats["num_accepted_steps"],
        rejected=solution.stats["num_rejected_steps"],
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
        _solver(method, flow, start),
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


def _solver(method: Method, flow: Flow, start: Measure) -> diffrax.AbstractSolver:
    return ExplicitMap(flow, start) if method.solver == MAP else _SOLVERS[method.solver]()


class _Velocity(eqx.Module):
    """The field of a flow; a module and no closure, so that every adjoint sees what it depends on."""

    flow: Flow
    start: Measure
    counted: bool = eqx.field(static=True)

    def __call__(self, t: Any, y: Array, args: Any) -> Array:
        if self.counted:
            jax.debug.callback(_tally.add)
        return self.flow.velocity(t, y, self.start)


def _terms(method: Method, flow: Flow, start: Measure, numbers: Numbers) -> Any:
    field = diffrax.ODETerm(_Velocity(flow, start, method.counted))
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
    return Carrying(pid=pid, rtol=numbers.rtol, atol=numbers.atol, norm=pid.norm)


def _as_diffrax_event(event: AbstractEvent, flow: Flow, start: Measure) -> diffrax.Event:
    def level(t: Any, y: Array, args: Any, **_: Any) -> Array:
        return event.level(flow, t, start.with_points(flow.geometry.retract(y)))

    return diffrax.Event(level, Bisection(rtol=1e-12, atol=1e-12))
