"""Small runs of every shape for the tests of movies."""

import numpy as np

from particleflow.trajectory.trajectory import Trajectory

CASES = [(1, False), (2, False), (2, True), (3, False), (3, True), (8, False), (8, True)]


def make(dimension=2, *, sphere=False, count=20, frames=12, energy=True, log=False, runs=None, title="A run"):
    generator = np.random.default_rng(5)
    times = (
        np.concatenate([[0.0], np.geomspace(1e-2, 1e4, frames - 1)]) if log and frames > 1 else np.arange(frames) * 0.5
    )
    start = generator.normal(size=(count, dimension) if runs is None else (runs, count, dimension))
    shrink = np.linspace(1, 0.2, frames).reshape(-1, *[1] * start.ndim)
    points = start * shrink + 0.5 * (1 - shrink)
    if sphere:
        points /= np.linalg.norm(points, axis=-1, keepdims=True)
    values = np.linspace(0, 1, frames) if runs is None else np.linspace(0, 1, frames)[:, None] * np.ones(runs)
    metadata = {"geometry": "sphere" if sphere else "euclidean", "title": title}
    return Trajectory.from_arrays(times, points, observables={"energy": values} if energy else {}, metadata=metadata)
