"""The loop over windows: the same for one run and for many.

Every array of a run's progress has a leading axis of runs, one long for a single run. A run of an ensemble that met its
event stands still from then on, one that failed is NaN, and the others go on, but the ensemble as a whole has failed;
a single run ends with its event, or fails with an error that names time and particle. No run is finished with a field
that is not finite in any frame. Between two windows a discretization may go on with a state of other shapes.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow.approximation import Summed, joined, solved_within_tolerance
from particleflow.compilation_cache import collector_at_rest, without_callbacks
from particleflow.discretization import Present
from particleflow.discretization.base import POINTS
from particleflow.ensemble import solve_runs
from particleflow.errors import RunError
from particleflow.events import AbstractEvent
from particleflow.fingerprint import brings_code
from particleflow.integrate import MAP, Window, compiled_frame
from particleflow.plan import EVENT_TIME, Plan
from particleflow.status import Status

_EXPLAINED = 3  # so many failing runs of one window are explained in full


class Progress(NamedTuple):
    """Where a run is after a window: what a checkpoint holds and what a progress bar shows.

    `state` and the arrays after it have a leading axis of runs; `ended` is when a run met its event, else NaN; `sums`
    says what was chosen, and since when, where a tolerance allows approximations.
    """

    state: Any
    proposed: np.ndarray
    accepted: np.ndarray
    rejected: np.ndarray
    evaluations: np.ndarray
    ended: np.ndarray
    failed: np.ndarray
    frames: int
    time: float
    status: Status
    message: str | None
    sums: tuple[Summed, ...] = ()


class Frames(NamedTuple):
    """The frames of one window, as NumPy arrays (time first, then runs if there are many), and how the run stands.

    `pairs` is how many pairs of points its fields have summed over, for particles that look at each other.
    """

    first: int
    times: np.ndarray
    fields: dict[str, np.ndarray]
    observables: dict[str, np.ndarray]
    progress: Progress
    pairs: int

    @property
    def points(self) -> np.ndarray | None:
        """The points of every frame, None where they never move."""
        return self.fields.get(POINTS)


def run_plan(plan: Plan, resumed: Progress | None = None) -> Iterator[Frames]:
    """Run a plan from its start, or from where a checkpoint left it."""
    progress = resumed or at_start(plan)
    begun = progress.frames
    keep = not brings_code(plan)  # what calls back into Python is no program that another process could read
    while progress.frames < len(plan.times) and progress.status == Status.RUNNING:
        first = progress.frames == begun  # its program is traced
        with without_callbacks(active=keep), collector_at_rest(active=first):
            frames = _next_window(plan, progress)
        progress = frames.progress
        yield frames
    if progress.status == Status.FAILED and plan.runs is None:
        raise RunError(progress.message)


def _carried_on(plan: Plan, after: Progress) -> Progress:
    """The progress that the next window begins with: runs that still go may be carried by another state.

    Where that alone would step over the event of a run, which then nobody would see, the run keeps its state for now.
    """
    if plan.discretization.resolution() == 0 or after.status != Status.RUNNING:
        return after
    how, time = plan.discretization, jnp.asarray(after.time, plan.dtype)
    layer = float(plan.numbers.step) if plan.method.solver == MAP else None
    goes = ~after.failed & np.isnan(after.ended)
    before = [_of_run(after.state, run) for run in range(len(goes))]
    found = [
        how.between(plan.flow_of(run), time, state, layer) if goes[run] else state for run, state in enumerate(before)
    ]
    if all(new is old for new, old in zip(found, before, strict=True)):
        return after
    states = how.alike(found)
    if plan.event is not None:
        sides = [[_side(plan, run, each[run], time) for run in range(len(goes))] for each in (before, states)]
        kept = [old if one != other else new for old, new, one, other in zip(before, found, *sides, strict=True)]
        states = how.alike(kept)
    return after._replace(state=jax.tree_util.tree_map(lambda *leaves: np.stack(leaves), *states))


def _side(plan: Plan, run: int, state: Any, time: Array) -> float:
    """On which side of its event a run is."""
    assert plan.event is not None
    return float(np.sign(_level(plan.event, plan.present(run, state, time))))


@eqx.filter_jit
def _level(event: AbstractEvent, present: Present) -> Array:
    return event.level(present)


def at_start(plan: Plan) -> Progress:
    """The progress of runs that have not begun; some may have met their event already."""
    runs = plan.runs or 1
    counts = np.zeros(runs, np.int64)
    state = jax.tree_util.tree_map(np.asarray, plan.begin())
    return Progress(
        state=state, proposed=np.zeros(runs, plan.times.dtype), accepted=counts, rejected=counts, evaluations=counts,
        ended=_already_ended(plan, state), failed=np.zeros(runs, bool), frames=0, time=float(plan.times[0]),
        status=Status.RUNNING, message=None,
    )  # fmt: skip


def _already_ended(plan: Plan, state: Any) -> np.ndarray:
    """The first time for runs whose event has already happened at the start, NaN for all others."""
    event, runs = plan.event, plan.runs or 1
    if event is None:
        return np.full(runs, np.nan)

    def holds(flow: Any, state: Any) -> Any:
        return event.has_happened(plan.present(0, state, plan.times[0], flow=flow))

    held = [holds(plan.flow, _of_run(state, 0))] if plan.runs is None else plan.over_runs(holds)(plan.flow, state)
    return np.where(np.asarray(held), float(plan.times[0]), np.nan)


def _next_window(plan: Plan, before: Progress) -> Frames:
    """Solve the next window, settle how each run stands after it, and hold still those that have ended."""
    filled, wanted = plan.window_times(before.frames)
    over = before.failed | ~np.isnan(before.ended)
    times = plan.times[before.frames : before.frames + wanted]
    reached = np.zeros((len(over), wanted), bool)
    if over.all():
        after, window = before, None
    else:

        def solve(chosen: Plan) -> Window:
            return solve_runs(chosen, before.frames, filled, _without(before.state, over), before.proposed)

        plan, window, summed = solved_within_tolerance(plan, before.frames, before.state, solve)
        before = before._replace(sums=joined(before.sums, summed))
        shown = np.isfinite(np.asarray(window.times)[:, :wanted]) & ~over[:, None]
        reached = shown & np.logical_and.accumulate(_finite_frames(window, wanted), axis=1)
        broken = shown & ~reached
        after = _settled(plan, before, _ended_at(window, times, broken), np.any(broken, axis=1))
    fields, observables = _frames(plan, after, window, reached, times)
    last = before.frames + wanted >= len(plan.times)
    end = Status.FAILED if after.failed.any() else Status.FINISHED
    after = after._replace(frames=before.frames + wanted, time=float(times[-1]), status=end if last else Status.RUNNING)
    if plan.event is not None and plan.runs is not None:
        observables[EVENT_TIME] = np.where(times >= after.ended[:, None], after.ended[:, None], np.nan)
    pairs = int(np.sum(after.evaluations - before.evaluations)) * plan.carrying(before.state)[0] ** 2
    if plan.runs is None:
        times = times[: reached.sum()] if after.failed[0] else times
        found = _cut(plan, before.frames, times, fields, observables, after, pairs)
        return found._replace(progress=_carried_on(plan, found.progress))
    fields, observables = (
        {name: np.swapaxes(values, 0, 1) for name, values in each.items()} for each in (fields, observables)
    )
    return Frames(before.frames, times, fields, observables, _carried_on(plan, after), pairs)


def _finite_frames(window: Window, wanted: int) -> np.ndarray:
    """Which frames hold finite fields only (runs first)."""
    finite = [np.isfinite(values[:, :wanted]) for values in map(np.asarray, window.fields.values())]
    return np.logical_and.reduce([each.all(axis=tuple(range(2, each.ndim))) for each in finite])


def _ended_at(window: Window, times: np.ndarray, broken: np.ndarray) -> Window:
    """The window, with the first frame that is broken as the end of a run."""
    if not broken.any():
        return window
    ends = np.where(broken.any(axis=1), times[np.argmax(broken, axis=1)], np.asarray(window.end_time))
    return replace(window, end_time=ends)  # pyright: ignore[reportArgumentType]


def _settled(plan: Plan, before: Progress, window: Window, broken: np.ndarray) -> Progress:
    """Who has met its event or failed in this window; those who had before stay as they were.

    `broken` are the runs with a frame that is not finite: a finite state may have no finite point to show.
    """
    on = ~before.failed & np.isnan(before.ended)
    stopped = on & np.asarray(window.stopped_by_event) & ~broken
    lost = on & ~np.asarray(window.succeeded) & ~stopped | broken

    def kept(new: Any, old: Any) -> np.ndarray:
        new, old = np.asarray(new), np.asarray(old)
        return np.where(on.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

    said = [] if before.message is None else [before.message]
    return before._replace(
        state=jax.tree_util.tree_map(kept, window.state, before.state),
        proposed=kept(window.proposed, before.proposed),
        accepted=before.accepted + kept(window.accepted, 0),
        rejected=before.rejected + kept(window.rejected, 0),
        evaluations=before.evaluations + kept(window.evaluations, 0),
        ended=np.where(stopped, np.asarray(window.end_time, float), before.ended),
        failed=before.failed | lost,
        message="; ".join(said + _explained(plan, window, lost)) or None,
    )


def _frames(
    plan: Plan, after: Progress, window: Window | None, reached: np.ndarray, times: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The frames of all runs (runs first); after its end a run shows the state it ended in, NaN after a failure."""
    runs, wanted = reached.shape
    if window is None:
        one = compiled_frame(plan.observe, plan.present(0, _of_run(after.state, 0), times[0]))
        saved: Any = jax.tree_util.tree_map(lambda leaf: np.zeros((runs, wanted, *leaf.shape), leaf.dtype), one)
    else:
        saved = jax.tree_util.tree_map(lambda leaf: np.asarray(leaf)[:, :wanted], (window.fields, window.observables))
    ended = np.flatnonzero(~reached.all(axis=1))
    if len(ended):
        saved = jax.tree_util.tree_map(np.array, saved)
    for run in map(int, ended):
        time = times[0] if np.isnan(after.ended[run]) else after.ended[run]
        still = compiled_frame(plan.observe, plan.present(run, _of_run(after.state, run), time))
        for values, held in zip(jax.tree_util.tree_leaves(saved), jax.tree_util.tree_leaves(still), strict=True):
            values[run][~reached[run]] = np.nan if after.failed[run] else np.asarray(held)
    return saved


def _cut(
    plan: Plan, first: int, times: np.ndarray, fields: Any, observables: Any, after: Progress, pairs: int
) -> Frames:
    """The frames of a single run, up to its event or failure."""
    end = float(after.ended[0])
    if after.failed[0]:
        after = after._replace(status=Status.FAILED)
    elif not np.isnan(end):
        before = times[times <= end]
        times = before if len(before) and before[-1] == end else np.append(before, times.dtype.type(end))
        message = plan.event.describe() if plan.event else None
        after = after._replace(status=Status.STOPPED, message=message, time=end)
    kept = len(times)
    fields, observables = ({name: values[0][:kept] for name, values in each.items()} for each in (fields, observables))
    return Frames(first, times, fields, observables, after._replace(frames=first + kept), pairs)


def _explained(plan: Plan, window: Window, lost: np.ndarray) -> list[str]:
    """Why runs failed in this window: time, the particle that moves fastest, and what may help."""
    out_of_steps, times = np.asarray(window.ran_out_of_steps), np.asarray(window.end_time)
    said = []
    for place, run in enumerate(np.flatnonzero(lost)):
        who = "The run" if plan.runs is None else f"run {run}"
        what = "ran out of steps" if out_of_steps[run] else "blew up"
        if place < _EXPLAINED:
            said.append(_explanation(plan, window, int(run), who))
        else:
            said.append(f"{who} {what} at t = {times[run]:.10g}")
    return said


def _explanation(plan: Plan, window: Window, run: int, who: str) -> str:
    time = float(np.asarray(window.end_time)[run])
    present = plan.present(run, _of_run(window.state, run), time)
    points, rate = map(np.asarray, _motion(plan.method.solver, plan.numbers.step.astype(plan.dtype), present))
    speeds = _lengths(np.where(np.isfinite(rate), rate, np.inf))
    broken = np.flatnonzero(~np.isfinite(points).all(axis=1))
    particle = int(broken[0]) if broken.size else int(np.argmax(speeds))
    place = f"t = {time:.10g}, particle {particle}"
    if bool(np.asarray(window.ran_out_of_steps)[run]):
        stiff = "" if plan.discretization.solvers() else "If it is stiff, use solver = 'kvaerno5'; otherwise raise"
        return (
            f"{who} needs more than {plan.method.max_steps} steps in one window at {place} (speed "
            f"{speeds[particle]:.3g}). {stiff or 'Take fewer cells, more frames, or raise'} max_steps."
        )
    if not broken.size and (trouble := _trouble(present, moves=bool(np.isfinite(rate).all()))):
        return f"{who} cannot go on at t = {time:.10g}: {trouble} All frames before are kept."
    step = float(plan.numbers.step)
    why = "no step is small enough" if plan.method.adaptive else f"after a step of {step:g} it is not finite"
    why = "its point is not finite" if broken.size else why
    return (
        f"{who} blew up at {place}: its speed is {speeds[particle]:.3g} and its distance from the origin "
        f"{_lengths(points[[particle]])[0]:.3g}, and {why}. All frames before are kept."
    )


def _trouble(present: Present, *, moves: bool) -> str | None:
    """What is said of a state that is finite but does not go on, by itself or, unless it `moves`, by interactions."""
    told = present.discretization.trouble(present.flow, present.time, present.state)
    if told or moves:
        return told
    said = (each.trouble(present.seen) for each in present.flow.interactions(present.time))
    return next(filter(None, said), None)


def _lengths(rows: np.ndarray) -> np.ndarray:
    """|x| of every row, also where |x|² overflows."""
    largest = np.max(np.abs(rows), axis=1)
    scale = np.where(np.isfinite(largest) & (largest > 0), largest, 1.0)
    return scale * np.linalg.norm(rows / scale[:, None], axis=1)


@eqx.filter_jit  # a measure that is looked at outside of a program must be finite
def _motion(solver: str, size: Array, present: Present) -> tuple[Array, Array]:
    """The points and how they move; of a map, which need not have a velocity, what a layer changes in unit time."""
    points = present.measure.points
    if solver != MAP:
        return points, present.velocity
    flow, how, time = present.flow, present.discretization, present.time
    after = how.measure(flow, time, how.step(flow, time, present.state, size))
    return points, (after.points - points) / size


def _of_run(state: Any, run: int) -> Any:
    return jax.tree_util.tree_map(lambda leaf: leaf[run], state)


def _without(state: Any, over: np.ndarray) -> Any:
    """The states with NaN for runs that are over: a solver gives them up at once."""
    if not over.any():
        return state

    def blank(leaf: np.ndarray) -> np.ndarray:
        shown = over.reshape(-1, *(1,) * (leaf.ndim - 1))
        return np.where(shown, np.asarray(np.nan, leaf.dtype), leaf) if leaf.dtype.kind == "f" else leaf

    return jax.tree_util.tree_map(blank, state)
