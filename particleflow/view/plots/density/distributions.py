"""Figures of particles that do not gather: density, nearest neighbours, covariance, schedules, and image patches."""

from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.clusters.last_clusters import frame_clusters
from particleflow.analysis.covariance import nearest_distances, principal_variances
from particleflow.analysis.gaussian_tokens import gaussian_rate
from particleflow.analysis.reading import first_run, frame_weights
from particleflow.analysis.run_character import character_of
from particleflow.analysis.samples import stored_points, thinned
from particleflow.analysis.theory_curves import gaussian_blow_up, gaussian_variance
from particleflow.errors import ArgumentError
from particleflow.view import style
from particleflow.view.plots.base import (
    MAX_FRAMES,
    drawn_times,
    is_crowd,
    log_axis,
    mark_changes,
    new_axes,
    projection,
    run_of_particles,
    set_title,
    time_axis,
)
from particleflow.view.plots.density.density_scale import field_of
from particleflow.view.plots.density.functions import density_mesh
from particleflow.view.plots.density.histograms import densities, ruler_of
from particleflow.view.plots.matrices.pair_matrices import edges_between
from particleflow.view.plots.space.paths import angle_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory.trajectory import Trajectory

MOST_NEIGHBOURS = 4000  # particles whose nearest neighbours are drawn


def particle_density(
    trajectory: "Trajectory",
    *,
    log: bool | str = "auto",
    cells: int | None = None,
    bar: bool = True,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the density of the particles against time, by mass: of their angles on a circle, else along one axis.

    On a sphere that axis is the mean direction of the first frame (uniform there means uniform on S²); elsewhere it is
    the first coordinate or principal component. All particles count. Colours are logarithmic for a crowd that gathers.
    An ensemble shows its run 0. A run that is carried by a density shows that density itself, in its own cells, on the
    colour scale of its snapshots.

    Parameters: `log`, a logarithmic time axis (True, False, or "auto": where the frames are spaced like that); `cells`,
    of the histogram, else as many as the number of particles allows (cells finer than pixels would lose clusters);
    `bar`, whether to draw the colour scale; `ax`, the axes to draw on, else new ones. Returns the axes.
    """
    run = first_run(trajectory)
    frames = thinned(len(run), MAX_FRAMES // 2)
    ruler, field = ruler_of(run, frames), field_of(run)
    edges, found = densities(run, frames, ruler, cells)
    crowd = is_crowd(run) and field is None
    ax = new_axes(ax, about=trajectory, note=f"all particles, in {len(edges) - 1} cells" if crowd else "")
    log = time_axis(ax, run.times, log, unit=run.facts.time_unit)
    columns = edges_between(drawn_times(run.times, log)[frames], log)
    own = field.norm() if field is not None and field.cells.kind in ("line", "circle") else None
    gathers = crowd and character_of(run).gathers
    density_mesh(ax, columns, edges, found, logarithmic=gathers, norm=own, bar=bar)
    ax.set_ylabel(ruler.name)
    ax.set_ylim(edges[0], edges[-1])
    if projection(run).kind == "circle":
        angle_ticks(ax.yaxis, edges[0], edges[-1])
    mark_changes(ax, run)
    set_title(ax, run)
    return ax


def nearest_neighbours(trajectory: "Trajectory", *, log: bool | str = "auto", ax: "Axes | None" = None) -> "Axes":
    """Draw how far particles are from the nearest other one: median, 10-90 % band and the smallest, against time.

    On a sphere the distance is an angle in degrees. Particles without mass are left out; an ensemble shows its run 0.

    Parameters: `log`, a logarithmic time axis (True, False, or "auto": where the frames are spaced like that); `ax`,
    the axes to draw on, else new ones. Returns the axes.
    """
    run = run_of_particles(trajectory, "A picture of nearest neighbours")
    view, theme = projection(run), style.current()
    chosen = np.flatnonzero(frame_weights(run, 0) > 0)
    if not 2 <= len(chosen) <= MOST_NEIGHBOURS:
        raise ArgumentError(
            f"Nearest neighbours are drawn of 2 to {MOST_NEIGHBOURS} particles, but {len(chosen)} have mass."
        )
    frames = thinned(len(run), MAX_FRAMES // 2)
    radius, unit = (view.radius, np.degrees(1.0)) if view.spherical else (None, 1.0)
    found = np.stack([nearest_distances(stored_points(run, int(frame))[chosen], radius) for frame in frames]) * unit
    ax = new_axes(ax, about=trajectory)
    log = time_axis(ax, run.times, log, unit=run.facts.time_unit)
    times = drawn_times(run.times, log)[frames]
    low, middle, high = np.quantile(found, [0.1, 0.5, 0.9], axis=1)
    ax.fill_between(times, low, high, color=theme.categories[0], alpha=0.22, linewidth=0, label="10–90 % of particles")
    ax.plot(times, middle, color=theme.categories[0], label="median")
    ax.plot(times, found.min(axis=1), color=theme.categories[3], linewidth=0.8 * theme.line_width, label="smallest")
    ax.set_ylabel("angle to the nearest particle (°)" if view.spherical else "distance to the nearest particle")
    ax.set_ylim(bottom=0.0)
    ax.grid(True, axis="y")
    ax.legend(loc="best")
    mark_changes(ax, run)
    set_title(ax, run)
    return ax


def covariance(trajectory: "Trajectory", *, log: bool | str = "auto", ax: "Axes | None" = None) -> "Axes":
    """Draw the principal variances of the cloud against time; where a theory holds, with its curve and its pole.

    A Gaussian under softmax attention alone, with numbers Q, K, V in free space, has s₀ / (1 − 2 r s₀ t), with a pole
    at 1 / (2 r s₀), where r = Σ β q k v over its heads. An ensemble shows its run 0; of more than six variances the
    largest six are drawn.

    Parameters: `log`, a logarithmic time axis (True, False, or "auto": where the frames are spaced like that); `ax`,
    the axes to draw on, else new ones. Returns the axes.
    """
    run = first_run(trajectory)
    theme = style.current()
    frames = thinned(len(run), MAX_FRAMES // 2)
    values = principal_variances(run, frames)
    ax = new_axes(ax, about=trajectory)
    log = time_axis(ax, run.times, log, unit=run.facts.time_unit)
    times = drawn_times(run.times, log)[frames]
    wide = values.max() > 1e2 * max(float(values[0].max()), 1e-300)
    values = log_axis(ax, values, power=2) if wide else values
    shown = min(values.shape[1], 6)
    for index, color in enumerate(style.palette(shown)):
        name = "variance" if shown == 1 else f"principal variance {index + 1}"
        ax.plot(times, values[:, index], color=color, label=name)
    rate = gaussian_rate(run)
    if rate is not None:
        _draw_theory(ax, run, times, values[0, :shown], rate)
    if not wide:
        ax.set_ylim(0.0, (2.5 if rate else 1.08) * float(values.max()) or 1.0)
    ax.set_ylabel("variance")
    ax.grid(True, axis="y")
    ax.legend(loc="best", labelcolor=theme.text)
    mark_changes(ax, run)
    set_title(ax, run)
    return ax


def _draw_theory(ax: "Axes", run: "Trajectory", times: np.ndarray, starts: np.ndarray, rate: float) -> None:
    """The curves of Gaussian tokens, and the first pole as an upright line."""
    theme = style.current()
    clock = np.linspace(float(run.times[0]), float(run.times[-1]), 800)
    label: str | None = f"Gaussian tokens, $s_0/(1 - 2 r s_0 t)$, $r$ = {rate:.3g}"
    for start in starts:
        curve = gaussian_variance(float(start), rate, clock - clock[0])
        ax.plot(np.maximum(clock, times[0]), curve, "--", color=theme.text, linewidth=0.9, label=label, zorder=4)
        label = None
    pole = gaussian_blow_up(float(starts.max()), rate)
    if pole is None:
        return
    when = float(run.times[0]) + pole
    ax.axvline(when, color=theme.categories[3], linewidth=0.9, label=f"its pole, t = {when:.4g}")
    ax.set_xlim(right=max(ax.get_xlim()[1], 1.04 * when))


def schedule(trajectory: "Trajectory", *, log: bool | str = "auto", ax: "Axes | None" = None) -> "Axes":
    """Draw the parameter that changes with time, such as β(t) of annealing, as the run has stored it.

    Parameters: `log`, a logarithmic time axis (True, False, or "auto": where the frames are spaced like that); `ax`,
    the axes to draw on, else new ones. Returns the axes.
    """
    known = trajectory.facts.schedule
    if known is None:
        raise ArgumentError("A schedule is drawn of a run whose β or width changes with time, but this one has none.")
    ax = new_axes(ax, about=trajectory)
    log = time_axis(ax, trajectory.times, log, unit=trajectory.facts.time_unit)
    times, values = known.times, known.values
    if values.min() > 0 and values.max() > 20 * values.min():
        values = log_axis(ax, values)
    ax.plot(np.maximum(times, ax.get_xlim()[0]), values, color=style.current().categories[0])
    ax.set_ylabel("$\\beta(t)$" if known.name == "beta" else style.clean(known.name, 30))
    ax.grid(True, axis="y")
    mark_changes(ax, trajectory)
    set_title(ax, trajectory)
    return ax


def picture(trajectory: "Trajectory", frame: int = -1, *, labels: Any = None, ax: "Axes | None" = None) -> "Axes":
    """Draw the patches of an image at their places, coloured by the cluster that each belongs to: a segmentation.

    Clusters have the colours of the other figures, where these show the same clusters; else the largest clusters have
    the most distinct colours.

    Parameters: the index of the `frame`; `labels` (N,) or (T, N), the clusters, else those of the frame; `ax`, the axes
    to draw on, else new ones. Returns the axes.
    """
    from particleflow.view.plots.base import MATRIX
    from particleflow.view.plots.colors import check_labels, colored_clusters

    run = first_run(trajectory)
    shape = character_of(run).picture
    if shape is None:
        raise ArgumentError("A picture is drawn of a run of image patches, but this run stores no layout of patches.")
    clusters = frame_clusters(run, frame) if labels is None else check_labels(run, labels)
    clusters = clusters if clusters.ndim == 1 else clusters[frame]
    _, number, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    rank = np.argsort(np.argsort(-sizes, kind="stable"), kind="stable")
    known = colored_clusters(run)
    alike = known is not None and len({*zip(number.tolist(), known.labels.tolist(), strict=True)}) == len(sizes)
    colors = known.colors[known.labels] if known is not None and alike else style.label_colors(rank[number])
    ax = new_axes(ax, MATRIX, about=trajectory)
    ax.imshow(colors.reshape(*shape, 3), interpolation="nearest")
    ax.set(xticks=[], yticks=[], xlabel=f"{len(sizes)} clusters of {run.count} patches")
    set_title(ax, run, time=float(run.times[frame]))
    return ax
