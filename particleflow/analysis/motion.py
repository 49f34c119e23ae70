"""How far a run moves between its frames: path lengths of particles, or the mass that a density moves.

Of particles, c_k = Σ_{l<k} √(mean_i |x_i(l+1) − x_i(l)|²); of a density, whose points stay, the share of the mass that
is elsewhere in the next frame, c_k = Σ_{l<k} ½ Σ_i |m_i(l+1) − m_i(l)|.
"""

from typing import TYPE_CHECKING

import numpy as np

from particleflow.analysis.density.cells import is_density
from particleflow.analysis.reading import FloatArray, IntArray, first_run, frame_weights
from particleflow.analysis.samples import thinned

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory


def arc_length(trajectory: "Trajectory", particles: int = 2000) -> FloatArray:
    """Path length of the whole configuration up to every frame, (T,): c_k = Σ_{l<k} √(mean_i |x_i(l+1) − x_i(l)|²).

    At most `particles` particles are followed, evenly chosen; an ensemble is measured by its run 0. Points that are not
    finite count as not moving. For a density it is the moved mass, c_k = Σ_{l<k} ½ Σ_i |m_i(l+1) − m_i(l)|.
    """
    run = first_run(trajectory)
    if is_density(run):
        return _mass_moved(run)
    chosen = thinned(run.count, particles)
    before = np.asarray(run.points[0], float)[chosen]
    steps = np.zeros(len(run))
    for frame in range(1, len(run)):
        after = np.asarray(run.points[frame], float)[chosen]
        steps[frame] = step_lengths(np.stack([before, after]))[0]
        before = after
    return np.cumsum(steps)


def _mass_moved(run: "Trajectory") -> FloatArray:
    """½ Σ_i |Δm_i| of one run, summed up to every frame."""
    before, steps = frame_weights(run, 0), np.zeros(len(run))
    for frame in range(1, len(run)):
        after = frame_weights(run, frame)
        steps[frame] = 0.5 * np.abs(after - before).sum()
        before = after
    return np.cumsum(steps)


def step_lengths(points: FloatArray) -> FloatArray:
    """√(mean over particles of |x(k+1) − x(k)|²) from each of the frames (F, N, d) to the next, (F − 1,).

    Points that are not finite count as not moving.
    """
    squared = np.square(np.diff(points, axis=0)).sum(axis=-1)
    return np.sqrt(np.where(np.isfinite(squared), squared, 0.0).mean(axis=-1))


def even_in_motion(run: "Trajectory", count: int) -> IntArray:
    """At most `count` frame numbers, evenly spaced in arc length, the first and the last frame among them.

    For a run in which nothing moves it is the last frame alone.
    """
    length = arc_length(run)
    if not length[-1] > 0:
        return np.array([len(run) - 1])
    return np.unique(np.searchsorted(length, np.linspace(0, length[-1], count)))
