"""Choice of the instants of an animation: even in time, in log time, or in the length of the particles' path.

Each spacing is a coordinate c that grows along the saved frames,

    linear  c = t            log  c = log t            arc  c = Σ √(mean over particles of |Δx|²),

for a density, whose points stay, c = Σ ½ Σ_i |Δm_i|, the share of the mass that is elsewhere in the next frame,
and the shown instants are even in c. An instant between two saved frames k and k + 1 has the fraction (c −
c_k)/(c_{k+1} − c_k); points are interpolated linearly by it (and put back to their norm on a sphere), counts and
labels are those of the last frame that was reached. Nothing is simulated again: with few saved frames the motion in
between is a straight line.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from particleflow.analysis.motion import arc_length
from particleflow.analysis.reading import check_trajectory
from particleflow.errors import ArgumentError
from particleflow.view.plots.base import wants_log

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

SPACINGS = ("auto", "linear", "log", "arc")


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


def choose_spacing(trajectory: "Trajectory") -> str:
    """The spacing that "auto" chooses for a trajectory.

    "log" if the run was saved on a log grid; "arc" if over 80 % of the motion happens in under 20 % of the time; else
    "linear".
    """
    times = np.asarray(trajectory.times, float)
    if wants_log(times):
        return "log"
    if len(times) < 3 or not times[-1] > times[0]:
        return "linear"
    moved = np.diff(arc_length(trajectory, 256))
    lasted = np.diff(times)
    order = np.argsort(-moved / np.maximum(lasted, 1e-300), kind="stable")
    busy = np.cumsum(lasted[order]) <= 0.2 * (times[-1] - times[0])
    return "arc" if moved[order][busy].sum() > 0.8 * moved.sum() > 0 else "linear"


def resample(trajectory: "Trajectory", count: int, spacing: str = "auto") -> Resampling:
    """`count` instants of a trajectory, even in time, log time or arc length; the first and last frames are shown.

    A run of one frame, or one that does not move under "arc", shows its frames evenly.
    """
    if spacing not in SPACINGS:
        raise ArgumentError(f"Argument `spacing` must be one of {', '.join(map(repr, SPACINGS))}, but is {spacing!r}.")
    if count < 1:
        raise ArgumentError(f"Argument `count` must be at least 1, but is {count}.")
    check_trajectory(trajectory)
    times = np.asarray(trajectory.times, float)
    spacing = choose_spacing(trajectory) if spacing == "auto" else spacing
    coordinates = {"linear": lambda: times, "log": lambda: log_coordinate(times), "arc": lambda: arc_length(trajectory)}
    return resample_coordinate(times, coordinates[spacing](), count, spacing)


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
