"""Evenly chosen samples of a run's frames and particles, for measurements that need not use all of them."""

from typing import TYPE_CHECKING

import numpy as np

from particleflow.analysis.reading import FloatArray, IntArray, select_frames
from particleflow.analysis.shape import common_norm
from particleflow.errors import ArgumentError

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

SAMPLE_FRAMES, SAMPLE_PARTICLES = 24, 2000


def thinned(total: int, maximum: int) -> IntArray:
    """At most `maximum` of the indices 0 … total − 1, evenly spread, with the first and the last."""
    return select_frames(total, maximum)


def stored_points(trajectory: "Trajectory", frame: int = -1) -> FloatArray:
    """The points of one frame, (N, d), finite or not; negative frames count from the end."""
    length = len(trajectory)
    if not -length <= frame < length:
        raise ArgumentError(f"Argument `frame` must be in [{-length}, {length - 1}], but is {frame}.")
    return np.asarray(trajectory.points[frame % length], float)


def gather(trajectory: "Trajectory", frames: IntArray, particles: IntArray | slice = slice(None)) -> FloatArray:
    """The points of some frames and particles, (frames, particles, d), including those that are not finite.

    They are read frame by frame, so that a file stays lazy.
    """
    return np.stack([np.asarray(trajectory.points[int(frame)], float)[particles] for frame in frames])


def sample_points(run: "Trajectory") -> FloatArray:
    """At most 24 frames of at most 2,000 particles of one run, evenly chosen, (frames, particles, d)."""
    frames, particles = thinned(len(run), SAMPLE_FRAMES), thinned(run.count, SAMPLE_PARTICLES)
    return gather(run, frames, particles)


def sampled_radius(run: "Trajectory") -> float | None:
    """The radius of the sphere around the origin that a sample of a run's points lies on; None if it lies on none."""
    return common_norm(run, sample_points(run))
