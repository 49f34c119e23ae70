"""The particles of one frame as a picture shows them: the argument of every function that draws a frame."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from particleflow.view.plots.base import Projection
from particleflow.view.plots.camera import Camera

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory


@dataclass(frozen=True)
class ShownParticles:
    """Projected `coordinates` (n, 1 … 3), `colors` (n, 3) and `weights` (n,), which sum to one, of the shown particles.

    `camera` holds the projection of the `run`, the direction and the scale; `words` (n,) are the particles' words, if
    they have some; `blended` says that the colours are those of places, of which a mean may be drawn, and not of labels
    or clusters.
    """

    run: "Trajectory"
    camera: Camera
    coordinates: np.ndarray
    colors: np.ndarray
    weights: np.ndarray
    words: np.ndarray | None = None
    blended: bool = False

    @property
    def view(self) -> Projection:
        """The projection to the page."""
        return self.camera.view
