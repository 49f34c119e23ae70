"""The levels of a density's cells as the page stores them: 16-bit numbers on the scale of the figures' colours."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from particleflow.analysis.density.cells import is_density
from particleflow.analysis.reading import frame_weights
from particleflow.view import style
from particleflow.view.plots.density.density_scale import Field, field_of

HIGHEST = 65_534  # the largest number of 16 bits is for what is missing


@dataclass(frozen=True)
class Levels:
    """The levels of one run: of its density, or where it has no cells of its masses on scattered points."""

    run: Any
    field: Field | None
    high: float

    def __call__(self, frames: Any, particles: Any = slice(None)) -> np.ndarray:
        """The levels of some frames and cells, as 16-bit numbers."""
        rows = [self._row(frame_weights(self.run, int(frame)))[particles] for frame in frames]
        return np.rint(HIGHEST * np.stack(rows)).astype(np.uint16)

    def _row(self, masses: np.ndarray) -> np.ndarray:
        """The levels in [0, 1] of the masses (N,) of one frame."""
        return masses / self.high if self.field is None else self.field.levels(masses / self.field.cells.volumes)

    def facts(self) -> dict[str, Any]:
        """The kind of cells, and the name and the ends of the scale, for the page's facts."""
        field = self.field
        kind, low, log = ("points", 0.0, False) if field is None else (field.cells.kind, field.low, field.log)
        name = "mass" if field is None else f"density per {field.unit}"
        return {"kind": kind, "name": name, "low": low, "high": self.high, "log": log, "width": self._width()}

    def _width(self) -> float:
        """How wide dots must be to leave no gap: the sides of rectangles, the widest of the cells on a sphere."""
        cells = None if self.field is None else self.field.cells
        if cells is None or cells.kind not in ("plane", "sphere"):
            return 0.0
        if cells.corners is None or cells.radius is None:
            return float(max(np.diff(edges).max() for edges in cells.edges))
        middle = cells.points / cells.radius
        return 2 * cells.radius * float(np.linalg.norm(cells.corners - middle[:, None], axis=-1).max())

    def ramp(self, theme: str) -> np.ndarray:
        """The colours (33, 3) of the levels in a theme."""
        with style.use(theme):
            return np.asarray(style.colormap("density")(np.linspace(0.0, 1.0, 33)))[:, :3]


def levels_of(run: Any) -> Levels | None:
    """The levels of a density, None of particles."""
    if not is_density(run):
        return None
    field = field_of(run)
    if field is not None:
        return Levels(run, field, field.high)
    return Levels(run, None, max(float(frame_weights(run, frame).max()) for frame in range(len(run))))
