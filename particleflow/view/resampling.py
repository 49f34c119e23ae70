"""Choice of the instants of an animation: by what moves, or even in time, in log time or in the length of the paths.

A spacing is a coordinate c that grows along the saved frames, and the shown instants are even in c:

    linear  c = t            log  c = log t            arc  c = Σ √(mean over particles of |Δx|²),

for a density, whose points stay, arc is c = Σ ½ Σ_i |Δm_i|, the share of the mass that is elsewhere in the next frame;

    motion  c = .85 b + .15 m,    b = .8 a + .2 d

of the shares a of the arc (in which one interval between saved frames counts as at most a twentieth, or as twice its
even share of few intervals), d of the time axis (of log t where the frames were saved so) and m of the merges that have
happened: a fall of the number of clusters from n to n' weighs log(n/n') and is spread over the stretch of b from .015
before to .015 after it. So what moves is shown at one speed, merges slower, and rest, however long, in a fifth of the
movie. A frame is called still if less than a tenth of the mean motion a frame happens in it: of a motion movie at most
(.15 + .85·.2)/(1 − .1·.85·.8) = 35 % of the frames are, and at most .2/(1 − .1·.8) = 22 % if no merges are given.

An instant between two saved frames k and k + 1 has the fraction (c − c_k)/(c_{k+1} − c_k); points are interpolated
linearly by it (and put back to their norm on a sphere), counts and labels are those of the last frame that was reached.
Nothing is simulated again: with few saved frames the motion in between is a straight line. A map, such as the layers of
a network, has no states in between: only its saved frames are shown, each instant the nearest one.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.motion import arc_length
from particleflow.analysis.reading import check_trajectory
from particleflow.errors import ArgumentError, ShapeError
from particleflow.view.plots.base import wants_log

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

SPACINGS = ("motion", "linear", "log", "arc")
IDLE_SHARE = 0.2  # of a motion movie, before merges, that passes with the time axis
MERGE_SHARE = 0.15  # of a motion movie that merges are given besides
_AROUND_MERGE = 0.015  # of the movie, before and after a merge, that is slowed down
_MOST_OF_AN_INTERVAL = 0.05  # of the motion that one interval counts as: what happens in it was not saved


@dataclass(frozen=True)
class Resampling:
    """The shown instants: frame `lower[j]` plus `fraction[j]` of the way to the next, at `times[j]`."""

    lower: np.ndarray
    fraction: np.ndarray
    times: np.ndarray
    spacing: str

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def reached(self) -> np.ndarray:
        """The last saved frame that every shown instant has reached."""
        return self.lower + (self.fraction >= 1.0)

    @property
    def nearest(self) -> np.ndarray:
        """The saved frame nearest to every shown instant."""
        return self.lower + (self.fraction >= 0.5)


def log_coordinate(times: np.ndarray) -> np.ndarray:
    """log t; t ≤ 0 is put one step, that between the first two positive times, before the first of them."""
    times = np.asarray(times, float)
    positive = np.unique(times[times > 0])
    if positive.size == 0:
        raise ArgumentError(
            "Spacing 'log' needs a positive time, but no saved time is positive: use 'linear' or 'arc'."
        )
    step = np.log(positive[1] / positive[0]) if positive.size > 1 else np.log(2.0)
    first = np.log(positive[0]) - step
    return np.where(times > 0, np.log(np.maximum(times, positive[0])), first)


def resample(trajectory: "Trajectory", count: int, spacing: str = "motion", *, counts: Any = None) -> Resampling:
    """`count` instants of a trajectory, even in a `spacing`; the first and last frames are shown.

    `counts` (T,), the numbers of clusters, slow "motion" down where they fall. A run of one frame, or one that does not
    move under "arc", shows its frames evenly.
    """
    if spacing not in SPACINGS:
        raise ArgumentError(f"Argument `spacing` must be one of {', '.join(map(repr, SPACINGS))}, but is {spacing!r}.")
    if count < 1:
        raise ArgumentError(f"Argument `count` must be at least 1, but is {count}.")
    check_trajectory(trajectory)
    times = np.asarray(trajectory.times, float)
    if counts is not None and np.shape(counts) != times.shape:
        raise ShapeError(f"Argument `counts` must have shape {times.shape}, but has {np.shape(counts)}.")
    coordinates = {
        "motion": lambda: motion_coordinate(times, arc_length(trajectory), counts),
        "linear": lambda: times,
        "log": lambda: log_coordinate(times),
        "arc": lambda: arc_length(trajectory),
    }
    instants = resample_coordinate(times, coordinates[spacing](), count, spacing)
    return _of_map(instants, times) if trajectory.facts.is_map else instants


def motion_coordinate(times: np.ndarray, arc: np.ndarray, counts: Any = None) -> np.ndarray:
    """The coordinate "motion" (T,), from 0 to 1, of the times, the arc length and the numbers of clusters at frames."""
    axis = log_coordinate(times) if wants_log(times) else np.asarray(times, float)
    steps = np.diff(_shares(arc))
    highest = max(_MOST_OF_AN_INTERVAL, 2.0 / max(len(steps), 1))
    moved, elapsed = _shares(np.concatenate([[0.0], np.cumsum(np.minimum(steps, highest))])), _shares(axis)
    base = _shares((1 - IDLE_SHARE) * moved + IDLE_SHARE * elapsed)
    merged = np.zeros(len(base)) if counts is None else _shares(_merges(base, np.asarray(counts, float)))
    return base if not merged[-1] > 0 else (1 - MERGE_SHARE) * base + MERGE_SHARE * merged


def _shares(growing: np.ndarray) -> np.ndarray:
    """A coordinate (T,) that never decreases, from 0 to 1; all 0 if it does not grow."""
    growing = np.maximum.accumulate(np.asarray(growing, float))
    growing = growing - growing[0]
    return growing / growing[-1] if growing[-1] > 0 else growing


def _merges(base: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The weight (T,) of merges up to every frame: log(n/n') of each fall of counts, spread around it in `base`."""
    counts = np.maximum(counts, 1.0)
    weights = np.maximum(np.log(counts[:-1] / counts[1:]), 0.0)
    falls = np.flatnonzero(weights > 0)
    begins = np.maximum(base[falls] - _AROUND_MERGE, 0.0)
    ends = np.minimum(base[falls + 1] + _AROUND_MERGE, 1.0)
    total = np.zeros(len(base))
    for weight, begin, end in zip(weights[falls], begins, ends, strict=True):
        total += weight * np.clip((base - begin) / (end - begin), 0.0, 1.0)
    return total


def _of_map(instants: Resampling, times: np.ndarray) -> Resampling:
    """The instants of a map, each moved to the nearest of its frames, as there is nothing in between."""
    nearest = instants.nearest
    return Resampling(nearest, np.zeros(len(nearest)), times[nearest], instants.spacing)


def resample_coordinate(times: np.ndarray, coordinate: np.ndarray, count: int, spacing: str) -> Resampling:
    """Instants even in a coordinate (T,) that never decreases along the frames."""
    length = len(times)
    coordinate = np.maximum.accumulate(np.asarray(coordinate, float))
    if not coordinate[-1] > coordinate[0]:
        coordinate = np.arange(length, dtype=float)
    target = np.linspace(coordinate[0], coordinate[-1], count) if count > 1 else coordinate[-1:]
    lower = np.clip(np.searchsorted(coordinate, target, side="right") - 1, 0, max(length - 2, 0))
    upper = np.minimum(lower + 1, length - 1)
    width = coordinate[upper] - coordinate[lower]
    fraction = np.clip(
        np.where(width > 0, (target - coordinate[lower]) / np.where(width > 0, width, 1.0), 1.0), 0.0, 1.0
    )
    fraction = np.where(upper == lower, 0.0, fraction)
    if spacing == "log":
        with np.errstate(divide="ignore", invalid="ignore"):
            shown = np.exp((1 - fraction) * np.log(times[lower]) + fraction * np.log(times[upper]))
        shown = np.where(times[lower] > 0, shown, (1 - fraction) * times[lower] + fraction * times[upper])
    else:
        shown = (1 - fraction) * times[lower] + fraction * times[upper]
    return Resampling(lower, fraction, shown, spacing)


def interpolate(before: np.ndarray, after: np.ndarray, fraction: float, *, spherical: bool = False) -> np.ndarray:
    """(1 − f) before + f after; on a sphere, scaled back to the norm interpolated in the same way."""
    mixed = (1 - fraction) * before + fraction * after
    if not spherical:
        return mixed
    norm = (1 - fraction) * np.linalg.norm(before, axis=-1) + fraction * np.linalg.norm(after, axis=-1)
    length = np.linalg.norm(mixed, axis=-1)
    # opposite points have no midpoint on the sphere: the nearer of the two is shown
    nearer = before if fraction < 0.5 else after
    return np.where((length > 1e-9 * norm)[..., None], mixed * (norm / np.maximum(length, 1e-300))[..., None], nearer)
