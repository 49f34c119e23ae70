"""Which words become one: the words of the clusters of a frame, and those on both sides of a merge.

A merge is listed where the two sides together hold different words: one "the" that meets another is not, one that joins
a cluster of several words is, though they may hold a "the" already. So merges and cluster counts tell one story.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from particleflow.analysis.clusters.brackets import Bracket
from particleflow.analysis.clusters.merge_tree import Merge
from particleflow.analysis.clusters.tracking import ClusterTrack
from particleflow.analysis.reading import FloatArray, IntArray, as_weights
from particleflow.errors import ShapeError
from particleflow.trajectory.words import listed, visible

_LISTED = 12  # words of one side that are kept
_MOST_MERGES, _MOST_LISTED, _MOST_CLUSTERS = 1000, 200, 100  # merges examined, merges and clusters in a summary


class Side(NamedTuple):
    """One cluster in words: the most frequent of them (of equals the earliest), how many differ, how many tokens."""

    words: tuple[str, ...]
    different: int
    tokens: int

    def __str__(self) -> str:
        return listed(self.words, self.different)


class WordMerge(NamedTuple):
    """`between` the frame before and `frame`, the words of `absorbed` joined those of `survivor`."""

    between: Bracket
    frame: int
    survivor: Side
    absorbed: Side

    @property
    def time(self) -> float:
        """The middle of the bracket."""
        return self.between.middle

    def __str__(self) -> str:
        return f"{self.survivor} with {self.absorbed} (t = {self.between})"


def cluster_words(labels: Any, words: Any, weights: Any = None) -> list[tuple[int, float, Side]]:
    """Return (label, mass, words) of every cluster of one frame, the heaviest first; label −1 is no cluster.

    labels: (N,), such as a row of `ClusterTrack.labels`; words: (N,); weights: (N,), equal if left out.
    """
    labels, codes = _checked(labels, words)
    mass = as_weights(weights, labels.size)
    named = _Names(words)
    clustered = np.flatnonzero(labels >= 0)
    order = clustered[np.argsort(labels[clustered], kind="stable")]
    groups = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1) if order.size else []
    found = [(int(labels[group[0]]), float(mass[group].sum()), named.side(codes[group])) for group in groups]
    return sorted(found, key=lambda each: -each[1])


def word_merges(track: ClusterTrack, words: Any) -> list[WordMerge]:
    """Return the merges of a run in which different words became one, in time order.

    Of more than 1,000 merges those of the heaviest absorbed clusters are examined. words: (N,), one a particle. track:
    the clusters of the run.
    """
    _, codes = _checked(track.labels[-1], words)
    named, merges = _Names(words), track.tree.merges
    chosen = set(sorted(range(len(merges)), key=lambda place: -merges[place].absorbed_mass)[:_MOST_MERGES])
    intervals: dict[int, list[tuple[Merge, bool]]] = {merges[place].frame: [] for place in chosen}
    for place, merge in enumerate(merges):
        if merge.frame in intervals:
            intervals[merge.frame].append((merge, place in chosen))
    found = [
        each
        for frame, several in intervals.items()
        for each in _of_interval(several, track.labels[frame - 1], codes, named)
    ]
    return sorted(found, key=lambda each: each.frame)


def _of_interval(
    merges: list[tuple[Merge, bool]], before: IntArray, codes: IntArray, named: "_Names"
) -> Iterator[WordMerge]:
    """Yield the chosen merges of one interval, each with the clusters as they are after the merges before it."""
    order = np.argsort(before, kind="stable")
    involved = np.unique([label for merge, _ in merges for label in (merge.survivor, merge.absorbed)])
    ends = [np.searchsorted(before[order], involved, side) for side in ("left", "right")]
    members = {label: codes[order[first:last]] for label, first, last in zip(involved.tolist(), *ends, strict=True)}
    for merge, is_chosen in merges:
        sides = members[merge.survivor], members.pop(merge.absorbed)
        if is_chosen and np.unique(np.concatenate(sides)).size > 1:
            yield WordMerge(merge.between, merge.frame, named.side(sides[0]), named.side(sides[1]))
        members[merge.survivor] = np.concatenate(sides)


class _Names:
    """A lookup from word numbers, in the order of first appearance, to words."""

    def __init__(self, words: Any) -> None:
        """Number the distinct words in the order of their first appearance."""
        self._words = list(dict.fromkeys(np.asarray(words).tolist()))

    def side(self, codes: IntArray) -> Side:
        """A group of tokens, given by the numbers of their words."""
        values, counts = np.unique(codes, return_counts=True)
        frequent = values[np.lexsort((values, -counts))[:_LISTED]]
        return Side(tuple(self._words[code] for code in frequent.tolist()), values.size, codes.size)


def _checked(labels: Any, words: Any) -> tuple[IntArray, IntArray]:
    """Labels (N,) and the numbers (N,) of their words."""
    labels, words = np.asarray(labels), np.asarray(words)
    if labels.ndim != 1 or words.shape != labels.shape:
        raise ShapeError(
            f"Argument `words` must hold one word for each of the {labels.shape[-1]} particles, but has shape "
            f"{words.shape}."
        )
    _, first, inverse = np.unique(words, return_index=True, return_inverse=True)
    ranks: IntArray = np.empty(first.size, dtype=np.int64)
    ranks[np.argsort(first)] = np.arange(first.size)
    return labels.astype(np.int64), ranks[inverse.reshape(words.shape)]


def word_section(track: ClusterTrack, words: Any, weights: FloatArray) -> dict[str, Any] | None:
    """The words of the last clusters, if they are separated, and of the merges; None for particles without words."""
    if words is None:
        return None
    clusters = cluster_words(track.labels[-1], words, weights) if np.isfinite(track.counts[-1]) else []
    merges = word_merges(track, words)
    return {
        "tokens": len(words),
        "different": len(set(words.tolist())),
        "final_clusters": [{"mass": mass, **_plain(side)} for _, mass, side in clusters[:_MOST_CLUSTERS]],
        "merges_of_different_words": len(merges),
        "complete": len(track.tree.merges) <= _MOST_MERGES and len(merges) <= _MOST_LISTED,
        "listed_merges": [
            {**between.to_dict(), "frame": frame, "survivor": _plain(survivor), "absorbed": _plain(absorbed)}
            for between, frame, survivor, absorbed in _largest(merges)
        ],
    }


def _largest(merges: list[WordMerge]) -> list[WordMerge]:
    """The merges that a summary lists, in time order: those of the largest smaller sides."""
    smaller = [min(merge.survivor.tokens, merge.absorbed.tokens) for merge in merges]
    order = sorted(range(len(merges)), key=lambda place: -smaller[place])
    return [merges[place] for place in sorted(order[:_MOST_LISTED])]


def _plain(side: Side) -> dict[str, Any]:
    """A side as a table for JSON, its words made printable."""
    return {"words": [visible(word) for word in side.words], "different": side.different, "tokens": side.tokens}
