"""Figures of linear smoothers, ŷ(x) = Σ_j l_j(x) y_j: their curves, and what each sample weighs in one prediction."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from particleflow.errors import ArgumentError, ShapeError
from particleflow.view import style
from particleflow.view.plots.base import new_figure

_LINES = ("-", (0, (6, 2)), (0, (2, 1.4)), (0, (6, 2, 1.5, 2)), (0, (1, 1)))  # told apart without colours
_LEAST_WEIGHT = 1e-3  # of the largest: beyond the samples of less the axis of weights ends


def smoothers(
    inputs: Any,
    targets: Any,
    queries: Any,
    weights: Mapping[str, Any],
    *,
    at: float,
    truth: Any = None,
    figure: Any = None,
) -> np.ndarray:
    """Draw linear smoothers of one feature side by side: their curves, and their equivalent kernels at one query.

    Left: samples and the curves Σ_j l_j(x) y_j. Right: the weights l_j at the query `at`, over the places of samples
    that have any; the legend has the sum of each, and the sum of its negative weights, if it has any.

    Parameters: `inputs` and `targets` (n,), the samples; `queries` (q,); `weights`, name -> l (q, n) at the queries,
    such as `KernelRegression.attention` and `models.equivalent_kernel` give; `at`, the query nearest to which is shown;
    `truth` (q,), drawn dotted; `figure`, the figure to draw on, else a new one. Returns both axes.
    """
    inputs, targets, asked = (np.ravel(np.asarray(each, float)) for each in (inputs, targets, queries))
    known = _checked(inputs, targets, asked, weights)
    figure = figure or new_figure((1.55, 0.72))
    left, right = figure.subplots(1, 2)
    order, place = np.argsort(asked, kind="stable"), int(np.abs(asked - at).argmin())
    if truth is not None:
        left.plot(asked[order], np.ravel(truth)[order], ":", color=style.current().muted, label="truth", zorder=2)
    left.plot(inputs, targets, ".", color=style.current().muted, markersize=4, label="samples")
    along = np.argsort(inputs, kind="stable")
    for number, (name, each) in enumerate(known.items()):
        line: dict[str, Any] = {"color": style.current().categories[number], "linestyle": _LINES[number]}
        left.plot(asked[order], (each @ targets)[order], label=_words(name, each[place]), **line)
        right.plot(inputs[along], each[place][along], marker=".", markersize=3, **line)
    sizes = np.max([np.abs(each[place]) for each in known.values()], axis=0)
    seen = inputs[sizes > _LEAST_WEIGHT * sizes.max()]
    right.set_xlim(seen.min() - 0.05 * np.ptp(inputs), seen.max() + 0.05 * np.ptp(inputs))
    _finish(left, right, float(asked[place]))
    return np.array([left, right])


def _checked(
    inputs: np.ndarray, targets: np.ndarray, asked: np.ndarray, weights: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """The weights as arrays (q, n), if they fit the samples and are few enough to be told apart."""
    if len(inputs) != len(targets):
        raise ShapeError(f"There are {len(inputs)} inputs, but {len(targets)} targets.")
    if not 1 <= len(weights) <= len(_LINES):
        raise ArgumentError(f"From one to {len(_LINES)} smoothers can be told apart, but there are {len(weights)}.")
    known = {name: np.asarray(each, float) for name, each in weights.items()}
    for name, each in known.items():
        if each.shape != (len(asked), len(inputs)):
            raise ShapeError(
                f"The weights of {name!r} must have shape ({len(asked)}, {len(inputs)}), but have {each.shape}."
            )
    return known


def _words(name: str, weights: np.ndarray) -> str:
    """The name of a smoother with the sum of its weights, and that of the negative ones, if there are any."""
    negative = float(weights[weights < 0].sum())
    below = f", negative ones {negative:.2f}".replace("-", "−") if negative <= -0.005 else ""
    return f"{style.clean(name)} (sum of weights {weights.sum():.2f}{below})"


def _finish(left: Any, right: Any, place: float) -> None:
    """Axes, legends and the line of the query."""
    theme = style.current()
    for ax in (left, right):
        ax.axvline(place, color=theme.muted, linewidth=0.8, zorder=1)
        ax.set_xlabel("x")
        ax.margins(y=0.06)
    right.axhline(0.0, color=theme.muted, linewidth=0.8, zorder=1)
    left.set(ylabel="y", title="predictions")
    right.set(ylabel="weight $l_j(x)$ of sample j", title=f"equivalent kernels at x = {place:.2f}")
    handles = left.get_legend_handles_labels()
    left.figure.legend(*handles, loc="outside lower center", ncols=2, fontsize="small")
