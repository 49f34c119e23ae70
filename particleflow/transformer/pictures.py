"""Depth in one picture: who has come near whom after every layer, in numbers, and what the heads let one expect."""

from typing import TYPE_CHECKING

import numpy as np

from particleflow.transformer.analysis import Depth, HeadSpectrum
from particleflow.view import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BINS = 60


def depth_figure(depth: Depth, spectra: list[HeadSpectrum] | None = None, title: str = "") -> "Figure":
    """Inner products of all pairs at every depth, numbers along depth and, where they are given, spectra of heads.

    Parameters: `depth`, from `along_depth`; `spectra`, from `head_spectra`; a `title`.
    """
    import matplotlib.pyplot as plt

    count = 2 if spectra is None else 3
    figure, axes = plt.subplots(1, count, figsize=(4.6 * count, 4.4), layout="constrained")
    _histograms(axes[0], depth)
    _numbers(axes[1], depth)
    if spectra is not None:
        _spectra(axes[2], spectra)
    if title:
        figure.suptitle(style.clean(title))
    return figure


def _histograms(ax: "Axes", depth: Depth) -> None:
    """A column a depth: how the cosines of all pairs are distributed."""
    low = min(-0.2, float(depth.cosines.min()))
    edges = np.linspace(low, 1.0, _BINS + 1)
    shares = np.stack([np.histogram(row, edges)[0] / row.size for row in depth.cosines])
    image = ax.pcolormesh(np.arange(len(shares) + 1) - 0.5, edges, np.sqrt(shares).T, cmap=style.colormap())
    bar = ax.figure.colorbar(image, ax=ax, label="share of pairs")
    ticks = np.linspace(0, float(np.sqrt(shares.max())), 4)
    bar.set_ticks(ticks.tolist(), labels=[f"{tick**2:.2g}" for tick in ticks])
    ax.set(xlabel="depth (layers)", ylabel="cosine of two tokens", title="Inner products")
    ax.grid(visible=False)


def _numbers(ax: "Axes", depth: Depth) -> None:
    """Shares between 0 and 1, so that one axis serves all of them."""
    layers, colors = np.arange(len(depth.anisotropy)), style.palette(4)
    most = min(depth.cosines.shape[1], float(depth.effective_rank.max()))
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


def _spectra(ax: "Axes", spectra: list[HeadSpectrum]) -> None:
    """A point a head: the traces of QᵀK and O V, whose signs tell attraction from repulsion."""
    layers = sorted({each.layer for each in spectra})
    for layer, color in zip(layers, style.ordered_colors(np.linspace(0, 1, max(2, len(layers)))), strict=False):
        own = [each for each in spectra if each.layer == layer]
        seen = [float(np.sum(each.attention)) for each in own]
        pulled = [float(np.sum(np.real(each.value))) for each in own]
        ax.scatter(seen, pulled, s=22, color=[color], label=f"layer {layer + 1}")
    ax.axhline(0.0, color=style.current().muted, linewidth=0.8)
    ax.axvline(0.0, color=style.current().muted, linewidth=0.8)
    for x, y, ha, va in ((0.98, 0.98, "right", "top"), (0.02, 0.02, "left", "bottom")):
        ax.text(x, y, "attraction", transform=ax.transAxes, ha=ha, va=va, color=style.current().muted)
    for x, y, ha, va in ((0.02, 0.98, "left", "top"), (0.98, 0.02, "right", "bottom")):
        ax.text(x, y, "repulsion", transform=ax.transAxes, ha=ha, va=va, color=style.current().muted)
    ax.set(xlabel="trace of QᵀK", ylabel="trace of OV", title="Heads")
    ax.margins(0.14)  # room for the words in the corners
    _legend_below(ax, 3)


def _legend_below(ax: "Axes", columns: int) -> None:
    """A legend that covers nothing."""
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), fontsize="small", ncols=columns, handletextpad=0.3)
