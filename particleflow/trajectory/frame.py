"""One moment of a trajectory, and what its particles keep from the first to the last."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from particleflow.errors import ShapeError


@dataclass(frozen=True, repr=False)
class Frame:
    """One moment of a trajectory: `time`, `step`, `points` (N,d) or (R,N,d), `observables` and `fields` by name.

    `log_weights` are those of the run, (N,) or (R,N), None where they were not stored because all are equal. With
    them, `Measure(frame.points, frame.log_weights)` is the measure of that moment; the weights of a density are its
    field `masses`.
    """

    time: float
    step: int
    points: np.ndarray
    observables: Mapping[str, np.ndarray]
    fields: Mapping[str, np.ndarray]
    log_weights: np.ndarray | None = None

    def __repr__(self) -> str:
        more = [
            f"{name}={list(each)}"
            for name, each in (("observables", self.observables), ("fields", self.fields))
            if each
        ]
        shape = tuple(self.points.shape)
        return f"Frame({', '.join([f'time={self.time:g}', f'step={self.step}', f'points={shape}', *more])})"


@dataclass(frozen=True)
class Constants:
    """What a particle keeps over the whole run; each is None or holds one number, or one word, per particle.

    Weights, positions, values and words of an ensemble whose runs differ have a row for every run.
    """

    log_weights: np.ndarray | None = None
    positions: np.ndarray | None = None
    labels: np.ndarray | None = None
    particles: np.ndarray | None = None
    values: np.ndarray | None = None
    words: np.ndarray | None = None


def weights_of(log_weights: np.ndarray) -> np.ndarray:
    """Return the weights w_i = exp(l_i) / Σ_j exp(l_j), (N,) or (R,N), which sum to one whatever the l_i sum to."""
    weights = np.exp(log_weights - np.max(log_weights, axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def interpolated(before: Frame, after: Frame, time: float, fraction: float) -> Frame:
    """Return (1 − f) before + f after in all points, fields and observables, for a fraction f in [0, 1].

    The step is that of the frame before, the one that has been completed.
    """

    def mixed(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """(1 − f) first + f second, of arrays of one shape."""
        return (1 - fraction) * first + fraction * second

    observables, fields = (
        {name: mixed(values, others[name]) for name, values in mine.items()}
        for mine, others in ((before.observables, after.observables), (before.fields, after.fields))
    )
    points = mixed(before.points, after.points)
    return Frame(time, before.step, points, observables, fields, before.log_weights)


def as_per_particle(name: str, values: Any, dtype: type, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return per-particle values as an array (N,), of an ensemble with points (T,R,N,d) also (R,N); checked.

    Parameters: `name` of the argument, `values` of which may have further axes; `values`, None stays None; `dtype`;
    `shape` of the points.
    """
    if values is None:
        return None
    array = np.asarray(values, dtype=dtype)
    count, runs = shape[-2], shape[1] if len(shape) == 4 else None
    if not fits_particles(name, array.shape, count, runs):
        raise ShapeError(f"`{name}` needs one entry for each of the {count} particles, but has shape {array.shape}.")
    return array


def fits_particles(name: str, shape: tuple[int, ...], count: int, runs: int | None = None) -> bool:
    """Whether a constant of this shape has one entry for each of `count` particles, or for each of those of every run.

    An entry of `values` may be an array, any other is one number or word; labels and indices are those of all runs.
    Where values (N,...) and (R,N,...) have one shape, they count as (R,N,...).
    """
    by_run = runs is not None and name not in ("labels", "particles")
    leading = [(count,), *([(runs, count)] if by_run else [])]
    return any(shape == each or (name == "values" and shape[: len(each)] == each) for each in leading)
