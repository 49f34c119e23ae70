"""The layers of a trained transformer in one picture: similarities of tokens by depth, and the spectra of its heads."""

from typing import TYPE_CHECKING

import numpy as np

from particleflow.view import style
from particleflow.view.plots.base import new_figure, write_figure_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from particleflow.analysis.along_layers import Depth
    from particleflow.transformer.depth_statistics import HeadSpectrum

_BINS = 60
_PANEL = (4.6 / 6.4, 4.4 / 6.4)  # width and height of one of its panels, in widths of the theme


def depth_figure(depth: "Depth", spectra: "list[HeadSpectrum] | None" = None, title: str = "") -> "Figure":
    """Draw the cosines of all pairs of tokens by depth, numbers along depth and, where given, spectra of the heads.

    Parameters: `depth`, what `transformer.along_depth` returns; `spectra`, what `transformer.head_spectra` returns; a
    `title`. Returns the figure, with two or three axes.
    """
    count = 2 if spectra is None else 3
    figure = new_figure((_PANEL[0] * count, _PANEL[1]))
    axes = figure.subplots(1, count)
    _histograms(axes[0], depth)
    _numbers(axes[1], depth)
    if spectra is not None:
        _spectra(axes[2], spectra)
    write_figure_title(figure, title)
    return figure


def _histograms(ax: "Axes", depth: "Depth") -> None:
    """One column for each depth: a histogram of the cosines of all pairs, coloured by the root of their share."""
    low = min(-0.2, float(depth.cosines.min()))
    edges = np.linspace(low, 1.0, _BINS + 1)
    shares = np.stack([np.histogram(row, edges)[0] / row.size for row in depth.cosines])
    image = ax.pcolormesh(np.arange(len(shares) + 1) - 0.5, edges, np.sqrt(shares).T, cmap=style.colormap())
    bar = ax.figure.colorbar(image, ax=ax, label="share of pairs")
    ticks = np.linspace(0, float(np.sqrt(shares.max())), 4)
    bar.set_ticks(ticks.tolist(), labels=[f"{tick**2:.2g}" for tick in ticks])
    ax.set(xlabel="depth (layers)", ylabel="cosine of two tokens", title="Inner products")
    ax.grid(visible=False)


def _numbers(ax: "Axes", depth: "Depth") -> None:
    """Four numbers along depth, each as a share between 0 and 1, so that they have one axis."""
    layers, colors = np.arange(len(depth.anisotropy)), style.palette(4)
    most = min(depth.cosines.shape[1], float(depth.effective_rank.max())) or 1.0
    lines = [
        ("mean cosine", depth.anisotropy, "o"),
        (f"effective rank / {most:.3g}", depth.effective_rank / most, "s"),
        ("distance from rank one", depth.collapse, "^"),
        ("energy / its largest", depth.energy / depth.energy.max(), "D"),
    ]
    marked = len(layers) <= 16
    for (label, numbers, marker), color in zip(lines, colors, strict=True):
        ax.plot(layers, numbers, marker=marker if marked else "", markersize=4, color=color, label=label)
    ax.set(xlabel="depth (layers)", ylabel="share", title="Along depth")
    _legend_below(ax, 2)


def _spectra(ax: "Axes", spectra: "list[HeadSpectrum]") -> None:
    """One point for each head: the traces of QᵀK and O V; the sign of their product tells attraction from repulsion.

    Heads that are switched off, whose O V is zero, have none, and are counted in the title.
    """
    off = sum(not np.any(each.value) for each in spectra)
    layers = sorted({each.layer for each in spectra})
    for layer, color in zip(layers, style.ordered_colors(np.linspace(0, 1, max(2, len(layers)))), strict=False):
        own = [each for each in spectra if each.layer == layer and np.any(each.value)]
        seen = [float(np.sum(each.attention)) for each in own]
        pulled = [float(np.sum(np.real(each.value))) for each in own]
        ax.scatter(seen, pulled, s=22, color=[color], label=f"layer {layer + 1}")
    ax.axhline(0.0, color=style.current().muted, linewidth=0.8)
    ax.axvline(0.0, color=style.current().muted, linewidth=0.8)
    for x, y, ha, va in ((0.98, 0.98, "right", "top"), (0.02, 0.02, "left", "bottom")):
        ax.text(x, y, "attraction", transform=ax.transAxes, ha=ha, va=va, color=style.current().muted)
    for x, y, ha, va in ((0.02, 0.98, "left", "top"), (0.98, 0.02, "right", "bottom")):
        ax.text(x, y, "repulsion", transform=ax.transAxes, ha=ha, va=va, color=style.current().muted)
    ax.set(xlabel="trace of QᵀK", ylabel="trace of OV", title=f"Heads ({off} off)" if off else "Heads")
    ax.margins(0.14)  # leaves room for the words in the corners
    _legend_below(ax, 3)


def _legend_below(ax: "Axes", columns: int) -> None:
    """A legend below the axes, where it covers nothing."""
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), fontsize="small", ncols=columns, handletextpad=0.3)
