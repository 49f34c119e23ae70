"""Values on places that stay, such as labels of the pixels of a picture: where their dots are, and their colours.

The figure `values`, movies and the page all take them from here.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.density.cells import is_density
from particleflow.analysis.reading import first_run
from particleflow.analysis.run_character import places_of
from particleflow.analysis.samples import stored_points, thinned
from particleflow.view import style

if TYPE_CHECKING:
    from collections.abc import Iterable

    from particleflow.trajectory.trajectory import Trajectory

PALEST = 0.25  # opacity of the dot of a label that hardly leads
LEAST_LEAD = 1e-3  # of the largest lead: a place whose leading value is ahead by less is drawn without colour
FILL = 0.95  # of the distance between neighbouring places that a dot covers
_AREAS = 24.0, 160.0  # square points of the smallest dot, and of the largest that is no pixel of a grid
_ROUNDING = 1e-6
_LOOKED_AT = 60  # frames that the ends of the scale are taken from
_PAD = 0.06  # of the height, above and below all values


@dataclass(frozen=True, eq=False)
class PlacedValues:
    """How values (n, d) on places (n, 1 or 2) are seen; a call gives the coordinates (..., n, 2) of their dots.

    In the plane ("places") dots stay, and their colours are the values: one value by a scale from `low` to `high`; of
    several the hue of the largest, the paler the less it leads, relative to the largest `lead`. On a line ("graph") the
    dots are (place, value). `names` are those of the values.
    """

    places: np.ndarray
    low: float
    high: float
    lead: float
    names: tuple[str, ...]

    spherical = False

    @property
    def kind(self) -> str:
        """The kind of picture: "places" in the plane, "graph" over a line."""
        return "places" if self.places.shape[1] == 2 else "graph"

    @property
    def labels(self) -> tuple[str, str]:
        """The names of both axes."""
        return ("x", "y") if self.kind == "places" else ("x", "value")

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """The coordinates (..., n, 2) of the dots of values (..., n, d)."""
        values = np.asarray(values, float)
        if self.kind == "places":
            return np.broadcast_to(self.places, (*values.shape[:-1], 2))
        return np.stack([np.broadcast_to(self.places[:, 0], values.shape[:-1]), values[..., 0]], axis=-1)

    def of(self, particles: Any) -> "PlacedValues":
        """The same for some of the particles."""
        return replace(self, places=self.places[particles])

    @property
    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper corners (2,) of all dots, padded."""
        low, high = self.places.min(axis=0), self.places.max(axis=0)
        if self.kind == "graph":
            low, high = np.append(low, self.low), np.append(high, self.high)
        pad = _PAD * np.where(high > low, high - low, 1.0)
        if self.kind == "places":
            pad = np.maximum(pad, 0.7 * self.gap)
        return low - pad, high + pad

    @cached_property
    def is_grid(self) -> bool:
        """Whether places are all crossings of a few rows and columns, such as pixels."""
        rows, columns = len(np.unique(self.places[:, -1])), len(np.unique(self.places[:, 0]))
        return self.kind == "places" and rows * columns == len(self.places)

    @cached_property
    def gap(self) -> float:
        """The median distance of a place to its nearest neighbour; 0 for one place."""
        from scipy.spatial import KDTree

        return 0.0 if len(self.places) < 2 else float(np.median(KDTree(self.places).query(self.places, 2)[0][:, 1]))

    def dot_area(self, unit: float) -> float:
        """The area of a dot that nearly touches its neighbours, in square points, of which `unit` are one of length."""
        if len(self.places) < 2:
            return 40.0
        return float(np.clip((FILL * self.gap * unit) ** 2, _AREAS[0], np.inf if self.is_grid else _AREAS[1]))

    def leading(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which value is the largest on every place (n,), and its lead over the second in [0, 1], 0 if it has none."""
        lead = np.clip(_leads(values) / (self.lead or 1.0), 0.0, 1.0)
        return np.argmax(values, axis=-1), np.where(lead >= LEAST_LEAD, lead, 0.0)

    def levels(self, values: np.ndarray) -> np.ndarray:
        """One value (n, 1) on the scale of colours, in [0, 1]."""
        return np.clip((values[:, 0] - self.low) / ((self.high - self.low) or 1.0), 0.0, 1.0)

    def colors(self, values: np.ndarray) -> np.ndarray:
        """The colours (n, 4), with opacity, of dots in the theme in use; opacity 0 is an empty circle."""
        if values.shape[1] == 1:
            return np.asarray(style.colormap("sequential")(self.levels(values)))
        leader, lead = self.leading(values)
        shade = np.where(lead > 0, PALEST + (1 - PALEST) * lead, 0.0)
        return np.column_stack([style.label_colors(np.arange(values.shape[1]))[leader], shade])

    def dot_style(self, values: np.ndarray) -> dict[str, Any]:
        """Places, colours, edges and widths of the edges of dots, as of `Collection.set`; empty circles come first."""
        from matplotlib.colors import to_rgba

        colors = self.colors(values)
        order = np.argsort(colors[:, 3] > 0, kind="stable")
        colors = colors[order]
        empty = colors[:, 3] == 0
        edges = np.where(empty[:, None], np.array(to_rgba(style.current().muted)), 0.0)
        widths = np.where(empty, 0.5, 0.0)
        return {"offsets": self.places[order], "facecolors": colors, "edgecolors": edges, "linewidths": widths}


def seen_values(places: np.ndarray, frames: "Iterable[np.ndarray]", names: Any = None) -> PlacedValues:
    """Values on places, on a scale that the values (n, d) of all given frames share.

    Parameters: the places (n, 1 or 2), the values by frame, and their names, "label k" or "value k" if left out.
    """
    low, high, lead, shares, number = np.inf, -np.inf, 0.0, True, 1
    for values in frames:
        known = values[np.isfinite(values).all(axis=1)]
        if not len(known):
            continue
        low, high = min(low, float(known.min())), max(high, float(known.max()))
        number, shares = known.shape[1], shares and are_shares(known)
        lead = max(lead, float(_leads(known).max())) if number > 1 else 0.0
    low, high = (low, high) if low <= high else (0.0, 1.0)
    noun = "label" if shares and number > 1 else "value"
    numbered = tuple(f"{noun} {each}" for each in range(number)) if number > 1 else (noun,)
    named = numbered if names is None else tuple(names)
    return PlacedValues(np.asarray(places, float), low, high, lead, named)


def placed_values(trajectory: "Trajectory") -> PlacedValues | None:
    """How a run is seen whose points are values on places that stay; None for all others.

    These are runs with one value on each place of a line or of the plane, or shares of labels in the plane.
    """
    run = first_run(trajectory)
    if len(run) < 2 or is_density(run) or run.facts.is_law:
        return None
    places = places_of(run)
    if places is None or places.shape[1] > 2 or (places.shape[1] == 1 and run.dimension > 1):
        return None
    frames = [np.asarray(stored_points(run, int(each)), float) for each in thinned(len(run), _LOOKED_AT)]
    if run.dimension > 1 and not all(are_shares(each) for each in frames):
        return None
    return seen_values(places, frames)


def are_shares(values: np.ndarray) -> bool:
    """Whether several values on a place are not negative, and have a sum of at most one, as shares of labels."""
    return values.shape[1] > 1 and bool(values.min() >= -_ROUNDING and values.sum(axis=1).max() <= 1 + _ROUNDING)


def _leads(values: np.ndarray) -> np.ndarray:
    """By how much the largest value of every row is ahead of the second."""
    ordered = np.sort(values, axis=1)
    return ordered[:, -1] - ordered[:, -2]
