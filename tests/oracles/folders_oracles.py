"""Run folders made by hand, whose clusters are known without any analysis."""

import numpy as np

import particleflow as pf

TIMES = np.arange(9.0)


def merging_points():
    """Nine particles on a line, far apart: three stand together from t = 2 on, and another three from t = 5 on.

    Clusters at any small distance: 9 until t = 2, then 7, and 5 from t = 5 on.
    """
    points = np.tile(10.0 * np.arange(9.0)[None, :, None], (9, 1, 1))
    points[2:, 1:3] = points[2:, :1]
    points[5:, 4:6] = points[5:, 3:4]
    return points


def save_run(folder, points=None, *, times=TIMES, title="Nine on a line", observables=None, **metadata):
    """A run folder that holds nothing but a trajectory."""
    folder.mkdir(parents=True)
    points = merging_points() if points is None else points
    run = pf.Trajectory.from_arrays(
        times, points, observables=observables or {}, metadata={"title": title, "geometry": "euclidean", **metadata}
    )
    run.save(folder / "trajectory.h5")
    return folder
