"""The camera of 3-D pictures: its direction, cues of depth, and the globe or box around the particles."""

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.reading import first_run
from particleflow.analysis.samples import stored_points
from particleflow.view import style
from particleflow.view.plots.base import cached_by_run, projection
from particleflow.view.plots.crowds import crowd_mass, shown_weights

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory.trajectory import Trajectory

ELEVATION = 22.0  # degrees above the equator, where the camera usually stands
GRATICULE = 30.0  # degrees between its lines
FAINTEST = 0.62  # of area and colour, at the farthest point
_MOST_CENTRES = 16  # of clusters that the camera is aimed at


def rotation(azimuth: float, elevation: float) -> np.ndarray:
    """The camera of a 3-D picture: rows are right, up and towards the viewer (angles in degrees)."""
    a, e = np.radians(azimuth), np.radians(elevation)
    toward = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
    right = np.array([-np.sin(a), np.cos(a), 0.0])
    return np.stack([right, np.cross(toward, right), toward])


def camera_of(trajectory: "Trajectory", azimuth: float | None = None) -> np.ndarray:
    """The camera of a run: aimed at its last clusters, or from a given azimuth at the usual elevation."""
    return rotation(*(facing(trajectory) if azimuth is None else (azimuth, ELEVATION)))


@cached_by_run
def facing(run: "Trajectory") -> tuple[float, float]:
    """Azimuth and elevation (degrees) from which the last frame is seen best; of an ensemble, of its run 0.

    On a sphere the direction u maximises Σ_k √m_k (v(⟨u, c_k⟩) + ⅓ s_k) over the centres c_k and masses m_k of the
    clusters: v grows from 0 behind the rim to 1 well in front of it, and s_k from 0 to 1 with the distance on the page
    to the next cluster. In a box the elevation stays.
    """
    run = first_run(run)
    view = projection(run)
    if view.kind not in ("sphere", "space"):
        return 0.0, ELEVATION
    last = np.nan_to_num(view(stored_points(run, -1)))
    if view.kind == "space":
        mean = last.mean(axis=0)
        aside = float(np.degrees(np.arctan2(mean[1], mean[0]))) - 28.0 if np.hypot(mean[0], mean[1]) > 0.1 else -50.0
        return aside, ELEVATION
    centres, masses = _heaviest(last, shown_weights(run, -1))
    places = [(azimuth, elevation) for elevation in range(-35, 50, 5) for azimuth in range(-180, 180, 6)]
    cameras = np.stack([rotation(*place) for place in places])
    seen = np.einsum("cij,kj->cki", cameras, centres)
    visible = np.clip((seen[..., 2] + 0.15) / 0.6, 0.0, 1.0)
    away = np.linalg.norm(seen[:, :, None, :2] - seen[:, None, :, :2], axis=-1) + 9 * np.eye(len(centres))
    apart = np.clip(away.min(axis=-1) / 0.35, 0.0, 1.0)
    usual = 1e-3 * np.abs(np.array([elevation for _, elevation in places]) - ELEVATION)
    best = int(np.argmax((visible + apart / 3) @ np.sqrt(masses) - usual))
    return float(places[best][0]), float(places[best][1])


def _heaviest(points: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places and masses of the heaviest crowds, at most sixteen, one particle for each."""
    mass = crowd_mass(points, weights, 0.05)
    centres, free = [], np.ones(len(points), bool)
    while free.any() and len(centres) < _MOST_CENTRES:
        centres.append(int(np.argmax(np.where(free, mass, -1.0))))
        free &= np.linalg.norm(points - points[centres[-1]], axis=-1) > 0.1
    return points[centres], mass[centres]


@cache
def _globe_lines(step: float) -> np.ndarray:
    """Meridians and parallels of the unit sphere every `step` degrees, (k, 3), NaN between lines."""
    sweep = np.radians(np.arange(0, 361, 5.0))
    lines = []
    for longitude in np.radians(np.arange(0, 180, step)):
        lines.append(
            np.column_stack([np.cos(longitude) * np.cos(sweep), np.sin(longitude) * np.cos(sweep), np.sin(sweep)])
        )
    for latitude in np.radians(np.arange(step - 90, 90, step)):
        ring = np.column_stack([np.cos(sweep), np.sin(sweep), np.zeros_like(sweep)]) * np.cos(latitude)
        lines.append(ring + np.array([0, 0, np.sin(latitude)]))
    gap = np.full((1, 3), np.nan)
    return np.concatenate([part for line in lines for part in (line, gap)])


def graticule(camera: np.ndarray, step: float = GRATICULE) -> tuple[np.ndarray, np.ndarray]:
    """Meridians and parallels of the unit sphere on the page, (k, 2) each: in front and behind; NaN between lines."""
    turned = _globe_lines(step) @ camera.T
    front = np.where(turned[:, 2:] >= 0, turned[:, :2], np.nan)
    behind = np.where(turned[:, 2:] <= 0, turned[:, :2], np.nan)
    return front, behind


def depth_style(depth: np.ndarray, colors: np.ndarray, fog: Any, solid: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Depth cue for depths in [−1, 1] (1 = near): relative sizes, and colours that fade into the fog behind.

    What is behind the middle of a solid body is weaker than anything in front of it; in open space colours fade evenly.
    Everything keeps at least `FAINTEST` of its area and of its colour: a cluster at the back stays visible.
    """
    from matplotlib.colors import to_rgb

    near = np.clip((depth + 1) / 2, 0, 1)
    behind = FAINTEST + 0.2 * near
    strength = np.where(depth >= 0, 0.88 + 0.12 * near, behind) if solid else FAINTEST + (1 - FAINTEST) * near
    strength = strength[:, None]
    area = FAINTEST + (1 - FAINTEST) * near
    return np.sqrt(area), strength * colors + (1 - strength) * np.array(to_rgb(fog))


def globe(ax: "Axes", camera: np.ndarray) -> None:
    """The ball itself: a disc with soft shading towards its rim, and a graticule."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Circle

    theme = style.current()
    rows, columns = np.mgrid[-1:1:256j, -1:1:256j]
    shading = np.clip(np.hypot(rows - 0.25, columns + 0.25) / 1.35, 0, 1) ** 1.6
    tones = LinearSegmentedColormap.from_list("ball", [theme.panel, theme.shade, theme.grid])
    image = ax.imshow(shading, cmap=tones, extent=(-1, 1, -1, 1), origin="lower", zorder=0, interpolation="bilinear")
    rim = Circle((0, 0), 1.0, facecolor="none", edgecolor=theme.muted, linewidth=0.7, zorder=1)
    ax.add_patch(rim)
    image.set_clip_path(rim)
    front, behind = graticule(camera)
    ax.plot(*behind.T, color=theme.muted, linewidth=0.4, alpha=0.18, zorder=0.5)
    ax.plot(*front.T, color=theme.muted, linewidth=0.5, alpha=0.4, zorder=1)


def box_coordinates(coordinates: np.ndarray, limits: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Coordinates in which the box fits into a picture from −1 to 1 from whichever side the camera looks."""
    low, high = limits
    half = (high - low) / 2
    across, tilt = np.hypot(half[0], half[1]), np.radians(ELEVATION)
    return (coordinates - (low + high) / 2) / max(across, half[2] * np.cos(tilt) + across * np.sin(tilt))


def box_edges(low: np.ndarray, high: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The twelve edges of a box as pairs of corners."""
    corners = np.array([[x, y, z] for x in (low[0], high[0]) for y in (low[1], high[1]) for z in (low[2], high[2])])
    pairs = [(i, i | bit) for i in range(8) for bit in (1, 2, 4) if not i & bit]
    return [(corners[i], corners[j]) for i, j in pairs]
