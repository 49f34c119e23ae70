"""The peaks of a density: the clusters of a run that has no particles, their masses, and since when they exist.

All cells are put in one order, by density, and of equal densities by their number. The way up from a cell goes to the
highest of its neighbours, and ends on a local maximum; the cells of one maximum are its basin. Lowering a water level,
two basins meet at the highest pass between them: of two cells that touch across, the lower one is the pass. The lower
maximum of the two lakes that meet, of height h, over a pass at height s, is a peak if

    h > s,   h ≥ contrast · s        and its basin holds at least the share `least` of the mass,

else its basin counts, for the share of others, to the one across the pass: cells of one density that touch, as the two
beside a maximum that lies between them, are one peak whatever the contrast. For the highest maximum of all, s is the
lowest density of the frame: a density that is nearly even has no peak at all. (This is the persistence of superlevel
sets with a ratio for a difference, so that it does not depend on units.)

Once the peaks are known, every cell belongs to one of them, by the watershed that begins with their tops: again and
again the highest cell that touches one with an owner gets the owner of the highest of these neighbours. So the cells of
a shoulder or of a spike too light go with the peak across the highest pass, and the lowest cell between two peaks goes
with the higher of its neighbours, on both sides of a seam alike. In this order of the cells, of equal densities the one
nearer to the top of a peak is the higher one, so that a plain between two peaks is shared.

Through time a peak goes on as the peak in whose next basin its top lies; if several do, the heaviest goes on and the
others have merged into it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from particleflow._support.text import plural
from particleflow.analysis.clusters.brackets import BETWEEN_FRAMES, ChangeTimes, bracket_after
from particleflow.analysis.density.cells import Cells, cells_of
from particleflow.analysis.reading import FloatArray, IntArray, Progress, as_weights, frame_weights, single_run
from particleflow.errors import ArgumentError

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

CONTRAST = 2.0  # how many times as dense as its pass a peak is at least
LEAST = 0.01  # share of the mass that a peak holds at least
NO_PEAK_YET = "no peak yet"
_SAME_SHARE = 1e-9  # densities that differ by a smaller share count as equal: volumes of cells are no more exact
_DIGITS = 9  # of a distance, as a share of the largest one, in which distances are compared


@dataclass(frozen=True)
class Peaks:
    """The peaks of one density, the heaviest first: `tops` (k,) their cells, `heights` and `masses` (k,).

    `basins` (N,) is the number of the peak that each cell belongs to, −1 where there is none.
    """

    tops: IntArray
    heights: FloatArray
    masses: FloatArray
    basins: IntArray


@dataclass(frozen=True)
class Peak:
    """One peak through time: the `frames` (k,) in which it stands, its `masses`, `heights` (k,) and `places` (k, d).

    `into` is the label of the peak that it has merged into, −1 if it stands in the last frame or has only vanished.
    """

    label: int
    frames: IntArray
    masses: FloatArray
    heights: FloatArray
    places: FloatArray
    into: int = -1


@dataclass(frozen=True, repr=False)
class PeakTrack:
    """The peaks of a run: `counts` (T,) at `times` (T,), and `peaks`, all there ever were, by label.

    `changes` is what is known of the times at which the number changes.
    """

    contrast: float
    least: float
    times: FloatArray
    counts: IntArray
    peaks: tuple[Peak, ...]
    changes: ChangeTimes = BETWEEN_FRAMES

    @property
    def last(self) -> list[Peak]:
        """The peaks of the last frame, the heaviest first."""
        there = [peak for peak in self.peaks if peak.frames[-1] == len(self.times) - 1]
        return sorted(there, key=lambda peak: -peak.masses[-1])

    @property
    def rule(self) -> str:
        """What counts as a peak, in words."""
        return (
            f"a peak is at least {self.contrast:g} times as dense as the pass to a higher one, or as the lowest "
            f"density, and holds {100 * self.least:g} % of the mass"
        )

    def __repr__(self) -> str:
        """A card of four lines: how many peaks there were, and the last ones."""
        first = self.counts[0] or NO_PEAK_YET
        since = bracket_after(self.times, self.counts != self.counts[-1], self.changes)
        masses = ", ".join(f"{peak.masses[-1]:.3g}" for peak in self.last[:8]) or "none"
        lines = [
            f"PeakTrack over {plural(len(self.times), 'frame')}, t = {self.times[0]:g} to {self.times[-1]:g}",
            f"  peaks   {first} → {self.counts[-1]}, unchanged since t = {since}",
            f"  masses  {masses}",
            f"  rule    {self.rule}",
        ]
        return "\n".join(lines)


def since_first_peak(counts: ArrayLike) -> FloatArray:
    """Return the numbers of peaks (T,), or (T, R), as floats, NaN in the frames before the first one with a peak."""
    array = np.asarray(counts, dtype=np.float64)
    return np.where(np.maximum.accumulate(array, axis=0) > 0, array, np.nan)


def find_peaks(cells: Cells, masses: FloatArray, *, contrast: float = CONTRAST, least: float = LEAST) -> Peaks:
    """Return the peaks of masses on cells: maxima of the density m_i / V_i that stand out from their surroundings.

    A maximum of height h whose highest pass to a higher one lies at s is a peak if h > s, h ≥ contrast · s and its
    basin holds at least the share `least` of the mass; for the highest of all, s is the lowest density. The masses are
    those of the watershed that begins with the tops of the peaks.

    Parameters: `cells`; `masses` (N,); `contrast` ≥ 1; `least` in [0, 1).
    """
    if not contrast >= 1 or not 0 <= least < 1:
        raise ArgumentError(f"A peak needs contrast ≥ 1 and 0 ≤ least < 1, but they are {contrast} and {least}.")
    mass = as_weights(masses, len(cells.volumes))
    density = _equalised(mass / cells.volumes)
    if not _stands_out(density.max(), density.min(), contrast):
        return Peaks(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0), np.full(len(mass), -1))
    order = np.argsort(density, kind="stable")
    tops, basins, passes = _basins(cells.neighbours, order)
    held = _sums(basins, mass, len(tops))
    owner = _owners(density[tops], held, [(density[cell], one, other) for cell, one, other in passes], contrast, least)
    heavy = _sums(owner[basins], mass, len(tops)) >= least  # a spike may be the highest and too light
    peaks = tops[(owner == np.arange(len(tops))) & heavy]
    own = _watershed(cells, density, peaks)
    held = _sums(own, mass, len(peaks))
    heaviest = np.argsort(-held, kind="stable")
    return Peaks(peaks[heaviest], density[peaks[heaviest]], held[heaviest], np.argsort(heaviest)[own])


def _stands_out(height: float, level: float, contrast: float) -> bool:
    """Whether a maximum of this height is a peak over a pass at this level."""
    return bool(height > level and height >= contrast * level)


def _equalised(density: FloatArray) -> FloatArray:
    """Densities, with one value for those that differ by rounding alone: the largest of them."""
    order = np.argsort(density)
    ranked = density[order]
    last = np.concatenate([ranked[1:] > (1 + _SAME_SHARE) * ranked[:-1], [True]])
    found = np.empty_like(density)
    found[order] = ranked[last][np.concatenate([[0], np.cumsum(last[:-1])])]
    return found


def _sums(numbers: IntArray, mass: FloatArray, count: int) -> FloatArray:
    """The mass of each of so many basins."""
    return np.bincount(numbers, mass, count).astype(np.float64)


def _basins(neighbours: IntArray, order: IntArray) -> tuple[IntArray, IntArray, list[tuple[int, int, int]]]:
    """The local maxima (k,), the number of the basin of every cell (N,), and the passes between basins.

    A pass is (cell, one basin, other basin): the lower of two cells that touch, for each two basins the highest one.
    The highest passes come first, and of those through one cell the one to its higher neighbour.

    Parameters: `neighbours` (N, k) of each cell; `order`, all cells from the lowest to the highest.
    """
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    best = neighbours[np.arange(len(order)), rank[neighbours].argmax(axis=1)]
    upward = np.where(rank[best] > rank, best, np.arange(len(order)))
    while not np.array_equal(further := upward[upward], upward):
        upward = further
    tops, basins = np.unique(upward, return_inverse=True)
    cell, other = np.repeat(np.arange(len(order)), neighbours.shape[1]), neighbours.ravel()
    across = basins[cell] < basins[other]
    cell, other = cell[across], other[across]
    low, high = np.minimum(rank[cell], rank[other]), np.maximum(rank[cell], rank[other])
    descending = np.lexsort((-high, -low))
    key = (basins[cell] * len(tops) + basins[other])[descending]
    chosen = descending[np.sort(np.unique(key, return_index=True)[1])]
    rows = order[low[chosen]], basins[cell[chosen]], basins[other[chosen]]
    return tops, basins, list(zip(*(row.tolist() for row in rows), strict=True))


def _watershed(cells: Cells, density: FloatArray, peaks: IntArray) -> IntArray:
    """The peak (its place in `peaks`) that every cell belongs to.

    Basins of maxima that are no peaks have no owner at first. From the highest pass down, all basins of a lake without
    an owner get the owner of the basin across the pass at which it first meets a lake that has one.
    """
    tops, basins, passes = _basins(cells.neighbours, _flooding_order(cells, density, peaks))
    owner = np.full(len(tops), -1)
    owner[np.searchsorted(tops, peaks)] = np.arange(len(peaks))
    lake = list(range(len(tops)))
    waiting = {basin: [basin] for basin in np.flatnonzero(owner < 0).tolist()}  # by the root of a lake without an owner
    for _, one, other in passes:
        first, second = _root(lake, one), _root(lake, other)
        if first == second:
            continue
        if second in waiting:
            first, second, one, other = second, first, other, one
        lake[first] = second
        joining = waiting.pop(first, [])
        if second in waiting:
            waiting[second] += joining
        else:
            owner[joining] = owner[other]
    return owner[basins]


def _flooding_order(cells: Cells, density: FloatArray, peaks: IntArray) -> IntArray:
    """All cells from the lowest to the highest; of equal densities the nearer to a peak is higher, then the later."""
    level, size = np.unique(density, return_inverse=True, return_counts=True)[1:]
    away = np.zeros(len(density))
    tied = np.flatnonzero(size[level] > 1)
    if tied.size:
        nearest = cells.distances(tied, peaks).min(axis=1)
        away[tied] = np.round(nearest / max(nearest.max(), np.finfo(float).tiny), _DIGITS)
    return np.lexsort((np.arange(len(density)), -away, level))


def _root(table: list[int], entry: int) -> int:
    """The end of a chain of entries, halving the chain on the way (union-find)."""
    while table[entry] != entry:
        table[entry] = table[table[entry]]
        entry = table[entry]
    return entry


def _owners(
    heights: FloatArray, masses: FloatArray, passes: list[tuple[float, int, int]], contrast: float, least: float
) -> IntArray:
    """The maximum that every basin counts to while peaks are looked for, which for a peak is its own."""
    lake = list(range(len(heights)))  # basins that are one below the water level; the root is their highest maximum
    goes_to = list(range(len(heights)))
    held = masses.tolist()

    for level, one, other in passes:
        high, low = _root(lake, one), _root(lake, other)
        if high == low:
            continue
        across = one
        if (heights[high], high) < (heights[low], low):
            high, low, across = low, high, other
        lake[low] = high
        if not _stands_out(heights[low], level, contrast) or held[low] < least:
            heir = _root(goes_to, across)
            goes_to[low] = heir
            held[heir] += held[low]
    return np.array([_root(goes_to, entry) for entry in range(len(heights))], dtype=np.int64)


def track_peaks(
    trajectory: "Trajectory", *, contrast: float = CONTRAST, least: float = LEAST, progress: Progress | None = None
) -> PeakTrack:
    """Follow the peaks of a density through time, frame by frame.

    A peak goes on as the peak of the next frame in whose basin its top lies; of several the heaviest goes on, and the
    others have merged into it. A peak that continues none is new.

    Parameters: `trajectory`, one run that is a density on cells; `contrast` and `least`, those of `find_peaks`;
    `progress(done, total)`, called after every frame.
    """
    run = single_run(trajectory)
    cells = cells_of(run)
    if cells is None:
        raise ArgumentError(
            "Peaks are found in a density on cells (of a line, a circle, a lattice in the plane or S²), but this run "
            "is none; `track_clusters` follows particles."
        )
    history: dict[int, list[tuple[int, float, float, int]]] = {}
    into: dict[int, int] = {}
    counts = np.zeros(len(run), dtype=np.int64)
    before: tuple[Peaks, list[int]] | None = None
    for frame in range(len(run)):
        found = find_peaks(cells, frame_weights(run, frame), contrast=contrast, least=least)
        labels = _labels(before, found, history, into)
        counts[frame] = len(labels)
        for place, label in enumerate(labels):
            row = frame, float(found.masses[place]), float(found.heights[place]), int(found.tops[place])
            history.setdefault(label, []).append(row)
        before = found, labels
        if progress is not None:
            progress(frame + 1, len(run))
    peaks = tuple(_peak(cells, label, rows, into.get(label, -1)) for label, rows in sorted(history.items()))
    changes = ChangeTimes(whole=run.facts.time_unit is not None)
    return PeakTrack(contrast, least, np.asarray(run.times, dtype=np.float64), counts, peaks, changes)


def _labels(
    before: tuple[Peaks, list[int]] | None, found: Peaks, history: dict[int, list], into: dict[int, int]
) -> list[int]:
    """The labels of the peaks of a frame, continued from the frame before; new peaks get the next numbers."""
    labels = [-1] * len(found.tops)
    for top, label in zip(before[0].tops, before[1], strict=True) if before else ():  # the heaviest first
        heir = int(found.basins[top])
        if heir >= 0 and labels[heir] < 0:
            labels[heir] = label
        elif heir >= 0:
            into[label] = labels[heir]
    fresh = max(history, default=-1)
    for place, label in enumerate(labels):
        if label < 0:
            fresh += 1
            labels[place] = fresh
    return labels


def _peak(cells: Cells, label: int, rows: list[tuple[int, float, float, int]], into: int) -> Peak:
    """One peak through time from its rows (frame, mass, height, cell)."""
    frames, masses, heights, tops = (np.array(column) for column in zip(*rows, strict=True))
    return Peak(label, frames, masses, heights, cells.points[tops], into)
