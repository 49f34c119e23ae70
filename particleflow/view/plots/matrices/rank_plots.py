"""Ranks of an attention matrix, given or of a run: what few terms leave of it, and its rank beside a band."""

from typing import Any

import numpy as np

from particleflow.analysis.attention.attention_ranks import AttentionRanks
from particleflow.analysis.attention.attention_ranks import attention_ranks as ranks_of
from particleflow.analysis.clusters.last_clusters import frame_clusters
from particleflow.analysis.reading import first_run
from particleflow.analysis.samples import thinned
from particleflow.errors import ArgumentError
from particleflow.view import style
from particleflow.view.plots.base import log_axis, new_figure, run_of_particles, sample_note, set_title
from particleflow.view.plots.matrices.pair_matrices import acting_attention

MAX_RANKED = 1024  # particles, whose matrix is decomposed once a band
_SHOWN = 64  # terms
_LEAST = 1e-6  # of the share that is shown
_HIGHEST = 50.0  # end of the axis of shares, which are at most 1: above them stands the legend


def attention_ranks(
    source: Any, frame: int = -1, *, beta: float | None = None, labels: Any = None, figure: Any = None
) -> np.ndarray:
    """Draw what the best approximations of an attention matrix leave of it, and its ranks beside a band.

    A given matrix, such as that of one head, keeps its order. Particles of a trajectory are ordered as in `attention`:
    clusters side by side, or by their places in the sequence where the mask depends on these. The marks are rank one
    and the number of clusters.

    Parameters: `source`, a square matrix or a trajectory, of at most 1,024 particles; the index of the `frame`; `beta`,
    instead of the stored interaction; `labels` (N,) or (T, N), the clusters, else those of the frame; `figure`, the
    figure to draw on, else a new one. Returns the array of axes.
    """
    if hasattr(source, "__array__"):
        return _of_matrix(np.asarray(source, float), figure)
    run = run_of_particles(source, "The ranks of an attention matrix")
    acting, weights, order, name = acting_attention(run, frame, beta, labels)
    order = order[thinned(len(order), MAX_RANKED)]
    found = ranks_of(weights[np.ix_(order, order)])
    clusters = frame_clusters(run, frame) if labels is None else np.asarray(labels)
    clusters = clusters if clusters.ndim == 1 else clusters[frame]
    figure = new_figure((1.5, 0.66), about=source, note=sample_note(run, MAX_RANKED)) if figure is None else figure
    axes = figure.subplots(1, 2)
    _left(axes[0], found, len(np.unique(clusters)))
    _beside_bands(axes[1], found, name)
    set_title(axes[0], first_run(source), f"β = {acting.beta:g}", time=float(run.times[frame]))
    return axes


def _of_matrix(matrix: np.ndarray, figure: Any) -> np.ndarray:
    """Both panels of a given matrix in its own order."""
    if matrix.shape[0] > MAX_RANKED:
        raise ArgumentError(f"Ranks are drawn of at most {MAX_RANKED} particles, but the matrix has {matrix.shape[0]}.")
    found = ranks_of(matrix)
    axes = (new_figure((1.5, 0.66)) if figure is None else figure).subplots(1, 2)
    _left(axes[0], found, 1)
    _beside_bands(axes[1], found, "in the order given")
    return axes


def _left(ax: Any, found: AttentionRanks, clusters: int) -> None:
    """The share of the Frobenius norm beyond each rank, with marks at rank one and at the number of clusters."""
    theme = style.current()
    shown = found.left[1 : _SHOWN + 1]
    ranks = np.arange(1, len(shown) + 1)
    seen = shown > _LEAST
    ax.plot(ranks[seen], log_axis(ax, shown[seen]), "-", color=theme.muted, linewidth=1.2, zorder=1)
    marks = {1: "rank 1"}
    if 1 < clusters <= len(shown):
        marks[clusters] = f"rank {clusters}, as clusters"
    for (rank, label), color, marker in zip(
        marks.items(), style.ordered_colors(np.linspace(0.15, 0.75, 2)), "os", strict=False
    ):
        value = shown[rank - 1]
        below = "v" if value < _LEAST else marker  # it lies below the axis
        ax.plot([rank], [max(value, _LEAST)], below, color=color, label=f"{label}:\n{value:.2g} left")
    last = max(ranks[seen].max(initial=1), *marks, 4) - 1
    ax.set(xlabel="rank $r$ of the best approximation", ylabel=r"$\|A - A_r\|_F / \|A\|_F$")
    ax.set(ylim=(_LEAST / 2, _HIGHEST), xlim=(1 - 0.04 * last, 1 + 1.02 * last))
    ax.set_yticks(10.0 ** np.arange(np.log10(_LEAST).round(), 1))
    ax.minorticks_off()
    ax.locator_params(axis="x", integer=True)
    ax.legend(loc="upper left", ncols=2, columnspacing=1.0, borderaxespad=0.2)


def _beside_bands(ax: Any, found: AttentionRanks, order: str) -> None:
    """Numerical ranks of A − D against the width of the band D, and dotted those of A itself."""
    banded = found.widths >= 0
    places = np.arange(np.sum(banded))
    colors = style.ordered_colors(np.linspace(0.1, 0.85, len(found.tolerances)))
    for column, (tolerance, color, marker) in enumerate(zip(found.tolerances, colors, "osD", strict=False)):
        ax.plot(
            places, found.ranks[banded, column], marker + "-", color=color, markersize=4, label=f"ε = {tolerance:g}"
        )
        for whole in found.ranks[found.widths == -1, column]:
            ax.axhline(whole, color=color, linewidth=1.0, linestyle=":")
    ax.set_xticks(places, [str(width) for width in found.widths[banded]])
    ax.set(
        ylim=(0, None),
        xlabel=f"half width $k$ of the band, {order}",
        ylabel=r"rank$_\varepsilon$ of $A - D_k$ (dotted: of $A$)",
    )
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
