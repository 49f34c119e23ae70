"""Reading a trajectory for analysis: one block of frames at a time, checked, in float64.

Every analysis goes through `iterate`, so that memory stays bounded by a few megabytes of frames and so that a frame
that is not finite is always reported in the same words, with its index and its time.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from particleflow._support.progress import Progress
from particleflow.errors import ArgumentError, KindError, ShapeError

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_BLOCK_BYTES = 4 * 2**20
_SQUARES_OVERFLOW = 1e150  # numbers below it have finite squares, and finite sums of these


def as_points(points: ArrayLike, name: str = "points") -> FloatArray:
    """Return points as a finite float64 array of shape (N, d); a vector of N numbers becomes (N, 1)."""
    array = np.asarray(points, dtype=np.float64)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[0] == 0 or array.shape[1] == 0:
        raise ShapeError(f"`{name}` must have shape (N, d) with N, d ≥ 1, but has shape {array.shape}.")
    if not np.isfinite(array).all():
        bad = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise ArgumentError(f"`{name}` must be finite, but particle {bad} is {array[bad]}.")
    return array


def as_weights(weights: ArrayLike | None, count: int) -> FloatArray:
    """Return N non-negative weights that sum to one; uniform if none are given."""
    if weights is None:
        return np.full(count, 1.0 / count)
    array = np.asarray(weights, dtype=np.float64)
    if array.shape != (count,):
        raise ShapeError(f"`weights` must have shape ({count},), but has shape {array.shape}.")
    if not np.isfinite(array).all() or (array < 0).any() or array.sum() <= 0:
        raise ArgumentError("`weights` must be finite, non-negative and not all zero.")
    return array / array.sum()


def with_mass(points: FloatArray, weights: ArrayLike | None) -> tuple[FloatArray, FloatArray]:
    """Return the points that have mass, and their weights: a point of weight zero is not part of the measure."""
    mass = as_weights(weights, points.shape[0])
    return points[mass > 0], mass[mass > 0]


def as_positive(value: float, name: str, *, zero: bool = False) -> float:
    """Return a finite positive number (or non-negative, with `zero`), or say which argument is not.

    value: of the argument `name`; zero: whether 0 is allowed.
    """
    number = float(value)
    if not np.isfinite(number) or number < 0 or (number == 0 and not zero):
        wanted = "non-negative" if zero else "positive"
        raise ArgumentError(f"Argument `{name}` must be {wanted} and finite, but is {value}.")
    return number


def as_series(times: ArrayLike, values: ArrayLike, name: str = "values") -> tuple[FloatArray, FloatArray]:
    """Return times and values as float64 vectors of one length, times finite and not decreasing."""
    clock = np.asarray(times, dtype=np.float64)
    array = np.asarray(values, dtype=np.float64)
    if clock.ndim != 1 or clock.shape != array.shape or clock.size == 0:
        raise ShapeError(f"`times` and `{name}` must be vectors of one length, but have {clock.shape}, {array.shape}.")
    if not np.isfinite(clock).all() or (np.diff(clock) < 0).any():
        raise ArgumentError("`times` must be finite and must not decrease.")
    return clock, array


def check_trajectory(trajectory: Any) -> None:
    """Raise unless an argument is a trajectory; for an array of points the error says how to make one of it."""
    if hasattr(trajectory, "runs"):
        return
    shape = getattr(trajectory, "shape", None)
    found = f"a {type(trajectory).__name__}" if shape is None else f"an array of shape {tuple(shape)}"
    advice = "; make one with Trajectory.from_arrays(times, points)" if shape is not None else ""
    raise KindError(f"Argument `trajectory` must be a trajectory, but is {found}{advice}.")


def first_run(trajectory: "Trajectory") -> "Trajectory":
    """Return the trajectory, or run 0 of an ensemble; one without a frame is an error."""
    check_trajectory(trajectory)
    if len(trajectory) == 0:
        raise ArgumentError("The trajectory has no frame; at least one is needed.")
    return trajectory if trajectory.runs is None else trajectory.run(0)


def single_run(trajectory: "Trajectory") -> "Trajectory":
    """Return the trajectory, or say how to pick one run if it is an ensemble; one without a frame is an error."""
    check_trajectory(trajectory)
    if trajectory.runs is not None:
        raise ArgumentError(
            f"This analysis takes one run, but the trajectory is an ensemble of {trajectory.runs}; "
            "pass `trajectory.run(r)`, or use `summarize`, which treats every run."
        )
    return first_run(trajectory)


def masses_of(trajectory: "Trajectory") -> Any | None:
    """Return the masses (T, N) of a density, whose points stay while its masses change; None for particles."""
    return trajectory.fields.get("masses")


def fixed_weights(trajectory: "Trajectory") -> FloatArray:
    """Return the weights (N,) that the particles of one run keep; refuse a density, whose masses change in time."""
    if masses_of(trajectory) is not None:
        raise ArgumentError(
            "This analysis follows particles that keep their weights, but this run is a density: its points stay and "
            "its masses change in time."
        )
    return np.asarray(single_run(trajectory).weights, dtype=np.float64)


def frame_weights(trajectory: "Trajectory", index: int) -> FloatArray:
    """Return the weights (N,) of one frame, which sum to one: those that particles keep, or a density's masses."""
    masses = masses_of(trajectory)
    if masses is None:
        return fixed_weights(trajectory)
    index = range(len(trajectory))[index]
    found = np.asarray(masses[index], dtype=np.float64)
    if not np.isfinite(found).all():
        time = float(trajectory.times[index])
        raise ArgumentError(
            f"Frame {index} (time {time:g}) is not finite: the mass of cell {int(np.argmax(~np.isfinite(found)))} is "
            f"not. Analyse the frames before it with `trajectory[:{index}]`."
        )
    return as_weights(found, trajectory.count)


def check_frame(points: Any, index: int, time: float) -> FloatArray:
    """Return one frame as float64 (N, d), or name the frame that is not finite."""
    array = np.ascontiguousarray(points, dtype=np.float64)
    if not np.isfinite(array).all():
        bad = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise ArgumentError(
            f"Frame {index} (time {time:g}) is not finite: particle {bad} is {array[bad]}. "
            f"Analyse the frames before it with `trajectory[:{index}]`."
        )
    return array


def frame_points(trajectory: "Trajectory", index: int) -> FloatArray:
    """Return the points of one frame as a finite float64 array of shape (N, d)."""
    index = range(len(trajectory))[index]
    return check_frame(trajectory.points[index], index, float(trajectory.times[index]))


def iterate(
    trajectory: "Trajectory", progress: Progress | None = None, frames: IntArray | None = None
) -> Iterator[tuple[int, FloatArray]]:
    """Yield (place, points) for every frame, or for the given frames, where place counts them from 0 on.

    All frames are read in blocks of about 4 MB; chosen frames one at a time.
    """
    total = len(trajectory) if frames is None else frames.size
    chosen = _all_frames(trajectory) if frames is None else (frame_points(trajectory, int(k)) for k in frames)
    for place, points in enumerate(chosen):
        yield place, points
        if progress is not None:
            progress(place + 1, total)


def _all_frames(trajectory: "Trajectory") -> Iterator[FloatArray]:
    """All frames in blocks of about 4 MB, each checked."""
    total = len(trajectory)
    frame_bytes = 8 * trajectory.count * trajectory.dimension
    block = max(1, _BLOCK_BYTES // frame_bytes)
    times = np.asarray(trajectory.times)
    for start in range(0, total, block):
        stored = np.asarray(trajectory.points[start : min(start + block, total)])
        for offset, points in enumerate(stored):
            yield check_frame(points, start + offset, float(times[start + offset]))


def as_frames(frames: ArrayLike | None, total: int) -> IntArray:
    """Return frame indices as integers between 0 and total − 1; all of them if none are given."""
    if frames is None:
        return np.arange(total)
    chosen = np.asarray(frames, dtype=np.int64).reshape(-1)
    if chosen.size == 0 or chosen.min() < 0 or chosen.max() >= total:
        raise ArgumentError(f"`frames` must be indices between 0 and {total - 1}, but is {frames}.")
    return chosen


def select_frames(total: int, maximum: int) -> IntArray:
    """Return at most `maximum` frame indices, evenly spread, always with the first and the last.

    total: frames in all; maximum: at least 1.
    """
    if maximum < 1:
        raise ArgumentError(f"At least one frame must be selected, but the maximum is {maximum}.")
    if total <= maximum:
        return np.arange(total)
    return np.unique(np.linspace(0, total - 1, maximum).round().astype(np.int64))


def is_log_spaced(times: ArrayLike) -> bool:
    """Tell whether frames are closer to even spacing in log t than in t (four positive times at least)."""
    clock = np.asarray(times, dtype=np.float64)
    clock = clock[clock > 0]
    if clock.size < 4 or clock[-1] <= clock[0]:
        return False
    linear, logarithmic = np.diff(clock), np.diff(np.log(clock))
    return bool(np.std(logarithmic) * np.mean(linear) < 0.5 * np.std(linear) * np.mean(logarithmic))


def is_spherical(trajectory: "Trajectory") -> bool:
    """Tell whether the stored points lie on a sphere {|x| = R}."""
    return trajectory.facts.space.kind == "sphere"


def sphere_radius(trajectory: "Trajectory") -> tuple[float, bool]:
    """Return the radius R of the sphere that a run lives on, and whether the run says so.

    A sphere whose radius is not stored is measured: R² = Σ_i w_i |x_i|² in the first frame.
    """
    radius = trajectory.facts.space.radius
    if radius is not None:
        return radius, True
    trajectory = single_run(trajectory)
    measured = np.sqrt(frame_weights(trajectory, 0) @ np.square(frame_points(trajectory, 0)).sum(axis=1))
    return float(measured), False


def in_units(values: ArrayLike) -> tuple[FloatArray, float]:
    """Return numbers as multiples of a unit, and the unit: their sums, differences and squares do not overflow.

    The unit is 1 for numbers below 1e150 and else a power of two, so that nothing is rounded. A result times the unit
    may overflow in the end; as a Python float it then becomes infinite without a warning.
    """
    array = np.asarray(values, dtype=np.float64)
    largest = np.max(np.abs(array), initial=0.0, where=np.isfinite(array))
    unit = 1.0 if largest < _SQUARES_OVERFLOW else 2.0 ** (int(np.frexp(largest)[1]) - 1)
    return array / unit, unit


def mean(values: ArrayLike) -> float:
    """Return the mean of numbers, also where their sum would overflow."""
    scaled, unit = in_units(values)
    return unit * float(np.mean(scaled))
