"""The sections of a summary: each takes a run and returns plain numbers together with the thresholds behind them."""

from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.analysis.attention.attention_statistics import attention_statistics
from particleflow.analysis.clusters.agreement import adjusted_rand_index, normalized_mutual_information, silhouette
from particleflow.analysis.clusters.brackets import bracket_of
from particleflow.analysis.clusters.clusters import label_active
from particleflow.analysis.clusters.parking import expected_centres, parking_centres, parking_separation
from particleflow.analysis.clusters.persistence import largest_gap, single_linkage
from particleflow.analysis.clusters.plateaus import collapse_time, find_plateaus
from particleflow.analysis.clusters.separation import chain_masses, plain_count
from particleflow.analysis.clusters.similarity import PairSimilarities, similarity_quantiles
from particleflow.analysis.clusters.tracking import ClusterTrack
from particleflow.analysis.density.density_modes import growth_rates, mode_amplitudes, symmetry_errors
from particleflow.analysis.density.peaks import PeakTrack
from particleflow.analysis.distances import energy_distance, sliced_wasserstein2, wasserstein2
from particleflow.analysis.rates import fit_exponential, fit_power_law
from particleflow.analysis.reading import (
    FloatArray,
    IntArray,
    Progress,
    as_series,
    fixed_weights,
    frame_points,
    in_units,
    is_spherical,
    select_frames,
    sphere_radius,
    with_mass,
)
from particleflow.errors import ArgumentError
from particleflow.trajectory.facts import LinearMap
from particleflow.trajectory.position_kernels import ALL_SEE_ALL, CAUSAL

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

Section = dict[str, Any]
_FRAMES = 150  # frames used by the sections that need not see all of them
_LISTED = 100  # entries of a list in a summary
_COMPARED = 20_000  # particles among which the sampled ones have their silhouettes
_MOST_TOKENS = 4096  # beyond it the attention matrix is left out
_EXACT = 1000  # particles up to which exact W2, the energy distance and the attention matrix's rank are computed


def cluster_section(track: ClusterTrack, weights: FloatArray, last: FloatArray) -> Section:
    """Counts, largest mass and effective count in every frame, and the masses of the last frame's clusters.

    All are NaN where clusters are not separated, and `not_separated` says from when to when that is; `final_chains` are
    then the masses of the chains of the last frame. last: (N, d), its points as they are linked.
    """
    final = track.labels[-1] if np.isfinite(track.counts[-1]) else np.full(weights.size, -1)
    masses = np.bincount(final[final >= 0], weights=weights[final >= 0])
    masses = np.sort(masses[masses > 0])[::-1]
    return {
        "initial_count": plain_count(track.counts[0]),
        "final_count": plain_count(track.counts[-1]),
        "not_separated": _not_separated(track),
        "final_masses": masses[:_LISTED],
        "final_chains": _final_chains(track, weights, last)[:_LISTED] if np.isnan(track.counts[-1]) else [],
        "ends_with_a_merge": track.changes.exact_end,
        "times": track.times,
        "counts": [plain_count(count) for count in track.counts],
        "largest_mass": track.largest_mass,
        "effective_count": track.effective_count,
    }


def _final_chains(track: ClusterTrack, weights: FloatArray, last: FloatArray) -> FloatArray:
    """The masses of the chains of the last frame."""
    found = label_active(last, weights > 0, track.threshold.value)
    return chain_masses(last, found, track.threshold.value, weights=weights)


def _not_separated(track: ClusterTrack) -> Section | None:
    """The saved times around the first and the last moment without a number of clusters; None if there is none.

    `from` is None where the run begins so, and `until` where it ends so.
    """
    frames = np.flatnonzero(np.isnan(track.counts))
    if frames.size == 0:
        return None
    first, last = int(frames[0]), int(frames[-1])
    return {
        "from": None if first == 0 else bracket_of(track.times, first, track.changes),
        "until": None if last == track.counts.size - 1 else bracket_of(track.times, last + 1, track.changes),
    }


def peak_section(track: PeakTrack) -> Section:
    """The number of peaks in every frame, and the peaks of the last one: place, mass, height, and since when they are.

    A peak from which another has split off keeps its first time.
    """
    last = [(peak, bracket_of(track.times, int(peak.frames[0]), track.changes)) for peak in track.last[:_LISTED]]
    return {
        "contrast": track.contrast,
        "least_mass": track.least,
        "rule": track.rule,
        "initial_count": int(track.counts[0]),
        "final_count": int(track.counts[-1]),
        "most": int(track.counts.max()),
        "times": track.times,
        "counts": track.counts,
        "last": [
            {
                "place": peak.places[-1],
                "mass": peak.masses[-1],
                "height": peak.heights[-1],
                "since": since.middle,
                "since_between": since,
            }
            for peak, since in last
        ],
        "merges": [
            {**bracket_of(track.times, int(peak.frames[-1]) + 1, track.changes).to_dict(), "mass": peak.masses[-1]}
            for peak in track.peaks
            if peak.into >= 0
        ][:_LISTED],
    }


def collapse_section(track: ClusterTrack) -> Section:
    """The time after which one cluster is left for good."""
    bracket = collapse_time(track.times, track.counts, changes=track.changes)
    never: Section = dict.fromkeys(("time", "half_width", "between"))
    return {"target_count": 1, **(never if bracket is None else bracket.to_dict())}


def energy_series(trajectory: "Trajectory", name: str = "energy") -> FloatArray | None:
    """The recorded energy of a run, or with the `name` log_energy its logarithm, if there is a usable one."""
    if name not in trajectory.observables:
        return None
    energy = np.asarray(trajectory.observables[name], dtype=np.float64)
    if energy.shape != (len(trajectory),) or not np.isfinite(energy).all():
        return None
    return energy


def energy_section(energy: FloatArray | None) -> Section | None:
    """First, last and extreme energies, and the largest steps up and down (rounding level for a monotone run)."""
    if energy is None:
        return None
    scaled, unit = in_units(energy)
    steps = np.diff(scaled)
    return {
        "first": energy[0],
        "last": energy[-1],
        "minimum": energy.min(),
        "maximum": energy.max(),
        "largest_increase": unit * max(float(steps.max()), 0.0) if steps.size else 0.0,
        "largest_decrease": unit * max(float(-steps.min()), 0.0) if steps.size else 0.0,
    }


def plateau_section(
    track: ClusterTrack, energy: FloatArray | None, logarithm: FloatArray | None, minimum: float
) -> Section:
    """The metastable plateaus, treads of the counts, with the mean energy on them, and of its logarithm, if known."""
    plateaus = find_plateaus(track.times, track.counts, energy, minimum=minimum, changes=track.changes)
    listed = [plateau.to_dict() for plateau in plateaus[:_LISTED]]
    if logarithm is not None:
        for row in listed:
            row["log_energy"] = float(logarithm[row["first"] : row["last"] + 1].mean())
    return {
        "detected_from": ["counts"],
        "minimum_length": minimum,
        "found": len(plateaus),
        "listed": listed,
    }


def without_pairs(weights: FloatArray) -> dict[str, str]:
    """The sections that need two particles with mass, each with this reason, where there are fewer."""
    alone = int((weights > 0).sum()) < 2
    return dict.fromkeys(("similarity", "persistence") if alone else (), "fewer than two particles have mass")


def similarity_section(trajectory: "Trajectory", seed: int, progress: Progress | None) -> Section | None:
    """Quantiles of the pairwise similarity over time, and the rate at which the cloud contracts at the end."""
    if without_pairs(fixed_weights(trajectory)):
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


def _approach(result: PairSimilarities) -> Section:
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
    """Amplitudes of the first modes and their growth rates, on the circle and on S².

    `errors` names the modes that a symmetric start forbids, `asymmetry` is the largest amplitude of any of them: what
    the scheme adds by itself. They have no growth rate.
    """
    if not is_spherical(trajectory) or trajectory.dimension not in (2, 3) or maximum < 1:
        return None
    frames = select_frames(len(trajectory), 10 * _FRAMES if trajectory.dimension == 2 else _FRAMES)
    amplitudes = mode_amplitudes(trajectory, maximum, frames=frames, progress=progress)
    times = np.asarray(trajectory.times, dtype=np.float64)[frames]
    wrong = symmetry_errors(trajectory, maximum)
    rates = [None if error else rate for error, rate in zip(wrong, growth_rates(times, amplitudes), strict=True)]
    return {
        "basis": "Fourier" if trajectory.dimension == 2 else "spherical harmonics",
        "linear_regime": {"lower": 1e-12, "upper": 0.05},
        "times": times,
        "amplitudes": amplitudes,
        "growth_rates": [None if rate is None else rate.to_dict() for rate in rates],
        "errors": (1 + np.flatnonzero(wrong)).tolist(),
        "asymmetry": float(amplitudes[:, wrong].max()) if wrong.any() else None,
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


def distance_section(
    first: FloatArray, last: FloatArray, first_weights: FloatArray, last_weights: FloatArray, seed: int
) -> Section:
    """Distances between the first and the last frame as measures."""
    first, first_weights = with_mass(first, first_weights)
    last, last_weights = with_mass(last, last_weights)
    both: dict[str, Any] = {"x_weights": first_weights, "y_weights": last_weights}
    count = max(first_weights.size, last_weights.size)
    equal = first_weights.size == last_weights.size and np.ptp(first_weights) == np.ptp(last_weights) == 0
    exact = count <= _EXACT and (equal or count <= 300 or first.shape[1] == 1)
    return {
        "between": "first and last frame",
        "wasserstein2": wasserstein2(first, last, **both) if exact else None,
        "sliced_wasserstein2": sliced_wasserstein2(first, last, seed=seed, directions=128, **both),
        "sliced_directions": 128,
        "seed": seed,
        "energy_distance": energy_distance(first, last, **both) if count <= _EXACT else None,
    }


def agreement_section(trajectory: "Trajectory", track: ClusterTrack, last: FloatArray, seed: int) -> Section:
    """The silhouette of the final clusters, and their agreement with given labels where there are some.

    There is nothing to say of final clusters that are not separated.
    """
    final = track.labels[-1].astype(np.int64)
    weights: dict[str, Any] = {"weights": fixed_weights(trajectory)}
    section: Section = {"silhouette": None, "adjusted_rand_index": None, "normalized_mutual_information": None}
    if np.isnan(track.counts[-1]):
        return section
    if track.counts[-1] > 1:
        section |= _silhouette(last, final, weights["weights"], seed)
    if trajectory.labels is not None:
        section["adjusted_rand_index"] = adjusted_rand_index(final, trajectory.labels, **weights)
        section["normalized_mutual_information"] = normalized_mutual_information(final, trajectory.labels, **weights)
    return section


def _silhouette(points: FloatArray, labels: IntArray, weights: FloatArray, seed: int) -> Section:
    """The silhouette of up to 1,000 particles among all, or among 20,000 drawn at random where there are more."""
    among = np.flatnonzero((labels >= 0) & (weights > 0))
    if among.size > _COMPARED:
        among = np.sort(np.random.default_rng(seed).choice(among, _COMPARED, replace=False))
    several = np.unique(labels[among]).size > 1
    chosen: dict[str, Any] = {"weights": weights[among], "maximum": 1000, "seed": seed}
    return {
        "silhouette": silhouette(points[among], labels[among], **chosen) if several else None,
        "silhouette_sample": 1000,
        "silhouette_among": among.size,
    }


def attention_section(
    trajectory: "Trajectory", beta: float | None, causal: bool | None
) -> tuple[Section | None, Section | None, str | None]:
    """Attention statistics of the first and last frame, the parking centres of a causal run, or why there are none.

    They are those of the first interaction of the run that is attention between the stored points, kernel of positions
    included; where there is none, or its stored numbers do not fit the cloud, there is no section. With a given β
    softmax attention is computed even then; a given `causal` replaces the kernel of positions.
    """
    place, settings, reason = _attention_of(trajectory)
    given = {} if causal is None else {"positional": CAUSAL if causal else ALL_SEE_ALL}
    settings |= given | ({} if beta is None else {"beta": beta})
    if settings.get("positional", ALL_SEE_ALL) is None:
        return None, None, f"the kernel of positions of interaction {place or 0} is not known to the analysis"
    if "beta" not in settings:
        return None, None, reason
    if trajectory.count > _MOST_TOKENS:
        return None, None, f"there are more than {_MOST_TOKENS} particles"
    settings |= {"weights": fixed_weights(trajectory), "positions": trajectory.positions}
    first, last = (frame_points(trajectory, frame) for frame in (0, -1))
    try:
        section: Section = {
            name: attention_statistics(points, rank_limit=_EXACT, **settings).to_dict()
            for name, points in (("first", first), ("last", last))
        }
    except (ArgumentError, ValueError) as error:  # matrices that this cloud does not fit, potentials that do not settle
        return None, None, str(error)
    section["interaction"] = place
    return section, _parking_section(trajectory, first, settings), None


def _attention_of(trajectory: "Trajectory") -> tuple[int | None, Section, str | None]:
    """The place and the settings of the first interaction that is attention between the stored points, or why not.

    There is none where kernels see something else than is stored, or particles that are not stored.
    """
    interactions = trajectory.facts.interactions
    attention = [place for place, each in enumerate(interactions) if each.is_attention]
    place = next((each for each in attention if interactions[each].positions is not None), (attention or [0])[0])
    positional: Section = {"positional": interactions[place].positions} if interactions else {}
    if not trajectory.facts.space.sees_stored:
        return None, positional, "the kernels see something else than the stored points"
    if trajectory.particles is not None:
        return None, positional, "only some of the particles are stored"
    if not attention:
        return None, positional, "no interaction is known to be attention of the particles to each other"
    names = ("beta", "query", "key", "normalization")
    return place, {name: getattr(interactions[place], name) for name in names} | positional, None


def _parking_section(trajectory: "Trajectory", first: FloatArray, settings: Section) -> Section | None:
    """Where the clusters of a causal run on a sphere are expected: for QᵀK = c I, with the β c R² of unit vectors."""
    if not settings.get("positional", ALL_SEE_ALL).is_causal or not is_spherical(trajectory):
        return None
    factor = _isotropic(settings.get("query", 1.0), settings.get("key", 1.0), trajectory.dimension)
    radius, _ = sphere_radius(trajectory)
    sharpness = 0.0 if factor is None else settings["beta"] * factor * radius * radius
    if not 0 < sharpness < np.inf:
        return None
    order = {name: settings[name] for name in ("positions", "weights")}
    centres = parking_centres(first, beta=sharpness, **order)
    return {
        "beta_of_unit_vectors": sharpness,
        "separation": parking_separation(sharpness),
        "metric": "geodesic",
        "count": centres.size,
        "expected_count": expected_centres(sharpness) if trajectory.dimension == 2 else None,
        "centres": centres[:_LISTED],
    }


def _isotropic(query: LinearMap, key: LinearMap, dimension: int) -> float | None:
    """The number c where QᵀK = c I, else None."""
    identity = np.eye(dimension)
    left, right = (each if np.ndim(each) == 2 else each * identity for each in (query, key))
    product = np.asarray(left).T @ np.asarray(right)
    factor = float(np.trace(product)) / dimension
    return factor if np.abs(product - factor * identity).max() <= 1e-12 * abs(factor) else None
