"""What the page needs to know about clusters, taken from plain arrays or from an analysis of the run."""

from dataclasses import dataclass, replace
from typing import Any

from particleflow.analysis.cells import cells_of, is_density
from particleflow.analysis.character import character_of
from particleflow.errors import ParticleflowError
from particleflow.view.findings import merge_rows, pick, worth_showing
from particleflow.view.viewer.tree import Births


@dataclass(frozen=True)
class Clusters:
    """Labels (T, N), counts (T,), merges (a, b, time, size), label → (birth time, size), and the threshold in words.

    Of a density the peaks are counted, and there are counts alone.
    """

    labels: Any = None
    counts: Any = None
    merge_tree: Any = None
    births: Births | None = None
    note: str = ""
    noun: str = "clusters"

    def or_else(self, given: "Clusters") -> "Clusters":
        """The same, with everything that is given by itself in place of what the analysis says."""
        named = {name: getattr(given, name) for name in ("labels", "counts", "merge_tree")}
        named = {name: value for name, value in named.items() if value is not None}
        # births speak of the labels of the analysis' own tree
        births = None if "merge_tree" in named else self.births
        return replace(self, births=births, **named)


def found_clusters(trajectory: Any) -> Clusters:
    """Clusters of a single run at the default threshold; without them where they cannot be found or mean nothing."""
    from particleflow.analysis.peaks import track_peaks
    from particleflow.analysis.tracking import track_clusters

    if is_density(trajectory):
        return clusters_from(worth_showing(trajectory, track_peaks(trajectory) if cells_of(trajectory) else None))
    if not character_of(trajectory).gathers:
        return Clusters()
    try:
        return clusters_from(worth_showing(trajectory, track_clusters(trajectory)))
    except ParticleflowError as problem:
        return Clusters(note=f"not analysed: {problem}")


def clusters_from(analysis: Any) -> Clusters:
    """Clusters of an analysis: a `ClusterTrack`, or a mapping or object with labels, counts, merge_tree (or tree)."""
    if analysis is None or analysis is False:
        return Clusters()
    if pick(analysis, "peaks") is not None:
        return Clusters(counts=analysis.counts, note=analysis.rule, noun="peaks")
    tree, births = pick(analysis, "merge_tree", "tree"), None
    if hasattr(tree, "merges") and hasattr(tree, "births"):
        births = {int(birth.label): (float(birth.time), float(birth.size)) for birth in tree.births}
        tree = merge_rows(tree)
    threshold = pick(analysis, "threshold")
    value = getattr(threshold, "value", threshold)
    note = f"particles closer than {float(value):.4g} are linked" if isinstance(value, int | float) else ""
    return Clusters(pick(analysis, "labels"), pick(analysis, "counts"), tree, births, note)
