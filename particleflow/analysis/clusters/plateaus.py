"""Metastable plateaus, dwell times and the collapse time, from the cluster count and the energy.

A plateau is a tread of the cluster count: a stretch of frames over which it does not change, after the first real
merge. That is the first frame k whose count, and every later one, is below every earlier one,

    max(counts[k:]) < min(counts[:k]):

before it clusters are chance chains of the start, which form and break. A count is NaN where clusters are not separated
(see `separation`): such frames are on no plateau, and where they are the first ones, the rule begins with the frame
after them. A count that never changes is one plateau. Without counts a plateau is where the energy is nearly flat,
|dE/ds| ≤ flatness · (max E − min E) / (total length in s), where s is t or, for log-spaced frames, log₁₀ t. It counts
if it lasts at least `minimum` of the total length in s. A plateau starts and ends between two frames: its times are the
middles of these brackets, as those of the merges between the same frames are.
Dwell times are given in time and in decades of time. The weights of the particles are contained in counts and
energy already.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from particleflow.analysis.clusters.brackets import BETWEEN_FRAMES, Bracket, ChangeTimes, bracket_after, bracket_of
from particleflow.analysis.reading import FloatArray, as_series, in_units, is_log_spaced, mean
from particleflow.errors import ArgumentError

_FEW = 4
_MANY = 32  # clusters that cannot be looked at one by one


@dataclass(frozen=True)
class Plateau:
    """One stretch of frames `first` … `last` at rest.

    start, end: the middles of `start_between` and `end_between`, the saved times around its start and its end; count:
    clusters on it (None if no count was given); energy: its mean (None if none was given); dwell and decades: length in
    time and in log₁₀ time (None if it starts at t ≤ 0); open_start, open_end: it reaches the first or the last frame,
    so that its dwell time is only a lower bound.
    """

    first: int
    last: int
    start: float
    start_between: Bracket
    end: float
    end_between: Bracket
    dwell: float
    decades: float | None
    count: int | None
    energy: float | None
    open_start: bool
    open_end: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the plateau as a table for JSON."""
        return asdict(self)


def find_plateaus(
    times: ArrayLike,
    counts: ArrayLike | None = None,
    energy: ArrayLike | None = None,
    *,
    scale: str = "auto",
    flatness: float = 0.1,
    minimum: float = 0.03,
    changes: ChangeTimes = BETWEEN_FRAMES,
) -> list[Plateau]:
    """Find the metastable plateaus of a run, in time order.

    times, counts, energy: (T,), at least one of counts and energy; with counts the energy only describes the plateaus.
    scale: "linear" or "log" for the clock s; "auto" takes "log" for log-spaced frames (frames at t ≤ 0 are then left
    out). flatness (without counts), minimum: as described above. changes: see `bracket_of`.
    """
    if counts is None and energy is None:
        raise ArgumentError("`find_plateaus` needs `counts`, `energy` or both.")
    if scale not in ("auto", "linear", "log"):
        raise ArgumentError(f'Argument `scale` must be "auto", "linear" or "log", but is {scale!r}.')
    clock = np.asarray(times, dtype=np.float64)
    for values in (counts, energy):
        if values is not None:
            clock, _ = as_series(times, values)
    logarithmic = scale == "log" or (scale == "auto" and is_log_spaced(clock))
    kept = np.flatnonzero(clock > 0) if logarithmic else np.arange(clock.size)
    if kept.size < 2:
        return []
    ruler = np.log10(clock[kept]) if logarithmic else clock[kept]
    length = ruler[-1] - ruler[0]
    if counts is not None:
        calm = _treads(np.asarray(counts)[kept])
    else:
        calm = _flat(ruler, np.asarray(energy, dtype=np.float64)[kept], flatness)
    stretches = [(a, b) for a, b in _runs(calm) if ruler[b] - ruler[a] >= minimum * length]
    return [_plateau(clock, counts, energy, kept, (a, b), changes) for a, b in stretches]


def first_real_merge(counts: ArrayLike) -> int | None:
    """Return the first frame k with max(counts[k:]) < min(counts[:k]), or None if there is none.

    From it on the count is below everything it was before, for good: fluctuations up and down are no merges. Frames
    with a NaN are left out; if the first ones are, nothing is before the frame after them, which is returned.

    counts: (T,), NaN where clusters are not separated.
    """
    array = np.asarray(counts, dtype=np.float64)
    known = np.isfinite(array)
    lowest_before = np.concatenate([[np.inf], np.minimum.accumulate(np.where(known, array, np.inf))])[:-1]
    highest_after = np.maximum.accumulate(np.where(known, array, -np.inf)[::-1])[::-1]
    frames = np.flatnonzero(known[1:] & (highest_after < lowest_before)[1:]) + 1
    return int(frames[0]) if frames.size else None


def metastable(plateaus: Iterable[Plateau], initial_count: float) -> list[Plateau]:
    """Return the plateaus with at most max(¾ · initial_count, 4) clusters; all, where they began as a dense cloud.

    A constant count above that belongs to particles that have hardly begun to gather.

    plateaus: as of `find_plateaus` with counts; initial_count: clusters in the first frame, NaN if not separated.
    """
    most = np.inf if np.isnan(initial_count) else max(0.75 * initial_count, _FEW)
    return [each for each in plateaus if each.count is not None and each.count <= most]


def spreads(counts: ArrayLike, last_labels: ArrayLike) -> bool:
    """Tell whether nothing gathers: the count ends above its start, was never larger, and most clusters are alone.

    counts: (T,) of connected components, whether or not they are separated; last_labels: (N,), those of the last frame.
    A cloud that splits into groups does not spread.
    """
    array = np.asarray(counts)
    alone = np.unique(np.asarray(last_labels), return_counts=True)[1] == 1
    return bool(array[-1] > array[0] and array[-1] == array.max() and 2 * alone.sum() > alone.size)


def stays_scattered(last_labels: ArrayLike) -> bool:
    """Tell whether hardly any cluster has formed: of more than 32, more than half as many as particles, most are alone.

    What has merged then is pairs that came near each other by chance. last_labels: (N,), those of the last frame, −1
    for particles of no cluster.
    """
    labels = np.asarray(last_labels)
    sizes = np.unique(labels[labels >= 0], return_counts=True)[1]
    return bool(sizes.size > max(_MANY, sizes.sum() / 2) and 2 * (sizes == 1).sum() > sizes.size)


def collapse_time(
    times: ArrayLike, counts: ArrayLike, *, target: int = 1, changes: ChangeTimes = BETWEEN_FRAMES
) -> Bracket | None:
    """Return the saved times (before, after) between which the count reaches `target` for good, or None if it does not.

    A run that is collapsed from its first frame on gives that time twice. Frames whose clusters are not separated are
    not collapsed.

    times, counts: (T,); target: how many clusters count as collapsed; changes: see `bracket_of`.
    """
    clock, array = as_series(times, counts, "counts")
    return bracket_after(clock, ~(array <= target), changes)


def _treads(counts: NDArray[np.number]) -> NDArray[np.bool_]:
    """Tell for every interval whether the count stays, after the first real merge or because it never changes."""
    still = np.diff(counts) == 0  # never where a count is NaN
    begin = first_real_merge(counts)
    if begin is None:
        return still if still.all() else np.zeros_like(still)
    return still & (np.arange(still.size) >= begin)


def _flat(ruler: FloatArray, energy: FloatArray, flatness: float) -> NDArray[np.bool_]:
    """Tell for every interval whether |ΔE| ≤ flatness · (max E − min E) · Δs / (total length), up to rounding of E."""
    if not np.isfinite(energy).all():
        raise ArgumentError(f"`energy` must be finite, but is not in frame {int(np.argmin(np.isfinite(energy)))}.")
    energy, _ = in_units(energy)
    allowed = flatness * (energy.max() - energy.min()) / (ruler[-1] - ruler[0]) if ruler[-1] > ruler[0] else 0.0
    rounding = 8 * np.finfo(float).eps * np.abs(energy).max()
    return np.abs(np.diff(energy)) <= allowed * np.diff(ruler) + rounding


def _runs(calm: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return (first, last) frames of the maximal runs of calm intervals."""
    edges = np.diff(np.concatenate([[False], calm, [False]]).astype(np.int8))
    return list(zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist(), strict=True))


def _plateau(
    clock: FloatArray,
    counts: ArrayLike | None,
    energy: ArrayLike | None,
    kept: NDArray[np.int64],
    ends: tuple[int, int],
    changes: ChangeTimes,
) -> Plateau:
    """Describe the frames kept[a] … kept[b] between two ends (a, b); decades = log₁₀(end / start)."""
    a, b = ends
    first, last = int(kept[a]), int(kept[b])
    start_between, end_between = (bracket_of(clock[kept], each, changes) for each in (a, b + 1))
    start, end = start_between.middle, end_between.middle
    return Plateau(
        first=first,
        last=last,
        start=start,
        start_between=start_between,
        end=end,
        end_between=end_between,
        dwell=end - start,
        decades=float(np.log10(end / start)) if start > 0 else None,
        count=None if counts is None else int(np.asarray(counts)[first]),
        energy=None if energy is None else mean(np.asarray(energy)[first : last + 1]),
        open_start=a == 0,
        open_end=b == kept.size - 1,
    )
