"""The colours of values on places in the plane as the page stores them: 16-bit numbers, one for a place and a frame."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from particleflow.view import style
from particleflow.view.plots.subjects.placed_values import PALEST, PlacedValues, placed_values
from particleflow.view.webpage.density_levels import HIGHEST

SHADES = 256  # of a label: number 0 has no colour
_MOST_LABELS = HIGHEST // SHADES


@dataclass(frozen=True)
class PlacedCodes:
    """The values of one run: of one value its level on the scale, of several SHADES · (the leading one) + its lead."""

    run: Any
    view: PlacedValues

    def __call__(self, frames: Any, particles: Any = slice(None)) -> np.ndarray:
        """The codes (F, n) of some frames and particles."""
        return np.stack([self._row(np.asarray(self.run.points[int(each)], float)[particles]) for each in frames])

    def _row(self, values: np.ndarray) -> np.ndarray:
        """The codes (n,) of one frame of values (n, d)."""
        values = np.nan_to_num(values)
        if values.shape[1] == 1:
            return np.rint(HIGHEST * self.view.levels(values)).astype(np.uint16)
        leader, lead = self.view.leading(values)
        shade = np.where(lead > 0, np.maximum(np.rint((SHADES - 1) * lead), 1), 0)
        return (SHADES * np.minimum(leader, _MOST_LABELS) + shade).astype(np.uint16)

    def facts(self) -> dict[str, Any]:
        """What the page needs to draw them: kind, names, scale, and how large dots are."""
        view = self.view
        return {
            "kind": view.kind, "names": list(view.names), "axes": list(view.labels), "low": view.low,
            "high": view.high, "grid": view.is_grid, "gap": view.gap if view.kind == "places" else 0.0,
            "shades": SHADES, "palest": PALEST,
        }  # fmt: skip

    def ramp(self, theme: str) -> np.ndarray:
        """The colours (33, 3) of one value in a theme."""
        with style.use(theme):
            return np.asarray(style.colormap("sequential")(np.linspace(0.0, 1.0, 33)))[:, :3]


def placed_codes(run: Any) -> PlacedCodes | None:
    """The codes of values on places that stay, None of all other runs."""
    view = placed_values(run)
    return None if view is None else PlacedCodes(run, view)
