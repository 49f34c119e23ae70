"""Images drawn as images: what a memory recalls, a picture and its moving patches, weights over a picture."""

from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.motion import even_in_motion
from particleflow.analysis.reading import FloatArray, first_run
from particleflow.analysis.run_character import character_of
from particleflow.analysis.samples import stored_points, thinned
from particleflow.errors import ArgumentError, ShapeError
from particleflow.view import style
from particleflow.view.plots.base import new_figure, time_words, title_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory.trajectory import Trajectory

_MOST_COLUMNS = 12  # points that are drawn
_FRAMES = 4
_PANEL = 0.56  # width of a picture before or after, in widths of the theme


def recall(trajectory: "Trajectory", particles: Any = None, *, figure: Any = None) -> np.ndarray:
    """Draw points that are images, one column a point: at the start, at two times between, and at the end.

    Below, where the run stores the data that its points look at, the stored image that is nearest to the end of each.
    Every row has one scale of grey, from its least to its largest number. An ensemble shows its run 0.

    Parameters: the indices of the `particles`, else one of each label, at most twelve; `figure`, the figure to draw on,
    else a new one. Returns the array of axes, one row a time.
    """
    run = first_run(trajectory)
    shape = _shape_of_points(run)
    chosen = _one_of_each(run) if particles is None else np.atleast_1d(np.asarray(particles, int))
    frames = np.unique(even_in_motion(run, _FRAMES))
    rows = [(time_words(run, float(run.times[frame])), stored_points(run, int(frame))[chosen]) for frame in frames]
    data = run.facts.data_points
    if data is not None:
        nearest = np.square(rows[-1][1][:, None] - data[None]).sum(axis=-1).argmin(axis=1)
        rows.append(("nearest\nin memory", data[nearest]))
    count, width = len(chosen), 1.3
    if figure is None:
        figure = new_figure((width, width * 0.88 * len(rows) / (count + 0.8) * shape[0] / shape[1] + 0.15), trajectory)
        title_figure(figure, run, "Images")
    axes = figure.subplots(len(rows), count, squeeze=False)
    size = int(np.prod(shape))
    for line, (name, points) in zip(axes, rows, strict=True):
        low, high = float(points[:, :size].min()), float(points[:, :size].max())
        for ax, point in zip(line, points, strict=True):
            _draw_image(ax, point[:size].reshape(shape), low, high)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
    return axes


def patches_before_and_after(trajectory: "Trajectory", *, labels: Any = None, figure: Any = None) -> np.ndarray:
    """Draw a picture put together from its patches, before and after they moved, and its segments beside it.

    The grey of a centred picture is brightness less the mean of all patches. Segments are the clusters of the last
    frame (see `picture`).

    Parameters: `labels` (N,) or (T, N), clusters instead of those of the last frame; `figure`, the figure to draw on,
    else a new one. Returns the array of three axes.
    """
    from particleflow.view.plots.density.distributions import picture

    run = first_run(trajectory)
    shape, places = _shape_of_points(run), character_of(run).picture
    if places is None:
        raise ArgumentError(
            "A picture is put together of the patches of an image, but this run stores no layout of patches."
        )
    if figure is None:
        height = _PANEL * places[0] * shape[0] / (places[1] * shape[1])
        figure = new_figure((3 * _PANEL, height + 0.2), trajectory)
        title_figure(figure, run, "A picture and its patches")
    axes = figure.subplots(1, 3)
    whole = [_put_together(stored_points(run, frame), places, shape) for frame in (0, -1)]
    low, high = float(whole[0].min()), float(whole[0].max())
    for ax, image, frame in zip(axes, whole, (0, -1), strict=False):
        _draw_image(ax, image, low, high)
        ax.set_title(time_words(run, float(run.times[frame])))
    picture(run, -1, labels=labels, ax=axes[2])
    axes[2].set_title("segments")
    return axes


def weight_maps(image: Any, places: Any, weights: Any, *, figure: Any = None) -> np.ndarray:
    """Draw what a non-local mean looks at: a picture with a few pixels marked, and the weights of all pixels in each.

    Every map has a scale of its own. A cross marks the pixel whose mean it makes, and a frame encloses all pixels that
    have weight, if these are not all. Where the pixel itself weighs most, the scale ends at the second largest weight,
    so that all others can be told apart; the title has its weight.

    Parameters: `image` (rows, columns) or with three colours in [0, 1]; `places` (k, 2), row and column of the pixels;
    `weights` (k, rows, columns), such as `models.non_local_weights` gives; `figure`, the figure to draw on, else a new
    one. Returns the array of axes, the picture first.
    """
    pixels, maps, chosen = np.asarray(image, float), np.asarray(weights, float), np.atleast_2d(np.asarray(places, int))
    if maps.shape != (len(chosen), *pixels.shape[:2]):
        raise ShapeError(
            f"Argument `weights` must have shape {(len(chosen), *pixels.shape[:2])}, but has {maps.shape}."
        )
    count = len(chosen) + 1
    columns = min(count, 3)
    rows = -(-count // columns)
    if figure is None:
        panel = 1.55 / columns
        figure = new_figure((1.55, rows * (panel * pixels.shape[0] / pixels.shape[1] + 0.12)))
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in grid[count:]:
        ax.set_visible(False)
    colors = style.label_colors(np.arange(len(chosen)))
    _draw_image(grid[0], pixels, float(pixels.min()), float(pixels.max()))
    grid[0].set_title("picture")
    for number, (ax, place, each) in enumerate(zip(grid[1:], chosen, maps, strict=False)):
        _mark_pixel(grid[0], place, colors[number], str(number + 1))
        _draw_weights(ax, place, each, colors[number], number + 1)
    return grid[:count]


def _draw_weights(ax: "Axes", place: np.ndarray, weights: FloatArray, color: Any, number: int) -> None:
    """The map of one pixel, with a frame around the rows and columns that have weight."""
    from matplotlib.ticker import MaxNLocator

    own = float(weights[tuple(place)])
    others = weights.copy()
    others[tuple(place)] = 0.0
    top = float(others.max()) or own or 1.0
    image = ax.imshow(weights, cmap=style.colormap("density"), vmin=0.0, vmax=top, interpolation="nearest")
    (top_row, last_row), (first, last) = (np.flatnonzero(weights.any(axis=axis))[[0, -1]] for axis in (1, 0))
    frame = np.array([[first, top_row], [last + 1, top_row], [last + 1, last_row + 1], [first, last_row + 1]]) - 0.5
    if (last_row - top_row + 1, last - first + 1) != weights.shape:
        ax.plot(*frame[[0, 1, 2, 3, 0]].T, color=style.current().muted, linewidth=0.8, linestyle=(0, (4, 2)))
    _mark_pixel(ax, place, color)
    bar: Any = ax.figure.colorbar(image, ax=ax, orientation="horizontal", pad=0.03, aspect=28)
    bar.outline.set_visible(False)
    bar.locator = MaxNLocator(3)
    ax.set(xticks=[], yticks=[], title=f"weights of {number}, of itself {own:.1g}")
    for spine in ax.spines.values():
        spine.set(visible=True, color=style.current().muted, linewidth=0.5)


def _mark_pixel(ax: "Axes", place: np.ndarray, color: Any, name: str = "") -> None:
    """A cross on a pixel, white below so that it is seen on any colour, and its number beside it."""
    row, column = (float(each) for each in place)
    for width, ink in ((3.6, "white"), (1.8, color)):
        ax.plot([column], [row], "+", markersize=11, markeredgewidth=width, color=ink, zorder=4)
    if name:
        away = 6 if column < 0.9 * ax.get_xlim()[1] else -14
        box: dict[str, Any] = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": color, "alpha": 0.9}
        ax.annotate(
            name, (column, row), (away, 6), textcoords="offset points", fontsize="small", color="black", bbox=box
        )


def _shape_of_points(run: "Trajectory") -> tuple[int, ...]:
    """The sides of the image that every point is, or begins with."""
    shape = run.facts.image
    if shape is None:
        raise ArgumentError("Images are drawn of a run whose points are images, but this run stores no sides of them.")
    return shape


def _one_of_each(run: "Trajectory") -> np.ndarray:
    """The first particle of every label, else particles evenly chosen; at most twelve."""
    if run.labels is None:
        return thinned(run.count, _MOST_COLUMNS)
    found = np.unique(np.asarray(run.labels), return_index=True)[1]
    return found[thinned(len(found), _MOST_COLUMNS)]


def _put_together(points: FloatArray, places: tuple[int, ...], shape: tuple[int, ...]) -> FloatArray:
    """The picture (height, width) or (height, width, channels) of patches in reading order."""
    rows, columns = places
    channels = shape[2] if len(shape) == 3 else 1
    patches = points[:, : int(np.prod(shape))].reshape(rows, columns, shape[0], shape[1], channels)
    whole = patches.transpose(0, 2, 1, 3, 4).reshape(rows * shape[0], columns * shape[1], channels)
    return whole[..., 0] if channels == 1 else whole


def _draw_image(ax: "Axes", image: FloatArray, low: float, high: float) -> None:
    """An image in grey, or in its three colours, on a scale from low to high."""
    image = image[..., 0] if image.ndim == 3 and image.shape[2] != 3 else image
    colored = np.clip((image - low) / ((high - low) or 1.0), 0.0, 1.0)
    ax.imshow(colored, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set(visible=True, color=style.current().muted, linewidth=0.5)
