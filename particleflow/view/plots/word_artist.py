"""Names beside the particles of a figure, placed when it is drawn.

A layout moves axes until the last moment, so names are placed by an artist of their own inside `draw`, where every
pixel is known. They never widen a layout.
"""

from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.patheffects import withStroke
from matplotlib.text import Text

from particleflow.view import style
from particleflow.view.label_placement import REACH, Box, Group, Name, find_groups, place_names
from particleflow.view.plots.crowds import marker_areas


class Words(Artist):
    """Names beside particles; `names` are those that were written when it was last drawn.

    Parameters: `places` (N, 2) in data coordinates, the `words` (N,) and `weights` (N,); `depth` (N,) of a picture in
    three dimensions, positive in front; `axes`, 1 where only the abscissa tells particles apart; `scale` of markers.
    """

    def __init__(
        self, places: np.ndarray, words: np.ndarray, weights: np.ndarray, *, depth: Any, axes: int, scale: float
    ) -> None:
        super().__init__()
        self._places, self._words, self._weights = places, words, weights
        self._depth, self._dimensions, self._scale = depth, axes, scale
        self._theme = style.current()
        self._size = 0.72 * self._theme.font_size
        self._texts: dict[str, Text] = {}
        self.names: list[Name] = []
        self.set_in_layout(False)
        self.set_zorder(5)

    def draw(self, renderer: Any) -> None:
        """Place the names where the axes are now, and draw them."""
        ax = self.axes
        if not self.get_visible() or ax is None:
            return
        self._texts.clear()
        others = [_box(text.get_window_extent(renderer)) for text in ax.texts if text.get_visible()]
        point = renderer.points_to_pixels(1.0)
        self.names = place_names(
            self._groups(ax, point), self._words, lambda group: self._radius(group) * point,
            lambda words: self._text(words).get_window_extent(renderer).size, _box(ax.bbox.padded(-point)), others,
        )  # fmt: skip
        for name in self.names:
            text = self._text(name.text)
            text.set_alpha(0.6 if name.group.behind else 1.0)
            corner = text.get_window_extent(renderer)
            text.set_position((name.box[0] - corner.x0, name.box[1] - corner.y0))
            text.draw(renderer)
            text.set_position((0.0, 0.0))

    def _groups(self, ax: Any, point: float) -> list[Group]:
        """The groups of particles as the axes show them now, with `point` pixels to a point."""
        depth = self._depth
        if depth is not None:  # in pixels, like the places
            depth = depth * float(np.ptp(ax.transData.transform([(0.0, 0.0), (1.0, 0.0)])[:, 0]))
        places, reach = ax.transData.transform(self._places), REACH * self._size * point
        return find_groups(places, self._weights, reach, depth=depth, axes=self._dimensions)

    def _text(self, words: str) -> Text:
        """A name as an artist in the lower left corner, made once."""
        if words not in self._texts:
            halo = [withStroke(linewidth=0.25 * self._size, foreground=self._theme.panel)]
            shown = style.clean(words)
            text = Text(0.0, 0.0, shown, fontsize=self._size, color=self._theme.text, path_effects=halo)
            assert self.figure is not None
            text.set_figure(self.figure)
            self._texts[words] = text
        return self._texts[words]

    def _radius(self, group: Group) -> float:
        """The radius of a group's marker in points."""
        least = marker_areas(np.full(len(self._weights), group.mass))[0]
        return float(np.sqrt(self._scale * least / np.pi))


def _box(box: Any) -> Box:
    """A matplotlib box as (left, bottom, right, top)."""
    return float(box.x0), float(box.y0), float(box.x1), float(box.y1)
