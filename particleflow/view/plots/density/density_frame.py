"""A density in one frame: a curve over the line, bars around the circle, a heat map of the plane, a coloured sphere."""

from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.density.cells import Cells
from particleflow.view import style
from particleflow.view.plots.camera import Camera, globe, graticule
from particleflow.view.plots.density.density_scale import Field, frame_density
from particleflow.view.plots.matrices.pair_matrices import color_bar
from particleflow.view.plots.space.ring import bar_corners, bare, empty_ring

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory.trajectory import Trajectory

BARS_NOTE = "bars: root of the density"
_TALLEST = 0.42  # of the radius, of a bar on the ring
_SHADE = 0.22  # the share of light that the rim of a sphere loses
_HEADROOM = 1.06


def draw_cells(ax: "Axes", run: "Trajectory", camera: Camera, field: Field, frame: int, *, bar: bool) -> None:
    """Draw the density of one frame in the picture that suits its space, with its colour scale if `bar` is true."""
    density = frame_density(run, field.cells, frame)
    draw = {"line": _line, "circle": _ring, "plane": _plane, "sphere": _sphere}[field.cells.kind]
    colored = draw(ax, camera, field, density)
    if bar and colored is not None:
        color_bar(ax, colored, "density")


def density_axis(ax: "Axes", field: Field) -> None:
    """An upright axis of densities, from zero, or from the lowest that is shown."""
    if field.log:
        ax.set_yscale("log")
    ax.set_ylim(field.low if field.log else 0.0, field.high * (1.6 if field.log else _HEADROOM))
    ax.set_ylabel(f"density per {field.unit}")


def _line(ax: "Axes", camera: Camera, field: Field, density: np.ndarray) -> None:
    """A filled curve over the line."""
    theme, cells = style.current(), field.cells
    places, heights = cells.points[cells.order, 0], cells.ordered(density)
    ax.fill_between(places, heights, color=theme.categories[0], alpha=0.22, linewidth=0)
    ax.plot(places, heights, color=theme.categories[0])
    density_axis(ax, field)
    ax.set(xlim=(cells.edges[0][0], cells.edges[0][-1]), xlabel=camera.view.labels[0])


def ring_of(field: Field, density: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The corners (N, 4, 2) of bars around the unit circle, as high as the root of the density, and their colours."""
    along = field.cells.ordered(density)
    return bar_corners(field.cells.edges[0], _TALLEST * np.sqrt(along / field.high)), field.colors(along)


def _ring(ax: "Axes", camera: Camera, field: Field, density: np.ndarray) -> Any:
    """Coloured bars around the circle with an outline; returns the scale of the colours."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import PolyCollection

    empty_ring(ax, 1.6)
    corners, colors = ring_of(field, density)
    ax.add_collection(PolyCollection(list(corners), facecolors=colors, edgecolors=colors, linewidths=0.3, zorder=3))
    outline = np.concatenate([corners[:, 1:3].reshape(-1, 2), corners[:1, 1]])
    ax.plot(*outline.T, color=style.current().muted, linewidth=0.5, zorder=4)
    bare(ax, 1.06 + _TALLEST)
    return ScalarMappable(field.norm(), style.colormap("density"))


def _plane(ax: "Axes", camera: Camera, field: Field, density: np.ndarray) -> Any:
    """A heat map of the plane; returns it, with its scale of colours."""
    view, (across, up) = camera.view, field.cells.edges
    grid = field.cells.ordered(density)
    mesh = ax.pcolormesh(
        across, up, grid.T, norm=field.norm(), cmap=style.colormap("density"), rasterized=True, zorder=1
    )
    ax.set(xlim=(across[0], across[-1]), ylim=(up[0], up[-1]), xlabel=view.labels[0], ylabel=view.labels[1])
    if max(np.ptp(across), np.ptp(up)) <= 12 * min(np.ptp(across), np.ptp(up)):  # a sliver is stretched
        ax.set_aspect("equal")
    return mesh


def seen_cells(cells: Cells, camera: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The cells in front (k,), their corners on the page (k, c, 2), and how much light falls on each, up to 1."""
    assert cells.corners is not None
    assert cells.radius is not None
    depth = cells.points @ camera[2] / cells.radius
    reach = 1.6 * np.sqrt(float(cells.volumes.max())) / cells.radius
    front = np.flatnonzero(depth > -min(reach, 0.5))
    turned = cells.corners[front] @ camera.T
    length = np.linalg.norm(turned[..., :2], axis=-1, keepdims=True)
    behind = turned[..., 2:] < 0  # corners beyond the rim come back to it
    page = np.where(behind, turned[..., :2] / np.maximum(length, 1e-12), turned[..., :2])
    return front, page, 1.0 - _SHADE * (1.0 - np.clip(depth[front], 0.0, 1.0)) ** 1.5


def draw_rim(ax: "Axes") -> Any:
    """Draw the rim of the unit ball, since nearly empty cells have the colour of the page."""
    turn = np.linspace(0, 2 * np.pi, 361)
    return ax.plot(np.cos(turn), np.sin(turn), color=style.current().muted, linewidth=0.8, zorder=4)[0]


def lit(colors: np.ndarray, light: np.ndarray) -> np.ndarray:
    """Colours (k, 3) under a light in [0, 1], (k,): less light is darker, on a bright and on a dark page."""
    return colors * light[:, None]


def _sphere(ax: "Axes", camera: Camera, field: Field, density: np.ndarray) -> Any:
    """The coloured cells of the sphere that the camera sees; returns the scale of the colours."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import PolyCollection

    turn = camera.rotation
    globe(ax, turn)
    front, corners, light = seen_cells(field.cells, turn)
    colors = lit(field.colors(density[front]), light)
    ax.add_collection(PolyCollection(list(corners), facecolors=colors, edgecolors=colors, linewidths=0.4, zorder=2))
    ax.plot(*graticule(turn)[0].T, color=style.current().muted, linewidth=0.5, alpha=0.35, zorder=3)
    draw_rim(ax)
    bare(ax, 1.09)
    return ScalarMappable(field.norm(), style.colormap("density"))
