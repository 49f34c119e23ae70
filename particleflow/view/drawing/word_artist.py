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
from particleflow.view.drawing.crowds import marker_areas
from particleflow.view.wording import REACH, Group, Name, find_groups, place_names


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
        self.names: list[Name] = []
        self.set_in_layout(False)
        self.set_zorder(5)

    def draw(self, renderer: Any) -> None:
        """Place the names where the axes are now, and draw them."""
        ax = self.axes
        if not self.get_visible() or ax is None:
            return
        size = 0.72 * self._theme.font_size
        point = renderer.points_to_pixels(1.0)
        unit = float(np.ptp(ax.transData.transform([(0.0, 0.0), (1.0, 0.0)])[:, 0]))
        groups = find_groups(
            ax.transData.transform(self._places), self._weights, REACH * size * point,
            depth=None if self._depth is None else unit * self._depth, axes=self._dimensions,
        )  # fmt: skip
        texts: dict[str, Text] = {}

        def text_of(words: str) -> Text:
            if words not in texts:
                texts[words] = self._text(words, size)
            return texts[words]

        def measure(words: str) -> tuple[float, float]:
            box = text_of(words).get_window_extent(renderer)
            return box.width, box.height

        others = [tuple(text.get_window_extent(renderer).extents) for text in ax.texts if text.get_visible()]
        bounds = tuple(ax.bbox.padded(-point).extents)
        self.names = place_names(
            groups, self._words, lambda group: self._radius(group) * point, measure, bounds, others
        )
        for name in self.names:
            text = text_of(name.text)
            text.set_alpha(0.6 if name.group.behind else 1.0)
            left, bottom = name.box[:2]
            before = text.get_window_extent(renderer)
            text.set_position((left - before.x0, bottom - before.y0))
            text.draw(renderer)
            text.set_position((0.0, 0.0))

    def _text(self, words: str, size: float) -> Text:
        halo = [withStroke(linewidth=0.25 * size, foreground=self._theme.panel)]
        text = Text(0.0, 0.0, style.clean(words), fontsize=size, color=self._theme.text, path_effects=halo)
        assert self.figure is not None
        text.set_figure(self.figure)
        return text

    def _radius(self, group: Group) -> float:
        """The radius of a group's marker in points."""
        least = marker_areas(np.full(len(self._weights), group.mass))[0]
        return float(np.sqrt(self._scale * least / np.pi))
