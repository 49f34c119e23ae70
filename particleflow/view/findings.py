"""Access to the results of an analysis, given as a mapping, an object such as a `ClusterTrack`, or plain rows."""

from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow._support.progress import Progress
from particleflow.analysis.clusters.plateaus import spreads, stays_scattered
from particleflow.analysis.density.cells import is_density
from particleflow.analysis.reading import first_run
from particleflow.analysis.run_character import character_of

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory


def pick(analysis: Any, *names: str) -> Any:
    """The first of the named entries of a mapping, or attributes of an object, that is not None; else None."""
    for name in names:
        value = analysis.get(name) if hasattr(analysis, "get") else getattr(analysis, name, None)
        if value is not None:
            return value
    return None


def found_structure(trajectory: "Trajectory", threshold: float | None = None, progress: Progress | None = None) -> Any:
    """The clusters of the (first) run through time, of a density its peaks; None for a density that is not on cells.

    Parameters: `threshold`, the linking distance of clusters, chosen by the analysis if left out; `progress`, called
    with (done, total).
    """
    from particleflow.analysis.clusters.tracking import track_clusters
    from particleflow.analysis.density.cells import cells_of, refuse_threshold
    from particleflow.analysis.density.peaks import track_peaks

    run = first_run(trajectory)
    if not is_density(run):
        return track_clusters(run, threshold, progress=progress)
    refuse_threshold(threshold)
    return None if cells_of(run) is None else track_peaks(run, progress=progress)


def expected_structure(trajectory: "Trajectory") -> Any:
    """`found_structure`, or None where it would mean nothing: noise, repulsion or the flow keeps particles apart."""
    expected = is_density(trajectory) or character_of(trajectory).gathers
    return found_structure(trajectory) if expected else None


def worth_showing(trajectory: "Trajectory", analysis: Any) -> Any:
    """The analysis, or None where clusters mean nothing: noise, repulsion or the flow keeps the particles apart,
    or hardly any has formed.

    For a density: the analysis if the number of its peaks ever changes, else None.
    """
    counts, labels = pick(analysis, "counts"), pick(analysis, "labels")
    if is_density(trajectory):
        return None if counts is None or np.ptp(counts) == 0 else analysis
    components = pick(analysis, "components", "counts")
    known = np.ndim(components) == 1 and np.ndim(labels) == 2 and len(components) > 0
    scattered = known and (spreads(components, labels[-1]) or stays_scattered(labels[-1]))
    return None if scattered or not character_of(trajectory).gathers else analysis


def merge_rows(merges: Any) -> np.ndarray:
    """Merges as rows (a, b, time, size): the given ones, or of a `MergeTree` (a, b, time, size, half width of time)."""
    if hasattr(merges, "merges"):
        merges = [(m.survivor, m.absorbed, m.time, m.size, m.between.half_width) for m in merges.merges]
    rows = np.asarray(merges, np.float64)
    return rows if rows.size else np.zeros((0, 4))
