"""The clusters that the page shows, taken from plain arrays, from an analysis of the run, or found here."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from particleflow.analysis.clusters.separation import NOT_SEPARATED
from particleflow.analysis.density.peaks import since_first_peak
from particleflow.errors import ParticleflowError
from particleflow.view.findings import expected_structure, merge_rows, pick, worth_showing
from particleflow.view.webpage.page_tree import Births


@dataclass(frozen=True)
class Clusters:
    """Labels (T, N), counts (T,), merges (a, b, time, size), births, the threshold, and what it means in words.

    `births` are (time, size) by label; `note` states how particles are linked, or why nothing was found; `noun` names
    what is counted. Of a density the peaks are counted, and there are counts alone.
    """

    labels: Any = None
    counts: Any = None
    merge_tree: Any = None
    births: Births | None = None
    threshold: float | None = None
    note: str = ""
    noun: str = "clusters"

    def overridden_by(self, given: "Clusters") -> "Clusters":
        """Return these clusters with the labels, counts and merges in `given` replacing the analysis' own."""
        named = {name: getattr(given, name) for name in ("labels", "counts", "merge_tree")}
        named = {name: value for name, value in named.items() if value is not None}
        # births refer to the labels of the analysis' own tree
        births = None if "merge_tree" in named else self.births
        return replace(self, births=births, **named)


def found_clusters(trajectory: Any) -> Clusters:
    """Clusters of a single run at the default threshold; without them where they cannot be found or mean nothing."""
    try:
        return clusters_from(worth_showing(trajectory, expected_structure(trajectory)))
    except ParticleflowError as problem:
        return Clusters(note=f"not analysed: {problem}")


def clusters_from(analysis: Any) -> Clusters:
    """Clusters of an analysis: a `ClusterTrack`, or a mapping or object with labels, counts, merge_tree (or tree)."""
    if analysis is None or analysis is False:
        return Clusters()
    if pick(analysis, "peaks") is not None:
        return Clusters(counts=since_first_peak(analysis.counts), note=analysis.rule, noun="peaks")
    tree, births = pick(analysis, "merge_tree", "tree"), None
    if hasattr(tree, "merges") and hasattr(tree, "births"):
        births = {int(birth.label): (float(birth.time), float(birth.size)) for birth in tree.births}
        tree = merge_rows(tree)
    threshold = pick(analysis, "threshold")
    value = getattr(threshold, "value", threshold)
    value = float(value) if isinstance(value, int | float) else None
    note = "" if value is None else f"particles closer than {value:.4g} are linked"
    counts = pick(analysis, "counts")
    if counts is not None and not np.isfinite(counts).any():
        return Clusters(threshold=value, note=f"{note}; {NOT_SEPARATED} at any time".lstrip("; "))
    return Clusters(pick(analysis, "labels"), counts, tree, births, value, note)
