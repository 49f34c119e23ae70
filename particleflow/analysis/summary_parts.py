"""The sections of a summary: each takes a run and returns plain numbers together with the thresholds behind them."""

import tomllib
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.agreement import adjusted_rand_index, normalized_mutual_information, silhouette
from particleflow.analysis.attention import attention_statistics
from particleflow.analysis.distances import energy_distance, sliced_wasserstein2, wasserstein2
from particleflow.analysis.frames import (
    FloatArray,
    Progress,
    as_series,
    frame_points,
    is_spherical,
    select_frames,
)
from particleflow.analysis.modes import growth_rates, mode_amplitudes
from particleflow.analysis.parking import expected_centres, parking_centres, parking_separation
from particleflow.analysis.persistence import largest_gap, single_linkage
from particleflow.analysis.plateaus import collapse_time, find_plateaus
from particleflow.analysis.rates import fit_exponential, fit_power_law
from particleflow.analysis.similarity import SimilarityQuantiles, similarity_quantiles
from particleflow.analysis.tracking import ClusterTrack
from particleflow.errors import ArgumentError

if TYPE_CHECKING:
    from particleflow.trajectory import Trajectory

Section = dict[str, Any]
_FRAMES = 150  # frames used by the sections that need not see all of them
_LISTED = 100
_EXACT = 1000  # particles up to which exact W2, the energy distance and the attention matrix's rank are computed


def cluster_section(track: ClusterTrack, weights: FloatArray) -> Section:
    """Counts, largest mass and effective count in every frame, and the masses of the last frame's clusters."""
    final = track.labels[-1]
    masses = np.bincount(final[final >= 0], weights=weights[final >= 0])
    masses = np.sort(masses[masses > 0])[::-1]
    return {
        "initial_count": int(track.counts[0]),
        "final_count": int(track.counts[-1]),
        "final_masses": masses[:_LISTED],
        "times": track.times,
        "counts": track.counts,
        "largest_mass": track.largest_mass,
        "effective_count": track.effective_count,
    }


def collapse_section(track: ClusterTrack) -> Section:
    """The time of the merge after which one cluster is left for good, and the frames around it."""
    bracket = collapse_time(track.times, track.counts)
    time = None if bracket is None else bracket[1]
    if bracket is not None and track.counts[0] > 1:
        last = int(np.flatnonzero(track.counts > 1)[-1]) + 1
        merges = [merge.time for merge in track.tree.merges if merge.frame == last]
        time = max(merges, default=bracket[1])
    return {"target_count": 1, "time": time, "bracket": bracket}


def energy_series(trajectory: "Trajectory") -> FloatArray | None:
    """The recorded energy of a run, if there is a usable one."""
    if "energy" not in trajectory.observables:
        return None
    energy = np.asarray(trajectory.observables["energy"], dtype=np.float64)
    if energy.shape != (len(trajectory),) or not np.isfinite(energy).all():
        return None
    return energy


def energy_section(energy: FloatArray | None) -> Section | None:
    """First, last and extreme energies, and the largest steps up and down (rounding level for a monotone run)."""
    if energy is None:
        return None
    steps = np.diff(energy)
    return {
        "first": energy[0],
        "last": energy[-1],
        "minimum": energy.min(),
        "maximum": energy.max(),
        "largest_increase": max(float(steps.max()), 0.0) if steps.size else 0.0,
        "largest_decrease": max(float(-steps.min()), 0.0) if steps.size else 0.0,
    }


def plateau_section(track: ClusterTrack, energy: FloatArray | None, flatness: float, minimum: float) -> Section:
    """The metastable plateaus, from counts and, where recorded, energy."""
    plateaus = find_plateaus(track.times, track.counts, energy, flatness=flatness, minimum=minimum)
    return {
        "detected_from": ["counts"] if energy is None else ["counts", "energy"],
        "energy_flatness": None if energy is None else flatness,
        "minimum_length": minimum,
        "found": len(plateaus),
        "listed": [plateau.to_dict() for plateau in plateaus[:_LISTED]],
    }


def similarity_section(trajectory: "Trajectory", seed: int, progress: Progress | None) -> Section | None:
    """Quantiles of the pairwise similarity over time, and how fast the cloud closes up at the end."""
    if int((np.asarray(trajectory.weights) > 0).sum()) < 2:
        return None
    frames = select_frames(len(trajectory), _FRAMES)
    result = similarity_quantiles(trajectory, maximum_pairs=50_000, seed=seed, frames=frames, progress=progress)
    return {
        "measure": result.measure,
        "pairs": result.pairs,
        "sampled": result.sampled,
        "seed": seed,
        "close_means_cosine_above": None if result.close is None else 0.999,
        "times": result.times,
        "probabilities": result.probabilities,
        "quantiles": result.values,
        "mean": result.mean,
        "close_fraction": result.close,
        "approach": _approach(result),
    }


def _approach(result: SimilarityQuantiles) -> Section:
    """Fit both laws to the mean distance to consensus, over its last stretch between 1e-11 and 0.1 of its start."""
    gap = 1.0 - result.mean if result.measure == "cosine" else result.mean
    inside = (gap <= 0.1 * gap[0]) & (gap >= 1e-11 * max(float(gap[0]), 1.0))
    ends = np.flatnonzero(inside)
    section: Section = {
        "series": "1 - mean cosine" if result.measure == "cosine" else "mean distance",
        "window": "last unbroken stretch between 1e-11 and 0.1 of the first value, at least 5 frames",
        "exponential": None,
        "power": None,
    }
    if ends.size == 0:
        return section
    first = int(ends[-1])
    while first > 0 and inside[first - 1]:
        first -= 1
    chosen = slice(first, int(ends[-1]) + 1)
    clock, series = as_series(result.times[chosen], gap[chosen])
    if clock.size < 5 or clock[0] == clock[-1]:
        return section
    section["exponential"] = fit_exponential(clock, series).to_dict()
    section["power"] = fit_power_law(clock, series).to_dict() if clock[0] > 0 else None
    return section


def mode_section(trajectory: "Trajectory", maximum: int, progress: Progress | None) -> Section | None:
    """Amplitudes of the first modes and their growth rates, on the circle and on S²."""
    if not is_spherical(trajectory) or trajectory.dimension not in (2, 3) or maximum < 1:
        return None
    frames = select_frames(len(trajectory), 10 * _FRAMES if trajectory.dimension == 2 else _FRAMES)
    amplitudes = mode_amplitudes(trajectory, maximum, frames=frames, progress=progress)
    times = np.asarray(trajectory.times, dtype=np.float64)[frames]
    rates = growth_rates(times, amplitudes)
    return {
        "basis": "Fourier" if trajectory.dimension == 2 else "spherical harmonics",
        "linear_regime": {"lower": 1e-12, "upper": 0.05},
        "times": times,
        "amplitudes": amplitudes,
        "growth_rates": [None if rate is None else rate.to_dict() for rate in rates],
    }


def persistence_section(points: FloatArray, seed: int) -> Section | None:
    """The longest lives of the H0 diagram of the last frame (of a random sample beyond 10,000 particles)."""
    sampled = points.shape[0] > 10_000
    if sampled:
        points = points[np.random.default_rng(seed).choice(points.shape[0], 10_000, replace=False)]
    if points.shape[0] < 2:
        return None
    deaths = single_linkage(points)[:, 2]
    count, low, high = largest_gap(points, lengths=deaths)
    return {
        "frame": "last",
        "sampled": sampled,
        "largest_deaths": deaths[::-1][:_LISTED],
        "widest_gap": {"count": count, "low": low, "high": high},
    }


def distance_section(first: FloatArray, last: FloatArray, weights: FloatArray, seed: int) -> Section:
    """Distances between the first and the last frame as measures."""
    same: dict[str, Any] = {"x_weights": weights, "y_weights": weights}
    small = weights.size <= _EXACT
    equal = np.ptp(weights) == 0
    exact = small and (equal or weights.size <= 300 or first.shape[1] == 1)
    return {
        "between": "first and last frame",
        "wasserstein2": wasserstein2(first, last, **same) if exact else None,
        "sliced_wasserstein2": sliced_wasserstein2(first, last, seed=seed, directions=128, **same),
        "sliced_directions": 128,
        "seed": seed,
        "energy_distance": energy_distance(first, last, **same) if small else None,
    }


def agreement_section(trajectory: "Trajectory", track: ClusterTrack, last: FloatArray, seed: int) -> Section:
    """The silhouette of the final clusters, and their agreement with given labels where there are some."""
    final = track.labels[-1].astype(np.int64)
    section: Section = {"silhouette": None, "adjusted_rand_index": None, "normalized_mutual_information": None}
    if track.counts[-1] > 1:
        section |= {"silhouette": silhouette(last, final, maximum=1000, seed=seed), "silhouette_sample": 1000}
    if trajectory.labels is not None:
        given, alive = np.asarray(trajectory.labels), final >= 0
        section["adjusted_rand_index"] = adjusted_rand_index(final[alive], given[alive])
        section["normalized_mutual_information"] = normalized_mutual_information(final[alive], given[alive])
    return section


def scenario_attention(trajectory: "Trajectory") -> Section | None:
    """Read β, query, key and causality of the first attention drift from the stored scenario, if it has one."""
    if trajectory.metadata.get("geometry", "euclidean") not in ("sphere", "euclidean"):
        return None  # elsewhere the kernel sees normalised points, not the stored ones
    try:
        drifts = tomllib.loads(str(trajectory.metadata.get("scenario", ""))).get("drift", [])
    except tomllib.TOMLDecodeError:
        return None
    for drift in drifts if isinstance(drifts, list) else []:
        kernel = drift.get("kernel") if isinstance(drift, dict) else None
        if not isinstance(kernel, dict) or kernel.get("kind") != "attention":
            continue
        if not isinstance(kernel.get("beta"), int | float):
            continue
        positional = drift.get("positional")
        causal = isinstance(positional, dict) and positional.get("kind") == "causal"
        return {"beta": float(kernel["beta"]), "causal": causal, "query": kernel.get("query"), "key": kernel.get("key")}
    return None


def attention_section(
    trajectory: "Trajectory", beta: float | None, causal: bool | None
) -> tuple[Section | None, Section | None]:
    """Attention statistics of the first and last frame, and the parking centres of a causal run."""
    settings = scenario_attention(trajectory) or {"causal": False, "query": None, "key": None}
    settings |= {name: value for name, value in (("beta", beta), ("causal", causal)) if value is not None}
    if "beta" not in settings or trajectory.count > 4096:
        return None, None
    order = np.arange(trajectory.count)
    if trajectory.positions is not None:
        order = np.argsort(np.asarray(trajectory.positions), kind="stable")
    settings["weights"] = np.asarray(trajectory.weights)[order]
    first, last = (frame_points(trajectory, frame)[order] for frame in (0, -1))
    try:
        section = {
            name: attention_statistics(points, rank_limit=_EXACT, **settings).to_dict()
            for name, points in (("first", first), ("last", last))
        }
    except (ArgumentError, ValueError):  # a scenario may hold matrices this cloud does not fit
        return None, None
    if not settings["causal"] or settings["beta"] <= 0 or not is_spherical(trajectory):
        return section, None
    centres = order[parking_centres(first, beta=settings["beta"])]
    expected = expected_centres(settings["beta"]) if trajectory.dimension == 2 else None
    return section, {
        "separation": parking_separation(settings["beta"]),
        "metric": "geodesic",
        "count": centres.size,
        "expected_count": expected,
        "centres": centres[:_LISTED],
    }
