"""The eigenvalues of a fixed point in the complex plane, and its particles beside them."""

from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.errors import ShapeError
from particleflow.view import style
from particleflow.view.plots.base import SQUARE, new_axes, new_figure, rounding_level, title_figure, write_figure_title
from particleflow.view.plots.space.snapshots import snapshot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from particleflow.trajectory.trajectory import Trajectory

_NAMES = ("grows", "neutral", "shrinks")
_MARGIN = 0.12
_APART = 30.0  # rates that differ by so much do not show on one linear axis
_LEAST = 0.05  # the height of the picture where every eigenvalue is real, as a share of its width


def eigenvalues(
    values: Any, multiplicities: Any = None, *, layers: bool = False, tolerance: float = 0.0, ax: "Axes | None" = None
) -> "Axes":
    """Draw eigenvalues λ in the complex plane: of a flow, what grows is right of the imaginary axis.

    Areas are proportional to the multiplicities; colours show what grows, shrinks, or does neither.

    Parameters: `values` (k,), complex; `multiplicities` (k,), else 1; `layers`, whether they are multipliers of a
    layer, of which those outside of the unit circle grow; `tolerance`, within which a value is neutral; `ax`, the axes
    to draw on, else new ones. Returns the axes.
    """
    points = np.ravel(np.asarray(values, complex))
    times = np.ones(len(points)) if multiplicities is None else np.ravel(np.asarray(multiplicities, float))
    if times.shape != points.shape:
        raise ShapeError(f"Argument `multiplicities` must have shape {points.shape}, but has {times.shape}.")
    ax = new_axes(ax, SQUARE)
    growth = np.abs(points) - 1 if layers else np.real(points)
    order = np.argsort(-times)  # small ones above
    kinds = np.where(growth > tolerance, 0, np.where(growth < -tolerance, 2, 1))
    theme = style.current()
    colors = style.palette(4)[[3, 1, 0]]
    _boundary(ax, layers, theme)
    for kind, name in enumerate(_NAMES):
        chosen = order[kinds[order] == kind]
        if len(chosen):
            count = int(times[chosen].sum())
            areas = 26 + 160 * times[chosen] / max(times.max(), 8.0)
            ax.scatter(
                np.real(points[chosen]), np.imag(points[chosen]), s=areas, c=[colors[kind]], alpha=0.85, zorder=3,
                linewidths=0.5, edgecolors=theme.panel, label=f"{name} ({count})",
            )  # fmt: skip
    _limits(ax, points, layers)
    ax.set(xlabel="Re λ", ylabel="Im λ")
    if not layers:
        _stretch(ax, growth[kinds != 1])
    if len(points):
        for handle in ax.legend(loc="best", handletextpad=0.2).legend_handles:
            handle.set_sizes([40.0])  # type: ignore[union-attr]
    return ax


def _stretch(ax: "Axes", growth: np.ndarray) -> None:
    """A real axis that is logarithmic on both sides of 0, where rates differ by orders of magnitude."""
    sizes = np.abs(growth)
    if len(sizes) < 2 or sizes.max() < _APART * sizes.min():
        return
    least = 10.0 ** np.floor(np.log10(max(sizes.min(), rounding_level(sizes))))
    ax.set_aspect("auto")
    ax.set_xscale("symlog", linthresh=least, linscale=0.5)
    ends = [max(side.max(initial=0.0), least) * 3 for side in (-growth, growth)]
    ax.set_xlim(-ends[0], ends[1])
    decades = np.arange(np.log10(least) + 1, np.log10(max(ends)) + 1e-9)
    powers = 10.0 ** decades[:: -max(1, len(decades) // 2)]  # few, so that their names have room
    ax.set_xticks([*(-powers[powers <= ends[0]]), 0.0, *powers[powers <= ends[1]]])
    ax.minorticks_off()


def _boundary(ax: "Axes", layers: bool, theme: style.Theme) -> None:
    """The boundary between growth and decay: the imaginary axis, or the unit circle."""
    ax.axhline(0.0, color=theme.grid, linewidth=0.8, zorder=1)
    if layers:
        angle = np.linspace(0, 2 * np.pi, 361)
        ax.plot(np.cos(angle), np.sin(angle), color=theme.muted, linewidth=0.9, zorder=2)
    else:
        ax.axvline(0.0, color=theme.muted, linewidth=0.9, zorder=2)


def _limits(ax: "Axes", points: np.ndarray, layers: bool) -> None:
    """All eigenvalues and the boundary, in axes of one scale where some are complex."""
    real, imaginary = np.append(np.real(points), 0.0), np.append(np.imag(points), 0.0)
    if layers:
        real, imaginary = np.append(real, [-1.0, 1.0]), np.append(imaginary, [-1.0, 1.0])
    low, high = float(real.min()), float(real.max())
    width = max(high - low, 1e-12)
    height = max(float(np.abs(imaginary).max()), _LEAST * width)
    ax.set(xlim=(low - _MARGIN * width, high + _MARGIN * width), ylim=(-1.15 * height, 1.15 * height))
    if not np.abs(imaginary).max() > 1e-9 * width:
        ax.set_yticks([0.0])
    if layers or height > 0.2 * width:
        ax.set_aspect("equal", adjustable="box")


def fixed_point(
    trajectory: "Trajectory",
    values: Any,
    multiplicities: Any = None,
    *,
    layers: bool = False,
    tolerance: float = 0.0,
    title: str | None = None,
) -> Any:
    """A figure of a fixed point: its particles, which are the last frame of a trajectory, and its eigenvalues.

    Parameters: `values`, `multiplicities`, `layers`, `tolerance` as for `eigenvalues`; `title`, else that of the run.
    """
    figure = new_figure((1.25, 0.62), trajectory)
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.05))
    snapshot(trajectory, title="", ax=left)
    eigenvalues(values, multiplicities, layers=layers, tolerance=tolerance, ax=right)
    if title:
        write_figure_title(figure, title)
    else:
        title_figure(figure, trajectory, "Fixed point")
    return figure
