"""Animations: particles on the stage, energy and cluster count beside them with a time cursor, to mp4 or gif."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow._support.progress import Progress
from particleflow.analysis.reading import first_run, masses_of
from particleflow.analysis.samples import thinned
from particleflow.errors import ArgumentError
from particleflow.view import style
from particleflow.view.made_of import made_of
from particleflow.view.movie.movie_file import check_size, check_target, open_writer
from particleflow.view.movie.panels import KnownClusters
from particleflow.view.movie.sprites import SpriteBank
from particleflow.view.movie.stage import Stage, build_stage, draw_lines, render_backgrounds
from particleflow.view.movie.trails import MOST_TRAILS, Trails, is_tangle
from particleflow.view.movie.word_sprites import WordWriter
from particleflow.view.plots.base import MAX_DOTS, Projection, projection
from particleflow.view.plots.camera import INSIDE, DepthCues, box_coordinates, camera_of, depth_cues, facing, rotation
from particleflow.view.plots.colors import check_labels, may_blend, particle_colors
from particleflow.view.plots.crowds import crowd_colors, find_crowds, shown_weights
from particleflow.view.plots.density.density_scale import frame_density
from particleflow.view.plots.space.law import DEVIATIONS, law_curves
from particleflow.view.plots.space.snapshots import crowd_cell
from particleflow.view.plots.subjects.placed_values import PlacedValues, placed_values
from particleflow.view.plots.time.series import check_counts
from particleflow.view.resampling import Resampling, interpolate, resample

if TYPE_CHECKING:
    from PIL.Image import Image

    from particleflow.trajectory.trajectory import Trajectory

_RADIUS_OF_ALL = 24.0  # pixels, at 720 lines, of a dot that holds all of the mass


def animate(
    trajectory: "Trajectory",
    path: str | Path,
    *,
    frames: int = 240,
    fps: float = 30,
    spacing: str = "motion",
    trail: float = 0.5,
    theme: str | style.Theme = "dark",
    colors: Any = None,
    counts: Any = None,
    plateaus: Any = (),
    size: tuple[int, int] | None = None,
    turn: float = 120.0,
    threshold: float | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write a movie of a trajectory to `path` (.mp4 or .gif) and return the path; it appears whole or not at all.

    Circle (with its kymograph, or the density of a crowd or of noise), sphere or box (turning by `turn` degrees, of
    which 360 make a loop), plane, line (as a growing kymograph) and principal components (d > 3) follow from the
    trajectory. Energy is shown if it was recorded, cluster `counts` (T,) and `plateaus` (start, end, count) if given. A
    density moves on its cells: a curve over the line, bars around the circle, colours in the plane or on the sphere.
    Values on places that stay (labels of pixels, a signal) are the colours of their places in the plane, or a curve
    over a line, as in the figure `values`; they have no `colors`. `colors` are labels (N,) or (T, N), or RGB in [0, 1]
    of shape (N, 3). `frames` instants follow the "motion" (slower where `counts` fall, rest in at most a fifth of the
    movie), or are spaced evenly in "linear" time, "log" time or "arc" length (see `resample`); the clock says when, the
    line below it how far on the time axis. Each particle has a `trail` through its places in the last so many seconds
    of the movie, 0 for none (at most 512 particles; none on a line, which shows all of its past; none where noise of
    their own moves particles by more than 3 % of the picture from frame to frame). `size` is in pixels, multiples of
    16: 1280 × 720, for a gif 800 × 448. An ensemble shows its run 0; of more than 20,000 particles that many, evenly
    chosen, are drawn. Particles with words are named by them, as in `snapshot`. `threshold`, the linking distance
    behind `counts`, is kept in the file beside the number of frames.
    `progress(done, total)` is called after every frame.
    """
    path = Path(path)
    check_target(path, fps)
    if not 0 <= trail < np.inf:
        raise ArgumentError(f"Argument `trail` must be a number of seconds of at least 0, but is {trail!r}.")
    size = check_size(size or ((800, 448) if path.suffix.lower() == ".gif" else (1280, 720)))
    with style.use(_movie_theme(style.find(theme))):
        movie = Movie(
            trajectory, frames, spacing, size, colors=colors, counts=counts, plateaus=plateaus, turn=turn,
            trail=round(min(trail * fps, frames)),
        )  # fmt: skip
        sampled = (0, frames // 2, frames - 1) if path.suffix.lower() == ".gif" else ()
        samples = [movie.frame(index) for index in sampled]
        with open_writer(path, size, fps, samples, str(made_of(trajectory, threshold))) as write:
            for index in range(frames):
                write(movie.frame(index))
                if progress is not None:
                    progress(index + 1, frames)
    return path


def _movie_theme(theme: style.Theme) -> style.Theme:
    """The theme with larger letters and lines, for a screen seen from a distance."""
    from dataclasses import replace

    return replace(theme, font_size=12.5, line_width=1.9)


class Movie:
    """The frames of an animation, drawn on demand: `frame(index)` for index in 0 … frames − 1.

    The stage is drawn once, in the theme in use; a frame adds what moves: lines or density, trails that reach `trail`
    frames back, panels, particles, words.
    """

    def __init__(
        self, trajectory: "Trajectory", frames: int, spacing: str, size: tuple[int, int],
        *, colors: Any = None, counts: Any = None, plateaus: Any = (), turn: float = 120.0, trail: int = 0,
    ):  # fmt: skip
        self.run = first_run(trajectory)
        counts = _run_counts(self.run, counts)
        self.instants: Resampling = resample(self.run, frames, spacing, counts=counts)
        self.particles = thinned(self.run.count, self.run.count if self.run.facts.is_law else MAX_DOTS)
        places = placed_values(self.run)
        self.view: Projection | PlacedValues = projection(self.run) if places is None else places.of(self.particles)
        azimuth, self.elevation = facing(self.run)
        self.azimuths = azimuth + turn * (np.arange(1, frames + 1) / frames - 1)  # the last frame has the best view
        self._theme = style.current()
        self._sprites = SpriteBank()
        self._read: dict[int, np.ndarray] = {}
        self._passed: dict[int, np.ndarray] = {}
        self._mass: dict[int, np.ndarray] = {}
        clusters = KnownClusters(self._choose_colors(colors), counts, plateaus)
        self.stage: Stage = build_stage(self.run, self.view, size, self.instants, clusters)
        render_backgrounds(self.stage, self.instants, np.asarray(self.run.times, float))
        self._words = self._word_writer()
        self._trail = trail if self._has_trails() else 0
        self._trails = Trails(self.stage.main)

    def _has_trails(self) -> bool:
        """Whether the ways of particles are drawn: not on a line, which shows all of them, and not of large jumps."""
        if self._is_carried or self.view.kind == "line" or isinstance(self.view, PlacedValues):
            return False
        return not is_tangle(self.run, self.view, self._width)

    @property
    def _width(self) -> float:
        """The width of the main picture, in units of the coordinates."""
        shown = float(np.ptp(self.stage.main.get_xlim()))
        if self.view.kind != "space" or self.stage.limits is None:
            return shown
        return shown / float(np.ptp(box_coordinates(np.eye(3)[:2], self.stage.limits)[:, 0]))

    @property
    def _is_carried(self) -> bool:
        """Whether no particles are drawn: the run is a density or a normal law, or it has values on places."""
        layers = self.stage.density_layer, self.stage.places_layer
        return self.run.facts.is_law or any(each is not None for each in layers)

    @cached_property
    def _crowd_cell(self) -> float:
        """The side of a cell whose particles are drawn as one crowd."""
        return crowd_cell(camera_of(self.run))

    def _word_writer(self) -> WordWriter | None:
        """The writer of the particles' words, which keeps off the text of the main axes; None without words."""
        if self.run.words is None:
            return None
        height = self.stage.size[1]
        taken = [text.get_window_extent() for text in self.stage.main.texts]
        boxes = [(box.x0, height - box.y1, box.x1, height - box.y0) for box in taken]
        return WordWriter(self.run.words[self.particles], self.stage.scale, boxes)

    def _choose_colors(self, colors: Any) -> Any:
        """Fix the particles' colours (n, 3), or a table and labels (T, n); returns what the panels can colour by."""
        self._labels, labels = None, None
        own = colors is None or (self.run.labels is not None and np.array_equal(colors, self.run.labels))
        if isinstance(self.view, PlacedValues) and not own:
            raise ArgumentError(
                "Argument `colors` must be None: values on places are seen by their colours or heights."
            )
        self._blend = colors is None and may_blend(self.run, None)
        if colors is not None and np.issubdtype(np.asarray(colors).dtype, np.floating):
            if np.shape(colors) != (self.run.count, 3):
                raise ArgumentError(
                    f"Argument `colors` must be integer labels or RGB of shape ({self.run.count}, 3), "
                    f"but has shape {np.shape(colors)}."
                )
            self._colors = np.clip(np.asarray(colors, float), 0, 1)[self.particles]
        elif colors is not None:
            labels = check_labels(self.run, colors)
            self._labels = np.maximum(labels, -1)[..., self.particles]
            self._colors = style.label_colors(np.arange(-1, int(labels.max(initial=-1)) + 1))
        else:
            self._colors = particle_colors(self.run)[self.particles]
        return labels

    def _points(self, frame: int) -> np.ndarray:
        """A saved frame; the last two read are kept."""
        if frame not in self._read:
            while len(self._read) > 1:
                del self._read[min(self._read)]
            self._read[frame] = np.asarray(self.run.points[frame], float)[self.particles]
        return self._read[frame]

    def _weights(self, index: int) -> np.ndarray:
        """The weights of the shown particles; those of a density change with time, others are read once."""
        frame = 0 if masses_of(self.run) is None else int(self.instants.reached[index])
        if frame not in self._mass:
            self._mass = {frame: shown_weights(self.run, frame, self.particles)}
        return self._mass[frame]

    def points(self, index: int) -> np.ndarray:
        """The points (n, d) of one instant, interpolated between saved frames."""
        lower, fraction = int(self.instants.lower[index]), float(self.instants.fraction[index])
        before = self._points(lower)
        if fraction == 0.0:
            return before
        return interpolate(before, self._points(lower + 1), fraction, spherical=self.view.spherical)

    def coordinates(self, index: int) -> np.ndarray:
        """The points of one instant as they are seen, (n, 1 … 3)."""
        return self.view(self.points(index))

    def density(self, index: int) -> np.ndarray:
        """The density (N,) of one instant, interpolated between saved frames."""
        assert self.stage.density_layer is not None
        cells = self.stage.density_layer.field.cells
        lower, fraction = int(self.instants.lower[index]), float(self.instants.fraction[index])
        before = frame_density(self.run, cells, lower)
        if fraction == 0.0:
            return before
        return interpolate(before, frame_density(self.run, cells, lower + 1), fraction)

    def frame(self, index: int) -> "Image":
        """One frame of the movie as an RGBA image."""
        stage = self.stage
        azimuth = float(self.azimuths[index])
        camera = rotation(azimuth, self.elevation)
        if stage.density_layer is not None:
            stage.density_layer.draw(stage.canvas, stage.region, self.density(index), camera)
        elif stage.places_layer is not None:
            stage.places_layer.draw(stage.canvas, stage.region, self.points(index))
        elif stage.lines or stage.ellipses or self._trail:
            draw_lines(stage, azimuth, self.elevation)
            self._draw_ellipses(index, camera)
            self._draw_trails(index, camera)
        image = self._background(index)
        assert stage.clock is not None
        assert stage.progress is not None
        stage.clock.write(image, index)
        stage.progress.draw(image, index)
        dots = self._dots(index)
        moving = [dots] if self._is_carried else [self.sprites(index, camera), dots]
        self._sprites.paste(image, *(np.concatenate(each) for each in zip(*moving, strict=True)))
        self._write_words(image, index, camera)
        return image

    def _draw_ellipses(self, index: int, camera: np.ndarray) -> None:
        """Draw the ellipses of a normal law."""
        for line, deviations in zip(self.stage.ellipses, DEVIATIONS, strict=False):
            curve = law_curves(self.coordinates(index), self._weights(index), deviations)
            line.set_data(*self._axes_coordinates(curve, index, camera)[:, :2].T)
            self.stage.main.draw_artist(line)

    def _draw_trails(self, index: int, camera: np.ndarray) -> None:
        """Draw the places of particles at the instants before this one, as the camera sees them now."""
        if not self._trail or not index:
            return
        first = max(index - self._trail, 0)
        self._passed = {each: places for each, places in self._passed.items() if first <= each <= index}
        chosen = thinned(len(self.particles), MOST_TRAILS)
        for each in range(first, index + 1):
            if each not in self._passed:
                self._passed[each] = self.coordinates(each)[chosen]
        places = np.stack(
            [self._axes_coordinates(self._passed[each], each, camera) for each in range(first, index + 1)]
        )
        behind = places[-1, :, 2] < 0 if self.view.kind == "sphere" else np.zeros(len(chosen), bool)
        self._trails.draw(places[..., :2], self._particle_colors(index)[chosen], behind)

    def _particle_colors(self, index: int) -> np.ndarray:
        """The colours (n, 3) of the particles at an instant; those of labels follow the last frame that was reached."""
        if self._labels is None:
            return self._colors
        labels = self._labels if self._labels.ndim == 1 else self._labels[self.instants.reached[index]]
        return self._colors[labels + 1]

    def _write_words(self, image: "Image", index: int, camera: np.ndarray) -> None:
        """Write the particles' words beside them, if they have some."""
        if self._words is None:
            return
        seen = self._axes_coordinates(self.coordinates(index), index, camera)
        weights = self._weights(index)
        pixels, height = self._pixels(seen), self.stage.size[1]
        box = self.stage.main.get_window_extent()
        unit = box.width / np.ptp(self.stage.main.get_xlim())
        depth = unit * seen[:, 2] if seen.shape[-1] == 3 else None
        self._words.write(
            image, pixels, weights, depth, (box.x0, height - box.y1, box.x1, height - box.y0),
            lambda group: self.stage.scale * max(_least_radius(len(pixels)), _RADIUS_OF_ALL * np.sqrt(group.mass)),
        )  # fmt: skip

    def _background(self, index: int) -> "Image":
        """The canvas as an image, with the past of every panel up to the cursor, and the cursors."""
        from matplotlib.colors import to_rgb
        from PIL import Image

        assert self.stage.past is not None
        pixels = np.array(self.stage.canvas.buffer_rgba())
        ink = np.array([*to_rgb(self._theme.muted), 1.0]) * 255
        for panel in self.stage.panels:
            left, top, _, bottom = panel.box
            column = int(panel.columns[index])
            pixels[top:bottom, left:column] = self.stage.past[top:bottom, left:column]
            pixels[top:bottom, column : column + max(round(self.stage.scale), 1)] = ink
        return Image.fromarray(pixels)

    def _dots(self, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pixel places (k, 2), radii (k,) and colours (k, 3) of the dots on the curves of the panels."""
        from matplotlib.colors import to_rgb

        shown = [panel for panel in self.stage.panels if panel.dots is not None and np.isfinite(panel.dots[index])]
        places = [(panel.columns[index], panel.dots[index]) for panel in shown if panel.dots is not None]
        colors = [to_rgb(panel.color) for panel in shown]
        radii = np.full(len(shown), 4.5 * self.stage.scale)
        return np.reshape(places, (-1, 2)), radii, np.reshape(colors, (-1, 3))

    def sprites(self, index: int, camera: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pixel places (n, 2), radii (n,) and colours (n, 3) of the particles of a frame, from far to near."""
        coordinates = self.coordinates(index)
        colors = self._particle_colors(index)
        fits = np.isfinite(coordinates).all(axis=-1)
        coordinates, colors = coordinates[fits], colors[fits]
        weights = self._weights(index)[fits]
        if self._blend:
            colors = crowd_colors(coordinates, colors, self._crowd_cell)
        crowds = find_crowds(coordinates, weights, colors, self._crowd_cell)
        radii = np.maximum(_least_radius(len(coordinates)), _RADIUS_OF_ALL * np.sqrt(crowds.mass))
        radii = radii * np.sqrt(crowds.share)
        seen = self._axes_coordinates(coordinates, index, camera)
        order = crowds.order(seen[:, 2] if seen.shape[-1] == 3 else None)
        seen, radii, colors = seen[order], radii[order], colors[order]
        if seen.shape[-1] == 3:
            cues = depth_cues(seen[:, 2], colors, self._theme.shade, self.view.kind == "sphere")
            seen, radii, colors = _with_rims(seen, radii * cues.sizes, cues)
        pixels = self._pixels(seen)
        inside = self._is_inside(pixels)
        return pixels[inside] - 0.5, radii[inside] * self.stage.scale, colors[inside]

    def _pixels(self, seen: np.ndarray) -> np.ndarray:
        """Pixels (n, 2) from the top left corner of the frame, of coordinates of the main axes."""
        pixels = self.stage.main.transData.transform(seen[:, :2])
        pixels[:, 1] = self.stage.size[1] - pixels[:, 1]
        return pixels

    def _is_inside(self, pixels: np.ndarray) -> np.ndarray:
        """Which pixels (n, 2) lie in the main axes or within two pixels of them."""
        bounds, height = self.stage.main.get_window_extent(), self.stage.size[1]
        across = np.abs(pixels[:, 0] - (bounds.x0 + bounds.x1) / 2) <= bounds.width / 2 + 2
        return across & (np.abs(pixels[:, 1] - height + (bounds.y0 + bounds.y1) / 2) <= bounds.height / 2 + 2)

    def _axes_coordinates(self, coordinates: np.ndarray, index: int, camera: np.ndarray) -> np.ndarray:
        """Coordinates as the main axes take them: camera axes in 3-D, (time, place) on a line."""
        if self.view.kind == "sphere":
            return coordinates @ camera.T
        if self.view.kind == "space" and self.stage.limits is not None:
            return box_coordinates(coordinates, self.stage.limits) @ camera.T
        if self.view.kind != "line":
            return coordinates
        column = self.stage.panels[0].columns[index]
        time = self.stage.main.transData.inverted().transform((column, 0))[0]
        return np.column_stack([np.full(len(coordinates), time), coordinates[:, 0]])


def _with_rims(seen: np.ndarray, radii: np.ndarray, cues: DepthCues) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places (m, 3), radii (m,) and colours (m, 3) of discs in drawing order: an open dot is a rim and a fill on it."""
    parts = np.where(cues.open, 2, 1)
    inner = np.concatenate([[False], np.diff(np.repeat(np.arange(len(parts)), parts)) == 0])[: parts.sum()]
    filled = inner | ~np.repeat(cues.open, parts)
    colors = np.where(filled[:, None], np.repeat(cues.fills, parts, axis=0), np.repeat(cues.rims, parts, axis=0))
    return np.repeat(seen, parts, axis=0), np.repeat(radii, parts) * np.where(inner, INSIDE, 1.0), colors


def _least_radius(count: int) -> float:
    """The radius of a particle by itself, in pixels at 720 lines: smaller the more there are."""
    return float(np.clip(75.0 / np.sqrt(max(count, 1)), 2.2, 6.0))


def _run_counts(run: Any, counts: Any) -> np.ndarray | None:
    """Counts of the run that is shown: (T,), or the first column of (T, R)."""
    if counts is None:
        return None
    counts = check_counts(run, counts)
    return counts if counts.ndim == 1 else counts[:, 0]
