"""Why a run failed: when, at which particle, how fast it moved, and what may help."""

import equinox as eqx
import numpy as np
from jaxtyping import Array

from particleflow.discretization import Present
from particleflow.discretization.discretization_capabilities import BoundedSteps, Diagnosable
from particleflow.simulation.ensemble import state_of_run
from particleflow.simulation.plan import Plan
from particleflow.simulation.stepping import MAP, SolvedWindow

_EXPLAINED = 3  # failing runs of one window that are explained in full; of others, the time alone


def explained(plan: Plan, window: SolvedWindow, lost: np.ndarray) -> list[str]:
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


def _explanation(plan: Plan, window: SolvedWindow, run: int, who: str) -> str:
    """A sentence or two on one failed run, from the state in which it ended."""
    time = float(np.asarray(window.end_time)[run])
    present = plan.present(run, state_of_run(window.state, run), time)
    points, rate = map(np.asarray, _motion(plan.method.solver, plan.numbers.step.astype(plan.dtype), present))
    speeds = _lengths(np.where(np.isfinite(rate), rate, np.inf))
    broken = np.flatnonzero(~np.isfinite(points).all(axis=1))
    particle = int(broken[0]) if broken.size else int(np.argmax(speeds))
    place = f"t = {time:.10g}, particle {particle}"
    if bool(np.asarray(window.ran_out_of_steps)[run]):
        return f"{who} {_out_of_steps(plan, place, speeds[particle])}"
    if not broken.size and (trouble := _diagnosis(present, moves=bool(np.isfinite(rate).all()))):
        return f"{who} cannot go on at t = {time:.10g}: {trouble} All frames before are kept."
    step = float(plan.numbers.step)
    why = "no step is small enough" if plan.method.adaptive else f"after a step of {step:g} it is not finite"
    why = "its point is not finite" if broken.size else why
    return (
        f"{who} blew up at {place}: its speed is {speeds[particle]:.3g} and its distance from the origin "
        f"{_lengths(points[[particle]])[0]:.3g}, and {why}. All frames before are kept."
    )


def _out_of_steps(plan: Plan, place: str, speed: float) -> str:
    """The message on a run that was not allowed enough steps; those of densities depend on the size of cells."""
    bounded = isinstance(plan.discretization, BoundedSteps)
    advice = "Take fewer cells, more frames, or raise max_steps." if bounded else plan.method.step_limit_advice
    return f"needs more than {plan.method.max_steps} steps in one window at {place} (speed {speed:.3g}). {advice}"


def _diagnosis(present: Present, *, moves: bool) -> str | None:
    """Diagnose a finite state that cannot advance: by the discretization or, unless it `moves`, by interactions."""
    how = present.discretization
    told = how.diagnose(present.flow, present.time, present.state) if isinstance(how, Diagnosable) else None
    if told or moves:
        return told
    said = (each.diagnose(present.observed) for each in present.flow.interactions(present.time))
    return next(filter(None, said), None)


def _lengths(rows: np.ndarray) -> np.ndarray:
    """|x| of every row, also where |x|² overflows."""
    largest = np.max(np.abs(rows), axis=1)
    scale = np.where(np.isfinite(largest) & (largest > 0), largest, 1.0)
    return scale * np.linalg.norm(rows / scale[:, None], axis=1)


@eqx.filter_jit  # outside of a compiled program a `Measure` refuses points that are not finite
def _motion(solver: str, size: Array, present: Present) -> tuple[Array, Array]:
    """The points and their velocities; for a map, which may have no velocity, the change by a layer over its size."""
    points = present.measure.points
    if solver != MAP:
        return points, present.velocity
    flow, how, time = present.flow, present.discretization, present.time
    after = how.measure(flow, time, how.step(flow, time, present.state, size))
    return points, (after.points - points) / size
