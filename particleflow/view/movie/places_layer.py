"""Values on places that stay, drawn over the stage of a movie.

In the plane a frame changes the colours of dots, on a line the heights of a curve of dots, over those of the start.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.view import style
from particleflow.view.plots.subjects.placed_values import PlacedValues

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_ABOVE = 6  # labels in a row above the picture; more are listed beside it
_LEFT = 0.032  # of the frame: where its title begins
_START_AREA, _DOT = 16.0, 3.0  # square points of a dot of the start, points of one of the curve


class PlacesLayer:
    """The artist of values on the main axes; `draw` sets it to the values of an instant and draws it.

    Parameters: the axes; how the values are seen; the values (n, d) of the first frame.
    """

    def __init__(self, ax: "Axes", view: PlacedValues, start: np.ndarray) -> None:
        self.view, self._ax = view, ax
        low, high = view.limits
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xlabel=view.labels[0], ylabel=view.labels[1])
        self.artist: Any = self._dots() if view.kind == "places" else self._curve(start)

    def draw(self, canvas: Any, region: Any, values: np.ndarray) -> None:
        """Draw the values (n, d) of an instant over the `region` of the canvas that the main axes take."""
        canvas.restore_region(region)
        if self.view.kind == "graph":
            self.artist.set_data(*self.view(values)[self._order].T)
        else:
            box = self._ax.get_window_extent()
            unit = 72 / self._ax.figure.dpi * box.width / np.ptp(self._ax.get_xlim())  # points of a unit of length
            self.artist.set(sizes=[self.view.dot_area(unit)], **self.view.dot_style(values))
        self._ax.draw_artist(self.artist)

    def _dots(self) -> Any:
        """Dots in the plane, and what their colours mean."""
        ax, view, theme = self._ax, self.view, style.current()
        ax.set_aspect("equal", adjustable="box")
        names = view.names if len(view.names) > 1 else ()
        for name, color in zip(names, style.label_colors(np.arange(len(names))), strict=True):
            ax.scatter([], [], color=color, s=40, linewidths=0, label=style.clean(name))
        if len(names) > _MOST_ABOVE:
            ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), labelcolor=theme.text)
        elif names:
            self._legend_above(len(names))
        else:
            self._scale()
        return ax.scatter(*view.places.T, marker="s" if view.is_grid else "o", animated=True)

    def _legend_above(self, columns: int) -> None:
        """The legend in one row below the title of the movie."""
        figure: Any = self._ax.figure
        place = {"loc": "lower left", "bbox_to_anchor": (_LEFT, self._ax.get_position().y1), "borderaxespad": 0.2}
        self._ax.legend(
            **place, bbox_transform=figure.transFigure, ncols=columns, labelcolor=style.current().text, borderpad=0.0
        )

    def _scale(self) -> None:
        """The scale of the colours of one value, above the axes."""
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize

        scale = ScalarMappable(Normalize(self.view.low, self.view.high), style.colormap("sequential"))
        place = self._ax.inset_axes((0.0, 1.015, 0.4, 0.022))
        bar = self._ax.figure.colorbar(scale, cax=place, orientation="horizontal", ticklocation="top")
        bar.outline.set_visible(False)  # type: ignore[operator]
        bar.ax.tick_params(labelsize=0.72 * style.current().font_size)
        place.text(1.04, 0.5, "value", transform=place.transAxes, va="center", fontsize=0.8 * style.current().font_size)

    def _curve(self, start: np.ndarray) -> Any:
        """The curve of the values over their places; the start stays as dots below it."""
        ax, theme = self._ax, style.current()
        self._order = np.argsort(self.view.places[:, 0], kind="stable")
        begin = self.view(start)
        ax.scatter(*begin.T, s=_START_AREA, color=theme.muted, linewidths=0, zorder=2, label="start")
        line = ax.plot(*begin[self._order].T, ".-", color=theme.categories[0], markersize=2 * _DOT, zorder=3)[0]
        line.set_label("now")
        ax.grid(True, axis="y")
        self._legend_above(2)
        line.set_animated(True)
        return line
