"""Hysteresis: a number of a run while a parameter goes up and down in steps, one mean a step."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from particleflow.analysis.reading import FloatArray, first_run
from particleflow.errors import ShapeError
from particleflow.trajectory.facts import Schedule

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

_STEADY = 1e-9  # of the range of a schedule: a piece whose values differ by less is a step


class StepMeans(NamedTuple):
    """The steps of a schedule: the `values` of its parameter, the `means` and `deviations` of a number over the second
    half of each step, and the index of the step at the `top`, the last of those that go up and the first of those that
    go down."""

    values: FloatArray
    means: FloatArray
    deviations: FloatArray
    top: int


def up_and_down(trajectory: "Trajectory") -> Schedule | None:
    """The schedule of a run that goes up in steps and then down in steps, each seen by two frames; None for others."""
    run = first_run(trajectory)
    schedule = run.facts.schedule
    if schedule is None:
        return None
    pieces = _pieces(run, schedule)
    values = np.array([value for _, _, value in pieces if value is not None])
    if len(values) < 3 or len(values) < len(pieces):
        return None
    top, changes = int(values.argmax()), np.diff(values)
    turns = 0 < top < len(values) - 1 and (changes[:top] > 0).all() and (changes[top:] < 0).all()
    seen = all(_second_half(run, begin, end).sum() >= 2 for begin, end, _ in pieces)
    return schedule if turns and seen else None


def step_means(trajectory: "Trajectory", series: ArrayLike) -> StepMeans:
    """Means and standard deviations of a number over the second half of every step, where the run has settled.

    trajectory: a run for which `up_and_down` is not None; series: (T,), the number in every frame.
    """
    run, values = first_run(trajectory), np.asarray(series, float)
    if values.shape != (len(run),):
        raise ShapeError(f"Argument `series` must have shape ({len(run)},), but has {values.shape}.")
    schedule: Any = run.facts.schedule
    pieces = _pieces(run, schedule)
    halves = [values[_second_half(run, begin, end)] for begin, end, _ in pieces]
    levels = np.array([value for _, _, value in pieces], float)
    means = np.array([float(half.mean()) for half in halves])
    deviations = np.array([float(half.std()) for half in halves])
    return StepMeans(levels, means, deviations, int(levels.argmax()))


def _pieces(run: "Trajectory", schedule: Schedule) -> list[tuple[float, float, float | None]]:
    """Begin, end and value of the pieces between the changes of the field; None for a value that does not stay."""
    times = np.asarray(run.times, float)
    inner = [time for time in run.facts.changes if times[0] < time < times[-1]]
    ends = [float(times[0]), *inner, float(times[-1])]
    reach = _STEADY * float(np.ptp(schedule.values))
    pieces = []
    for begin, end in pairwise(ends):
        inside = schedule(0.75 * begin + 0.25 * end), schedule(0.25 * begin + 0.75 * end)
        pieces.append((begin, end, inside[0] if abs(inside[1] - inside[0]) <= reach else None))
    return pieces


def _second_half(run: "Trajectory", begin: float, end: float) -> NDArray[np.bool_]:
    """Which frames lie in the second half of a piece, but for its end, where the next piece begins."""
    times = np.asarray(run.times, float)
    last = times <= end if end == times[-1] else times < end
    return (times >= (begin + end) / 2) & last
