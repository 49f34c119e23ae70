"""Kernel matrices beside their approximations by few features, and singular values of blocks far apart."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.attention.low_rank import BlockRanks, feature_errors
from particleflow.view import style
from particleflow.view.plots.base import log_axis, new_axes, new_figure, rounding_level
from particleflow.view.plots.matrices.pair_matrices import color_bar

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = 24  # singular values


def block_ranks(found: BlockRanks, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the singular values of blocks of 1/|x − y|, one line a separation, with the tolerances as levels.

    Lines are straight, so the rank grows as the logarithm of the tolerance, and they are steeper the farther the blocks
    are apart.

    Parameters: `found`, what `particleflow.analysis.block_ranks` returns; `ax`, the axes to draw on, else new ones.
    Returns the axes.
    """
    ax = new_axes(ax)
    theme = style.current()
    for tolerance in found.tolerances:
        ax.axhline(tolerance, color=theme.muted, linewidth=0.7, linestyle=(0, (1, 3)), zorder=1)
    colors = style.ordered_colors(np.linspace(0, 1, len(found.separations)))
    least = rounding_level(found.singular_values)
    log_axis(ax, np.maximum(found.singular_values, least))
    for separation, values, color in zip(found.separations, found.singular_values, colors, strict=True):
        shown = values[:_SHOWN][values[:_SHOWN] > least]
        ax.plot(np.arange(1, len(shown) + 1), shown, "o-", color=color, markersize=3.5, label=f"{separation:g}")
    ax.set(ylim=(least / 2, 2.0), xlim=(0.5, None))
    ax.set(xlabel="index $p$", ylabel=r"singular value $\sigma_p / \sigma_1$")
    ax.locator_params(axis="x", integer=True)
    ax.legend(title="distance of\ncentres", loc="upper right")
    ax.set_title(r"Blocks of $1/|x - y|$ between two segments of length 1")
    return ax


def feature_convergence(
    exact: Any, approximations: Mapping[int, Any], *, panels: int = 3, figure: Any = None
) -> np.ndarray:
    """Draw a kernel matrix beside its approximations ZZᵀ of growing rank R, and their errors against R.

    The errors, of all approximations, are root mean squares over the entries; the dashed line falls as R^{−1/2}.

    Parameters: the `exact` matrix; `approximations`, matrices by their rank, of which `panels`, evenly chosen, are
    shown; `figure`, the figure to draw on, else a new one. Returns the array of axes.

    A summation's matrix is what it makes of the values 1 at one point and 0 at all others:

        moments = pf.summation.Features(R, "fourier").moments(kernel, measure, points, values=np.eye(len(points)))
        matrix = np.exp(moments.log_mass[:, None] - measure.log_weights) * moments.mean
    """
    exact = np.asarray(exact, float)
    ranks, errors = feature_errors(exact, approximations)
    chosen = ranks[np.unique(np.linspace(0, len(ranks) - 1, panels).round().astype(int))]
    figure = new_figure((0.5 * (len(chosen) + 2), 0.5)) if figure is None else figure
    axes = figure.subplots(1, len(chosen) + 2, width_ratios=[1.0] * (len(chosen) + 1) + [1.15])
    shown = {"$K$": exact} | {f"$ZZ^\\top$, $R$ = {rank}": np.asarray(approximations[int(rank)]) for rank in chosen}
    limit = float(np.abs(exact).max())
    colors: dict[str, Any] = {"cmap": style.colormap("diverging"), "vmin": -limit, "vmax": limit}
    for ax, (title, matrix) in zip(axes, shown.items(), strict=False):
        ax.imshow(matrix, interpolation="nearest", **colors)
        ax.set(xticks=[], yticks=[], title=title)
    color_bar(axes[len(chosen)], axes[len(chosen)].images[0], "")
    _errors(axes[-1], ranks, errors)
    return axes


def _errors(ax: "Axes", ranks: np.ndarray, errors: np.ndarray) -> None:
    """Errors against the rank on logarithmic axes, and a line of slope −1/2 through the middle of those that exist."""
    ax.plot(log_axis(ax, ranks, axis="x"), log_axis(ax, errors), "o-", markersize=4)
    known = np.isfinite(errors) & (errors > 0)
    if known.any():
        level = np.exp(np.mean(np.log(errors[known] * np.sqrt(ranks[known]))))  # amid the errors
        guide = {"linestyle": "--", "color": style.current().muted, "linewidth": 1.0, "label": "$R^{-1/2}$"}
        ax.plot(ranks, level / np.sqrt(ranks), **guide)
        ax.legend(loc="lower left")
    ax.set(xlabel="features $R$", title="error of an entry")
