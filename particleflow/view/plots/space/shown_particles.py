"""The particles of one frame as a picture shows them: the argument of every function that draws a frame."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from particleflow.view.plots.base import Projection

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory


@dataclass(frozen=True)
class ShownParticles:
    """Projected `coordinates` (n, 1 … 3), `colors` (n, 3) and `weights` (n,), which sum to one, of the shown particles.

    `run` and `view` are the run and its projection; `words` (n,) are the particles' words, if they have some; `azimuth`
    is where the camera of a 3-D picture stands, in degrees, or None to aim it at the last clusters; `blended` says that
    the colours are those of places, of which a mean may be drawn, and not of labels or clusters.
    """

    run: "Trajectory"
    view: Projection
    coordinates: np.ndarray
    colors: np.ndarray
    weights: np.ndarray
    words: np.ndarray | None = None
    azimuth: float | None = None
    blended: bool = False
