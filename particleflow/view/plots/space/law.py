"""A normal law in pictures: its density on a line, else ellipses of one and two standard deviations around its mean.

The points that carry a law are the nodes of a quadrature. Their weighted mean a and covariance S are those of the law,
also after a projection; the nodes themselves are not drawn.
"""

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.view import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ELLIPSES_NOTE = "ellipses: 1 and 2 standard deviations of the law"
LEVELS_NOTE = "lines: mean, 1 and 2 standard deviations of the law"
DEVIATIONS = (1, 2)


def law_moments(coordinates: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean (..., k) and the covariance (..., k, k) of nodes (..., n, k) of weights (n,) that sum to one."""
    mean = np.einsum("n,...ni->...i", weights, coordinates)
    centred = coordinates - mean[..., None, :]
    return mean, np.einsum("n,...ni,...nj->...ij", weights, centred, centred)


def law_levels(coordinates: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Mean − 2, − 1, 0, 1, 2 standard deviations (..., 5, k) of every coordinate."""
    mean, covariance = law_moments(coordinates, weights)
    spread = np.sqrt(np.maximum(np.diagonal(covariance, axis1=-2, axis2=-1), 0.0))
    return mean[..., None, :] + np.arange(-2, 3)[:, None] * spread[..., None, :]


def law_curves(coordinates: np.ndarray, weights: np.ndarray, deviations: float) -> np.ndarray:
    """Closed curves (m, k) on {x : (x − a)ᵀ S⁻¹ (x − a) = deviations²}, one a pair of principal axes, NaN between."""
    mean, covariance = law_moments(coordinates, weights)
    values, directions = np.linalg.eigh(covariance)
    axes = (deviations * np.sqrt(np.maximum(values, 0.0)) * directions).T
    turn = np.linspace(0, 2 * np.pi, 181)[:, None]
    curves = [mean + np.cos(turn) * one + np.sin(turn) * other for one, other in combinations(axes, 2)]
    gap = np.full((1, len(mean)), np.nan)
    return np.concatenate([part for curve in curves for part in (gap, curve)][1:])


def law_lines(ax: "Axes") -> list[Any]:
    """Empty lines for the curves of one and two standard deviations."""
    theme = style.current()
    options: dict[str, Any] = {"color": theme.categories[0], "solid_capstyle": "butt", "zorder": 4}
    return [ax.plot([], [], linewidth=1.2 * theme.line_width / each, **options)[0] for each in DEVIATIONS]


def draw_law_density(ax: "Axes", coordinates: np.ndarray, weights: np.ndarray, ends: tuple[float, float]) -> None:
    """The density of a law on a line, between two ends."""
    mean, covariance = law_moments(coordinates, weights)
    places = np.linspace(*ends, 601)
    spread = max(float(np.sqrt(covariance[0, 0])), 1e-3 * (ends[1] - ends[0]))
    heights = np.exp(-0.5 * ((places - mean[0]) / spread) ** 2) / (np.sqrt(2 * np.pi) * spread)
    color = style.current().categories[0]
    ax.plot(places, heights, color=color)
    ax.fill_between(places, heights, color=color, alpha=0.2, linewidth=0)
    ax.set(xlim=ends, ylim=(0.0, 1.08 * heights.max()), ylabel="density")
