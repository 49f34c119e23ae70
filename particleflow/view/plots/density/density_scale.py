"""The density of a run as a picture of cells: one scale of colours for all of its frames.

Density zero has the colour of the page. If the density ever exceeds 20 times the uniform one, colours and heights
follow its logarithm, over at most four decades: on a linear scale peaks would hide everything between them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.density.cells import Cells, cells_of, densities_of
from particleflow.analysis.reading import first_run
from particleflow.analysis.samples import thinned
from particleflow.view import style
from particleflow.view.plots.base import MAX_FRAMES, cached_by_run

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

_PEAKED = 20.0  # times the uniform density, above which colours are logarithmic
_LOWEST_SHARE = 1e-4  # of the highest density, the lowest on a logarithmic scale


@dataclass(frozen=True)
class Field:
    """The `cells` of a density, and the scale from `low` to `high` of its colours, logarithmic or not."""

    cells: Cells
    low: float
    high: float
    log: bool

    def norm(self) -> Any:
        """The scale as matplotlib takes it."""
        from matplotlib.colors import LogNorm, Normalize

        return LogNorm(self.low, self.high, clip=True) if self.log else Normalize(0.0, self.high, clip=True)

    def levels(self, density: np.ndarray) -> np.ndarray:
        """Where densities are on the scale, from 0 to 1."""
        if not self.log:
            return np.clip(density / self.high, 0.0, 1.0)
        return np.clip(np.log(np.maximum(density, self.low) / self.low) / np.log(self.high / self.low), 0.0, 1.0)

    def colors(self, density: np.ndarray) -> np.ndarray:
        """The colours (..., 3) of densities."""
        return style.colormap("density")(self.levels(density))[..., :3]

    @property
    def unit(self) -> str:
        """What the density is measured per: length, arc length or area."""
        return {"line": "length", "plane": "area", "circle": "arc length", "sphere": "area"}[self.cells.kind]


@cached_by_run
def field_of(run: "Trajectory") -> Field | None:
    """The density of one run as a picture; None of particles, or where there are no cells."""
    cells = cells_of(run)
    if cells is None:
        return None
    low, high = np.inf, 0.0
    for frame in thinned(len(run), MAX_FRAMES // 2):
        density = densities_of(run, cells, frame[None])[0]
        high = max(high, float(density.max()))
        low = min(low, float(density[density > 0].min()))
    if high <= _PEAKED * cells.even:
        return Field(cells, 0.0, high, log=False)
    return Field(cells, max(low, _LOWEST_SHARE * high), high, log=True)


def frame_density(run: "Trajectory", cells: Cells, frame: int) -> np.ndarray:
    """The density (N,) of one frame."""
    return densities_of(first_run(run), cells, np.array([range(len(run))[frame]]))[0]
