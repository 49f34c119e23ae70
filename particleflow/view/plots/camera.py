"""The camera of pictures of space: projection, direction and scale, cues of depth, and the globe or box around."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.reading import first_run
from particleflow.analysis.samples import stored_points, thinned
from particleflow.errors import ArgumentError
from particleflow.view import style
from particleflow.view.plots.base import Projection, cached_by_run, check_one_space, projection, shared_projection
from particleflow.view.plots.crowds import crowd_mass, shown_weights
from particleflow.view.plots.space.law import law_levels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory.trajectory import Trajectory

ELEVATION = 22.0  # degrees above the equator, where the camera usually stands
GRATICULE = 30.0  # degrees between its lines
FAINTEST = 0.62  # of area and colour, at the farthest point
OPEN, RIM = 0.12, 0.76  # of its colour: inside of an open dot, and its rim at the farthest point
RIM_GAIN = 0.2  # of its colour, that a rim at the nearest point would gain
INSIDE = 0.68  # of the radius of an open dot, in movies and on the page
BEHIND_NOTE = "open dots: behind the sphere"
_MOST_CENTRES = 16  # of clusters that the camera is aimed at


def rotation(azimuth: float, elevation: float) -> np.ndarray:
    """The camera of a 3-D picture: rows are right, up and towards the viewer (angles in degrees)."""
    a, e = np.radians(azimuth), np.radians(elevation)
    toward = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
    right = np.array([-np.sin(a), np.cos(a), 0.0])
    return np.stack([right, np.cross(toward, right), toward])


@dataclass(frozen=True, eq=False)
class Camera:
    """From where pictures are drawn: the projection of points, the direction in 3-D (degrees), and one scale.

    `runs` are those that the scale has room for. Pictures with one camera can be laid side by side.
    """

    runs: "tuple[Trajectory, ...]"
    view: Projection
    azimuth: float
    elevation: float

    @cached_property
    def rotation(self) -> np.ndarray:
        """The axes of a 3-D picture (3, 3): rows are right, up and towards the viewer."""
        return rotation(self.azimuth, self.elevation)

    @cached_property
    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper corners of all places that the runs visit, padded."""
        low, high = zip(*(frame_limits(run, self.view) for run in self.runs), strict=True)
        return np.min(low, axis=0), np.max(high, axis=0)

    def turned(self, azimuth: float | None) -> "Camera":
        """This camera at a given azimuth and the usual elevation; itself for None."""
        return self if azimuth is None else replace(self, azimuth=float(azimuth), elevation=ELEVATION)


def camera_of(trajectories: "Trajectory | Sequence[Trajectory]") -> Camera:
    """The camera of a run, or one for several runs of one space, aimed at their last clusters; of ensembles, of run 0.

    camera = pf.view.camera_of([first, second])
    pf.view.snapshot(first, camera=camera), pf.view.snapshot(second, camera=camera)
    """
    given: list[Any] = list(trajectories) if isinstance(trajectories, list | tuple) else [trajectories]
    if not given:
        raise ArgumentError("Argument `trajectories` must hold at least one run, but is empty.")
    runs = tuple(first_run(run) for run in given)
    if len(runs) == 1:
        return Camera(runs, projection(runs[0]), *facing(runs[0]))
    view = shared_projection(runs)
    return Camera(runs, view, *_best_direction(view, runs))


def camera_for(run: "Trajectory", camera: Any = None) -> Camera:
    """The given camera, which must look at a space like that of the run; the run's own for None."""
    if camera is None:
        return camera_of(run)
    if not isinstance(camera, Camera):
        raise ArgumentError(f"Argument `camera` must be made by `camera_of`, but is {camera!r}."[:300])
    check_one_space([("", run), *(("", each) for each in camera.runs)], run)
    return camera


@cached_by_run
def facing(run: "Trajectory") -> tuple[float, float]:
    """Azimuth and elevation (degrees) from which the last frame is seen best; of an ensemble, of its run 0."""
    return _best_direction(projection(run), (first_run(run),))


def _best_direction(view: Projection, runs: "Sequence[Trajectory]") -> tuple[float, float]:
    """Azimuth and elevation (degrees) from which the last frames of some runs are seen best.

    On a sphere the direction u maximises Σ_k √m_k (v(⟨u, c_k⟩) + ⅓ s_k) over the centres c_k and masses m_k of the
    clusters: v grows from 0 behind the rim to 1 well in front of it, and s_k from 0 to 1 with the distance on the page
    to the next cluster. In a box the elevation stays.
    """
    if view.kind not in ("sphere", "space"):
        return 0.0, ELEVATION
    last = np.concatenate([np.nan_to_num(view(stored_points(run, -1))) for run in runs])
    if view.kind == "space":
        mean = last.mean(axis=0)
        aside = float(np.degrees(np.arctan2(mean[1], mean[0]))) - 28.0 if np.hypot(mean[0], mean[1]) > 0.1 else -50.0
        return aside, ELEVATION
    weights = np.concatenate([shown_weights(run, -1) for run in runs]) / len(runs)
    centres, masses = _heaviest(last, weights)
    places = [(azimuth, elevation) for elevation in range(-35, 50, 5) for azimuth in range(-180, 180, 6)]
    cameras = np.stack([rotation(*place) for place in places])
    seen = np.einsum("cij,kj->cki", cameras, centres)
    visible = np.clip((seen[..., 2] + 0.15) / 0.6, 0.0, 1.0)
    away = np.linalg.norm(seen[:, :, None, :2] - seen[:, None, :, :2], axis=-1) + 9 * np.eye(len(centres))
    apart = np.clip(away.min(axis=-1) / 0.35, 0.0, 1.0)
    usual = 1e-3 * np.abs(np.array([elevation for _, elevation in places]) - ELEVATION)
    best = int(np.argmax((visible + apart / 3) @ np.sqrt(masses) - usual))
    return float(places[best][0]), float(places[best][1])


def frame_limits(run: "Trajectory", view: Projection) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper corners of all places in sampled frames, padded by 6 %, so that frames share one scale.

    Of a normal law the places are those within two standard deviations of the mean.
    """
    corners = []
    for frame in thinned(len(run), 60):
        seen = view(stored_points(run, int(frame)))
        seen = law_levels(seen, shown_weights(run, int(frame))) if run.facts.is_law else seen
        seen = seen[np.isfinite(seen).all(axis=-1)]
        corners += [seen.min(axis=0), seen.max(axis=0)] if len(seen) else []
    corners = np.stack(corners or [np.zeros(view.matrix.shape[1])])
    low, high = corners.min(axis=0), corners.max(axis=0)
    middle, half = (low + high) / 2, np.maximum((high - low) / 2, 1e-9 + 0.02 * np.max(high - low))
    half = np.where(half < 1e-6, 1.0, half)
    return middle - 1.12 * half, middle + 1.12 * half


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


@dataclass(frozen=True)
class DepthCues:
    """How dots (n,) are drawn by their depth: relative `sizes`, the colours of `fills` and `rims` (n, 3), which `open`.

    A full dot has the colour of its fill as its rim.
    """

    sizes: np.ndarray
    fills: np.ndarray
    rims: np.ndarray
    open: np.ndarray


def depth_cues(depth: np.ndarray, colors: np.ndarray, fog: Any, solid: bool = True) -> DepthCues:
    """Depth cues for depths in [−1, 1] (1 = near): sizes, and colours that fade into the fog with the distance.

    Behind the middle of a solid body dots are open: a rim around what is nearly the fog, so that no fading is needed to
    tell the sides apart and a pale colour in front is not taken for a strong one behind. In open space all dots are
    full. Everything keeps at least `FAINTEST` of its area and, as a rim or a fill, of its colour.
    """
    from matplotlib.colors import to_rgb

    near = np.clip((depth + 1) / 2, 0, 1)
    behind = (depth < 0) & solid
    even = FAINTEST + (1 - FAINTEST) * near
    strength = np.where(behind, RIM + RIM_GAIN * near, 0.88 + 0.12 * near) if solid else even
    mist = np.array(to_rgb(fog))
    rims = strength[:, None] * colors + (1 - strength[:, None]) * mist
    fills = np.where(behind[:, None], OPEN * colors + (1 - OPEN) * mist, rims)
    return DepthCues(np.sqrt(even), fills, rims, behind)


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
