"""What a run will do, checked before anything is compiled."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow._arrays import as_float_array, check_same_dtype, strong_dtype_leaves
from particleflow.drifts.attend import Attend
from particleflow.drifts.base import AbstractDrift, terms_of
from particleflow.errors import ArgumentError, ShapeError
from particleflow.events import AbstractEvent
from particleflow.flow import Flow
from particleflow.geometry import Euclidean, check_retracted
from particleflow.integrate import ADAPTIVE_SOLVERS, MAP, STOCHASTIC_SOLVERS, Method, Numbers
from particleflow.measure import Measure
from particleflow.observables import Observable, name_of
from particleflow.summation.auto import Auto

# A window holds at most this many frames and this many bytes: small enough to lose little and to show progress.
_WINDOW_FRAMES = 32
_WINDOW_BYTES = 32 * 2**20
# Explicit steps stay of order one when clusters stand still, so long runs of few particles go to an implicit method.
_LONG_TIME = 1e4
_IMPLICIT_UNKNOWNS = 1024
_TIGHT = 1e-7
# The observable that an ensemble adds of its own when there is an event: since when each run stands still.
EVENT_TIME = "event_time"


@dataclass(frozen=True)
class Plan:
    """A run, ready to go: what moves, when it is saved, and how time is stepped."""

    flow: Flow
    start: Measure
    times: np.ndarray
    method: Method
    numbers: Numbers
    observe: tuple[Observable, ...]
    event: AbstractEvent | None
    runs: int | None
    flow_per_run: bool
    window: int
    choices: dict[str, str]

    @property
    def dtype(self) -> Any:
        """The precision of the run."""
        return self.start.points.dtype

    def window_begin(self, first: int) -> Array:
        """The time at which the window that begins with frame `first` is entered."""
        return jnp.asarray(self.times[max(first - 1, 0)], self.dtype)

    def window_times(self, first: int) -> tuple[np.ndarray, int]:
        """The times of the window that begins with frame `first`, filled up to full length, and how many are real."""
        times = self.times[first : first + self.window]
        filled = np.concatenate([times, np.full(self.window - len(times), times[-1])])
        return filled, len(times)


def make_plan(
    flow: Flow | Sequence[Flow],
    start: Any,
    times: Any,
    *,
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
    one_flow, flows = _as_flows(flow)
    flow_per_run = flows is not None
    measure, runs = _as_starts(start, flows)
    single = measure if runs is None else jax.tree_util.tree_map(lambda leaf: leaf[0], measure)
    whole_flow = one_flow if isinstance(flow, Flow) and not flow_per_run else _joined(flow, measure.points.dtype)
    _check_start(one_flow, measure, runs)
    _check_geometry(whole_flow, measure, flow_per_run)
    _check_functions(one_flow, single, tuple(observe), event)
    saved_times = _as_times(times, single.points.dtype)
    method = make_method(whole_flow, single, rtol, atol, step, solver, max_steps, float(saved_times[-1]), key)
    # Nobody differentiates a stored run, and a loop without reverse mode is traced and compiled a third faster.
    method = replace(method, adjoint="forward")
    if step is not None:
        saved_times = _on_grid(saved_times, step)
    numbers = make_numbers(single.points.dtype, rtol, atol, step, saved_times[0], key, runs)
    frame_bytes = single.points.size * single.points.dtype.itemsize * (runs or 1)
    for name, number in (("window", window), ("max_steps", max_steps)):
        if number is not None and not (isinstance(number, int) and number >= 1):
            raise ArgumentError(f"Argument `{name}` must be a positive integer, but is {number!r}.")
    frames = window or int(max(1, min(_WINDOW_FRAMES, len(saved_times), _WINDOW_BYTES // frame_bytes)))
    return Plan(
        flow=whole_flow,
        start=measure,
        times=saved_times,
        method=method,
        numbers=numbers,
        observe=tuple(observe),
        event=event,
        runs=runs,
        flow_per_run=flow_per_run,
        window=frames,
        choices={"solver": method.solver, "summation": _summation_note(one_flow, single)},
    )


def make_method(
    flow: Flow,
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
    adaptive = step is None
    if adaptive and (rtol is None or atol is None):
        raise ArgumentError("Arguments `rtol` and `atol` must be given for adaptive steps; or give a fixed `step`.")
    if not adaptive and (rtol is not None or atol is not None):
        raise ArgumentError("Arguments `rtol` and `atol` are for adaptive steps, but a fixed `step` is given, too.")
    if noisy and adaptive:
        raise ArgumentError("A flow with temperature needs a fixed `step`, but `rtol` and `atol` are given.")
    if noisy and key is None:
        raise ArgumentError("A flow with temperature needs a random `key`, but there is none.")
    chosen = solver or _default_solver(start, rtol, end, noisy, adaptive)
    method = Method(chosen, adaptive, noisy, max_steps)
    if adaptive:
        _check_tolerances(start, float(rtol), float(atol))  # pyright: ignore[reportArgumentType]
        if chosen not in ADAPTIVE_SOLVERS:
            raise ArgumentError(f"The solver {chosen!r} cannot adapt its steps; give a fixed `step`.")
    elif not step > 0:  # pyright: ignore[reportOptionalOperand]
        raise ArgumentError(f"Argument `step` must be positive, but is {step}.")
    if noisy and chosen not in STOCHASTIC_SOLVERS:
        ito = chosen == "euler" and isinstance(flow.geometry, Euclidean)
        if not ito:
            raise ArgumentError(
                f"The solver {chosen!r} does not converge to this noise; use one of {', '.join(STOCHASTIC_SOLVERS)}."
            )
    return method


def make_numbers(
    dtype: Any, rtol: float | None, atol: float | None, step: float | None, origin: Any, key: Array | None,
    runs: int | None,
) -> Numbers:  # fmt: skip
    """The numbers of a method as arrays; an ensemble has a key for every run, split from one unless all are given."""

    def number(value: Any) -> Array:
        return jnp.asarray(0.0 if value is None else value, dtype)

    given = key is not None and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == (runs,)
    keys = key if key is None or runs is None or given else jax.random.split(key, runs)
    return Numbers(number(rtol), number(atol), number(step), number(origin), keys)


def as_start(start: Any) -> Measure:
    """A measure with positions 0, 1, 2, …, unless it has its own."""
    measure = start if isinstance(start, Measure) else Measure.uniform(start)
    if measure.positions is not None:
        return measure
    positions = jnp.asarray(np.arange(measure.count, dtype=measure.points.dtype))
    return Measure(measure.points, measure.log_weights, measure.values, positions)


def _as_flows(flow: Flow | Sequence[Flow]) -> tuple[Flow, int | None]:
    """One flow to look at, and how many there are: None for a single one that serves every run."""
    if isinstance(flow, Flow):
        if flow.temperature.ndim == 0:
            return flow, None
        return jax.tree_util.tree_map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, flow), len(flow.temperature)
    flows = list(flow)
    if not flows or not all(isinstance(each, Flow) for each in flows):
        raise ArgumentError("Argument `flow` must be a flow or a list of flows, but is something else.")
    return flows[0], len(flows)


def _joined(flow: Flow | Sequence[Flow], dtype: Any) -> Flow:
    """The flows of an ensemble as one whose arrays have a leading axis; one made by `vmap` is that already."""
    if not isinstance(flow, Flow):
        return stack(list(flow), "flow", dtype)
    return jax.tree_util.tree_map(lambda leaf: leaf.astype(dtype) if getattr(leaf, "weak_type", False) else leaf, flow)


def stack(trees: Sequence[Any], name: str, dtype: Any) -> Any:
    """Objects of one structure as one object whose arrays have a leading axis; plain numbers take on `dtype`."""
    parts = [eqx.partition(tree, eqx.is_array) for tree in trees]
    structures = {jax.tree_util.tree_structure(arrays) for arrays, _ in parts}
    same_rest = all(eqx.tree_equal(parts[0][1], rest) is True for _, rest in parts)
    if len(structures) > 1 or not same_rest:
        raise ArgumentError(f"The runs of an ensemble must differ in numbers only, but their {name}s differ in kind.")

    def joined(*leaves: Array) -> Array:
        if len({leaf.shape for leaf in leaves}) > 1:
            raise ShapeError(f"The runs of an ensemble must have equal shapes, but a {name} has {leaves[0].shape}.")
        return jnp.asarray(np.stack(leaves), dtype if leaves[0].weak_type else leaves[0].dtype)

    arrays = jax.tree_util.tree_map(joined, *(arrays for arrays, _ in parts))
    return eqx.combine(arrays, parts[0][1])


def _as_starts(start: Any, runs: int | None) -> tuple[Measure, int | None]:
    if isinstance(start, Measure):
        measure = as_start(start)
        if runs is None:
            return measure, None
        return jax.tree_util.tree_map(lambda leaf: jnp.broadcast_to(leaf, (runs, *leaf.shape)), measure), runs
    if isinstance(start, list | tuple) and all(isinstance(each, Measure) for each in start):
        measure, found = _stacked_starts([as_start(each) for each in start]), len(start)
    else:
        points = as_float_array(start, "start")
        if points.ndim == 2:
            return _as_starts(Measure.uniform(points), runs)
        if points.ndim != 3 or 0 in points.shape:
            raise ShapeError(f"Argument `start` must have shape (n, d) or (runs, n, d), but has {points.shape}.")
        measure, found = jax.vmap(as_start)(points), points.shape[0]
    if runs is not None and found != runs:
        raise ShapeError(f"There are {runs} flows, but {found} starts.")
    return measure, found


def _stacked_starts(measures: list[Measure]) -> Measure:
    if len({measure.points.dtype for measure in measures}) > 1:
        raise ArgumentError("The starts of an ensemble must have one precision, but have several.")
    return stack(measures, "start", measures[0].points.dtype)


def _check_start(flow: Flow, measure: Measure, runs: int | None) -> None:
    check_same_dtype(start=measure.points, **strong_dtype_leaves(flow))
    single = measure if runs is None else jax.tree_util.tree_map(lambda leaf: leaf[0], measure)
    shape = jax.eval_shape(lambda: flow.velocity(jnp.zeros((), single.points.dtype), single.points, single)).shape
    if shape != single.points.shape:
        raise ShapeError(f"The drift must return shape {single.points.shape}, one velocity a particle, but {shape}.")
    for drift in terms_of(flow.drift):
        _check_sinkhorn(drift, flow, single)


def _check_geometry(flow: Flow, measure: Measure, flow_per_run: bool) -> None:
    """Every run must begin on the geometry of its own flow."""
    if not flow_per_run:
        flow.geometry.check_contains(measure.points)
        return
    retract = eqx.filter_vmap(lambda geometry, points: geometry.retract(points), in_axes=eqx.if_array(0))
    check_retracted(type(flow.geometry).__name__, measure.points, retract(flow.geometry, measure.points))


def _check_functions(flow: Flow, start: Measure, observe: tuple[Observable, ...], event: AbstractEvent | None) -> None:
    """Observables and events say what they do not like while nothing is compiled yet."""
    time = jnp.zeros((), start.points.dtype)
    for observable in observe:
        if name_of(observable) == EVENT_TIME:
            raise ArgumentError(f"An observable must not be called {EVENT_TIME!r}: ensembles use that name themselves.")
        _check_call(observable, flow, time, start)
    if event is not None and not isinstance(event, AbstractEvent):
        raise ArgumentError(f"Argument `event` must be an event, such as events.Clustered(0.1), but is {event!r}.")
    if event is not None and (shape := jax.eval_shape(lambda: event.level(flow, time, start)).shape) != ():
        raise ShapeError(f"An event must be one number, but {type(event).__name__} has shape {shape}.")


def _check_call(observable: Observable, flow: Flow, time: Array, start: Measure) -> None:
    """An observable must take (flow, time, measure)."""
    try:
        inspect.signature(observable).bind(flow, time, start)
    except TypeError as error:
        raise ArgumentError(
            f"The observable {name_of(observable)} must be a function of flow, time and measure, but {error}."
        ) from error
    jax.eval_shape(lambda: jnp.asarray(observable(flow, time, start)))


def _check_sinkhorn(drift: AbstractDrift, flow: Flow, start: Measure) -> None:
    if not isinstance(drift, Attend) or drift.normalization != "sinkhorn":
        return
    seen = flow.observed(0.0, start.points, start)
    mass = np.asarray(drift.summation.moments(drift.whole_kernel, seen, seen.sites).log_mass)
    if np.isneginf(mass).any():
        row = int(np.argmax(np.isneginf(mass)))
        raise ArgumentError(
            f"Sinkhorn normalisation needs a positive entry in every row, but particle {row} sees nothing."
        )


def _as_times(times: Any, dtype: Any) -> np.ndarray:
    given = np.asarray(times, dtype=float)
    if given.ndim != 1 or given.size == 0:
        raise ShapeError(f"Argument `times` must be a list of times, but has shape {given.shape}.")
    if not np.isfinite(given).all():
        raise ArgumentError("Argument `times` must be finite, but is not.")
    rounded = given.astype(dtype)
    bad = np.flatnonzero(np.diff(rounded) <= 0)
    if bad.size:
        raise ArgumentError(
            f"Argument `times` must increase, but goes from {rounded[bad[0]]} "
            f"to {rounded[bad[0] + 1]} at index {bad[0]}."
        )
    return rounded


def _on_grid(times: np.ndarray, step: float) -> np.ndarray:
    cells = (times.astype(float) - float(times[0])) / step
    off = np.abs(cells - np.round(cells))
    if (off > 1e-6 * np.maximum(1.0, np.abs(cells))).any():
        worst = int(np.argmax(off))
        raise ArgumentError(
            f"With a fixed `step` of {step} every saved time must be a multiple of it, "
            f"but times[{worst}] is {times[worst]}."
        )
    return (float(times[0]) + np.round(cells) * step).astype(times.dtype)


def _default_solver(start: Measure, rtol: float | None, end: float, noisy: bool, adaptive: bool) -> str:
    if noisy:
        return "heun"
    if adaptive and end > _LONG_TIME and start.points.size <= _IMPLICIT_UNKNOWNS:
        return "kvaerno5"
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


def _summation_note(flow: Flow, start: Measure) -> str:
    for drift in terms_of(flow.drift):
        summation = getattr(drift, "summation", None)
        if isinstance(summation, Auto):
            choice = summation.select(start, start.points)
            return f"{type(choice.summation).__name__}: {choice.reason}"
        if summation is not None:
            return f"{type(summation).__name__}, as asked"
    return "none"


__all__ = ["MAP", "Plan", "as_start", "make_method", "make_numbers", "make_plan", "stack"]
