"""Running a flow: `stream` yields window after window, `simulate` drains it into a trajectory.

With `store`, every window is on disk before the next one begins, together with a checkpoint from which the run can
go on; see `particleflow.recording`.
"""

import time as clock
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow.ensemble import ensemble_window
from particleflow.errors import RunError
from particleflow.events import AbstractEvent
from particleflow.flow import Flow
from particleflow.integrate import Window, compiled_frame, final_state, solve_window
from particleflow.measure import Measure
from particleflow.observables import Observable
from particleflow.plan import Plan, as_start, make_method, make_numbers, make_plan
from particleflow.recording import Frames, Progress, Recorder, interrupts
from particleflow.trajectory import Trajectory


def stream(
    flow: Flow | Sequence[Flow],
    start: Any,
    times: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    step: float | None = None,
    solver: str | None = None,
    observe: Sequence[Observable] = (),
    event: AbstractEvent | None = None,
    key: Array | None = None,
    window: int | None = None,
    max_steps: int = 200_000,
) -> Iterator[Frames]:
    """Run a flow and yield its frames window by window; memory is one window.

    Parameters: `flow`; for an ensemble a list of flows of one structure, or one made by `equinox.filter_vmap`.
    `start`, a measure or points (n, d); for an ensemble also points (runs, n, d) or a list of measures. Increasing
    `times` at which frames are saved, the first one being the start. Steps are adaptive with `rtol` and `atol`, or
    fixed with `step`. `solver` is a diffrax solver by its snake-case name, or "map" for explicit layers
    x ← N(x + step · v). `observe` lists observables, `event` stops the run, `key` drives the noise. `window` is the
    number of frames computed at once and `max_steps` the number of steps that one window may take.
    """
    plan = make_plan(
        flow, start, times, rtol=rtol, atol=atol, step=step, solver=solver, observe=observe, event=event, key=key,
        window=window, max_steps=max_steps,
    )  # fmt: skip
    yield from run_plan(plan)


def simulate(
    flow: Flow | Sequence[Flow],
    start: Any,
    times: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    step: float | None = None,
    solver: str | None = None,
    observe: Sequence[Observable] = (),
    event: AbstractEvent | None = None,
    key: Array | None = None,
    window: int | None = None,
    max_steps: int = 200_000,
    store: str | Path | None = None,
    resume: bool = False,
    storage: str | None = None,
    particles: Any = None,
    labels: Any = None,
    fsync: bool = True,
    provenance: dict[str, Any] | None = None,
    progress: Callable[[Frames], None] | None = None,
) -> Trajectory:
    """Run a flow to its end and return the trajectory; the first parameters are those of `stream`.

    `store` is the file to stream the frames to, in precision `storage` ("float32" or "float64"; that of the run if
    left out), only the `particles` asked for. With `resume` a run that was cut short goes on where its last window
    ended, bit for bit. `labels` are kept with the particles, `provenance` with the file. `progress` is called after
    every window. A failure names time and particle; what was saved before it stays.
    """
    began = clock.perf_counter()
    plan = make_plan(
        flow, start, times, rtol=rtol, atol=atol, step=step, solver=solver, observe=observe, event=event, key=key,
        window=window, max_steps=max_steps,
    )  # fmt: skip
    recorder = Recorder(
        plan, None if store is None else Path(store), resume=resume, storage=storage, particles=particles,
        labels=labels, fsync=fsync, provenance=provenance or {},
    )  # fmt: skip
    with recorder, interrupts(active=store is not None) as interrupted:
        try:
            for frames in run_plan(plan, recorder.resumed):
                recorder.append(frames)
                if progress is not None:
                    progress(frames)
                if interrupted() and frames.progress.status == "running":
                    recorder.interrupt()
                    break
        except RunError as error:
            error.trajectory = recorder.finish(clock.perf_counter() - began) if store is None else None
            raise
        return recorder.finish(clock.perf_counter() - began)


def evolve(
    flow: Flow,
    start: Any,
    end: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    step: float | None = None,
    solver: str | None = None,
    key: Array | None = None,
    begin: Any = 0.0,
    max_steps: int = 4096,
    adjoint: str = "recursive_checkpoint",
) -> Measure:
    """The measure at time `end`: one pure function of flow and start, to be differentiated, vmapped and jitted.

    `adjoint` chooses how derivatives are taken: "recursive_checkpoint" (reverse mode), "direct" (both modes),
    "forward" (forward mode), "backsolve" (the continuous adjoint).
    """
    measure = as_start(start)
    flow.geometry.check_contains(measure.points)
    dtype = measure.points.dtype
    method = make_method(flow, measure, rtol, atol, step, solver, max_steps, float("nan"), key)
    numbers = make_numbers(dtype, rtol, atol, step, begin, key, None)
    points = final_state(
        replace(method, adjoint=adjoint), flow, measure, jnp.asarray(begin, dtype), jnp.asarray(end, dtype), numbers
    )
    return measure.with_points(points)


def run_plan(plan: Plan, resumed: Progress | None = None) -> Iterator[Frames]:
    """Run a plan from its start, or from where a checkpoint left it."""
    progress = resumed or _at_start(plan)
    if plan.runs is None and not np.isnan(progress.ended):
        progress, frames = _nothing_to_do(plan, progress)
        yield frames
    while progress.frames < len(plan.times) and progress.status == "running":
        times, wanted = plan.window_times(progress.frames)
        go_on = _one_window if plan.runs is None else ensemble_window
        frames = go_on(plan, progress, times, wanted)
        progress = frames.progress
        yield frames
    if progress.status == "failed":
        raise RunError(progress.message)


def _at_start(plan: Plan) -> Progress:
    state = np.asarray(plan.start.points)
    runs = () if plan.runs is None else (plan.runs,)
    counts = np.zeros(runs, np.int64)
    return Progress(
        state=state, proposed=np.zeros(runs, state.dtype), frames=0, accepted=counts, rejected=counts,
        evaluations=counts, ended=_already_ended(plan), time=float(plan.times[0]), status="running", message=None,
    )  # fmt: skip


def _already_ended(plan: Plan) -> np.ndarray:
    """The first time for runs whose event has already happened at the start, NaN for all others."""
    event = plan.event
    if event is None:
        return np.full(() if plan.runs is None else (plan.runs,), np.nan)

    def holds(flow: Flow, start: Measure) -> Array:
        return event.has_happened(flow, jnp.asarray(plan.times[0], plan.dtype), start)

    over_runs = (eqx.if_array(0) if plan.flow_per_run else None, eqx.if_array(0))
    held = (holds if plan.runs is None else eqx.filter_vmap(holds, in_axes=over_runs))(plan.flow, plan.start)
    return np.where(np.asarray(held), float(plan.times[0]), np.nan)


def _nothing_to_do(plan: Plan, progress: Progress) -> tuple[Progress, Frames]:
    """The one frame of a run whose event has already happened."""
    message = plan.event.describe() if plan.event else None
    ended = progress._replace(frames=1, status="stopped by event", message=message)
    time = jnp.asarray(plan.times[0], plan.dtype)
    seen = compiled_frame(plan.observe, plan.flow, plan.start, jnp.asarray(progress.state), time)
    arrays = {name: np.asarray(values)[None] for name, values in seen.items()}
    return ended, Frames(0, plan.times[:1], arrays.pop("points"), arrays, ended)


_solve_one = eqx.filter_jit(solve_window)


def _one_window(plan: Plan, before: Progress, times: np.ndarray, wanted: int) -> Frames:
    """The frames of a window of one run; those after an event or a failure are left away."""
    result = _solve_one(
        plan.method, plan.observe, plan.event, plan.flow, plan.start, jnp.asarray(before.state),
        plan.window_begin(before.frames), jnp.asarray(times, plan.dtype), jnp.asarray(before.proposed), plan.numbers,
    )  # fmt: skip
    times = np.asarray(result.times)
    end = float(result.end_time)
    kept = wanted if bool(result.succeeded) else int(np.sum(times[:wanted] <= end))
    points = np.asarray(result.points)[:kept]
    observables = {name: np.asarray(values)[:kept] for name, values in result.observables.items()}
    kept_times = times[:kept]
    status, message = "running", None
    if bool(result.stopped_by_event):
        status, message = "stopped by event", plan.event.describe() if plan.event else None
        if not kept or kept_times[-1] < end:
            last = compiled_frame(plan.observe, plan.flow, plan.start, result.state, result.end_time)
            kept_times = np.append(kept_times, times.dtype.type(end))
            points = np.concatenate([points, np.asarray(last.pop("points"))[None]])
            observables = {n: np.concatenate([v, np.asarray(last[n])[None]]) for n, v in observables.items()}
    elif not bool(result.succeeded):
        status, message = "failed", _explain_failure(plan, result)
    elif before.frames + kept >= len(plan.times):
        status = "finished"
    progress = Progress(
        state=np.asarray(result.state),
        proposed=np.asarray(result.proposed),
        frames=before.frames + len(kept_times),
        accepted=before.accepted + np.asarray(result.accepted),
        rejected=before.rejected + np.asarray(result.rejected),
        evaluations=before.evaluations + np.asarray(result.evaluations),
        ended=np.asarray(end if status == "stopped by event" else np.nan),
        time=end,
        status=status,
        message=message,
    )
    return Frames(before.frames, kept_times, points, observables, progress)


def _explain_failure(plan: Plan, result: Window) -> str:
    """Name the time, the particle that moves fastest, and what may help."""
    state = np.asarray(result.state)
    velocity = np.asarray(plan.flow.velocity(result.end_time, result.state, plan.start))
    speeds = np.linalg.norm(np.where(np.isfinite(velocity), velocity, np.inf), axis=1)
    broken = np.flatnonzero(~np.isfinite(state).all(axis=1))
    particle = int(broken[0]) if broken.size else int(np.argmax(speeds))
    place = f"t = {float(result.end_time):.10g}, particle {particle}"
    if bool(result.ran_out_of_steps):
        return (
            f"The run needs more than {plan.method.max_steps} steps in one window at {place} (speed "
            f"{speeds[particle]:.3g}). If it is stiff, use solver = 'kvaerno5'; otherwise raise max_steps."
        )
    return (
        f"The run blew up at {place}: its speed is {speeds[particle]:.3g} and its distance from the origin "
        f"{np.linalg.norm(state[particle]):.3g}, and no step is small enough. All frames before are kept."
    )
