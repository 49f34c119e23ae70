"""The summary of a run: all its numbers, or those of every run of an ensemble, with the thresholds behind them.

The result is plain JSON: no NaN and no infinity (null stands for both), so that any program can read it.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow._support.files import write_text
from particleflow._version import __version__
from particleflow.analysis.clusters.clusters import DEFAULT_INNER, linked_points
from particleflow.analysis.clusters.plateaus import spreads
from particleflow.analysis.clusters.separation import CHAIN_REACH, CHAIN_SHARE
from particleflow.analysis.clusters.tracking import ClusterTrack, track_clusters
from particleflow.analysis.clusters.word_merges import word_section
from particleflow.analysis.density.cells import cells_of, is_density, refuse_threshold
from particleflow.analysis.density.peaks import PeakTrack, track_peaks
from particleflow.analysis.reading import (
    Progress,
    as_positive,
    fixed_weights,
    frame_points,
    frame_weights,
    in_units,
    single_run,
)
from particleflow.analysis.run_character import character_of
from particleflow.analysis.summary import sections as parts
from particleflow.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

_AGGREGATED = (
    "final_count", "final_peaks", "collapse_time", "merges", "plateaus", "largest_mass", "final_mean_similarity",
    "energy", "log_energy",
)  # fmt: skip

_OF_PARTICLES = (
    "thresholds", "clusters", "merge_tree", "words", "plateaus", "collapse", "similarity", "persistence", "agreement",
    "attention", "parking",
)  # fmt: skip


@dataclass(frozen=True)
class _Options:
    """The arguments of `summarize` that every run of an ensemble is analysed with."""

    threshold: float | None
    beta: float | None
    causal: bool | None
    minimum: float
    modes: int
    seed: int


def summarize(
    trajectory: "Trajectory",
    *,
    threshold: float | None = None,
    beta: float | None = None,
    causal: bool | None = None,
    minimum: float = 0.03,
    modes: int = 6,
    seed: int = 0,
    track: ClusterTrack | PeakTrack | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Analyse a trajectory and return a dictionary that can be written as JSON.

    threshold: the linking distance of clusters, chordal on the sphere; without it that of `choose_threshold`, which is
    stated in the result. beta, causal: for the attention statistics; without them, those of the run's own
    attention. minimum: see `find_plateaus`. modes: how many modes on the circle and on S². seed: of every
    sample. track: the clusters (of a density the peaks) of the (first) run where they are known already. An ensemble
    gives {"runs": [one summary each], "aggregate": statistics over runs, …}. A density, whose points stay and whose
    masses change, has its peaks, energy, modes and distances; its other sections are null. `omitted` names sections
    that were left out, and why.
    """
    options = _Options(threshold, beta, causal, minimum, modes, seed)
    as_positive(minimum, "minimum", zero=True)
    _check_track(track, len(trajectory), trajectory.count, threshold)
    if trajectory.runs is None:
        return plain(_summarize_run(trajectory, track, options, progress))
    summaries: list[dict[str, Any]] = []
    total = trajectory.runs
    for run in range(total):
        one = _stage(progress, run, total) if progress is not None else None
        known = track if run == 0 else None
        summaries.append(plain(_summarize_run(trajectory.run(run), known, options, one)))
    return {**_header(), "runs": summaries, "aggregate": plain(aggregate(summaries))}


def write_summary(trajectory: "Trajectory", path: str | os.PathLike[str], **options: Any) -> dict[str, Any]:
    """Write the summary of a trajectory as JSON and return it; `path` is the file, or a folder for `summary.json`.

    The file appears whole or not at all.
    """
    target = Path(path)
    if target.is_dir():
        target = target / "summary.json"
    if not target.parent.is_dir():
        raise ArgumentError(f"The folder {target.parent} does not exist; create it before writing the summary.")
    summary = summarize(trajectory, **options)
    text = json.dumps(summary, allow_nan=False, ensure_ascii=False, indent=1)
    write_text(target, text + "\n")
    return summary


def plain(value: Any) -> Any:
    """Turn NumPy values into JSON values: arrays into lists, NaN and infinities into None, keys into text."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value if value is None else str(value)


def aggregate(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return mean, standard deviation, minimum, median and maximum over runs of the main numbers.

    Runs for which a number does not exist (a run that never collapses has no collapse time) are left out of it; `runs`
    says how many are in.
    """
    rows = [_main_numbers(summary) for summary in summaries]
    return {name: _statistics([row[name] for row in rows]) for name in _AGGREGATED}


def _header() -> dict[str, Any]:
    """What every summary begins with; readers refuse a format_version that they do not know."""
    return {"format": "particleflow summary", "format_version": 1, "particleflow_version": __version__}


def _stage(progress: Progress | None, stage: int, stages: int) -> Progress | None:
    """Turn the progress of one of several equal stages into progress of the whole, in thousandths."""
    if progress is None:
        return None
    return lambda done, total: progress(1000 * stage // stages + 1000 * done // (total * stages), 1000)


def _check_track(track: ClusterTrack | PeakTrack | None, frames: int, particles: int, threshold: float | None) -> None:
    """Refuse the clusters of another run, or at another distance than `threshold`."""
    if not isinstance(track, ClusterTrack):
        return
    if track.labels.shape != (frames, particles):
        shape = track.labels.shape
        raise ShapeError(f"Argument `track` must have labels of shape {(frames, particles)}, but has {shape}.")
    if threshold is not None and threshold != track.threshold.value:
        value = track.threshold.value
        raise ArgumentError(f"Argument `threshold` must be that of `track`, {value}, but is {threshold}.")


def _summarize_run(
    trajectory: "Trajectory", track: Any, options: _Options, progress: Progress | None
) -> dict[str, Any]:
    """The sections of one run of particles; a density goes to `_summarize_density`."""
    if is_density(trajectory):
        refuse_threshold(options.threshold)
        return _summarize_density(single_run(trajectory), track, options, progress)
    seed = options.seed
    track = track or track_clusters(trajectory, options.threshold, progress=_stage(progress, 0, 2))
    weights = fixed_weights(trajectory)
    energy, logarithm = parts.energy_series(trajectory), parts.energy_series(trajectory, "log_energy")
    first, last = frame_points(trajectory, 0), frame_points(trajectory, -1)
    attention, parking, why = parts.attention_section(trajectory, options.beta, options.causal)
    return {
        **_header(),
        **_card(trajectory),
        "kept_apart_by": character_of(trajectory).apart
        or ("the flow" if spreads(track.components, track.labels[-1]) else None),
        "thresholds": _thresholds(track, trajectory.dimension),
        "clusters": parts.cluster_section(track, weights, linked_points(trajectory, last)),
        "merge_tree": track.tree.to_dict(),
        "words": word_section(track, trajectory.words, weights),
        "plateaus": parts.plateau_section(track, energy, logarithm, options.minimum),
        "collapse": parts.collapse_section(track),
        "energy": parts.energy_section(energy),
        "log_energy": parts.energy_section(logarithm),
        "similarity": parts.similarity_section(trajectory, seed, _stage(progress, 2, 4)),
        "modes": parts.mode_section(trajectory, options.modes, _stage(progress, 3, 4)),
        "persistence": parts.persistence_section(linked_points(trajectory, last[weights > 0]), seed),
        "distances": parts.distance_section(first, last, weights, weights, seed),
        "agreement": parts.agreement_section(trajectory, track, linked_points(trajectory, last), seed),
        "attention": attention,
        "parking": parking,
        "omitted": ({} if why is None else {"attention": why}) | parts.without_pairs(weights),
    }


def _summarize_density(
    trajectory: "Trajectory", track: Any, options: _Options, progress: Progress | None
) -> dict[str, Any]:
    """The sections that a density has: its points stay and its masses change, so that no particle can be followed."""
    if not isinstance(track, PeakTrack):
        track = None if cells_of(trajectory) is None else track_peaks(trajectory)
    first, last = (frame_points(trajectory, frame) for frame in (0, -1))
    first_weights, last_weights = (frame_weights(trajectory, frame) for frame in (0, -1))
    return {
        **_header(),
        **_card(trajectory),
        **dict.fromkeys(_OF_PARTICLES),
        "omitted": dict.fromkeys(_OF_PARTICLES, "the points of a density stay, and only its masses change"),
        "peaks": None if track is None else parts.peak_section(track),
        "energy": parts.energy_section(parts.energy_series(trajectory)),
        "log_energy": parts.energy_section(parts.energy_series(trajectory, "log_energy")),
        "modes": parts.mode_section(trajectory, options.modes, progress),
        "distances": parts.distance_section(first, last, first_weights, last_weights, options.seed),
    }


def _card(trajectory: "Trajectory") -> dict[str, Any]:
    """Identify the run: title, space, status, sizes, times, and first and last values of its observables."""
    times = np.asarray(trajectory.times, dtype=np.float64)
    return {
        "title": trajectory.metadata.get("title"),
        "geometry": trajectory.metadata.get("geometry", "euclidean"),
        "space": trajectory.facts.space.to_dict(),
        "status": trajectory.status,
        "cells" if is_density(trajectory) else "particles": trajectory.count,
        "dimension": trajectory.dimension,
        "frames": len(trajectory),
        "first_time": times[0],
        "last_time": times[-1],
        "unit_of_time": trajectory.facts.time_unit,
        "observables": _ends(trajectory),
    }


def _ends(trajectory: "Trajectory") -> dict[str, dict[str, float]]:
    """The first and the last value of every observable that is one number a frame."""
    series = {name: np.asarray(values) for name, values in trajectory.observables.items() if values.ndim == 1}
    return {name: {"first": values[0], "last": values[-1]} for name, values in series.items() if len(values)}


def _thresholds(track: ClusterTrack, dimension: int) -> dict[str, Any]:
    """The numbers that decide what counts as a cluster."""
    return {
        "cluster_distance": track.threshold.value,
        "cluster_metric": track.threshold.metric,
        "cluster_reason": track.threshold.reason,
        "chain_reach": CHAIN_REACH * track.threshold.value,
        "chain_share": CHAIN_SHARE,
        "close_pair_cosine": DEFAULT_INNER,
        "dimension": dimension,
    }


def _main_numbers(summary: dict[str, Any]) -> dict[str, float | None]:
    """The numbers of a run that `aggregate` combines, None where a run has none."""

    def read(section: str, name: str) -> Any:
        """A number of a section, None where the section is left out."""
        return None if summary.get(section) is None else summary[section][name]

    largest, similarity = read("clusters", "largest_mass"), read("similarity", "mean")
    return {
        "final_count": read("clusters", "final_count"),
        "final_peaks": read("peaks", "final_count"),
        "collapse_time": read("collapse", "time"),
        "merges": read("merge_tree", "merges"),
        "plateaus": read("plateaus", "found"),
        "largest_mass": None if largest is None else largest[-1],
        "final_mean_similarity": None if similarity is None else similarity[-1],
        "energy": read("energy", "last"),
        "log_energy": read("log_energy", "last"),
    }


def _statistics(values: list[float | None]) -> dict[str, float | int | None]:
    """How many runs have the number, and its moments and quantiles, without overflow of their sums."""
    array = np.array([value for value in values if value is not None], dtype=np.float64)
    if array.size == 0:
        return {"runs": 0, "mean": None, "standard_deviation": None, "minimum": None, "median": None, "maximum": None}
    scaled, unit = in_units(array)
    return {
        "runs": array.size,
        "mean": unit * float(scaled.mean()),
        "standard_deviation": unit * float(scaled.std(ddof=1)) if array.size > 1 else None,
        "minimum": float(array.min()),
        "median": unit * float(np.median(scaled)),
        "maximum": float(array.max()),
    }
