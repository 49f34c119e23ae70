"""One window of a run, solved by diffrax.

A run is cut into windows of saved times. A window ends at the last of them, or, where windows are short, with a step
that passes some of them: then the number of steps does not depend on how many times are saved. Window boundaries and
everything carried over them depend on the scenario alone, never on wall time, so a run that is resumed at a boundary
repeats the uninterrupted one bit for bit.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Bool, Float

from particleflow.discretization import AbstractDiscretization, Noise, Present
from particleflow.discretization.base import split
from particleflow.discretization.discretization_capabilities import noises_of
from particleflow.dynamics.flow import Flow
from particleflow.errors import ArgumentError
from particleflow.simulation.events import AbstractEvent
from particleflow.simulation.observables import Observable, measured, name_of
from particleflow.simulation.stepping.event_search import FINEST, Watching
from particleflow.simulation.stepping.implicit import TABLEAUX, Implicit
from particleflow.simulation.stepping.newton import KeptNewton, newton_to_rounding
from particleflow.simulation.stepping.positive_steps import SHU_OSHER, STAGES, ShuOsher
from particleflow.simulation.stepping.solve_outcome import at_the_end
from particleflow.simulation.stepping.step_control import (
    Bisection,
    Carrying,
    ExplicitMap,
    FlowSystem,
    GridNoise,
    Numbers,
    OnGrid,
    after_jumps,
    cast,
    error_controller,
    own_part,
)

EXPLICIT: dict[str, Callable[[], diffrax.AbstractSolver]] = {
    "bosh3": diffrax.Bosh3,
    "dopri5": diffrax.Dopri5,
    "dopri8": diffrax.Dopri8,
    "euler": diffrax.Euler,
    "heun": diffrax.Heun,
    "midpoint": diffrax.Midpoint,
    "ralston": diffrax.Ralston,
    "tsit5": diffrax.Tsit5,
}
ADAPTIVE_SOLVERS = (*(name for name in EXPLICIT if name != "euler"), SHU_OSHER, *TABLEAUX)
STOCHASTIC_SOLVERS = ("heun", "midpoint", "ralston")
MAP = "map"
# Methods that evaluate the field at the beginning of a step only, so that a jump at its end does not affect them.
_EVALUATED_AT_THE_BEGINNING = ("euler", MAP)

# Interpolations of implicit methods have order three, of positive ones order one: they step to all saved times.
_STEPPING_TO_FRAMES = (SHU_OSHER, *TABLEAUX)

ADJOINTS: dict[str, Callable[[], diffrax.AbstractAdjoint]] = {
    "recursive_checkpoint": diffrax.RecursiveCheckpointAdjoint,
    "direct": diffrax.DirectAdjoint,
    "forward": diffrax.ForwardMode,
    "backsolve": diffrax.BacksolveAdjoint,
}


@dataclass(frozen=True)
class Method:
    """How time is stepped: everything about it that a compiled program depends on.

    `solver` by its snake-case diffrax name or "map"; `adaptive` steps or fixed ones; `noisy`: the flow has Brownian
    terms; `max_steps` of one solve; `adjoint`, how derivatives are taken. `Numbers` holds what may change without
    compiling again.
    """

    solver: str
    adaptive: bool
    noisy: bool
    max_steps: int
    adjoint: str = "recursive_checkpoint"

    def __post_init__(self):
        known = (*EXPLICIT, SHU_OSHER, *TABLEAUX, MAP)
        if self.solver not in known:
            raise ArgumentError(f"Argument `solver` must be one of {', '.join(known)}, but is {self.solver!r}.")
        if self.adjoint not in ADJOINTS:
            raise ArgumentError(f"Argument `adjoint` must be one of {', '.join(ADJOINTS)}, but is {self.adjoint!r}.")

    @property
    def passes_frames(self) -> bool:
        """Whether steps go past saved times, whose states are interpolated as exactly as the steps are."""
        return self.adaptive and self.solver not in _STEPPING_TO_FRAMES

    @property
    def step_limit_advice(self) -> str:
        """What helps a run that needs more than `max_steps` steps; implicit solvers can replace explicit ones only."""
        if not self.adaptive:
            return "Take larger steps, or raise max_steps."
        if self.solver in _STEPPING_TO_FRAMES:
            return "Raise max_steps."
        return "If the flow is stiff, use solver = 'kvaerno5'; otherwise raise max_steps."


def shares_rows(method: Method) -> bool:
    """Whether each device may hold some of the rows that move: not where all are solved for at once, or bounded."""
    return method.solver not in _STEPPING_TO_FRAMES


def fields_per_step(solver: str) -> int | None:
    """How often a step, accepted or rejected, evaluates the field; None where it depends on Newton's method.

    A Runge–Kutta method of s stages whose last stage is the first one of the next step (`fsal`) takes s − 1, and one
    evaluation more where a window begins.
    """
    if solver in TABLEAUX:
        return None
    if solver == SHU_OSHER:
        return STAGES
    tableau = getattr(EXPLICIT.get(solver), "tableau", None)  # Euler's method and maps have none
    return 1 if tableau is None else tableau.num_stages - tableau.fsal


class SolvedWindow(eqx.Module):
    """The result of one window: frames, the state and step size at its end, and how it went.

    `times`, `fields` and `observables` have one entry a frame, NaN from where the solver gave up; `proposed` is the
    step for the next window; `accepted` and `rejected` steps and field `evaluations` are counts of this window.
    """

    times: Float[Array, " k"]
    fields: dict[str, Array]
    observables: dict[str, Array]
    end_time: Float[Array, ""]
    state: Any
    proposed: Float[Array, ""]
    accepted: Array
    rejected: Array
    evaluations: Array
    succeeded: Bool[Array, ""]
    stopped_by_event: Bool[Array, ""]
    ran_out_of_steps: Bool[Array, ""]


def frame(observe: tuple[Observable, ...], present: Present) -> tuple[dict[str, Array], dict[str, Array]]:
    """What is saved in a frame: the fields of the state, and the value of every observable."""
    return present.frame(), {name_of(each): measured(each, present) for each in observe}


compiled_frame = eqx.filter_jit(frame)


def solve_window(
    method: Method,
    observe: tuple[Observable, ...],
    event: AbstractEvent | None,
    flow: Flow,
    discretization: AbstractDiscretization,
    state: Any,
    begin: Float[Array, ""],
    times: Float[Array, " k"],
    proposed: Float[Array, ""],
    numbers: Numbers,
    passing: Float[Array, ""] | None = None,
    rows: int | None = None,
) -> SolvedWindow:
    """Solve from `begin` to the last of `times` and save at each of them.

    Parameters: the compiled program depends on `method`, `observe`, `event` and `discretization`; its arguments are
    `flow`; the `state` at `begin`; the `times`; the `proposed` first step size, 0 for none; and the `numbers`. At times
    that are not after `begin` the state at `begin` is saved. With `passing`, one of the times, the window ends with the
    step that reaches it, and the times that this step has not passed are not saved; infinite ones never are.

    With `rows`, the number of particles, each device holds some of the rows that move: so are the state and the fields
    of frames that are returned, while `state` has all rows (`summation.device_axis`).
    """
    problem = _Problem.of(method, flow, discretization, state, begin, numbers, event, rows=rows)

    def saved(time: Array, y: Any, args: Any) -> Any:
        fields, observables = frame(observe, problem.present(time, y))
        return fields if rows is None else own_part(fields), observables

    end, asked, controller = times[-1], times, problem.controller(times)
    if passing is not None:
        # The last step ends at the last frame at latest. Times that fill the window up are moved to an end that is
        # never reached, so that nothing is evaluated for them.
        last = jnp.max(jnp.where(jnp.isfinite(times), times, passing))
        end = last + (last - begin)
        asked, controller = jnp.minimum(times, end), problem.passing_controller(last, passing)
    frames = diffrax.SubSaveAt(ts=jnp.maximum(asked, problem.begin), fn=saved)
    solution = problem.solve(
        end,
        horizon=passing,
        dt0=proposed if method.adaptive else numbers.step,
        saveat=diffrax.SaveAt(subs=(frames, diffrax.SubSaveAt(t1=True)), controller_state=True),
        stepsize_controller=controller,
        throw=False,
        event=problem.as_diffrax_event(),
    )
    return _window_of(solution, problem, times)


def _window_of(solution: diffrax.Solution, problem: "_Problem", times: Float[Array, " k"]) -> SolvedWindow:
    """The result of one solve; frames that it did not reach have a time that is not finite."""
    assert solution.ys is not None
    assert solution.ts is not None
    (fields, observables), last = solution.ys
    carried: Any = solution.controller_state
    ended = solution.result == diffrax.RESULTS.event_occurred
    met = jnp.asarray(False) if solution.event_mask is None else ended & solution.event_mask
    tried, each = solution.stats["num_steps"], fields_per_step(problem.method.solver)
    return SolvedWindow(
        times=jnp.asarray(jnp.where(jnp.isfinite(solution.ts[0]), times, solution.ts[0])),
        fields=fields,
        observables=observables,
        end_time=solution.ts[1][0],
        state=problem.system.held(jax.tree_util.tree_map(lambda leaf: leaf[0], last)),
        proposed=carried.proposed,
        accepted=solution.stats["num_accepted_steps"],
        rejected=solution.stats["num_rejected_steps"],
        evaluations=1 + carried.evaluations if each is None else tried * each,
        succeeded=(solution.result == diffrax.RESULTS.successful) | (ended & ~met),
        stopped_by_event=met,
        ran_out_of_steps=solution.result == diffrax.RESULTS.max_steps_reached,
    )


def final_state(
    method: Method,
    flow: Flow,
    discretization: AbstractDiscretization,
    state: Any,
    begin: Array,
    end: Array,
    numbers: Numbers,
) -> Any:
    """The state at time `end`, as a differentiable function of flow and state."""
    problem = _Problem.of(method, flow, discretization, state, begin, numbers, None, windowed=False)
    solution = problem.solve(
        end,
        dt0=None if method.adaptive else numbers.step,
        saveat=diffrax.SaveAt(t1=True),
        stepsize_controller=problem.plain_controller(end),
        throw=False,
    )
    return problem.system.whole(at_the_end(solution, method))


class _Problem(eqx.Module):
    """An initial value problem: the moving leaves of a state, their field and noise, and how they are stepped.

    `windowed`: it is a window of a run, in which evaluations are counted and fixed steps end on their grid.
    """

    method: Method = eqx.field(static=True)
    system: FlowSystem
    moving: Any
    begin: Array
    jumps: Float[Array, " k"] | None
    numbers: Numbers
    event: AbstractEvent | None
    windowed: bool = eqx.field(static=True)

    @staticmethod
    def of(
        method: Method, flow: Flow, discretization: AbstractDiscretization, state: Any, begin: Array, numbers: Numbers,
        event: AbstractEvent | None, *, windowed: bool = True, rows: int | None = None,
    ) -> "_Problem":  # fmt: skip
        """The problem from `state` on, just after `begin` if the field jumps there; leaves without velocity stay."""
        rate = moved_by_a_layer if method.solver == MAP else _rate
        precision = jnp.result_type(*(leaf for leaf in jax.tree.leaves(state) if eqx.is_inexact_array(leaf)))
        moving, fixed = split(state, rate(flow, discretization, begin.astype(precision), state))
        times = flow.drift.changes() if method.solver not in _EVALUATED_AT_THE_BEGINNING else ()
        changes = [each for each in times if each.size]  # a stack of one layer never jumps
        jumps = jnp.concatenate(changes).astype(begin.dtype) if changes else None
        system = FlowSystem(flow, discretization, fixed, jumps is not None, precision, rows)
        moving = system.own(moving)
        begin = after_jumps(begin, jumps, precision)[0]
        return _Problem(method, system, moving, begin, jumps, numbers, event, windowed)

    @property
    def precision(self) -> Any:
        """The precision of the state; time is in 64 bits."""
        return self.system.precision

    @property
    def _eps(self) -> float:
        """The rounding unit of the field."""
        return float(jnp.finfo(self.precision).eps)

    def present(self, time: Array, y: Any) -> Present:
        """The `Present` at a time with these moving leaves, which observables and events are functions of."""
        asked = time.astype(self.precision)
        return Present(self.system.flow, self.system.discretization, asked, self.system.whole(y))

    def solve(self, end: Array, horizon: Array | None = None, **settings: Any) -> diffrax.Solution:
        """Solve up to time `end`, with further settings of `diffrax.diffeqsolve`.

        Parameters: `horizon`, the time that the search for events measures steps against, `end` if None.
        """
        return diffrax.diffeqsolve(
            self._terms(),
            self._solver(end if horizon is None else horizon),
            t0=self.begin,
            t1=end,
            y0=self.moving,
            max_steps=self.method.max_steps,
            adjoint=ADJOINTS[self.method.adjoint](),
            **settings,
        )

    def controller(self, times: Array) -> diffrax.AbstractStepSizeController:
        """The controller of a window: it carries its step over to the next one."""
        if not self.method.adaptive:
            return OnGrid(self.numbers.origin, self.numbers.step, self.jumps, self.precision)
        stops = times if self.method.solver in _STEPPING_TO_FRAMES else None
        return self._carrying(error_controller(self.begin, times[-1], self.numbers), stops)

    def passing_controller(self, last: Array, passing: Array) -> Carrying:
        """The controller of a window that ends with the step that reaches the time `passing`, at latest at `last`."""
        controller = self._carrying(error_controller(self.begin, last, self.numbers), last[None])
        return replace(controller, passing=passing)

    def plain_controller(self, end: Array) -> diffrax.AbstractStepSizeController:
        """The controller of a single solve; without jumps or bounds diffrax's own, which every adjoint supports."""
        if not self.method.adaptive:
            return OnGrid(self.numbers.origin, self.numbers.step, self.jumps, self.precision)
        pid = error_controller(self.begin, end, self.numbers)
        if self.jumps is None and self.method.solver != SHU_OSHER:
            return pid
        return self._carrying(pid, None)

    def _carrying(self, pid: diffrax.PIDController, stops: Array | None) -> Carrying:
        """The error controller `pid`, with stops, jumps and bounds, and with the step carried over windows."""
        return Carrying(
            rtol=pid.rtol, atol=pid.atol, norm=pid.norm, pid=pid, stops=stops, jumps=self.jumps,
            precision=self.precision, bounded=self.method.solver == SHU_OSHER,
        )  # fmt: skip

    def _level(self, time: Any, y: Any) -> Array:
        """The level of the event."""
        assert self.event is not None
        # in the default precision, whatever that of the state: so is the zero with which diffrax compares it
        return self.event.level(self.present(time, y)).astype(float)

    def as_diffrax_event(self) -> diffrax.Event | None:
        """The event as diffrax takes it, None where there is none."""
        if self.event is None:
            return None

        def level(t: Any, y: Any, args: Any, **_: Any) -> Array:
            return self._level(t, y)

        if self.method.solver == MAP:  # the run ends with the layer that has crossed: there is no state in between
            return diffrax.Event(level)
        finest = max(1e-12, 4 * float(jnp.finfo(self.begin.dtype).eps))
        return diffrax.Event(level, Bisection(rtol=finest, atol=finest))

    def _solver(self, end: Array) -> diffrax.AbstractSolver:
        """The solver by its name; with an event, wrapped in a search for it within every step."""
        name, method = self.method.solver, self.method
        if name == MAP:
            return ExplicitMap(self.system)
        if name == SHU_OSHER:
            plain = ShuOsher(self.system.bounded)
        elif name in TABLEAUX:
            plain = Implicit(name, self.windowed, self._eps)
            if not method.adaptive:
                plain = Implicit(name, self.windowed, self._eps, newton_to_rounding(self.precision))
        else:
            plain = EXPLICIT[name]()
        # Maps and noise have no states between the ends of their steps.
        return plain if self.event is None or method.noisy else self._watching(plain, end)

    def _watching(self, solver: Any, end: Array) -> Watching:
        """Wrap a solver in the search for the event; sets its root finder and loop, as diffrax does for others."""
        if self.method.solver in TABLEAUX and self.method.adaptive:
            pid: Any = error_controller(self.begin, end, self.numbers)
            newton = KeptNewton(rtol=pid.rtol, atol=pid.atol, norm=pid.norm)
            solver = Implicit(self.method.solver, self.windowed, self._eps, newton)
        elif hasattr(solver, "scan_kind"):
            solver = eqx.tree_at(lambda each: each.scan_kind, solver, "lax", is_leaf=lambda leaf: leaf is None)
        rounding = 1e3 * float(jnp.finfo(self.precision).eps)
        shortest = FINEST * (end - self.begin) if self.method.adaptive else jnp.asarray(jnp.inf, end.dtype)
        indistinct = rounding * jnp.maximum(jnp.abs(self.begin), jnp.abs(end))
        return Watching(solver, self._level, shortest, indistinct, rounding)

    def _terms(self) -> Any:
        """The field, and one control term for each noise, each with a key of its own."""
        if self.method.solver == MAP:  # a placeholder of the right shape: a map need not have a field
            return diffrax.ODETerm(lambda t, y, args: y)
        field = diffrax.ODETerm(self.system)  # pyright: ignore[reportArgumentType]
        if not self.method.noisy:
            return field
        assert self.numbers.key is not None
        noises = noises_of(self.system.discretization, self.system.flow, self.system.whole(self.moving))
        keys = jax.random.split(self.numbers.key, len(noises))
        return diffrax.MultiTerm(field, *(self._driven(noise, key) for noise, key in zip(noises, keys, strict=True)))

    def _driven(self, noise: Noise, key: Array) -> diffrax.ControlTerm:
        """A noise as a term: a linear operator on Brownian increments that are a function of key and time grid."""

        def field(t: Any, y: Any, args: Any) -> lx.AbstractLinearOperator:
            def act(increment: Array) -> Any:
                change = noise.act(t.astype(self.precision), self.system.whole(y), increment)
                return cast(self.system.own(change), t.dtype)

            # the structure of an array that is made here, which names the devices that share it, if there are several
            increments = jax.eval_shape(lambda: jnp.zeros(noise.shape, self.precision))
            return lx.FunctionLinearOperator(act, increments)

        return diffrax.ControlTerm(field, GridNoise(key, self.numbers, noise.shape, self.precision, self.windowed))


def _rate(flow: Flow, discretization: AbstractDiscretization, time: Array, state: Any) -> Any:
    """The shape of the velocity: None for leaves that never move."""
    return jax.eval_shape(lambda: discretization.velocity(flow, time, state))


def moved_by_a_layer(flow: Flow, discretization: AbstractDiscretization, time: Array, state: Any) -> Any:
    """The leaves that an explicit layer changes, None for those that it hands on as they are.

    Velocities are None for such leaves, but a map need not have a velocity. So the layer is traced: an output of the
    program that is the very same variable as an input is a leaf that no operation has changed.
    """
    leaves, structure = jax.tree_util.tree_flatten(state)

    def layer(*leaves: Array) -> list[Array]:
        moved = discretization.step(flow, time, jax.tree_util.tree_unflatten(structure, leaves), time)
        return jax.tree_util.tree_leaves(moved)

    program = jax.make_jaxpr(layer)(*leaves).jaxpr
    untouched = [into is out for into, out in zip(program.invars, program.outvars, strict=True)]
    moving = [None if same else leaf for leaf, same in zip(leaves, untouched, strict=True)]
    return jax.tree_util.tree_unflatten(structure, moving)
