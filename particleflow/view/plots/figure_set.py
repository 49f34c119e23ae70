"""The set of figures that suits a run, written to a folder."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow._support.progress import Progress
from particleflow.analysis.clusters.last_clusters import MOSTLY_ONE
from particleflow.analysis.clusters.plateaus import find_plateaus, first_real_merge, metastable
from particleflow.analysis.density.cells import is_density
from particleflow.analysis.density.peaks import track_peaks
from particleflow.analysis.gaussian_tokens import gaussian_rate
from particleflow.analysis.late_approach import late_stretch
from particleflow.analysis.reading import first_run
from particleflow.analysis.run_character import Character, character_of, places_of
from particleflow.analysis.samples import gather, thinned
from particleflow.errors import ArgumentError, ShapeError
from particleflow.view import style
from particleflow.view.findings import pick
from particleflow.view.made_of import made_of
from particleflow.view.plots.base import MAX_LINES, is_crowd, projection
from particleflow.view.plots.density.density_curves import density_map, modes, peaks, profiles
from particleflow.view.plots.density.density_scale import field_of
from particleflow.view.plots.density.distributions import (
    MOST_NEIGHBOURS,
    covariance,
    nearest_neighbours,
    particle_density,
    picture,
    schedule,
)
from particleflow.view.plots.matrices.pair_matrices import MAX_ATTENTION, MAX_MATRIX, attention, gram, similarity
from particleflow.view.plots.saving import save_figure
from particleflow.view.plots.space.paths import kymograph, paths
from particleflow.view.plots.space.snapshots import snapshots
from particleflow.view.plots.theory.fits import values_on_places
from particleflow.view.plots.time.series import (
    approach,
    energy,
    energy_name,
    observable,
    observable_values,
    only_errors,
    staircase,
)
from particleflow.view.plots.time.tree_plot import check_merges, kymograph_with_tree, merge_tree

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

FORMATS = ("png", "svg", "pdf")
MAX_TREE = 2000  # merges that are drawn
_LOOKED_AT = 400  # frames of labels
Draw = Callable[[], Any]


def figures(
    trajectory: "Trajectory",
    folder: str | os.PathLike[str],
    *,
    theme: str | style.Theme = "light",
    analysis: Any = None,
    format: str = "png",
    dpi: float = 160,
    progress: Progress | None = None,
) -> list[Path]:
    """Write the figures that suit a run to a folder, which is created if need be; returns their paths.

    They are chosen by what the run is: its geometry, dimension and recorded numbers, noise or repulsion (densities
    instead of merge trees), attention, layers, a schedule, the patches of an image. A run that is carried by a density
    shows it in space and time, its modes and its peaks.

    Parameters: `theme`, a name or a `Theme`; `analysis`, a mapping or an object (such as a `ClusterTrack`) with any of
    `counts` (T,), `labels` (T, N), `plateaus` and `merge_tree` (or `tree`), of which what is missing is left out, or of
    a density a `PeakTrack`, which is found here if left out; `format`, "png" (at `dpi`), "svg" or "pdf"; `progress`,
    called with (done, total) after every figure. File names are fixed, so that nothing is written outside the folder.
    """
    if format not in FORMATS:
        raise ArgumentError(f"Argument `format` must be one of {', '.join(map(repr, FORMATS))}, but is {format!r}.")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    written, made = [], made_of(trajectory, pick(analysis, "threshold"))
    with style.use(theme):
        plan = list(_plan(trajectory, analysis))
        for name, draw in plan:
            axes = np.ravel(draw())[0]
            written.append(save_figure(axes.figure, target / f"{name}.{format}", dpi, made._replace(figure=name)))
            if progress is not None:
                progress(len(written), len(plan))
    return written


def _plan(trajectory: "Trajectory", analysis: Any) -> Iterator[tuple[str, Draw]]:
    """Yield (name, function that draws) for every figure that suits the run; nothing is drawn before the call."""
    run, known = first_run(trajectory), character_of(trajectory)
    if is_density(run):
        yield from _of_density(trajectory, known, analysis)
        return
    kind = projection(run).kind
    labels = pick(analysis, "labels")
    yield "snapshots", lambda: snapshots(trajectory)
    if known.is_law:  # its points are nodes of a quadrature, not particles: pairs of them mean nothing
        yield from _of_law(trajectory, known)
        return
    if len(run) > 1:
        yield from _motion(trajectory, known, kind)
    if known.gathers:
        yield from _gathering(trajectory, analysis, kind)
    elif energy_name(trajectory) is not None:
        yield "energy", lambda: energy(trajectory)
    if run.count > 1:
        blocks, frame = (labels, _frame_of_blocks(labels)) if known.gathers else (None, -1)
        yield "similarity", lambda: similarity(trajectory)
        yield "gram", lambda: gram(trajectory, frame, labels=blocks)
        if _selects(known) and run.count <= MAX_ATTENTION:
            yield "attention", lambda: attention(trajectory, frame, labels=blocks)
    places = places_of(trajectory)
    if places is not None and places.shape[1] <= 2 and len(run) > 1:
        yield "values", lambda: values_on_places(trajectory, places)
    if known.picture is not None:
        yield "picture", lambda: picture(trajectory, labels=labels)
    yield from _observables(trajectory)


def _of_density(trajectory: "Trajectory", known: Character, analysis: Any) -> Iterator[tuple[str, Draw]]:
    """Pictures of masses on points that stay: pairs and paths of cells mean nothing."""
    run = first_run(trajectory)
    field = field_of(run)
    kind = None if field is None else field.cells.kind
    yield "snapshots", lambda: snapshots(trajectory)
    if kind == "sphere":
        yield "map", lambda: density_map(trajectory)
    if len(run) > 1:
        yield "density", lambda: particle_density(trajectory)
        if kind in ("line", "circle"):
            yield "profiles", lambda: profiles(trajectory)
        yield from _numbers(trajectory, known)
    given = pick(analysis, "peaks") is not None
    found = analysis if given else None if field is None else track_peaks(run)
    if found is not None and len(run) > 1 and found.counts.max() > 1:
        yield "peaks", lambda: peaks(trajectory, found)
    if found is not None and np.ptp(found.counts) > 0:
        treads = find_plateaus(run.times, found.counts) if len(run) > 2 else ()
        yield "staircase", lambda: staircase(trajectory, found.counts, plateaus=treads, of="peaks")
    elif energy_name(trajectory) is not None:
        yield "energy", lambda: energy(trajectory)
    if kind in ("circle", "sphere") and len(run) > 1:
        yield "modes", lambda: modes(trajectory)
    yield from _observables(trajectory)


def _of_law(trajectory: "Trajectory", known: Character) -> Iterator[tuple[str, Draw]]:
    """Pictures of a normal law, whose points are the nodes of a quadrature: its covariance, and what was recorded."""
    if len(first_run(trajectory)) > 1:
        if known.schedule is not None:
            yield "schedule", lambda: schedule(trajectory)
        yield "covariance", lambda: covariance(trajectory)
    if energy_name(trajectory) is not None:
        yield "energy", lambda: energy(trajectory)
    yield from _observables(trajectory)


def _numbers(trajectory: "Trajectory", known: Character) -> Iterator[tuple[str, Draw]]:
    """Pictures of a schedule, and of the covariance where it was recorded or a theory holds."""
    if known.schedule is not None:
        yield "schedule", lambda: schedule(trajectory)
    if gaussian_rate(first_run(trajectory)) is not None or "covariance" in trajectory.observables:
        yield "covariance", lambda: covariance(trajectory)


def _selects(known: Character) -> bool:
    """Whether there is attention that tells particles apart: at β = 0 without a mask all weights are equal."""
    acting = known.attention
    return acting is not None and (acting.beta != 0 or bool(acting.positions and acting.positions.factors))


def _frame_of_blocks(labels: Any) -> int:
    """The frame to draw matrices of: the last, or an earlier one if most particles are in one cluster there.

    That is the middle frame of the last tread of the count of clusters before Σ_c (n_c/n)², the chance that two
    particles are of one cluster, exceeds 0.7: at the end of the tread clusters nearly touch.
    """
    if np.ndim(labels) != 2 or len(labels) < 2:
        return -1
    shown = thinned(len(labels), _LOOKED_AT)
    chosen = thinned(np.shape(labels)[1], MAX_MATRIX)
    sizes = [np.unique(labels[frame][chosen], return_counts=True)[1] for frame in shown]
    alike = np.array([np.square(each / each.sum()).sum() for each in sizes])
    several = np.flatnonzero(alike <= MOSTLY_ONE)
    if several.size == 0 or several[-1] == len(shown) - 1:
        return -1
    last, counts = int(several[-1]), np.array([len(each) for each in sizes])
    others = np.flatnonzero(counts[:last] != counts[last])
    return int(shown[(int(others[-1]) + 1 + last) // 2 if others.size else last // 2])


def _motion(trajectory: "Trajectory", known: Character, kind: str) -> Iterator[tuple[str, Draw]]:
    """Pictures of motion: lines where particles gather, densities where noise or repulsion would tangle lines."""
    run = first_run(trajectory)
    if not known.gathers or is_crowd(run):
        yield "density", lambda: particle_density(trajectory)
    if known.temperature == 0:
        if kind != "pca" or _tells_apart(run):
            yield "kymograph", lambda: kymograph(trajectory)
        if kind not in ("line", "circle"):  # paths on a ring would all lie on one another
            yield "paths", lambda: paths(trajectory)
    if known.repels and 1 < run.count <= MOST_NEIGHBOURS:
        yield "nearest_neighbours", lambda: nearest_neighbours(trajectory)
    yield from _numbers(trajectory, known)


def _tells_apart(run: "Trajectory") -> bool:
    """Whether particles differ in what a kymograph draws; equiangular tokens share their first component."""
    seen = projection(run)(gather(run, thinned(len(run), 24), thinned(run.count, MAX_LINES)))[..., 0]
    return bool(np.ptp(seen, axis=1).max() > 1e-3 * np.ptp(seen))


def _gathering(trajectory: "Trajectory", analysis: Any, kind: str) -> Iterator[tuple[str, Draw]]:
    """Pictures of clusters that form: the staircase of their number, and the tree of their merges."""
    run = first_run(trajectory)
    counts, labels = pick(analysis, "counts"), pick(analysis, "labels")
    merges = pick(analysis, "merge_tree", "tree", "merges")
    if np.ndim(counts) == 1 and np.ptp(counts) > 0 and first_real_merge(counts) is None:
        counts = merges = None  # the count only fluctuates: nothing merges for good
    if counts is not None or energy_name(trajectory) is not None:
        plateaus = _plateaus(run, counts, analysis)
        yield "staircase", lambda: staircase(trajectory, counts, plateaus=plateaus)
    if merges is not None and 0 < len(check_merges(merges)) <= MAX_TREE:
        beside = kind in ("line", "circle")
        tree_labels = labels if np.ndim(labels) == 2 else None
        draw = kymograph_with_tree if beside else merge_tree
        yield "merge_tree", lambda: draw(trajectory, merges, labels=tree_labels)


def _plateaus(run: Any, counts: Any, analysis: Any) -> list[Any]:
    """The given plateaus, else those that the analysis finds in the counts of a single run."""
    given = pick(analysis, "plateaus")
    if given is not None or np.ndim(counts) != 1 or len(run) < 3:
        return list(given or ())
    energy = None
    with suppress(ArgumentError):
        values = observable_values(run, "energy")
        energy = values if np.isfinite(values).all() else None
    return metastable(find_plateaus(run.times, counts, energy), int(counts[0]))


def _observables(trajectory: "Trajectory") -> Iterator[tuple[str, Draw]]:
    """Every other observable that is one number a frame; at most twelve, under names of letters, digits and _."""
    drawn: set[str] = set()
    with suppress(ArgumentError):
        if late_stretch(1.0 - observable_values(trajectory, "mean_similarity")) is not None:
            yield "approach", lambda: approach(trajectory)
    for name in trajectory.observables:
        safe = "".join(character if character.isascii() and character.isalnum() else "_" for character in name)[:40]
        if name in ("energy", energy_name(trajectory)) or safe in drawn or len(drawn) >= 12:
            continue
        if only_errors(trajectory, name):
            continue
        with suppress(ShapeError, ValueError, TypeError):
            observable_values(trajectory, name)
            drawn.add(safe)
            yield f"observable_{safe}", lambda name=name: observable(trajectory, name)
