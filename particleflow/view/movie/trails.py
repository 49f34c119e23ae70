"""Trails: where particles have been in the last moments of a movie, drawn under them and fading towards their ends."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.samples import gather, thinned
from particleflow.view import style
from particleflow.view.movie.panels import is_noisy
from particleflow.view.plots.base import MAX_LINES, Projection

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory.trajectory import Trajectory

MOST_TRAILS = MAX_LINES  # of more particles so many, evenly chosen, have trails
_LARGEST_STEP = 0.03  # of the picture's width, of the median particle from frame to frame, that a trail of noise shows
_LOOKED_AT = 60  # pairs of frames
_OPACITIES = (0.14, 0.3, 0.5)  # of the oldest third of a trail, the middle and the newest
_WIDTHS = (0.6, 0.8, 1.0)  # of the theme's lines
_FARTHEST = 0.5  # of the opacity, behind the middle of a sphere
_LEAST_PIXELS = 0.7  # of the length of a trail: shorter ones are hidden by their dots


def is_tangle(run: "Trajectory", view: Projection, width: float) -> bool:
    """Whether trails would be chords of jumps: particles with noise of their own are far from frame to frame.

    Their median step between two saved frames is more than 3 % of the `width` of the picture.
    """
    if not is_noisy(run) or len(run) < 2:
        return False
    before, chosen = thinned(len(run) - 1, _LOOKED_AT), thinned(run.count, MOST_TRAILS)
    seen = [view(gather(run, frames, chosen)) for frames in (before, before + 1)]
    steps = np.linalg.norm(seen[1] - seen[0], axis=-1)
    return bool(np.median(steps[np.isfinite(steps)]) > _LARGEST_STEP * width)


class Trails:
    """Lines behind particles on the main axes; `draw` sets and draws them."""

    def __init__(self, ax: "Axes") -> None:
        from matplotlib.collections import LineCollection

        self._ax = ax
        self._lines: Any = LineCollection([], animated=True, capstyle="round", zorder=2)
        ax.add_collection(self._lines, autolim=False)

    def draw(self, places: np.ndarray, colors: np.ndarray, behind: np.ndarray) -> None:
        """Draw trails through the places (k, n, 2) of n particles at the last k instants, the oldest first.

        Parameters: the places in data of the axes; the particles' colours (n, 3); which (n,) are behind a sphere.
        """
        moved = self._moved(places)
        places, colors, behind = places[:, moved], colors[moved], behind[moved]
        cuts = np.linspace(0, len(places) - 1, len(_OPACITIES) + 1).round().astype(int)
        parts = [places[begin : end + 1].swapaxes(0, 1) for begin, end in pairwise(cuts)]
        shown = [number for number, part in enumerate(parts) if part.shape[1] > 1]
        fade = np.where(behind, _FARTHEST, 1.0)
        ink = [np.column_stack([colors, _OPACITIES[number] * fade]) for number in shown]
        width = style.current().line_width
        self._lines.set_segments([line for number in shown for line in parts[number]])
        self._lines.set_color(np.concatenate(ink) if ink else np.zeros((0, 4)))
        self._lines.set_linewidth(np.repeat([width * _WIDTHS[number] for number in shown], len(colors)))
        self._ax.draw_artist(self._lines)

    def _moved(self, places: np.ndarray) -> np.ndarray:
        """Which particles (n,) have a trail long enough to see; one that is not finite has none."""
        pixels = self._ax.transData.transform(places.reshape(-1, 2)).reshape(places.shape)
        length = np.linalg.norm(np.diff(pixels, axis=0), axis=-1).sum(axis=0)
        return np.isfinite(length) & (length >= _LEAST_PIXELS)
