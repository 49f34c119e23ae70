"""Profiles of repelling attention on the circle over those of the heat equation."""

from typing import TYPE_CHECKING

import numpy as np

from particleflow.analysis.heat_equation import heat_profile, heat_rate
from particleflow.analysis.motion import even_in_motion
from particleflow.analysis.reading import first_run, frame_weights
from particleflow.analysis.samples import stored_points
from particleflow.errors import ArgumentError
from particleflow.view import style
from particleflow.view.plots.base import angles, new_axes, projection, set_title, time_words
from particleflow.view.plots.space.paths import angle_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory.trajectory import Trajectory

_GRID = 400
_MOST_MODES, _PER_MODE = 100, 4  # Fourier modes of a profile, and particles for each at least
_TIMES = 4


def heat_profiles(trajectory: "Trajectory", *, ax: "Axes | None" = None) -> "Axes":
    """Draw the density of repelling attention on the circle at four times, over the solution of the heat equation.

    Both are sums of the first Fourier modes of the particles, at most 100: coloured lines are the run, dashed ones the
    heat equation from the run's first frame on. An ensemble shows its run 0.

    Parameters: `ax`, the axes to draw on, else new ones. Returns the axes.
    """
    run = first_run(trajectory)
    rate = heat_rate(run)
    if rate is None:
        raise ArgumentError("Heat profiles are drawn of repelling attention of large β on the unit circle alone.")
    ax, theme = new_axes(ax, about=trajectory), style.current()
    grid, weights = np.linspace(-np.pi, np.pi, _GRID), frame_weights(run, 0)
    modes = int(np.clip(run.count // _PER_MODE, 1, _MOST_MODES))
    begin = angles(projection(run)(stored_points(run, 0)))
    frames = np.unique(even_in_motion(run, _TIMES))
    for frame, color in zip(frames.tolist(), style.ordered_colors(np.linspace(0, 1, len(frames))), strict=True):
        time = float(run.times[frame])
        now = angles(projection(run)(stored_points(run, frame)))
        ax.plot(
            grid, heat_profile(now, weights, 0.0, grid, modes), color=color, linewidth=2.4 * theme.line_width,
            alpha=0.6, label=time_words(run, time),
        )  # fmt: skip
        exact = heat_profile(begin, weights, rate * (time - float(run.times[0])), grid, modes)
        ax.plot(grid, exact, "--", color=theme.text, linewidth=0.9, zorder=4)
    ax.plot([], [], "--", color=theme.text, linewidth=0.9, label=f"heat equation, $D$ = {rate:.3g}")
    ax.set(xlabel="angle θ", ylabel="density")
    ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
    angle_ticks(ax.xaxis, -np.pi, np.pi)
    ax.grid(True, axis="y")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=5, labelcolor=theme.text, fontsize="small")
    set_title(ax, run)
    return ax
