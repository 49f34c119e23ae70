"""Particles over the data that they look at, and over the density of these data, which they climb."""

from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.density.data_density import data_density, data_width
from particleflow.analysis.motion import even_in_motion
from particleflow.analysis.reading import first_run
from particleflow.analysis.samples import sample_points, thinned
from particleflow.errors import ArgumentError
from particleflow.view import style
from particleflow.view.plots.base import new_figure, projection, time_words, title_figure
from particleflow.view.plots.space.snapshots import snapshot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory.trajectory import Trajectory

_CELLS = 160  # of the density along each side
_MOST_DATA = 2000  # points of data that are drawn
_PANEL = 0.62  # width of a panel in widths of the theme
_MARGIN = 0.04


def has_field(trajectory: "Trajectory") -> bool:
    """Whether a run is one of particles in the plane that look at stored data by a Gaussian kernel of known width."""
    run = first_run(trajectory)
    return run.dimension == 2 and data_width(run, float(run.times[0])) is not None and projection(run).kind == "plane"


def data_field(trajectory: "Trajectory", frames: Any = None, *, labels: Any = None, figure: Any = None) -> np.ndarray:
    """Draw particles over the data they look at (small dots) and the density of these data under the run's kernel.

    Four panels that share their limits; of a width that changes with time each has the density of its own time, which
    the darkest colour shows at its largest. An ensemble shows its run 0.

    Parameters: `frames`, else four that are even in the motion; `labels` (N,) or (T, N), clusters to colour by;
    `figure`, the figure to draw on, else a new one. Returns the array of axes.
    """
    run = first_run(trajectory)
    if not has_field(run):
        raise ArgumentError(
            "A field of data is drawn of a run in the plane that looks at stored data by a Gaussian kernel, but this "
            "one does not."
        )
    chosen = np.unique(even_in_motion(run, 4) if frames is None else np.asarray(frames, int))
    rows = -(-len(chosen) // 2)
    if figure is None:
        figure = new_figure((2 * _PANEL, _PANEL * rows + 0.1), trajectory, "shades: density of the data")
        title_figure(figure, run, "Particles over their data")
    axes = figure.subplots(rows, min(len(chosen), 2), squeeze=False, sharex=True, sharey=True).ravel()
    low, high = _limits(run)
    for ax, frame in zip(axes, chosen.tolist(), strict=False):
        time = float(run.times[frame])
        snapshot(run, frame, labels=labels, title=time_words(run, time), ax=ax)
        width = data_width(run, time)
        assert width is not None
        _draw_density(ax, run, width, low, high)
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
        ax.label_outer()
    for ax in axes[len(chosen) :]:
        ax.set_visible(False)
    return axes[: len(chosen)]


def _limits(run: "Trajectory") -> tuple[np.ndarray, np.ndarray]:
    """The lowest and highest coordinates of the particles and the data, with a margin."""
    assert run.facts.data_points is not None
    points = np.concatenate([sample_points(run).reshape(-1, 2), run.facts.data_points])
    points = points[np.isfinite(points).all(axis=1)]
    low, high = points.min(axis=0), points.max(axis=0)
    pad = _MARGIN * (high - low).max()
    return low - pad, high + pad


def _draw_density(ax: "Axes", run: "Trajectory", width: float, low: np.ndarray, high: np.ndarray) -> None:
    """The density of the data as pale shades with contours, and the data as small dots, beneath the particles."""
    data = run.facts.data_points
    assert data is not None
    across, up = (np.linspace(low[axis], high[axis], _CELLS) for axis in range(2))
    places = np.stack(np.meshgrid(across, up), axis=-1)
    density = data_density(data, width, places.reshape(-1, 2)).reshape(places.shape[:2])
    top = float(density.max())
    ax.imshow(
        density, extent=(low[0], high[0], low[1], high[1]), origin="lower", cmap=style.colormap("density"), vmin=0,
        vmax=1.6 * top, alpha=0.75, interpolation="bilinear", zorder=0, aspect="equal",
    )  # fmt: skip
    theme = style.current()
    levels = np.array([0.1, 0.3, 0.5, 0.7, 0.9]) * top
    ax.contour(across, up, density, levels=levels, colors=theme.panel, linewidths=0.5, zorder=0.5)
    shown = data[thinned(len(data), _MOST_DATA)]
    ax.scatter(*shown.T, s=2, color=theme.text, alpha=0.45, linewidths=0, zorder=1)
