"""The layers of a network: statistics of its states along depth, and the attention of every head of one layer."""

from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.along_layers import along_depth
from particleflow.analysis.reading import first_run
from particleflow.analysis.samples import gather, thinned
from particleflow.errors import ArgumentError
from particleflow.trajectory.words import visible
from particleflow.view import style
from particleflow.view.plots.base import MAX_FRAMES, new_figure, time_words, title_figure
from particleflow.view.plots.theory.transformer_depth import depth_figure

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

HEADS = "head_attention"  # the name of the observable
MOST_PAIRED = 400  # tokens of which all pairs are counted
_MOST_NAMED = 48  # tokens that have their words along the sides
_COLUMNS = 4
_PANEL = 0.36  # in widths of the theme


def depth_of_run(trajectory: "Trajectory") -> Any:
    """Draw the cosines of all pairs of tokens by layer and four numbers along the layers, as `depth_figure`, of a run.

    An ensemble shows its run 0; of more than 400 tokens that many, evenly chosen, are paired. Returns the axes.
    """
    run = first_run(trajectory)
    if not (run.facts.counts_layers and run.facts.is_network):
        raise ArgumentError(
            "Depth is drawn of a run whose time counts the layers of a network, but this one's does not."
        )
    states = gather(run, thinned(len(run), MAX_FRAMES), thinned(run.count, MOST_PAIRED))
    title = (run.metadata or {}).get("title") or "Along depth"
    return np.array(depth_figure(along_depth(states), title=str(title)).axes)


def heads(trajectory: "Trajectory", frame: int | None = None, *, figure: Any = None) -> np.ndarray:
    """Draw the attention matrix of every head of a layer, tokens in their order, on one scale from 0 to 1.

    The run must have recorded the observable `head_attention`, whose entry of a frame is the attention of the layer
    that acts on that frame. Words stand along the outer sides of few tokens. A head that is switched off, whose
    recorded weights are NaN, is an empty panel that says so. An ensemble shows its run 0.

    Parameters: the index of the `frame`, else the last one on which another layer acts; `figure`, the figure to draw
    on, else a new one. Returns the array of axes, one a head.
    """
    run = first_run(trajectory)
    if HEADS not in run.observables:
        raise ArgumentError(
            f"Heads are drawn of a run that has recorded the observable {HEADS!r}, but this one has not."
        )
    place = max(len(run) - 2, 0) if frame is None else range(len(run))[frame]
    found = np.asarray(run.observables[HEADS][place], float)
    columns = min(_COLUMNS, len(found))
    rows = -(-len(found) // columns)
    if figure is None:
        figure = new_figure((_PANEL * columns + 0.2, _PANEL * rows + 0.2), trajectory)
        title_figure(figure, run, "Heads", f"attention of {_acting_layer(run, place)}")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    image: Any = None
    for head, ax in enumerate(axes.ravel()):
        if head >= len(found):
            ax.set_visible(False)
            continue
        image = ax.imshow(found[head], cmap=style.colormap("density"), vmin=0.0, vmax=1.0, interpolation="nearest")
        if np.isnan(found[head]).all():
            ax.text(0.5, 0.5, "off", transform=ax.transAxes, ha="center", va="center", color=style.current().muted)
        ax.set_title(f"head {head}", fontsize="small")
        _name_tokens(ax, run)
        ax.label_outer()
    figure.colorbar(image, ax=axes, label="attention weight", shrink=0.6)
    return axes.ravel()[: len(found)]


def _acting_layer(run: "Trajectory", place: int) -> str:
    """The layer that acts on a frame in words; layers are counted by the states that they lead to, keys from 0."""
    time = float(run.times[place])
    if not run.facts.counts_layers:
        return time_words(run, time)
    if not run.facts.changes:
        return f"layer {time + 1:g}"
    last = len(run.facts.changes) + 1
    if time >= last:
        return f"layer {last} on its own result"
    return f"layer {time + 1:g} (heads and layers of keys count from 0: layers.{time:g})"


def _name_tokens(ax: Any, run: "Trajectory") -> None:
    """Words along both sides where they can be read; else the numbers of the tokens."""
    if run.words is None or run.count > _MOST_NAMED:
        ax.set(xlabel="token $j$", ylabel="token $i$")
        return
    names = [style.clean(visible(word, 12)) for word in run.words.tolist()]
    size = float(np.clip(0.9 * 72 * _PANEL * style.current().width / run.count, 3.2, 8.0))
    ax.set_xticks(range(run.count), names, rotation=90, fontsize=size)
    ax.set_yticks(range(run.count), names, fontsize=size)
    ax.tick_params(length=0, pad=1.0)
