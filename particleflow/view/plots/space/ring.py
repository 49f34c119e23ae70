"""The circle on the page: an empty ring for dots, and the density of a crowd as bars that stand on it."""

from typing import TYPE_CHECKING

import numpy as np

from particleflow.view import style
from particleflow.view.plots.base import angles, inches
from particleflow.view.plots.crowds import nested_shares
from particleflow.view.plots.density.histograms import around, cell_count
from particleflow.view.plots.space.shown_particles import ShownParticles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RING_NOTE = "bars: root of the density of all particles"  # a cluster in one cell would dwarf the others' linear bars
_EVEN_CURVE = 0.12  # the height of an even density in a curve of it, in radii
_CURVE_CELLS = 360  # around the circle, of a curve
CURVE_REACH = 1.5  # of the axes of a ring with a curve, in radii
_EVEN = 0.04  # the height of an even density, in radii
_CELLS = 180  # around the circle
_REACH = 1.35  # of the axes, in radii


def empty_ring(ax: "Axes", width: float) -> None:
    """The unit circle with its quarters marked, and named where there is room."""
    theme = style.current()
    turn = np.linspace(0, 2 * np.pi, 361)
    roomy = inches(ax) > 1.5
    ax.plot(np.cos(turn), np.sin(turn), color=theme.grid, linewidth=width, zorder=1)
    quarters = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
    for place, name in zip(quarters, ("0", "π/2", "±π", "−π/2") if roomy else ("",) * 4, strict=True):
        ax.plot(*np.outer(place, (0.93, 0.97)), color=theme.muted, linewidth=0.8, zorder=1)
        ax.text(
            0.8 * place[0],
            0.8 * place[1],
            name,
            ha="center",
            va="center",
            color=theme.muted,
            fontsize=0.85 * theme.font_size,
        )


def bare(ax: "Axes", reach: float) -> None:
    """Equal axes from −reach to reach, without a frame."""
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    ax.set_axis_off()


def ring_bars(
    coordinates: np.ndarray, colors: np.ndarray, weights: np.ndarray, cells: int = _CELLS, *, blended: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """The corners (k, 4, 2) of the bars of the cells that are not empty, and their colours (k, 3), in drawing order.

    The density ρ of the mass in a cell, 1/2π if even, is drawn as a bar of the height 0.04 √(2πρ) outside of the unit
    circle, in the mean colour of the particles there; if they are not `blended`, a bar is divided by the shares of the
    colours, the largest outermost. Points that are not finite are left out.
    """
    known = np.isfinite(coordinates).all(axis=-1) & (weights > 0)
    mass, tones = weights[known], colors[known]
    cell, density = around(angles(coordinates[known]), mass, cells)
    share = np.ones(len(cell)) if blended else nested_shares(cell, tones, mass)
    if blended:
        whole = np.bincount(cell, mass, cells)[cell]
        tones = np.stack([np.bincount(cell, mass * tone, cells)[cell] / whole for tone in tones.T], axis=1)
    _, bar = np.unique(cell + (1.0 - share) / 2, return_index=True)  # one for a cell and a colour, the highest first
    corners = bar_corners(np.linspace(-np.pi, np.pi, cells + 1), _EVEN * np.sqrt(2 * np.pi * density))[cell[bar]]
    inner = corners[:, [0, 0, 3, 3]]
    return inner + share[bar, None, None] * (corners - inner), tones[bar]


def curve_width(count: int) -> float:
    """The standard deviation of the kernel that the density of so many particles is smoothed by, as an angle."""
    return 2 * np.pi / cell_count(count)


def curve_note(count: int) -> str:
    """Small print about the curve around a ring of dots."""
    return f"curve: root of the density, kernel of width {np.degrees(curve_width(count)):.2g}°"


def smooth_density(theta: np.ndarray, weights: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Angles (360,) and there the density of weighted angles, smoothed by a wrapped Gaussian of the given width.

    The mean over the angle is 1/2π times the mass. Mode k of a histogram is multiplied by exp(−k² width²/2).
    """
    _, density = around(theta, weights, _CURVE_CELLS)
    modes = np.fft.rfft(density) * np.exp(-0.5 * np.square(np.arange(_CURVE_CELLS // 2 + 1) * width))
    middles = (np.arange(_CURVE_CELLS) + 0.5) * (2 * np.pi / _CURVE_CELLS) - np.pi
    return middles, np.maximum(np.fft.irfft(modes, _CURVE_CELLS), 0.0)


def draw_density_curve(ax: "Axes", coordinates: np.ndarray, weights: np.ndarray) -> None:
    """Outside of the unit circle, the root of the density of all particles as a filled curve; dots hide each other."""
    theme = style.current()
    known = np.isfinite(coordinates).all(axis=-1)
    theta, density = smooth_density(angles(coordinates[known]), weights[known], curve_width(len(coordinates)))
    closed = np.append(theta, theta[0] + 2 * np.pi)
    heights = 1.0 + _EVEN_CURVE * np.sqrt(2 * np.pi * np.append(density, density[0]))
    rays = np.stack([np.cos(closed), np.sin(closed)], axis=1)
    outside, inside = heights[:, None] * rays, rays[::-1]
    ax.fill(*np.concatenate([outside, inside]).T, facecolor=theme.categories[0], alpha=0.25, linewidth=0, zorder=1.5)
    ax.plot(*outside.T, color=theme.categories[0], linewidth=0.9, zorder=2)


def bar_corners(edges: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """The corners (k, 4, 2) of bars of some heights (k,) that stand on the unit circle between angles (k + 1,)."""
    rays = np.column_stack([np.cos(edges), np.sin(edges)])
    outer, first, last = (1.0 + heights)[:, None], rays[:-1], rays[1:]
    return np.stack([first, outer * first, outer * last, last], axis=1)


def draw_ring(ax: "Axes", shown: ShownParticles) -> None:
    """A crowd on the circle: bars as high as the root of its density, in the colours of the particles there."""
    from matplotlib.collections import PolyCollection

    empty_ring(ax, 1.6)
    corners, shades = ring_bars(shown.coordinates, shown.colors, shown.weights, blended=shown.blended)
    ax.add_collection(PolyCollection(list(corners), facecolors=shades, edgecolors=shades, linewidths=0.4, zorder=3))
    bare(ax, _REACH)
