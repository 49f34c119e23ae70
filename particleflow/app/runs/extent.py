"""The limit of coordinates up to which distances can be measured."""

from typing import TYPE_CHECKING

import numpy as np

from particleflow.errors import UserError

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

FARTHEST = 1e150  # a coordinate of this size has a square that is still a number in 64 bits


def check_extent(trajectory: "Trajectory") -> None:
    """Raise where points are so far out that their distances overflow, so that they cannot be measured or drawn.

    Frames are read window by window, so that memory stays small.
    """
    from particleflow.trajectory.export.formats import windows

    for window in windows(trajectory):
        points = np.abs(np.asarray(trajectory.points[window]))
        farthest = float(np.max(points, initial=0.0, where=np.isfinite(points)))
        if farthest > FARTHEST:
            raise UserError(
                f"The points of {trajectory.path or 'the run'} reach {farthest:.3g} by time "
                f"{float(trajectory.times[window][-1]):.4g}, too far to measure distances (above {FARTHEST:g}). "
                "Run the scenario in smaller units or to an earlier time; `particleflow export` still works."
            )
