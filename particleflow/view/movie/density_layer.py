"""The density of an instant, drawn over the stage of a movie.

Cells stay in place, so that a frame changes a curve (line), heights and colours (circle), colours (plane), and on a
sphere also which cells the camera sees.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.view import style
from particleflow.view.plots.camera import graticule
from particleflow.view.plots.density.density_frame import density_axis, draw_rim, lit, ring_of, seen_cells
from particleflow.view.plots.density.density_scale import Field

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Show = Callable[[np.ndarray, np.ndarray], None]  # of a density (N,), and the camera (3, 3)


class DensityLayer:
    """The artists of a density on the main axes; `show(density, camera)` sets them and `draw` also draws them.

    Parameters: the axes; the `field`, the cells of the density and the scale of its colours.
    """

    def __init__(self, ax: "Axes", field: Field) -> None:
        self.field, self._ax = field, ax
        makers = {"line": self._curve, "circle": self._ring, "plane": self._heat, "sphere": self._ball}
        self.artists: list[Any] = []
        self.show: Show = makers[field.cells.kind]()
        for artist in self.artists:
            artist.set_animated(True)
        if field.cells.kind != "line":
            self._legend()

    def draw(self, canvas: Any, region: Any, density: np.ndarray, camera: np.ndarray) -> None:
        """Draw an instant over the `region` of the canvas that the main axes take."""
        canvas.restore_region(region)
        self.show(density, camera)
        for artist in self.artists:
            self._ax.draw_artist(artist)

    def _legend(self) -> None:
        """What the colours mean, in a corner that a round picture leaves free, or beside a square one."""
        from matplotlib.cm import ScalarMappable

        corners = {"plane": (1.03, 0.0, 0.03, 0.4), "sphere": (-0.06, 0.0, 0.022, 0.22)}
        place = self._ax.inset_axes(corners.get(self.field.cells.kind, (0.0, 0.0, 0.022, 0.26)))
        scale = ScalarMappable(self.field.norm(), style.colormap("density"))
        bar = self._ax.figure.colorbar(scale, cax=place)
        bar.outline.set_visible(False)  # type: ignore[operator]
        bar.ax.tick_params(labelsize=0.72 * style.current().font_size)
        bar.ax.set_title("density", fontsize=0.8 * style.current().font_size, loc="left", pad=5)

    def _curve(self) -> Show:
        """A filled curve through the middles of the cells of a line."""
        cells, color = self.field.cells, style.current().categories[0]
        places = cells.points[cells.order, 0]
        density_axis(self._ax, self.field)
        self._ax.set(xlim=(cells.edges[0][0], cells.edges[0][-1]), xlabel="$x$")
        self._ax.grid(True, axis="y")
        fill = self._ax.fill_between(places, np.ones_like(places), color=color, alpha=0.25, linewidth=0)
        line = self._ax.plot(places, np.ones_like(places), color=color)[0]
        self.artists += [fill, line]
        floor = self.field.low if self.field.log else 0.0

        def show(density: np.ndarray, _: np.ndarray) -> None:
            heights = cells.ordered(density)
            line.set_ydata(heights)
            down = np.column_stack([places[[-1, 0]], [floor / 2, floor / 2]])
            fill.set_verts([np.concatenate([np.column_stack([places, np.maximum(heights, floor / 2)]), down])])

        return show

    def _ring(self) -> Show:
        """Bars around the circle, as high as the root of the density, with an outline."""
        from matplotlib.collections import PolyCollection

        bars: Any = PolyCollection([], linewidths=0.5, zorder=3)
        self._ax.add_collection(bars)
        outline = self._ax.plot([], [], color=style.current().muted, linewidth=0.8, zorder=4)[0]
        self.artists += [bars, outline]

        def show(density: np.ndarray, _: np.ndarray) -> None:
            corners, colors = ring_of(self.field, density)
            bars.set_verts(corners)
            bars.set_facecolor(colors)
            bars.set_edgecolor(colors)
            outline.set_data(*np.concatenate([corners[:, 1:3].reshape(-1, 2), corners[:1, 1]]).T)

        return show

    def _heat(self) -> Show:
        """Coloured cells of the plane."""
        cells, colors = self.field.cells, style.colormap("density")
        across, up = cells.edges
        mesh = self._ax.pcolormesh(across, up, np.zeros(cells.shape).T, norm=self.field.norm(), cmap=colors)
        self.artists.append(mesh)

        def show(density: np.ndarray, _: np.ndarray) -> None:
            mesh.set_array(cells.ordered(density).T)

        return show

    def _ball(self) -> Show:
        """The cells of the sphere that the camera sees, with light, graticule and rim."""
        from matplotlib.collections import PolyCollection

        ball: Any = PolyCollection([], linewidths=0.6, zorder=2)
        self._ax.add_collection(ball)
        lines = self._ax.plot([], [], color=style.current().muted, linewidth=0.8, alpha=0.4, zorder=3)[0]
        self.artists += [ball, lines, draw_rim(self._ax)]

        def show(density: np.ndarray, camera: np.ndarray) -> None:
            front, corners, light = seen_cells(self.field.cells, camera)
            colors = lit(self.field.colors(density[front]), light)
            ball.set_verts(corners)
            ball.set_facecolor(colors)
            ball.set_edgecolor(colors)
            lines.set_data(*graticule(camera)[0].T)

        return show
