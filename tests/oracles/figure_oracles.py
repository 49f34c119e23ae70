"""Small runs of every shape for the tests of figures, and what is drawn on an axes."""

import numpy as np
from matplotlib.figure import Figure

from particleflow.trajectory.trajectory import Trajectory


def make(dimension=2, *, count=12, frames=7, sphere=False, runs=None, log=False, seed=0, **options):
    generator = np.random.default_rng(seed)
    shape = (frames, count, dimension) if runs is None else (frames, runs, count, dimension)
    points = generator.normal(size=shape[1:]) + 0.1 * np.cumsum(generator.normal(size=shape), axis=0)
    if sphere:
        points /= np.linalg.norm(points, axis=-1, keepdims=True)
    times = np.concatenate([[0.0], np.geomspace(1e-2, 1e3, frames - 1)]) if log else np.arange(frames) * 0.5
    energy = np.linspace(0, 1, frames) if runs is None else np.linspace(0, 1, frames)[:, None] * np.arange(1, runs + 1)
    metadata = {"title": "A run", "geometry": "sphere" if sphere else "euclidean"}
    options = {"observables": {"energy": energy}, "metadata": metadata, **options}
    return Trajectory.from_arrays(times, points, **options)


def offsets(ax):
    return np.asarray(ax.collections[0].get_offsets())


def blank():
    return Figure().add_subplot()
