"""The plan of a run: everything `simulate` was given, checked before anything is compiled, and completed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow.discretization import AbstractDiscretization, Particles, Present
from particleflow.discretization.discretization_capabilities import (
    ClosedForm,
    SpecialisesSums,
    resolution_of,
)
from particleflow.dynamics.drifts.base import Interaction
from particleflow.dynamics.flow import Flow
from particleflow.errors import whole_number
from particleflow.measure import Measure
from particleflow.simulation.events import AbstractEvent
from particleflow.simulation.observables import Observable
from particleflow.simulation.plan.checks import (
    check_arguments,
    check_begin,
    check_depth,
    check_functions,
    check_interactions,
    check_precision,
    check_present,
    check_resolution,
)
from particleflow.simulation.plan.companions import with_log_energy
from particleflow.simulation.plan.device_choice import devices_of_run, local_devices
from particleflow.simulation.plan.inputs import as_flows, as_starts, as_times, joined_flows, laid_out, leaf_of, on_grid
from particleflow.simulation.plan.stepping_method import (
    FEW_POINTS,
    IMPLICIT,
    IMPLICIT_UNKNOWNS,
    LONG_TIME,
    Stepping,
    explicit_steps,
    make_method,
    make_numbers,
)
from particleflow.simulation.stepping import Method, Numbers
from particleflow.summation.base import allowed_error

# A window holds at most so many frames and bytes: small enough to lose little when a run stops and to show progress.
_WINDOW_FRAMES = 32
_MERGING_FRAMES = 4  # where particles are merged between windows: the sooner they are, the cheaper the next windows
_WINDOW_BYTES = 32 * 2**20
# The most pairs of particles, summed over the frames of a window: about two seconds, if a frame takes a dozen fields.
# A window has at least one frame. Where this makes windows shorter, their steps go past frames (`Plan.passing`).
_WINDOW_PAIRS = 2**26
# The frames that such a window has room for: as many as one step may pass. Frames that it does not reach cost memory
# alone. A step is cut at the last of them, so large clouds have room for some frames whatever their size.
_PASSED_FRAMES, _FEWEST_PASSED = 256, 8
_PASSED_BYTES = 2**27
_FIRST_WINDOW = 2  # the start and the first frame, so that something is seen soon; later windows double


class WindowTimes(NamedTuple):
    """The times of the frames of a window, filled up to full length, and `frames`, how many are real.

    With `passing`, a time, the window ends with the step that reaches it, and the times that fill it up are infinite.
    """

    times: np.ndarray
    frames: int
    passing: np.ndarray | None


@dataclass(frozen=True)
class Plan:
    """A run or an ensemble of runs, ready to go: what moves, when it is saved, and how time is stepped.

    A window has at most `window` frames, and fewer at first if `growing`. With `passing` None it ends at the last of
    them. Otherwise it ends with the step that passes its `passing`-th frame (at first an earlier one) and has all
    frames that this step has passed, up to `window`; the next one begins where the step ended, between two frames.

    `late_method`, implicit, replaces `method` where few points are left, and in windows that `method` would take many
    steps in; None where it never does. `approximates`: the
    summation is chosen for every window, within the tolerance that the user has given; never in an ensemble. `runs` is
    None for a single run; in an ensemble the arrays of `start`, and with `flow_per_run` those of `flow`, have a leading
    axis of runs. `devices` share the particles of a single run, or the runs of an ensemble; None: there is one.
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
    passing: int | None
    growing: bool
    choices: dict[str, str]
    approximates: bool
    devices: tuple[Any, ...] | None = None

    @property
    def dtype(self) -> Any:
        """The precision of the run."""
        return self.start.points.dtype

    def window_length(self, first: int) -> int:
        """The most frames of the window that begins with frame `first`; it does not depend on the time they take."""
        ends_early = self.growing and self.passing is None
        return min(max(first, _FIRST_WINDOW), self.window) if ends_early else self.window

    def window_times(self, first: int) -> WindowTimes:
        """The times of the window that begins with frame `first`.

        All windows are filled up to the longest, so that one compiled program serves them.
        """
        times = self.times[first : first + self.window_length(first)]
        missing = self.window - len(times)
        if self.passing is None:
            return WindowTimes(np.concatenate([times, np.full(missing, times[-1])]), len(times), None)
        wanted = _FIRST_WINDOW if first == 0 else min(max(first, _FIRST_WINDOW), self.passing)
        filled = np.concatenate([times, np.full(missing, np.inf)])
        return WindowTimes(filled, len(times), np.asarray(times[min(wanted, len(times)) - 1]))

    def flow_of(self, run: int) -> Flow:
        """The flow of one run."""
        return leaf_of(self.flow, run) if self.flow_per_run else self.flow

    def start_of(self, run: int) -> Measure:
        """The measure that one run begins with."""
        return self.start if self.runs is None else leaf_of(self.start, run)

    def carrying(self, state: Any) -> tuple[int, int]:
        """How many points of which dimension carry the measure of a run in this state (leading axis: runs)."""
        if resolution_of(self.discretization) == 0:
            return self.start.points.shape[-2], self.start.points.shape[-1]
        one = jax.tree_util.tree_map(lambda leaf: leaf[0], state)
        points = jax.eval_shape(lambda: self.present(0, one, self.times[0]).reduced.measure.points)
        return points.shape[0], points.shape[1]

    def methods_for(self, state: Any) -> tuple[Method, ...]:
        """The methods of a window that begins in this state (leading axis: runs), by the shape of the state alone.

        A method that runs out of steps is followed by the next one, which solves the window anew.
        """
        steps = None if self.late_method is None else explicit_steps(*self.carrying(state), self.window)
        if steps is None or self.late_method is None:
            return (self.method,)
        if steps == 0:
            return (self.late_method,)
        if self.runs is not None:
            return (self.method,)
        return replace(self.method, max_steps=min(steps, self.method.max_steps)), self.late_method

    def begin(self) -> Any:
        """The states that the runs begin with, a leading axis of runs on every array."""
        if self.runs is None:
            state = self.discretization.begin(self.flow, self.start)
            return jax.tree_util.tree_map(lambda leaf: np.asarray(leaf)[None], state)
        return self.over_runs(self.discretization.begin)(self.flow, self.start)

    def over_runs(self, function: Any) -> Any:
        """Vectorise a function of (flow, array or pytree of one run) over all runs."""
        axes = (eqx.if_array(0) if self.flow_per_run else None, eqx.if_array(0))
        return eqx.filter_vmap(function, in_axes=axes)

    def present(self, run: int, state: Any, time: Any, flow: Flow | None = None) -> Present:
        """The `Present` of one run at a time, in a state without an axis of runs."""
        return Present(flow or self.flow_of(run), self.discretization, jnp.asarray(time, self.dtype), state)


class _Moving(NamedTuple):
    """What moves in a run, or in the runs of an ensemble, whose arrays then have a leading axis."""

    flow: Flow
    discretization: AbstractDiscretization
    start: Measure
    runs: int | None
    flow_per_run: bool

    @property
    def first_flow(self) -> Flow:
        """The flow of the first run, on which all runs are checked and planned."""
        return leaf_of(self.flow, 0) if self.flow_per_run else self.flow

    @property
    def different_runs(self) -> list[tuple[Flow, AbstractDiscretization, Measure]]:
        """Flow, discretization and start of the first run, or of all runs where their flows differ."""
        if not self.flow_per_run:
            return [(self.flow, self.discretization, self.first_start)]
        starts = [leaf_of(self.start, run) for run in range(self.runs or 1)]
        return [(leaf_of(self.flow, run), self.discretization, start) for run, start in enumerate(starts)]

    @property
    def first_start(self) -> Measure:
        """The start of the first run."""
        return self.start if self.runs is None else leaf_of(self.start, 0)


def make_plan(
    flow: Flow | Sequence[Flow],
    start: Any,
    times: Any,
    stepping: Stepping,
    *,
    discretization: AbstractDiscretization | None = None,
    observe: Sequence[Observable] = (),
    event: AbstractEvent | None = None,
    key: Array | None = None,
    window: int | None = None,
    devices: int | None = None,
) -> Plan:
    """Check all arguments, and choose what is left open; parameters as for `simulation.stream`."""
    moving = _moving(flow, start, discretization, observe, event)
    how, first = moving.discretization, moving.first_start
    saved_times = as_times(times)
    duration = float(saved_times[-1] - saved_times[0])
    check_precision(first.points.dtype)
    check_depth(moving.first_flow, float(saved_times[-1]))
    asked, stepping = stepping, stepping.with_tolerances(first.points.dtype)
    method = make_method(moving.flow, how, first, stepping, duration, key, single=moving.runs is None)
    check_begin(moving.flow, how, moving.start, flow_per_run=moving.flow_per_run)
    if isinstance(how, SpecialisesSums) and not moving.flow_per_run:
        moving = moving._replace(flow=how.specialise_sums(moving.flow, first))
    acting = _check_first_run(moving, saved_times[0], method, tuple(observe), event)
    # Stored runs are not differentiated, and a loop without reverse mode is traced and compiled a third faster.
    method = replace(method, adjoint="forward")
    if stepping.step is not None:
        saved_times = on_grid(saved_times, stepping.step)
    numbers = make_numbers(stepping, saved_times[0], key, moving.runs)
    if window is not None:
        window = whole_number(window, "window")
    merging = resolution_of(how) > 0
    longest, passing = _window_sizes(first, moving.runs, len(saved_times), method, merging=merging)
    late_method = _late_method(method, stepping, moving, duration)
    chosen = method.solver + (f", {IMPLICIT} {_late_cases(moving)}" if late_method else "")
    return Plan(
        **moving._asdict(),
        times=saved_times,
        method=method,
        late_method=late_method,
        numbers=numbers,
        observe=with_log_energy(tuple(observe), moving.different_runs, saved_times),
        event=event,
        window=window or longest,
        passing=None if window else passing,
        growing=window is None,
        choices={
            "solver": chosen,
            "summation": _summation_note(acting, how, first, moving.runs),
            **_tolerance_note(asked, stepping),
        },
        approximates=moving.runs is None and any(allowed_error(each.summation) is not None for each in acting),
        devices=devices_of_run(devices) if moving.runs is None else local_devices(devices),
    )


def _moving(flow: Any, start: Any, discretization: AbstractDiscretization | None, observe: Any, event: Any) -> _Moving:
    """One flow and one start, or those of an ensemble with a leading axis of runs; checks the types of arguments."""
    one_flow, flows = as_flows(flow)
    check_arguments(discretization, observe, event)
    how = discretization or Particles()
    measure, runs = as_starts(laid_out(how, flow, flows, start), flows)
    single = isinstance(flow, Flow) and flows is None
    whole_flow = one_flow if single else joined_flows(flow, measure.points.dtype)
    return _Moving(whole_flow, how, measure, runs, flows is not None)


def _check_first_run(
    moving: _Moving, begin: Any, method: Method, observe: tuple[Observable, ...], event: AbstractEvent | None
) -> tuple[Interaction, ...]:
    """Trace velocity, observables and event of the first run, without compiling; returns what interacts in it."""
    present = check_present(moving.first_flow, moving.discretization, moving.first_start, begin, method)
    acting = check_interactions(present)
    check_functions(present, observe, event)
    check_resolution(moving.discretization, event)
    return acting


def _late_method(method: Method, stepping: Stepping, moving: _Moving, duration: float) -> Method | None:
    """The implicit method of a long run of few points, or that merges, unless the user has chosen a solver."""
    late = stepping.solver is None and method.passes_frames and duration > LONG_TIME
    possible = resolution_of(moving.discretization) > 0 or moving.first_start.points.size <= IMPLICIT_UNKNOWNS
    return replace(method, solver=IMPLICIT) if late and possible else None


def _late_cases(moving: _Moving) -> str:
    """Where the implicit method of a long run is taken, in words."""
    cases = ["in windows of many steps"] if moving.runs is None else []
    return " and ".join(cases + [f"for the last {FEW_POINTS} points"] * (resolution_of(moving.discretization) > 0))


def _tolerance_note(asked: Stepping, stepping: Stepping) -> dict[str, str]:
    """The tolerances that the user left out, as they were chosen; empty where none was."""
    left = [name for name in ("rtol", "atol") if getattr(asked, name) is None and getattr(stepping, name) is not None]
    return {"tolerances": ", ".join(f"{name} = {getattr(stepping, name):g}" for name in left)} if left else {}


def _window_sizes(
    start: Measure, runs: int | None, frames: int, method: Method, *, merging: bool
) -> tuple[int, int | None]:
    """The most frames of a window, and after how many it ends with a step (`Plan.passing`).

    A window that is shorter than others because fields or frames are large goes on past frames, where nothing but the
    solver needs its end: an ensemble needs one end for all runs, and merging needs the state at a frame.
    """
    most = _MERGING_FRAMES if merging else _WINDOW_FRAMES
    frame_bytes = start.points.size * start.points.dtype.itemsize * (runs or 1)
    pairs = start.count**2 * (runs or 1)
    length = max(1, min(most, _WINDOW_BYTES // frame_bytes, _WINDOW_PAIRS // pairs))
    if length == most or merging or runs is not None or not method.passes_frames:
        return min(length, frames), None
    room = max(_FEWEST_PASSED, min(_PASSED_FRAMES, _PASSED_BYTES // frame_bytes))
    return min(frames, room), length


def _summation_note(
    acting: tuple[Interaction, ...], how: AbstractDiscretization, start: Measure, runs: int | None
) -> str:
    """How the first kernel is summed, and why; in an ensemble all runs share one summation, which is exact."""
    if isinstance(how, ClosedForm):
        return "none: integrals in closed form"
    for each in acting:
        if runs is None:
            return str(next(each.choices(start)))
        alike = "" if each.allowed_error() is None else "; all runs of an ensemble are summed exactly"
        return f"{next(each.exactly().choices(start))}{alike}"
    return "none"
