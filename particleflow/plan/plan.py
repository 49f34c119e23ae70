"""What a run will do, checked before anything is compiled."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow._arrays import as_number
from particleflow.discretization import AbstractDiscretization, Particles, Present
from particleflow.drifts.base import Interaction
from particleflow.errors import ArgumentError
from particleflow.events import AbstractEvent
from particleflow.flow import Flow
from particleflow.integrate import ADAPTIVE_SOLVERS, STOCHASTIC_SOLVERS, Method, Numbers
from particleflow.measure import Measure
from particleflow.observables import Observable
from particleflow.plan.checks import (
    check_arguments,
    check_begin,
    check_functions,
    check_interactions,
    check_present,
    check_resolution,
)
from particleflow.plan.inputs import (
    as_flows,
    as_starts,
    as_times,
    joined_flows,
    laid_out,
    leaf_of,
    on_grid,
)

# A window holds at most this many frames and this many bytes: small enough to lose little and to show progress.
_WINDOW_FRAMES = 32
_MERGING_FRAMES = 4  # where particles may become one between windows: the sooner they do, the cheaper the next ones
_WINDOW_BYTES = 32 * 2**20
# So many pairs of particles in all its frames: about two seconds, if a frame takes a dozen fields. A window has a frame
# also where that takes longer.
_WINDOW_PAIRS = 2**26
_FIRST_WINDOW = 2  # the start and the first frame, so that something is seen soon; later windows double
# Explicit steps stay of order one when clusters stand still, so long runs of few particles go to an implicit method.
_LONG_TIME = 1e4
_IMPLICIT = "kvaerno5"
_IMPLICIT_UNKNOWNS = 1024
_LATE_POINTS = 32  # points that particles have merged to: soon they are fewer, so nothing is won by more Newton steps
_TIGHT = 1e-7


@dataclass(frozen=True)
class Plan:
    """A run or an ensemble of runs, ready to go: what moves, when it is saved, and how time is stepped.

    `late_method` takes over from `method` where merging has left few particles, None where it never does.
    `approximates`: what sums is chosen anew for every window, because its user allows it an error; not in ensembles.
    `runs` is None for a single run. The arrays of `start`, and those of `flow` with `flow_per_run`, then have a leading
    axis of runs.
    """

    flow: Flow
    discretization: AbstractDiscretization
    start: Measure
    times: np.ndarray
    method: Method
    late_method: Method | None
    numbers: Numbers
    observe: tuple[Observable, ...]
    event: AbstractEvent | None
    runs: int | None
    flow_per_run: bool
    window: int
    growing: bool
    choices: dict[str, str]
    approximates: bool

    @property
    def dtype(self) -> Any:
        """The precision of the run."""
        return self.start.points.dtype

    def window_begin(self, first: int) -> np.ndarray:
        """The time at which the window that begins with frame `first` is entered."""
        return np.asarray(self.times[max(first - 1, 0)])

    def window_length(self, first: int) -> int:
        """How many frames the window that begins with frame `first` may have: a rule that does not look at a clock."""
        return min(max(first, _FIRST_WINDOW), self.window) if self.growing else self.window

    def window_times(self, first: int) -> tuple[np.ndarray, int]:
        """The times of the window that begins with frame `first`, filled up to full length, and how many are real.

        All windows are filled up to the longest, so that one compiled program serves them.
        """
        times = self.times[first : first + self.window_length(first)]
        filled = np.concatenate([times, np.full(self.window - len(times), times[-1])])
        return filled, len(times)

    def flow_of(self, run: int) -> Flow:
        """The flow of one run."""
        return leaf_of(self.flow, run) if self.flow_per_run else self.flow

    def start_of(self, run: int) -> Measure:
        """The measure that one run begins with."""
        return self.start if self.runs is None else leaf_of(self.start, run)

    def carrying(self, state: Any) -> tuple[int, int]:
        """How many points of which dimension carry the measure of a run in this state (leading axis: runs)."""
        if self.discretization.resolution() == 0:
            return self.start.points.shape[-2], self.start.points.shape[-1]
        one = jax.tree_util.tree_map(lambda leaf: leaf[0], state)
        points = jax.eval_shape(lambda: self.present(0, one, self.times[0]).condensed.measure.points)
        return points.shape[0], points.shape[1]

    def method_for(self, state: Any) -> Method:
        """How a window that begins in this state (leading axis: runs) is stepped: a rule of its shape alone."""
        if self.late_method is None:
            return self.method
        count, dimension = self.carrying(state)
        few = count <= _LATE_POINTS and count * dimension <= _IMPLICIT_UNKNOWNS
        return self.late_method if few else self.method

    def begin(self) -> Any:
        """The states that the runs begin with, a leading axis of runs on every array."""
        if self.runs is None:
            state = self.discretization.begin(self.flow, self.start)
            return jax.tree_util.tree_map(lambda leaf: np.asarray(leaf)[None], state)
        return self.over_runs(self.discretization.begin)(self.flow, self.start)

    def over_runs(self, function: Any) -> Any:
        """A function of (flow, something of a run) for all runs at once."""
        axes = (eqx.if_array(0) if self.flow_per_run else None, eqx.if_array(0))
        return eqx.filter_vmap(function, in_axes=axes)

    def present(self, run: int, state: Any, time: Any, flow: Flow | None = None) -> Present:
        """The present of one run in a state of its own."""
        return Present(flow or self.flow_of(run), self.discretization, jnp.asarray(time, self.dtype), state)


def make_plan(
    flow: Flow | Sequence[Flow],
    start: Any,
    times: Any,
    *,
    discretization: AbstractDiscretization | None = None,
    rtol: float | None,
    atol: float | None,
    step: float | None,
    solver: str | None,
    observe: Sequence[Observable],
    event: AbstractEvent | None,
    key: Array | None,
    window: int | None,
    max_steps: int,
) -> Plan:
    """Check everything a user can get wrong and decide what is left open; see `simulation.stream`."""
    one_flow, flows = as_flows(flow)
    check_arguments(discretization, observe, event)
    flow_per_run = flows is not None
    how = discretization or Particles()
    measure, runs = as_starts(laid_out(how, flow, flows, start), flows)
    single = measure if runs is None else leaf_of(measure, 0)
    whole_flow = one_flow if isinstance(flow, Flow) and not flow_per_run else joined_flows(flow, measure.points.dtype)
    saved_times = as_times(times)
    method = make_method(whole_flow, how, single, rtol, atol, step, solver, max_steps, float(saved_times[-1]), key)
    check_begin(whole_flow, how, measure, flow_per_run=flow_per_run)
    whole_flow = whole_flow if flow_per_run else how.prepared(whole_flow, single)
    one_flow = leaf_of(whole_flow, 0) if flow_per_run else whole_flow
    present = check_present(one_flow, how, single, saved_times[0], method)
    acting = check_interactions(present)
    check_functions(present, tuple(observe), event)
    check_resolution(how, event)
    # Nobody differentiates a stored run, and a loop without reverse mode is traced and compiled a third faster.
    method = replace(method, adjoint="forward")
    if step is not None:
        saved_times = on_grid(saved_times, step)
    numbers = make_numbers(rtol, atol, step, saved_times[0], key, runs)
    for name, number in (("window", window), ("max_steps", max_steps)):
        if number is not None and not (isinstance(number, int) and number >= 1):
            raise ArgumentError(f"Argument `{name}` must be a positive integer, but is {number!r}.")
    late = solver is None and how.resolution() > 0 and method.adaptive and float(saved_times[-1]) > _LONG_TIME
    late_method = replace(method, solver=_IMPLICIT) if late and method.solver != _IMPLICIT else None
    chosen = method.solver + (f", {_IMPLICIT} for the last {_LATE_POINTS} points" if late_method else "")
    return Plan(
        flow=whole_flow,
        discretization=how,
        start=measure,
        times=saved_times,
        method=method,
        late_method=late_method,
        numbers=numbers,
        observe=tuple(observe),
        event=event,
        runs=runs,
        flow_per_run=flow_per_run,
        window=window or _longest_window(single, runs, len(saved_times), merging=how.resolution() > 0),
        growing=window is None,
        choices={"solver": chosen, "summation": _summation_note(acting, how, single, runs)},
        approximates=runs is None and any(each.summation.allowed_error() is not None for each in acting),
    )


def _longest_window(start: Measure, runs: int | None, frames: int, *, merging: bool) -> int:
    """How many frames are computed at once, at most."""
    most = _MERGING_FRAMES if merging else _WINDOW_FRAMES
    frame_bytes = start.points.size * start.points.dtype.itemsize * (runs or 1)
    pairs = start.count**2 * (runs or 1)
    return max(1, min(most, frames, _WINDOW_BYTES // frame_bytes, _WINDOW_PAIRS // pairs))


def make_method(
    flow: Flow,
    discretization: AbstractDiscretization,
    start: Measure,
    rtol: float | None,
    atol: float | None,
    step: float | None,
    solver: str | None,
    max_steps: int,
    end: float,
    key: Array | None,
) -> Method:
    """The solver and kind of steps, from what the user asked for and what the flow needs."""
    # A flow that is traced does not tell its temperature; then a key says that there is noise.
    noisy = flow.is_noisy or (flow.may_be_noisy and key is not None)
    noisy = noisy and bool(_noises(flow, discretization, start))
    adaptive = step is None
    if adaptive and (rtol is None or atol is None):
        raise ArgumentError("Arguments `rtol` and `atol` must be given for adaptive steps; or give a fixed `step`.")
    if not adaptive and (rtol is not None or atol is not None):
        raise ArgumentError("Arguments `rtol` and `atol` are for adaptive steps, but a fixed `step` is given, too.")
    if noisy and adaptive:
        raise ArgumentError("A flow with temperature needs a fixed `step`, but `rtol` and `atol` are given.")
    if noisy and key is None:
        raise ArgumentError("A flow with temperature needs a random `key`, but there is none.")
    suited = discretization.solvers()
    chosen = solver or (suited[0] if suited else _default_solver(start, rtol, end, noisy, adaptive))
    method = Method(chosen, adaptive, noisy, max_steps)
    if suited and chosen not in suited:
        raise ArgumentError(
            f"The solver {chosen!r} does not lead from densities to densities; use one of {', '.join(suited)}, or "
            "leave it out."
        )
    if adaptive:
        _check_tolerances(start, float(rtol), float(atol))  # pyright: ignore[reportArgumentType]
        if chosen not in ADAPTIVE_SOLVERS:
            raise ArgumentError(f"The solver {chosen!r} cannot adapt its steps; give a fixed `step`.")
    elif not step > 0:  # pyright: ignore[reportOptionalOperand]
        raise ArgumentError(f"Argument `step` must be positive, but is {step}.")
    # Where the noise is additive the Itô and Stratonovich senses agree.
    allowed = (*STOCHASTIC_SOLVERS, "euler") if flow.geometry.noise_is_additive else STOCHASTIC_SOLVERS
    if noisy and chosen not in allowed:
        raise ArgumentError(
            f"The solver {chosen!r} does not converge to this noise; use one of {', '.join(STOCHASTIC_SOLVERS)}."
        )
    return method


def make_numbers(
    rtol: float | None, atol: float | None, step: float | None, origin: Any, key: Array | None, runs: int | None
) -> Numbers:
    """The numbers of a method as arrays; an ensemble has a key for every run, split from one unless all are given."""

    given = key is not None and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == (runs,)
    keys = key if key is None or runs is None or given else jax.random.split(key, runs)
    rtol, atol, step = (0.0 if value is None else value for value in (rtol, atol, step))
    return Numbers(as_number(rtol), as_number(atol), as_number(step), as_number(origin), keys)


def _noises(flow: Flow, discretization: AbstractDiscretization, start: Measure) -> tuple[Any, ...]:
    """What drives the state, as far as its number and shapes go."""
    state = jax.eval_shape(lambda: discretization.begin(flow, start))
    return discretization.noises(flow, state)


def _default_solver(start: Measure, rtol: float | None, end: float, noisy: bool, adaptive: bool) -> str:
    if noisy:
        return "heun"
    if adaptive and end > _LONG_TIME and start.points.size <= _IMPLICIT_UNKNOWNS:
        return _IMPLICIT
    return "dopri8" if rtol is not None and rtol < _TIGHT else "tsit5"


def _check_tolerances(start: Measure, rtol: float, atol: float) -> None:
    rounding = float(jnp.finfo(start.points.dtype).eps)
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if not tolerance >= 0 or not np.isfinite(tolerance):
            raise ArgumentError(f"Argument `{name}` must be zero or positive, but is {tolerance}.")
    if rtol < 10 * rounding:
        raise ArgumentError(
            f"Argument `rtol` is {rtol}, below the {10 * rounding:.1e} that {start.points.dtype} can give."
        )
    if rtol == 0 and atol == 0:
        raise ArgumentError("Arguments `rtol` and `atol` must not both be zero.")


def _summation_note(
    acting: tuple[Interaction, ...], how: AbstractDiscretization, start: Measure, runs: int | None
) -> str:
    """How the first kernel is summed, and why; one summation must serve all runs of an ensemble, the exact one."""
    if how.is_closed_form():
        return "none: integrals in closed form"
    for each in acting:
        if runs is None:
            return str(next(each.choices(start)))
        alike = "" if each.allowed_error() is None else "; all runs of an ensemble are summed exactly"
        return f"{next(each.exactly().choices(start))}{alike}"
    return "none"
