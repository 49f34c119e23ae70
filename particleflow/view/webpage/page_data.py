"""The contents of the page as arrays: a survey of the run, the frames to keep, the projection, the fit to a size."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from particleflow.analysis.density.cells import is_density
from particleflow.analysis.motion import arc_length, step_lengths
from particleflow.analysis.samples import gather, thinned
from particleflow.analysis.shape import PrincipalComponents, common_norm, principal_components
from particleflow.errors import ArgumentError, ShapeError
from particleflow.view import style
from particleflow.view.plots.base import projection, rounding_level
from particleflow.view.plots.colors import check_labels, colored_clusters, contrasting_categories
from particleflow.view.plots.subjects.placed_values import PlacedValues, placed_values
from particleflow.view.plots.time.series import energy_name, in_stored_precision, only_errors, power_of
from particleflow.view.webpage.codec import (
    BITS,
    CodeGrid,
    Section,
    cheapest_order,
    code_sections,
    label_blocks,
    position_blocks,
)

BLOCK_VALUES = 4_000_000  # coordinates read from the file at once: 32 MB of float64
SAMPLE_FRAMES, SAMPLE_ROWS = 50, 50_000  # frames, and particles × frames, that the projection is computed from
MINIMUM_FRAMES = 120  # fewer frames than this look like a slide show: particles are thinned out instead
CROWD, SHOWN_OF_A_CROWD = 100_000, 20_000  # particles from which on a sample is shown, and of how many
TIMELINE_LIMIT = 20_000  # samples of the curves in the panels
PALETTE_SIZE = 96  # colours of clusters, which repeat beyond
NO_CLUSTER = 65_535  # the code of particles without a cluster

Coded = Callable[[Any, Any], np.ndarray]  # 16-bit numbers of some frames and particles: clusters, or levels


@dataclass(frozen=True)
class Survey:
    """One pass over a run: the box it lives in, how far it moves between frames, and how it is projected."""

    low: np.ndarray
    high: np.ndarray
    arc: np.ndarray
    components: PrincipalComponents | None
    placed: PlacedValues | None = None  # of values on places, whose dots are drawn at their places

    @property
    def explained(self) -> float | None:
        """The share of the variance that the projection keeps; None without a projection, or where all is kept."""
        if self.components is None or self.components.shares.size == 0:
            return None
        return float(self.components.shares.sum()) or 1.0  # a run that stays in one point loses nothing


@dataclass(frozen=True)
class Selection:
    """What is stored of a run: frames, particles (None: all), the grid and the prediction order."""

    frames: np.ndarray
    particles: np.ndarray | None
    grid: CodeGrid
    order: int


def _blocks(trajectory: Any) -> Iterator[np.ndarray]:
    """All points of a run in consecutive blocks (F, N, d) of about `BLOCK_VALUES` numbers."""
    size = max(1, BLOCK_VALUES // (trajectory.count * trajectory.dimension))
    for begin in range(0, len(trajectory), size):
        yield np.asarray(trajectory.points[begin : begin + size], np.float64)


def _components(trajectory: Any) -> PrincipalComponents:
    """The three principal components of a sample of the run's points, or the three coordinates that they really have.

    The latter are those of layer norm in four dimensions, whose points lie on a sphere in three: as in figures.
    """
    seen = projection(trajectory)
    if seen.kind == "sphere":
        return PrincipalComponents(seen.center, seen.matrix, np.zeros(0))
    frames = np.linspace(0, len(trajectory) - 1, min(len(trajectory), SAMPLE_FRAMES)).astype(int)
    stride = max(1, -(-trajectory.count * len(frames) // SAMPLE_ROWS))
    return principal_components(gather(trajectory, frames, slice(None, None, stride)), 3)


def _project(points: np.ndarray, seen: Callable[[np.ndarray], np.ndarray] | None) -> np.ndarray:
    """The shown coordinates of points (..., d)."""
    return points if seen is None else seen(points)


def survey(trajectory: Any) -> Survey:
    """Box, arc length and projection of a run, reading it once in blocks.

    arc_k = Σ_{j≤k} (mean_i |x_i(t_j) − x_i(t_{j−1})|²)^{1/2}, over particles that are finite in both frames; of a
    density the mass that has moved.
    """
    placed = placed_values(trajectory)
    components = _components(trajectory) if trajectory.dimension > 3 and placed is None else None
    seen = components if placed is None else placed
    low = np.full(min(trajectory.dimension, 3) if placed is None else 2, np.inf)
    high = -low
    steps, last = [], None
    for block in _blocks(trajectory):
        steps.append(step_lengths(block if last is None else np.concatenate([last, block])))
        shown = _project(block, seen)
        finite = np.isfinite(shown)
        low = np.minimum(low, np.where(finite, shown, np.inf).min(axis=(0, 1)))
        high = np.maximum(high, np.where(finite, shown, -np.inf).max(axis=(0, 1)))
        last = block[-1:]
    if not (np.isfinite(low) & np.isfinite(high)).all():
        raise ArgumentError("The trajectory has no finite point to show; check it with `particleflow info`.")
    arc = np.concatenate([[0.0], np.cumsum(np.concatenate(steps))])
    arc = arc_length(trajectory) if is_density(trajectory) else arc
    return Survey(low, high, arc, components, placed)


def circle_radius(trajectory: Any) -> float | None:
    """Radius of the circle (d = 2) or sphere (d = 3) on which the first, middle and last frames lie, else None."""
    if trajectory.facts.is_law or placed_values(trajectory) is not None:
        return None
    if trajectory.dimension not in (2, 3):
        seen = projection(trajectory)
        return seen.radius if seen.kind == "sphere" else None
    return common_norm(trajectory, gather(trajectory, thinned(len(trajectory), 3)))


def box(found: Survey, radius: float | None) -> tuple[np.ndarray, np.ndarray]:
    """The box that codes are spread over: a cube around a circle or sphere, else what was found."""
    low, high = found.low, found.high
    return (low, high) if radius is None else (np.minimum(low, -radius), np.maximum(high, radius))


def choose_frames(times: np.ndarray, arc: np.ndarray, limit: int) -> np.ndarray:
    """At most `limit` frame numbers, first and last among them, dense where the run moves.

    Frames are spread evenly in ½ arc length + ¼ frame number + ¼ log time, each scaled to [0, 1]: a metastable plateau
    keeps a few frames and a fast merge keeps many.
    """
    total = len(times)
    if total <= limit:
        return np.arange(total)
    number = np.arange(total) / (total - 1)
    travelled = arc / arc[-1] if arc[-1] > 0 else number
    elapsed = times - times[0]
    positive = elapsed > 0
    logarithm = np.log(np.where(positive, elapsed, elapsed[positive].min() if positive.any() else 1.0))
    span = logarithm[-1] - logarithm[0]
    logarithmic = (logarithm - logarithm[0]) / span if span > 0 else number
    importance = 0.5 * travelled + 0.25 * number + 0.25 * logarithmic
    wanted = np.linspace(0.0, importance[-1], max(2, limit))
    chosen = np.searchsorted(importance, wanted, side="left").clip(0, total - 1)
    chosen = np.unique(np.concatenate([[0], chosen[1:-1], [total - 1]]))
    # several wanted places can fall on one frame: what is left of the limit is spread over the frames not yet chosen
    others = np.setdiff1d(np.arange(total), chosen)
    missing = max(2, limit) - len(chosen)
    filled = others[np.linspace(0, len(others) - 1, missing).astype(int)]
    return np.unique(np.concatenate([chosen, filled]))


def reader(trajectory: Any, found: Survey, particles: np.ndarray | None) -> Callable[[np.ndarray], np.ndarray]:
    """A function from frame numbers to the shown coordinates (F, N', d') of the shown particles."""
    kept = slice(None) if particles is None else particles
    seen = found.components if found.placed is None else found.placed.of(kept)

    def read(frames: np.ndarray) -> np.ndarray:
        first, last = int(frames[0]), int(frames[-1])
        if particles is None and last - first == len(frames) - 1:  # one read for consecutive frames
            points = np.asarray(trajectory.points[first : last + 1], np.float64)[:, kept]
        else:
            points = gather(trajectory, frames, kept)
        return _project(points, seen)

    return read


@dataclass(frozen=True)
class CodedLabels:
    """Cluster labels (T, N), and the code of each label; the codes of frames are made on demand, by a call.

    Code 0 is for the label that holds most particles over all frames, 1 for the next, …; −1 has no cluster. The first
    codes get the most distinct colours, so the clusters that last are the ones that can be told apart.
    """

    labels: np.ndarray
    codes: dict[int, int]

    @staticmethod
    def of(labels: np.ndarray) -> "CodedLabels":
        """Number the clusters of labels (T, N) by how many particles they hold over all frames."""
        sizes: Counter[int] = Counter()
        for row in labels:
            values, counts = np.unique(row, return_counts=True)
            sizes.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        order = sorted((value for value in sizes if value >= 0), key=lambda value: (-sizes[value], value))
        codes = {value: min(code, NO_CLUSTER - 1) for code, value in enumerate(order)}
        return CodedLabels(labels, codes | {value: NO_CLUSTER for value in sizes if value < 0})

    def __call__(self, frames: Any = slice(None), particles: Any = slice(None)) -> np.ndarray:
        """The codes of some frames and particles, as 16-bit numbers."""
        known = np.array(sorted(self.codes))
        table = np.array([self.codes[value] for value in known.tolist()], np.uint16)
        rows = np.arange(len(self.labels))[frames]
        return np.stack([table[np.searchsorted(known, self.labels[row][particles])] for row in rows])


def cluster_categories(trajectory: Any, codes: CodedLabels, size: int) -> np.ndarray:
    """The number in the palette (size,) of every code: that of the last cluster which it is in figures and movie.

    The other large clusters have hues unlike those they were last seen beside; the rest take what is left.
    """
    chosen = thinned(trajectory.count, 1000)
    some, known = codes(particles=chosen), _codes_of_last_clusters(trajectory, codes)
    most = int(np.max(some, initial=0, where=some != NO_CLUSTER)) + 1
    first = range(min(most, len(style.THEMES["light"].categories)))
    compared = sorted({*first, *known})
    seen = [code for code in compared if (some == code).any() or code in known]
    numbers: dict[int, int] = dict(known)
    if seen:
        centres = np.stack([_last_place(trajectory, chosen, some, code) for code in seen])
        fixed = {place: known[code] for place, code in enumerate(seen) if code in known}
        numbers |= dict(zip(seen, contrasting_categories(centres, fixed).tolist(), strict=True))
    spare = iter([number for number in range(size + len(numbers)) if number not in numbers.values()])
    return np.array([numbers[code] if code in numbers else next(spare) for code in range(size)])


def _codes_of_last_clusters(trajectory: Any, codes: CodedLabels) -> dict[int, int]:
    """Code → number in the palette of the last clusters of a run, each with the code that most of its particles have.

    It is empty where figures do not colour by clusters.
    """
    found = colored_clusters(trajectory)
    if found is None:
        return {}
    there = codes(np.array([found.frame]))[0]
    pairs, shared = np.unique(np.column_stack([found.labels, there]), axis=0, return_counts=True)
    known: dict[int, int] = {}
    for cluster, code in pairs[np.argsort(-shared, kind="stable")].tolist():
        number = int(found.categories[cluster])
        if code < PALETTE_SIZE and code not in known and number not in known.values():
            known[code] = number
    return known


def _last_place(trajectory: Any, chosen: np.ndarray, some: np.ndarray, code: int) -> np.ndarray:
    """The middle (d,) of the chosen particles of a code in the last frame that has some; the origin without any."""
    there = np.flatnonzero((some == code).any(axis=1))
    if there.size == 0:
        return np.zeros(trajectory.dimension)
    points = np.asarray(trajectory.points[int(there[-1])], float)[chosen][some[there[-1]] == code]
    return np.nan_to_num(points.mean(axis=0))


def label_colors(trajectory: Any, theme: str, size: int) -> np.ndarray:
    """The colours of the first given labels by their codes, (k, 3) for k ≤ size: those that figures have."""
    ranks = CodedLabels.of(np.asarray(trajectory.labels)[None, :])()[0]
    codes, first = np.unique(ranks, return_index=True)
    colors = style.label_colors(check_labels(trajectory, trajectory.labels), style.find(theme))
    return colors[first[codes != NO_CLUSTER]][:size]


def scalar_observables(trajectory: Any, frames: np.ndarray) -> dict[str, np.ndarray]:
    """Observables that are one number a frame; short vectors are split into their entries, the rest is left out.

    So are those that are never finite, and those that can only be errors (`only_errors`); a name tells in how many
    frames its values overflow.
    """
    found: dict[str, np.ndarray] = {}
    for name in trajectory.observables:
        values = np.asarray(trajectory.observables[name])
        if len(values) != len(trajectory) or values.dtype.kind not in "fiub" or only_errors(trajectory, name):
            continue
        table = values.reshape(len(values), -1).astype(np.float64)[frames]
        if not 1 <= table.shape[1] <= 6:
            continue
        for column in range(table.shape[1]):
            shown, lost = name if table.shape[1] == 1 else f"{name}[{column}]", int(np.isinf(table[:, column]).sum())
            if np.isfinite(table[:, column]).any():
                found[f"{shown} (overflows in {lost} of {len(table)} frames)" if lost else shown] = table[:, column]
    # energy is what a reader looks for first, or its logarithm
    first = energy_name(trajectory)
    return dict(sorted(found.items(), key=lambda item: (item[0] != first, "energy" not in item[0].lower())))


def rounding_levels(trajectory: Any, observables: dict[str, np.ndarray]) -> list[float]:
    """The level at which each of the `scalar_observables` is rounding, where a logarithmic axis ends, as in figures."""
    levels = []
    for shown, values in observables.items():
        whole = [name for name in trajectory.observables if shown.startswith(name) and shown[len(name) :][:1] in " ["]
        name = max(whole, key=len)
        levels.append(rounding_level(in_stored_precision(trajectory, name, values), power=power_of(name)))
    return levels


def lost_observables(trajectory: Any) -> list[str]:
    """The observables that overflow in every frame."""
    values = {name: np.asarray(trajectory.observables[name]) for name in trajectory.observables}
    return [name for name, each in values.items() if each.dtype.kind == "f" and each.size and np.isinf(each).all()]


def check_series(name: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    """`values` as an array of the given shape, or a ShapeError that says what was found."""
    array = np.asarray(values)
    if array.shape != shape:
        raise ShapeError(f"`{name}` must have shape {shape} to fit the trajectory, but has shape {array.shape}.")
    return array


def _sample_codes(trajectory: Any, found: Survey, chosen: Selection) -> np.ndarray:
    """Codes of ten consecutive stored frames one eighth into the run, as a sample of its motion."""
    begin = min(len(chosen.frames) // 8, max(0, len(chosen.frames) - 10))
    window = chosen.frames[begin : begin + 10]
    count = trajectory.count if chosen.particles is None else len(chosen.particles)
    read = reader(trajectory, found, chosen.particles)
    return np.concatenate(list(position_blocks(read, chosen.grid, window, count)))


def _encode(
    trajectory: Any, found: Survey, chosen: Selection, labels: Coded | None, budget: float
) -> tuple[list[Section], float]:
    """Sections of one selection, and their size as a fraction of the budget, extrapolated if it was passed early."""
    count = trajectory.count if chosen.particles is None else len(chosen.particles)
    read = reader(trajectory, found, chosen.particles)
    blocks = position_blocks(read, chosen.grid, chosen.frames, count)
    sections, used = code_sections("positions", blocks, chosen.order, budget)
    done = sum(section.shape[0] for section in sections)
    extra: list[Section] = []
    if labels is not None and done == len(chosen.frames):
        shown = slice(None) if chosen.particles is None else chosen.particles
        name = "levels" if is_density(trajectory) or found.placed is not None else "clusters"
        extra, more = code_sections(name, label_blocks(labels, chosen.frames, shown, count), 1)
        used += more
    return sections + extra, used * len(chosen.frames) / (done * budget)


def fit(trajectory: Any, found: Survey, labels: Coded | None, budget: float) -> tuple[Selection, list[Section]]:
    """The richest selection whose text stays under `budget` bytes: fewer bits first, then frames, then particles.

    Of more than 100,000 particles, 20,000 drawn at random are enough for any screen.
    """
    low, high = box(found, circle_radius(trajectory))
    times = np.asarray(trajectory.times, np.float64)
    some = _drawn(trajectory.count, SHOWN_OF_A_CROWD, 0) if trajectory.count > CROWD else None
    chosen = Selection(np.arange(len(times)), some, CodeGrid(low, high, BITS[0]), 1)
    for attempt in range(24):
        chosen = replace(chosen, order=cheapest_order(_sample_codes(trajectory, found, chosen)))
        sections, ratio = _encode(trajectory, found, chosen, labels, budget)
        if ratio <= 1.0:
            return chosen, sections
        chosen = _reduce(chosen, ratio, times, found.arc, trajectory.count, attempt)
    raise ArgumentError(f"The run does not fit into {budget:.3g} bytes even thinned out; pass a larger `max_bytes`.")


def _reduce(chosen: Selection, ratio: float, times: np.ndarray, arc: np.ndarray, count: int, attempt: int) -> Selection:
    """The next smaller selection, after an attempt whose size was `ratio` times the budget."""
    cheaper = [fewer for fewer in BITS if fewer < chosen.grid.bits]
    if cheaper:
        # far too big: go straight to the fewest bits
        return replace(chosen, grid=replace(chosen.grid, bits=cheaper[0] if ratio < 1.6 else cheaper[-1]))
    frames = int(len(chosen.frames) / (ratio * 1.03))
    if frames >= MINIMUM_FRAMES or len(chosen.frames) > MINIMUM_FRAMES:
        return replace(chosen, frames=choose_frames(times, arc, max(frames, min(MINIMUM_FRAMES, len(times)))))
    kept = count if chosen.particles is None else len(chosen.particles)
    target = max(1, int(kept / (ratio * 1.03)))
    if target == kept or kept == 1:
        return replace(chosen, frames=choose_frames(times, arc, max(2, frames)))
    return replace(chosen, particles=_drawn(count, target, attempt))


def _drawn(count: int, target: int, seed: int) -> np.ndarray:
    """The indices of `target` particles drawn at random, in increasing order."""
    return np.sort(np.random.default_rng(seed).choice(count, target, replace=False))
