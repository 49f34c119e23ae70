"""Words in figures: names beside particles, and names along the axes of a matrix or a tree."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.trajectory.words import named, visible
from particleflow.view import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SMALLEST = 4.4  # points of letters that can still be read
_TICK_LETTERS = 14  # of a word along an axis


def write_words(
    ax: "Axes", words: np.ndarray | None, places: np.ndarray, weights: np.ndarray, scale: float,
    *, depth: Any = None, axes: int = 2,
) -> None:  # fmt: skip
    """Name the particles at `places` (N, 2) by their words, where they have some, when the axes are drawn.

    Parameters: `weights` (N,); `scale` of the marker areas; `depth` (N,) of a picture in three dimensions, positive in
    front; `axes`, 1 where only the abscissa tells particles apart.
    """
    if words is not None:
        from particleflow.view.plots.word_artist import Words

        ax.add_artist(Words(places, words, weights, depth=depth, axes=axes, scale=scale))


def name_ticks(ax: "Axes", side: str, words: Sequence[Sequence[str]], groups: np.ndarray, points: float) -> None:
    """Write names along an axis whose entries 0, 1, … stand for one or several words each, where there is room.

    Equal names side by side are written once. If not even that fits into `points` points of length, the entries of
    equal `groups` side by side have a name together, those of the largest first.
    """
    room = points / max(len(words), 1)
    texts = [visible(each[0], _TICK_LETTERS) if len(each) == 1 else named(each, 2) for each in words]
    runs = _runs(texts)
    middles = np.array([run.mean() for run in runs])
    size = min(0.8 * style.current().font_size, 0.95 * room * float(np.diff(middles).min(initial=np.inf)))
    if size >= _SMALLEST:
        _set_ticks(ax, side, middles, [texts[run[0]] for run in runs], size)
        axis = ax.xaxis if side == "x" else ax.yaxis
        axis.set_ticks([run[0] - 0.5 for run in runs[1:]], minor=True)  # where one word ends and the next begins
        return
    size = 0.72 * style.current().font_size
    taken: list[float] = []
    kept = []
    for run in sorted(_runs(groups.tolist()), key=lambda run: -len(run)):
        middle = float(run.mean())
        if len(run) * room >= size and all(abs(middle - other) * room >= size for other in taken):
            taken.append(middle)
            kept.append(named([word for place in run for word in words[int(place)]], 2))
    order = np.argsort(taken)
    if len(kept) > 1:
        _set_ticks(ax, side, np.array(taken)[order], [kept[place] for place in order], size)


def _runs(values: Sequence[Any]) -> list[np.ndarray]:
    """The places of equal values side by side."""
    cuts = [place for place in range(1, len(values)) if values[place] != values[place - 1]]
    return np.split(np.arange(len(values)), cuts) if len(values) else []


def _set_ticks(ax: "Axes", side: str, places: np.ndarray, texts: list[str], size: float) -> None:
    """Put names without tick marks at places along an axis, upright along x."""
    axis = ax.xaxis if side == "x" else ax.yaxis
    shown = [style.clean(text, 60) for text in texts]
    axis.set_ticks(places, shown, fontsize=size, rotation=90 if side == "x" else 0)
    axis.set_tick_params(length=0, pad=1.5)
