"""The set of figures that suits a run, written to a folder: the lead picture, two to four that explain it, and others.

`_plan` holds every figure that suits a run; `_WISHES` says which of them lead, by what the run is.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow._support.progress import Progress
from particleflow._support.text import nearest_name
from particleflow.analysis.clusters.clusters import GIVEN
from particleflow.analysis.clusters.last_clusters import MOSTLY_ONE
from particleflow.analysis.clusters.plateaus import find_plateaus, first_real_merge, metastable, stays_scattered
from particleflow.analysis.density.cells import is_density
from particleflow.analysis.density.peaks import since_first_peak
from particleflow.analysis.gaussian_tokens import gaussian_rate
from particleflow.analysis.late_approach import late_stretch
from particleflow.analysis.reading import check_trajectory, first_run
from particleflow.analysis.run_character import Character, character_of, places_of
from particleflow.analysis.samples import gather, thinned
from particleflow.errors import ArgumentError, ParticleflowError, ShapeError
from particleflow.view import style
from particleflow.view.findings import expected_structure, pick
from particleflow.view.made_of import made_of
from particleflow.view.plots.base import MAX_LINES, is_crowd, projection
from particleflow.view.plots.camera import Camera
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
from particleflow.view.plots.matrices.rank_plots import MAX_RANKED, attention_ranks
from particleflow.view.plots.saving import save_figure
from particleflow.view.plots.space.paths import kymograph, paths
from particleflow.view.plots.space.snapshots import snapshots
from particleflow.view.plots.subjects.leading import SUBJECTS, leading_figures
from particleflow.view.plots.time.series import (
    approach,
    energy,
    energy_name,
    known_changes,
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
ALL = "all"
_FEW = 32  # particles: their lines can be told apart, and a density of them means nothing
_MIN_DEFAULT, _MAX_DEFAULT = 3, 5  # how many figures of a run are drawn by default
# What a run is about, by its kind and the kind of its picture: the lead picture, then the figures that explain it.
_WISHES: dict[tuple[str, str], tuple[str, ...]] = {
    ("still", ""): ("snapshots", "map", "picture", "gram", "attention"),
    ("density", "line"): ("density", "profiles", "peaks", "modes", "energy"),
    ("density", "sphere"): ("snapshots", "map", "peaks", "staircase", "modes"),
    ("density", ""): ("snapshots", "peaks", "staircase", "energy"),
    ("picture", ""): ("picture", "values", "staircase", "snapshots"),
    ("places", ""): ("values", "schedule", "snapshots", "energy"),
    ("law", ""): ("snapshots", "covariance", "schedule", "energy"),
    ("follows", ""): ("paths", "kymograph", "snapshots", "similarity"),
    ("crowd", "line"): ("density", "snapshots", "schedule", "covariance", "energy"),
    ("crowd", ""): ("snapshots", "density", "schedule", "covariance", "energy"),
    ("moves", ""): ("paths", "snapshots", "energy", "covariance", "schedule"),
    ("repels", "few on a line"): ("kymograph", "snapshots", "nearest_neighbours", "schedule", "energy"),
    ("repels", ""): (
        "snapshots",
        "observable_uniformity",
        "observable_alignment",
        "nearest_neighbours",
        "schedule",
        "energy",
        "paths",
    ),
    ("words", ""): ("merge_tree", "depth", "heads", "gram", "similarity", "attention", "schedule"),
    ("gathers", "line"): ("kymograph", "staircase", "energy", "snapshots", "schedule", "merge_tree"),
    ("gathers", "pca"): ("similarity", "depth", "heads", "staircase", "energy", "gram", "merge_tree", "schedule"),
    ("gathers", ""): ("snapshots", "staircase", "energy", "merge_tree", "schedule", "paths"),
}
FIGURES = (
    "snapshots", "map", "density", "profiles", "schedule", "covariance", "peaks", "staircase", "energy", "modes",
    "kymograph", "paths", "nearest_neighbours", "merge_tree", "similarity", "gram", "attention",
    "ranks", "approach", "depth", "heads", *SUBJECTS,
)  # fmt: skip
OBSERVABLE = "observable_"  # begins the name of the figure of an observable
Draw = Callable[[], Any]


def figures(
    trajectory: "Trajectory",
    folder: str | os.PathLike[str],
    *,
    only: str | Sequence[str] | None = None,
    theme: str | style.Theme = "light",
    analysis: Any = None,
    format: str = "png",
    size: tuple[float, float] | None = None,
    dpi: float | None = None,
    camera: Camera | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Write the figures of a run to a folder, which is created if need be; returns their paths, the lead picture first.

    Three to five are written, chosen by what the run is: its geometry, dimension and recorded numbers, noise or
    repulsion (densities instead of merge trees), attention, layers, a schedule; first of all what the run is about: a
    hysteresis loop, heat, the data that particles climb, images that they are, values on places. A run that is carried
    by a density shows it in space and time, and its peaks. `figure_names` lists all that suit the run.

    Parameters: `only`, the names of the figures to write, or "all"; `theme`, "light", "dark", "print" (without title
    and small print), "user" (the matplotlib settings in use) or a `Theme`; `analysis`, a mapping or an object (such as
    a `ClusterTrack`) with any of `counts` (T,), `labels` (T, N), `plateaus` and `merge_tree` (or `tree`), of a density
    a `PeakTrack`; with None the clusters or peaks are found here, and False leaves them out; `format`, "png", "svg" or
    "pdf"; `size`, (width, height) in inches, else each figure's own; `dpi`, pixels an inch, else so many that a picture
    is 1,600 pixels wide; `camera`, the view and the scale of snapshots and paths that several runs share (see
    `camera_of`); `progress`, called with (done, total) after every figure. File names are those of the figures,
    so that nothing is written outside the folder. The settings of matplotlib are left as they are.
    """
    if format not in FORMATS:
        raise ArgumentError(f"Argument `format` must be one of {', '.join(map(repr, FORMATS))}, but is {format!r}.")
    check_trajectory(trajectory)
    look = style.sized(theme, size, dpi)
    analysis = _found(trajectory) if analysis is None else analysis
    chosen = _chosen(trajectory, dict(_plan(trajectory, analysis, camera)), only)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    written, made = [], made_of(trajectory, pick(analysis, "threshold"))
    with style.use(look):
        for name, draw in chosen.items():
            axes = np.ravel(draw())[0]
            written.append(save_figure(axes.figure, target / f"{name}.{format}", dpi, made._replace(figure=name)))
            if progress is not None:
                progress(len(written), len(chosen))
    return written


def figure_names(trajectory: "Trajectory", analysis: Any = None) -> list[str]:
    """The names of all figures that suit a run, those that `figures` writes by itself first; `analysis` as there."""
    analysis = _found(trajectory) if analysis is None else analysis
    suited = dict(_plan(trajectory, analysis))
    return list(dict.fromkeys([*_leading(trajectory, suited), *suited]))


def _found(trajectory: "Trajectory") -> Any:
    """The clusters or peaks of a run, None where there are none to be expected or found."""
    with suppress(ParticleflowError):
        return expected_structure(trajectory)
    return None


def _chosen(trajectory: "Trajectory", suited: dict[str, Draw], only: Any) -> dict[str, Draw]:
    """The figures to draw, by name: the default ones, or those in `only`, which must be figures that suit the run."""
    names = list(dict.fromkeys([*_leading(trajectory, suited), *suited]))
    if only is None or only == ALL:
        return {name: suited[name] for name in (names if only == ALL else _leading(trajectory, suited))}
    asked = list(dict.fromkeys([only] if isinstance(only, str) else only))
    for name in asked:
        if name not in suited:
            near = nearest_name(name, names)
            raise ArgumentError(
                f"Argument `only` must name figures that suit this run, or be {ALL!r}, but holds {name!r}"
                f"{f'; did you mean {near!r}?' if near else '.'} There is: {', '.join(names)}."
            )
    return {name: suited[name] for name in asked}


def _leading(trajectory: "Trajectory", suited: Mapping[str, Draw]) -> list[str]:
    """The names of the three to five figures that show what a run is about, the first one at a glance."""
    run, known = first_run(trajectory), character_of(trajectory)
    wishes = dict.fromkeys([*SUBJECTS, *_wishes(run, known, suited)])
    wanted = [name for name in wishes if name in suited][:_MAX_DEFAULT]
    spare = [name for name in suited if name not in wanted]
    return wanted + spare[: max(_MIN_DEFAULT - len(wanted), 0)]


def _wishes(run: "Trajectory", known: Character, suited: Mapping[str, Draw]) -> tuple[str, ...]:
    """The figures that suit a kind of run best, in their order; of these a run may lack some."""
    kind = projection(run).kind
    around = "line" if kind in ("line", "circle") else kind
    if len(run) == 1:
        return _WISHES["still", ""]
    if is_density(run):
        return _WISHES["density", around] if ("density", around) in _WISHES else _WISHES["density", ""]
    if known.picture is not None:
        return _WISHES["picture", ""]
    if places_of(run) is not None:
        return _WISHES["places", ""]
    if known.is_law:
        return _WISHES["law", ""]
    if known.follows:
        return _WISHES["follows", ""]
    if known.temperature > 0 or is_crowd(run):
        return _WISHES["crowd", "line" if around == "line" else ""]
    if known.repels:
        return _WISHES["repels", "few on a line" if around == "line" and run.count <= _FEW else ""]
    if run.words is not None:
        return _WISHES["words", ""]
    if around not in ("line", "pca") and not {"staircase", "merge_tree"} & suited.keys():
        return _WISHES["moves", ""]
    return _WISHES["gathers", around if around in ("line", "pca") else ""]


def _plan(trajectory: "Trajectory", analysis: Any, camera: Camera | None = None) -> Iterator[tuple[str, Draw]]:
    """Yield (name, function that draws) for every figure that suits the run; nothing is drawn before the call."""
    run, known = first_run(trajectory), character_of(trajectory)
    if is_density(run):
        yield from _of_density(trajectory, known, analysis, camera)
        return
    leading = list(leading_figures(trajectory, known, analysis))
    yield from leading
    kind = projection(run).kind
    labels = pick(analysis, "labels")
    yield "snapshots", lambda: snapshots(trajectory, camera=camera)
    if known.is_law:  # its points are nodes of a quadrature, not particles: pairs of them mean nothing
        yield from _of_law(trajectory, known)
        return
    if len(run) > 1:
        yield from _motion(trajectory, known, kind, camera)
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
        if _selects(known) and run.count <= MAX_RANKED:
            yield "ranks", lambda: attention_ranks(trajectory, frame, labels=blocks)
    if known.picture is not None and "picture" not in dict(leading):
        yield "picture", lambda: picture(trajectory, labels=labels)
    yield from _observables(trajectory)


def _of_density(
    trajectory: "Trajectory", known: Character, analysis: Any, camera: Camera | None
) -> Iterator[tuple[str, Draw]]:
    """Pictures of masses on points that stay: pairs and paths of cells mean nothing."""
    run = first_run(trajectory)
    field = field_of(run)
    kind = None if field is None else field.cells.kind
    yield "snapshots", lambda: snapshots(trajectory, camera=camera)
    if kind == "sphere":
        yield "map", lambda: density_map(trajectory)
    if len(run) > 1:
        yield "density", lambda: particle_density(trajectory)
        if kind in ("line", "circle"):
            yield "profiles", lambda: profiles(trajectory)
        yield from _numbers(trajectory, known)
    found = None if pick(analysis, "peaks") is None else analysis
    if found is not None and len(run) > 1 and found.counts.max() > 1:
        yield "peaks", lambda: peaks(trajectory, found)
    if found is not None and np.ptp(found.counts) > 0:
        treads = _treads(found) if len(run) > 2 else ()
        yield "staircase", lambda: staircase(trajectory, found, plateaus=treads, of="peaks")
    elif energy_name(trajectory) is not None:
        yield "energy", lambda: energy(trajectory)
    if kind in ("circle", "sphere") and len(run) > 1:
        yield "modes", lambda: modes(trajectory)
    yield from _observables(trajectory)


def _treads(found: Any) -> list[Any]:
    """The plateaus of the number of peaks of a density, which begins with the first peak."""
    return find_plateaus(found.times, since_first_peak(found.counts), changes=found.changes)


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


def _motion(trajectory: "Trajectory", known: Character, kind: str, camera: Camera | None) -> Iterator[tuple[str, Draw]]:
    """Pictures of motion: lines where particles gather, densities where noise or repulsion would tangle lines."""
    run = first_run(trajectory)
    lines = known.temperature == 0 and kind == "line" and run.count <= _FEW
    if (not known.gathers and not lines) or is_crowd(run):
        yield "density", lambda: particle_density(trajectory)
    if known.temperature == 0:
        if kind != "pca" or _tells_apart(run):
            yield "kymograph", lambda: kymograph(trajectory)
        if kind not in ("line", "circle"):  # paths on a ring would all lie on one another
            yield "paths", lambda: paths(trajectory, camera=camera)
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
    asked_for = getattr(pick(analysis, "threshold"), "reason", "") == GIVEN
    if np.ndim(counts) == 1 and not asked_for and not _tells_something(np.asarray(counts, float), labels):
        counts = merges = None
    if counts is None and energy_name(trajectory) is not None:
        yield "energy", lambda: energy(trajectory)
    elif counts is not None:
        plateaus = _plateaus(run, counts, analysis)
        known = analysis if hasattr(analysis, "changes") else counts
        yield "staircase", lambda: staircase(trajectory, known, plateaus=plateaus)
    if merges is not None and 0 < len(check_merges(merges)) <= MAX_TREE:
        beside = kind in ("line", "circle")
        tree_labels = labels if np.ndim(labels) == 2 else None
        draw = kymograph_with_tree if beside else merge_tree
        yield "merge_tree", lambda: draw(trajectory, merges, labels=tree_labels)


def _tells_something(counts: np.ndarray, labels: Any) -> bool:
    """Whether there is a number of clusters, and it does more than fluctuate, with nothing that merges for good.

    Where hardly any cluster has formed it tells nothing either.
    """
    known = counts[np.isfinite(counts)]
    if np.ndim(labels) == 2 and stays_scattered(labels[-1]):
        return False
    return known.size > 0 and (np.ptp(known) == 0 or first_real_merge(counts) is not None)


def _plateaus(run: Any, counts: Any, analysis: Any) -> list[Any]:
    """The given plateaus, else those that the analysis finds in the counts of a single run."""
    given = pick(analysis, "plateaus")
    if given is not None or np.ndim(counts) != 1 or len(run) < 3:
        return list(given or ())
    energy = None
    with suppress(ArgumentError):
        values = observable_values(run, "energy")
        energy = values if np.isfinite(values).all() else None
    found = find_plateaus(run.times, counts, energy, changes=known_changes(run, analysis))
    return metastable(found, float(counts[0]))


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
            yield f"{OBSERVABLE}{safe}", lambda name=name: observable(trajectory, name)
