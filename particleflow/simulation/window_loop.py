"""The loop over windows: choose the sums, solve, check, hand on; the same for one run and for many.

Every array of a run's progress has a leading axis of runs, of length one for a single run. In an ensemble a run keeps
its last state after its event; a run that fails is NaN from then on, and the others go on, but the ensemble has failed.
A single run ends with its event, or fails with an error that names time and particle. A run with a frame that is not
finite has failed, even if its solver has not. Between two windows a discretization may change the shapes of the state.
A window of a large cloud may end between two frames (`Plan.passing`); the next one begins at that time.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow.discretization import Present
from particleflow.discretization.base import POINTS
from particleflow.discretization.discretization_capabilities import Coalescing
from particleflow.errors import RunError
from particleflow.simulation.ensemble import solve_runs, state_of_run
from particleflow.simulation.events import AbstractEvent
from particleflow.simulation.failure_messages import explained
from particleflow.simulation.plan import EVENT_TIME, Plan, WindowTimes
from particleflow.simulation.stepping import MAP, SolvedWindow, compiled_frame
from particleflow.simulation.summation_choice import Summed, choose_sums, joined
from particleflow.trajectory.status import Status


class RunProgress(NamedTuple):
    """Where a run is after a window: what a checkpoint holds and what a progress bar shows.

    `state` and the arrays after it have a leading axis of runs; `time` is that of the state, which may be later than
    the last of so many `frames`; `ended` is when a run met its event, else NaN; `sums` lists the methods chosen, with
    the times they were chosen at, where a tolerance allows approximations; `solvers` lists the solvers in order of
    their first window, with the number of windows that each has solved. `step_error` compares the first of fixed
    steps with two of half its size, see `_step_error`.
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
    solvers: tuple[tuple[str, int], ...] = ()
    step_error: float | None = None


class Frames(NamedTuple):
    """The frames of one window, as NumPy arrays (time first, then runs if there are many), and how the run stands.

    `pairs` is the number of field evaluations times the square of the number of points.
    """

    first: int
    times: np.ndarray
    fields: dict[str, np.ndarray]
    observables: dict[str, np.ndarray]
    progress: RunProgress
    pairs: int

    @property
    def points(self) -> np.ndarray | None:
        """The points of every frame, None where they never move."""
        return self.fields.get(POINTS)


def run_plan(plan: Plan, resumed: RunProgress | None = None) -> Iterator[Frames]:
    """Run a plan from its start, or from where a checkpoint left it."""
    progress = resumed or at_start(plan)
    while progress.frames < len(plan.times) and progress.status == Status.RUNNING:
        frames = _next_window(plan, progress)
        progress = frames.progress
        yield frames
    if progress.status == Status.FAILED and plan.runs is None:
        raise RunError(progress.message)


def _carried_on(plan: Plan, after: RunProgress) -> RunProgress:
    """The progress that the next window begins with: a discretization may merge the points of running states.

    A run whose event level would change its sign by that alone, so that the event was missed, keeps its state for now.
    """
    how, time = plan.discretization, jnp.asarray(after.time, plan.dtype)
    if not isinstance(how, Coalescing) or how.resolution() == 0 or after.status != Status.RUNNING:
        return after
    layer = float(plan.numbers.step) if plan.method.solver == MAP else None
    goes = ~after.failed & np.isnan(after.ended)
    before = [state_of_run(after.state, run) for run in range(len(goes))]
    found = [
        how.after_window(plan.flow_of(run), time, state, layer) if goes[run] else state
        for run, state in enumerate(before)
    ]
    if all(new is old for new, old in zip(found, before, strict=True)):
        return after
    states = how.pad_states(found)
    if plan.event is not None:
        sides = [[_side(plan, run, each[run], time) for run in range(len(goes))] for each in (before, states)]
        kept = [old if one != other else new for old, new, one, other in zip(before, found, *sides, strict=True)]
        states = how.pad_states(kept)
    return after._replace(state=jax.tree_util.tree_map(lambda *leaves: np.stack(leaves), *states))


def _side(plan: Plan, run: int, state: Any, time: Array) -> float:
    """The sign of the event's level for a run in a state."""
    assert plan.event is not None
    return float(np.sign(_level(plan.event, plan.present(run, state, time))))


@eqx.filter_jit
def _level(event: AbstractEvent, present: Present) -> Array:
    """The level of an event, as one compiled program."""
    return event.level(present)


def at_start(plan: Plan) -> RunProgress:
    """The progress of runs that have not begun; some may have met their event already."""
    runs = plan.runs or 1
    counts = np.zeros(runs, np.int64)
    state = jax.tree_util.tree_map(np.asarray, plan.begin())
    return RunProgress(
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

    held = [holds(plan.flow, state_of_run(state, 0))] if plan.runs is None else plan.over_runs(holds)(plan.flow, state)
    return np.where(np.asarray(held), float(plan.times[0]), np.nan)


def _next_window(plan: Plan, before: RunProgress) -> Frames:
    """Solve the next window, mark the runs that ended or failed, and repeat the last states of those that ended."""
    asked = plan.window_times(before.frames)
    times = asked.times[: asked.frames]
    if (before.failed | ~np.isnan(before.ended)).all():
        after, window, reached = before, None, np.zeros((len(before.failed), asked.frames), bool)
    else:
        plan, window, progress = _solved(plan, before, asked)
        times = times[: _passed(window, asked)]
        reached, broken = _reached(before, window, len(times))
        ended = _ended_at(window, times, broken)
        after = _settled(plan, progress, ended, np.any(broken, axis=1))
        if before.frames == 0:
            after = after._replace(step_error=_step_error(plan, before.state))
    fields, observables = _frames(plan, after, window, reached, times)
    after = _advanced(plan, after, times)
    if asked.passing is not None and window is not None:
        after = after._replace(time=float(np.asarray(window.end_time)[0]))
    pairs = int(np.sum(after.evaluations - before.evaluations)) * plan.carrying(before.state)[0] ** 2
    if plan.runs is None:
        if window is not None and after.failed[0]:
            times, after = times[: reached.sum()], after._replace(time=float(np.asarray(window.end_time)[0]))
        found = _cut(plan, before.frames, times, fields, observables, after, pairs)
    else:
        found = _of_all_runs(plan, before.frames, times, fields, observables, after, pairs)
    return found._replace(progress=_carried_on(plan, found.progress))


def _passed(window: SolvedWindow, asked: WindowTimes) -> int:
    """The number of frames of a window: all, or those up to the end of its last step if it ended between frames."""
    if asked.passing is None or not np.asarray(window.succeeded)[0]:
        return asked.frames
    return int(np.isfinite(np.asarray(window.times)[0, : asked.frames]).sum())


def _solved(plan: Plan, before: RunProgress, asked: WindowTimes) -> tuple[Plan, SolvedWindow, RunProgress]:
    """The plan that the next window was solved with, the window, and the progress before it with its sums and solver.

    Where a tolerance allows approximations they are chosen, and the window is solved again while one of them fails.
    """
    over = before.failed | ~np.isnan(before.ended)
    state = _without(before.state, over)
    if not plan.approximates:
        window, solver = solve_runs(plan, before.time, asked, state, before.proposed)
        return plan, window, before._replace(solvers=_one_more(before.solvers, solver))
    passed: dict[int, int] = {}
    while True:
        trial = choose_sums(plan, before.frames, before.time, before.state, passed)
        window, solver = solve_runs(trial.plan, before.time, asked, state, before.proposed)
        failed, summed = trial.after(window)
        if not failed:
            solvers = _one_more(before.solvers, solver)
            return trial.plan, window, before._replace(sums=joined(before.sums, summed), solvers=solvers)
        passed |= failed


def _one_more(solvers: tuple[tuple[str, int], ...], solver: str) -> tuple[tuple[str, int], ...]:
    """The solvers and the number of windows of each, with one more window of this solver."""
    counts = dict(solvers)
    return tuple((counts | {solver: counts.get(solver, 0) + 1}).items())


def _step_error(plan: Plan, state: Any) -> float | None:
    """The largest change of a number in a frame if the first step is taken as two of half its size, over all runs.

    None for adaptive steps, for maps, whose steps are no approximation, for noise, which smaller steps draw anew, and
    where the step is not finite.
    The steps are windows of the run's own shape, so that no other program is compiled.
    """
    if plan.method.adaptive or plan.method.noisy or plan.method.solver == MAP or len(plan.times) == 1:
        return None
    step, nothing = float(plan.numbers.step), np.zeros(plan.runs or 1, plan.times.dtype)
    begin = float(plan.times[0])
    end = WindowTimes(np.full(plan.window, plan.times[0] + step), plan.window, None)
    halved = replace(plan, numbers=plan.numbers._replace(step=plan.numbers.step / 2))
    whole, half = (solve_runs(each, begin, end, state, nothing)[0].fields for each in (plan, halved))
    with np.errstate(invalid="ignore"):  # frames of a run that blows up
        changes = [np.max(np.abs(np.asarray(whole[name]) - np.asarray(half[name]))[:, 0]) for name in whole]
    change = float(np.max(changes))  # NaN if any is
    return float(f"{change:.3g}") if np.isfinite(change) else None


def _reached(before: RunProgress, window: SolvedWindow, wanted: int) -> tuple[np.ndarray, np.ndarray]:
    """Which frames each run has reached with finite fields, and which not, or after such (runs first)."""
    over = before.failed | ~np.isnan(before.ended)
    shown = np.isfinite(np.asarray(window.times)[:, :wanted]) & ~over[:, None]
    reached = shown & np.logical_and.accumulate(_finite_frames(window, wanted), axis=1)
    return reached, shown & ~reached


def _advanced(plan: Plan, after: RunProgress, times: np.ndarray) -> RunProgress:
    """The progress after these frames; after the last ones it is finished, or failed if any run has failed."""
    frames = after.frames + len(times)
    end = Status.FAILED if after.failed.any() else Status.FINISHED
    status = end if frames >= len(plan.times) else Status.RUNNING
    return after._replace(frames=frames, time=float(times[-1]), status=status)


def _of_all_runs(
    plan: Plan, first: int, times: np.ndarray, fields: Any, observables: Any, after: RunProgress, pairs: int
) -> Frames:
    """The frames of an ensemble, times first; with an event an observable holds the time at which each run stopped."""
    if plan.event is not None:
        observables[EVENT_TIME] = np.where(times >= after.ended[:, None], after.ended[:, None], np.nan)
    fields, observables = (
        {name: np.swapaxes(values, 0, 1) for name, values in each.items()} for each in (fields, observables)
    )
    return Frames(first, times, fields, observables, after, pairs)


def _finite_frames(window: SolvedWindow, wanted: int) -> np.ndarray:
    """Which frames hold finite fields only (runs first)."""
    finite = [np.isfinite(values[:, :wanted]) for values in map(np.asarray, window.fields.values())]
    return np.logical_and.reduce([each.all(axis=tuple(range(2, each.ndim))) for each in finite])


def _ended_at(window: SolvedWindow, times: np.ndarray, broken: np.ndarray) -> SolvedWindow:
    """The window, where runs with a frame that is not finite end at the first such frame."""
    if not broken.any():
        return window
    ends = np.where(broken.any(axis=1), times[np.argmax(broken, axis=1)], np.asarray(window.end_time))
    return replace(window, end_time=ends)  # pyright: ignore[reportArgumentType]


def _settled(plan: Plan, before: RunProgress, window: SolvedWindow, broken: np.ndarray) -> RunProgress:
    """The progress after a window, with the runs that stopped or failed in it; runs that had ended keep their states.

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
        message="; ".join(said + explained(plan, window, lost)) or None,
    )


def _frames(
    plan: Plan, after: RunProgress, window: SolvedWindow | None, reached: np.ndarray, times: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The frames of all runs (runs first); after its end a run shows the state it ended in, NaN after a failure."""
    runs, wanted = reached.shape
    if window is None:
        one = compiled_frame(plan.observe, plan.present(0, state_of_run(after.state, 0), times[0]))
        saved: Any = jax.tree_util.tree_map(lambda leaf: np.zeros((runs, wanted, *leaf.shape), leaf.dtype), one)
    else:
        saved = jax.tree_util.tree_map(lambda leaf: np.asarray(leaf)[:, :wanted], (window.fields, window.observables))
    ended = np.flatnonzero(~reached.all(axis=1))
    if len(ended):
        saved = jax.tree_util.tree_map(np.array, saved)
    for run in map(int, ended):
        time = times[0] if np.isnan(after.ended[run]) else after.ended[run]
        still = compiled_frame(plan.observe, plan.present(run, state_of_run(after.state, run), time))
        for values, held in zip(jax.tree_util.tree_leaves(saved), jax.tree_util.tree_leaves(still), strict=True):
            values[run][~reached[run]] = np.nan if after.failed[run] else np.asarray(held)
    return saved


def _cut(
    plan: Plan, first: int, times: np.ndarray, fields: Any, observables: Any, after: RunProgress, pairs: int
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


def _without(state: Any, over: np.ndarray) -> Any:
    """The states with NaN for runs that are over, so that the solver ends these at once."""
    if not over.any():
        return state

    def blank(leaf: np.ndarray) -> np.ndarray:
        shown = over.reshape(-1, *(1,) * (leaf.ndim - 1))
        return np.where(shown, np.asarray(np.nan, leaf.dtype), leaf) if leaf.dtype.kind == "f" else leaf

    return jax.tree_util.tree_map(blank, state)
