"""The sensible set of figures of a run, written to a folder."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow._files import written
from particleflow.analysis.frames import first_run
from particleflow.errors import ArgumentError, ShapeError
from particleflow.view import style
from particleflow.view.drawing.base import projection
from particleflow.view.drawing.matrices import gram, similarity
from particleflow.view.drawing.paths import kymograph, paths
from particleflow.view.drawing.series import observable, observable_values, staircase
from particleflow.view.drawing.snapshots import snapshots
from particleflow.view.drawing.tree import check_merges, kymograph_with_tree, merge_tree
from particleflow.view.findings import pick

if TYPE_CHECKING:
    from particleflow.trajectory import Trajectory

FORMATS = ("png", "svg", "pdf")
MAX_TREE = 2000
Draw = Callable[[], Any]


def figures(
    trajectory: "Trajectory",
    folder: str | os.PathLike[str],
    *,
    theme: str | style.Theme = "light",
    analysis: Any = None,
    format: str = "png",
    dpi: float = 160,
) -> list[Path]:
    """Write the figures that suit a run's geometry, dimension and recorded numbers to a folder; returns their paths.

    `analysis` is a mapping or an object (such as a `ClusterTrack`) with any of `counts` (T,), `labels` (T, N),
    `plateaus` and `merge_tree` (or `tree`); what is missing is left out. `format` is "png" (at `dpi`), "svg" or
    "pdf". The folder is created if need be; file names are ours, so nothing is written outside it.
    """
    if format not in FORMATS:
        raise ArgumentError(f"Argument `format` must be one of {', '.join(map(repr, FORMATS))}, but is {format!r}.")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    written = []
    with style.use(theme):
        for name, draw in _plan(trajectory, analysis):
            axes = np.ravel(draw())[0]
            written.append(_save(axes.figure, target / f"{name}.{format}", dpi))
    return written


def _plan(trajectory: "Trajectory", analysis: Any) -> Iterator[tuple[str, Draw]]:
    """Names and drawings, each made only when it is its turn."""
    run = first_run(trajectory)
    kind = projection(run).kind
    counts, labels = pick(analysis, "counts"), pick(analysis, "labels")
    merges = pick(analysis, "merge_tree", "tree", "merges")
    yield "snapshots", lambda: snapshots(run)
    if len(run) > 1:
        yield "kymograph", lambda: kymograph(run)
        if kind not in ("line", "circle"):  # paths on a ring would all lie on one another
            yield "paths", lambda: paths(run)
    if counts is not None or "energy" in trajectory.observables:
        plateaus = _plateaus(run, counts, analysis)
        yield "staircase", lambda: staircase(trajectory, counts, plateaus=plateaus)
    if merges is not None and 0 < len(check_merges(merges)) <= MAX_TREE:
        beside = kind in ("line", "circle")
        tree_labels = labels if np.ndim(labels) == 2 else None
        yield "merge_tree", lambda: (kymograph_with_tree if beside else merge_tree)(run, merges, labels=tree_labels)
    if run.count > 1:
        yield "similarity", lambda: similarity(run)
        yield "gram", lambda: gram(run)
    yield from _observables(trajectory)


def _plateaus(run: Any, counts: Any, analysis: Any) -> list[Any]:
    """The given plateaus, else those that the analysis finds in the counts of a single run."""
    given = pick(analysis, "plateaus")
    if given is not None or np.ndim(counts) != 1 or len(run) < 3:
        return list(given or ())
    from particleflow.analysis import find_plateaus

    energy = None
    with suppress(ArgumentError):
        values = observable_values(run, "energy")
        energy = values if np.isfinite(values).all() else None
    return list(find_plateaus(run.times, counts, energy))


def _observables(trajectory: "Trajectory") -> Iterator[tuple[str, Draw]]:
    """Every other observable that is one number a frame; at most twelve, under names of letters, digits and _."""
    drawn: set[str] = set()
    for name in trajectory.observables:
        safe = "".join(character if character.isascii() and character.isalnum() else "_" for character in name)[:40]
        if name == "energy" or safe in drawn or len(drawn) >= 12:
            continue
        with suppress(ShapeError, ValueError, TypeError):
            observable_values(trajectory, name)
            drawn.add(safe)
            yield f"observable_{safe}", lambda name=name: observable(trajectory, name)


def _save(figure: Any, path: Path, dpi: float) -> Path:
    """Save a figure without the date, so that the same run gives the same file."""
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
    with written(path) as partial:
        figure.savefig(partial, dpi=dpi, metadata=metadata)
    return path
