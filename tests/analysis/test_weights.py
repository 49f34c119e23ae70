"""Weights in every analysis: a point of weight zero is not there, and a mass in two halves at one place is the same.

The second holds for what a measure alone decides. It does not for what speaks of particles: pairs of different
particles (similarity, adjusted Rand index, silhouette), sizes, edges of the spanning tree, and the entropy, the Boolean
distance and the leaders of attention, where two halves are two targets.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from particleflow import analysis
from particleflow.trajectory.trajectory import Trajectory

Cloud = tuple[np.ndarray, np.ndarray]  # points (N, d), weights (N,)


def cloud() -> Cloud:
    """Twelve weighted points on the circle, in four groups."""
    generator = np.random.default_rng(5)
    angles = np.repeat([0.0, 1.0, 2.5, 4.0], 3) + 0.02 * generator.uniform(size=12)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1), generator.dirichlet(np.ones(12))


LABELS = np.repeat([0, 1, 2, 3], 3)
OTHER = np.arange(12) % 5


def inserted(values: Any, extra: Any) -> np.ndarray:
    """The values with others put in before the first, in the middle and at the end."""
    array = np.asarray(values)
    return np.insert(array, [0, 5, 5, array.shape[0]], extra, axis=0)


def with_nothing() -> Cloud:
    """The cloud with points of no weight: at the origin, far away, on top of another, and between two groups."""
    points, weights = cloud()
    return inserted(points, [[0.0, 0.0], [50.0, -70.0], points[3], [0.8, 0.6]]), inserted(weights, 0.0)


def with_halves() -> Cloud:
    """The cloud with its points 2 and 7 split in two."""
    points, weights = cloud()
    halved = weights.copy()
    halved[[2, 7]] /= 2
    return np.concatenate([points, points[[2, 7]]]), np.concatenate([halved, halved[[2, 7]]])


def halved_labels(labels: np.ndarray) -> np.ndarray:
    return np.concatenate([labels, labels[[2, 7]]])


def run_of(points: np.ndarray, weights: np.ndarray, **particles: Any) -> Trajectory:
    """The four groups close up, and the last turns into the first."""
    times = np.linspace(0, 3, 31)
    angles = np.arctan2(points[:, 1], points[:, 0]) % (2 * np.pi)
    centre = np.round(angles / 0.5) * 0.5
    moved = centre + np.exp(-times)[:, None] * (angles - centre)
    moved = np.where(angles > 3, moved - np.minimum(times, 2.0)[:, None] * 2.0, moved)
    frames = np.stack([np.cos(moved), np.sin(moved)], axis=2) * np.linalg.norm(points, axis=1)[:, None]
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights)
    return Trajectory.from_arrays(times, frames, log_weights=log_weights, metadata={"geometry": "sphere"}, **particles)


def flat(run: Trajectory) -> Trajectory:
    return Trajectory.from_arrays(run.times, run.points, log_weights=run.log_weights)


OF_A_MEASURE: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "cluster_count": lambda x, w: analysis.cluster_count(x, 0.05, weights=w),
    "cluster_masses": lambda x, w: analysis.cluster_masses(analysis.cluster_labels(x, 0.05, weights=w), w),
    "wasserstein2": lambda x, w: analysis.wasserstein2(x, np.eye(2), x_weights=w),
    "wasserstein2 on a line": lambda x, w: analysis.wasserstein2(x[:, 0], [0.0, 1.0], x_weights=w),
    "sliced_wasserstein2": lambda x, w: analysis.sliced_wasserstein2(np.eye(2), x, y_weights=w, seed=0),
    "energy_distance": lambda x, w: analysis.energy_distance(x, np.eye(2), x_weights=w),
    "fourier_amplitudes": lambda x, w: analysis.fourier_amplitudes(x, 5, weights=w),
    "fourier_amplitudes of angles": lambda x, w: analysis.fourier_amplitudes(x[:, 0], 5, weights=w),
    "harmonic_amplitudes": lambda x, w: analysis.harmonic_amplitudes(np.c_[x, x[:, 0] * x[:, 1]], 4, weights=w),
    "counts_by_threshold": lambda x, w: analysis.counts_by_threshold(x, [0.0, 0.01, 0.05, 3.0], weights=w),
    "attention rank": lambda x, w: analysis.attention_statistics(x, 3.0, weights=w).rank,
    "sinkhorn rank": lambda x, w: analysis.attention_statistics(x, 3.0, weights=w, normalization="sinkhorn").rank,
    "choose_threshold": lambda x, w: analysis.choose_threshold(flat(run_of(x, w))).value,
    "cluster_counts": lambda x, w: analysis.cluster_counts(run_of(x, w)),
    "cluster_counts in flat space": lambda x, w: analysis.cluster_counts(flat(run_of(x, w))),
    "mode_amplitudes": lambda x, w: analysis.mode_amplitudes(run_of(x, w), 3),
    "track counts": lambda x, w: analysis.track_clusters(run_of(x, w)).counts,
    "track masses": lambda x, w: analysis.track_clusters(run_of(x, w)).largest_mass,
    "track effective count": lambda x, w: analysis.track_clusters(run_of(x, w)).effective_count,
    "merge times": lambda x, w: analysis.track_clusters(run_of(x, w)).tree.times,
    "merge masses": lambda x, w: [(m.mass, m.absorbed_mass) for m in analysis.track_clusters(run_of(x, w)).tree.merges],
    "merge labels": lambda x, w: [(m.survivor, m.absorbed) for m in analysis.track_clusters(run_of(x, w)).tree.merges],
}

OF_PARTICLES: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "single_linkage": lambda x, w: analysis.single_linkage(x, weights=w),
    "persistence_diagram": lambda x, w: analysis.persistence_diagram(x, weights=w),
    "largest_gap": lambda x, w: analysis.largest_gap(x, weights=w),
    "similarity": lambda x, w: analysis.similarity_quantiles(run_of(x, w)).values,
    "similarity in flat space": lambda x, w: analysis.similarity_quantiles(flat(run_of(x, w))).mean,
    "sampled similarity": lambda x, w: analysis.similarity_quantiles(run_of(x, w), maximum_pairs=20).values,
    "attention entropy": lambda x, w: analysis.attention_statistics(x, 3.0, weights=w).entropy,
    "attention targets": lambda x, w: analysis.attention_statistics(x, 3.0, weights=w).effective_targets,
    "attention to Boolean": lambda x, w: analysis.attention_statistics(x, 30.0, weights=w).boolean_distance,
    "followers": lambda x, w: analysis.attention_statistics(x, 30.0, weights=w).followers,
    "causal attention": lambda x, w: analysis.attention_statistics(x, 3.0, weights=w, causal=True).entropy,
    "causal rank": lambda x, w: analysis.attention_statistics(x, 3.0, weights=w, causal=True).rank,
    "sinkhorn": lambda x, w: analysis.attention_statistics(x, 3.0, weights=w, normalization="sinkhorn").entropy,
    "merge sizes": lambda x, w: [merge.size for merge in analysis.track_clusters(run_of(x, w)).tree.merges],
    "births": lambda x, w: [birth.size for birth in analysis.track_clusters(run_of(x, w)).tree.births],
}


@pytest.mark.parametrize("name", [*OF_A_MEASURE, *OF_PARTICLES])
def test_points_of_weight_zero_are_not_there(name):
    measure = (OF_A_MEASURE | OF_PARTICLES)[name]
    np.testing.assert_allclose(measure(*with_nothing()), measure(*cloud()), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", OF_A_MEASURE)
def test_a_mass_in_two_halves_is_the_same_mass(name):
    measure = OF_A_MEASURE[name]
    np.testing.assert_allclose(measure(*with_halves()), measure(*cloud()), rtol=1e-9, atol=1e-12)


def test_labels_and_leaders_are_those_of_the_points_that_have_mass():
    points, weights = with_nothing()
    alive = np.flatnonzero(weights > 0)
    labels = analysis.cluster_labels(points, 0.05, weights=weights)
    np.testing.assert_array_equal(labels[alive], analysis.cluster_labels(cloud()[0], 0.05))
    assert (labels[weights == 0] == -1).all()
    plain = analysis.attention_statistics(cloud()[0], 30.0, weights=cloud()[1])
    found = analysis.attention_statistics(points, 30.0, weights=weights)
    assert found.leaders == alive[plain.leaders].tolist()
    matrix = analysis.attention_matrix(points, 3.0, weights=weights, normalization="sinkhorn")
    expected = analysis.attention_matrix(cloud()[0], 3.0, weights=cloud()[1], normalization="sinkhorn")
    np.testing.assert_allclose(matrix[np.ix_(alive, alive)], expected, rtol=1e-12)
    assert (matrix[:, weights == 0] == 0).all()
    parked = analysis.parking_centres(points, separation=0.3, weights=weights)
    np.testing.assert_array_equal(parked, alive[analysis.parking_centres(cloud()[0], separation=0.3)])


def test_agreement_leaves_out_what_has_no_weight():
    points, weights = with_nothing()
    one, other = inserted(LABELS, [0, 7, 2, 9]), inserted(OTHER, [3, 3, 8, 1])
    mass = cloud()[1]
    for agreement in (analysis.adjusted_rand_index, analysis.normalized_mutual_information):
        assert agreement(one, other, weights=weights) == pytest.approx(
            agreement(LABELS, OTHER, weights=mass), rel=1e-12
        )
    found = analysis.silhouette(points, one, weights=weights)
    assert found == pytest.approx(analysis.silhouette(cloud()[0], LABELS, weights=mass), rel=1e-12)


def test_agreement_by_mass_is_that_of_as_many_equal_particles():
    # Weights 3, 1, 2, … stand for that many particles with the same two labels.
    times = np.array([3, 1, 2, 5, 1, 1, 4, 2, 2, 1, 3, 2])
    many = [np.repeat(labels, times) for labels in (LABELS, OTHER)]
    found = analysis.normalized_mutual_information(LABELS, OTHER, weights=times)
    assert found == pytest.approx(metrics.normalized_mutual_info_score(*many), rel=1e-12)
    halves = halved_labels(LABELS), halved_labels(OTHER)
    split = analysis.normalized_mutual_information(*halves, weights=with_halves()[1])
    assert split == pytest.approx(analysis.normalized_mutual_information(LABELS, OTHER, weights=cloud()[1]), rel=1e-12)


def test_pairs_count_by_the_product_of_their_masses():
    points, weights = cloud()
    pairs = [(i, j) for i in range(12) for j in range(i)]
    mass = np.array([weights[i] * weights[j] for i, j in pairs])
    same = [np.array([labels[i] == labels[j] for i, j in pairs]) for labels in (LABELS, OTHER)]
    both, first, second = mass @ (same[0] & same[1]), mass @ same[0], mass @ same[1]
    chance = first * second / mass.sum()
    expected = (both - chance) / (0.5 * (first + second) - chance)
    assert analysis.adjusted_rand_index(LABELS, OTHER, weights=weights) == pytest.approx(expected, rel=1e-12)
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    scores = []
    for i, own in enumerate(LABELS):
        members = [[j for j in range(12) if j != i and LABELS[j] == label] for label in range(4)]
        means = [np.average(distance[i, group], weights=weights[group]) for group in members]
        inside, outside = means[own], min(mean for label, mean in enumerate(means) if label != own)
        scores.append((outside - inside) / max(outside, inside))
    assert analysis.silhouette(points, LABELS, weights=weights) == pytest.approx(weights @ scores, rel=1e-12)


def test_the_summary_of_a_run_is_that_of_its_points_with_mass():
    points, weights = with_nothing()
    dusty = run_of(points, weights, labels=inserted(OTHER, [6, 6, 0, 1]), positions=inserted(np.arange(12), -1))
    clean = run_of(*cloud(), labels=OTHER, positions=np.arange(12))
    found, expected = (analysis.summarize(run, beta=4.0, causal=True) for run in (dusty, clean))
    alive = np.flatnonzero(weights > 0)
    for frame in ("first", "last"):
        leaders = expected["attention"][frame].pop("leaders")
        assert found["attention"][frame].pop("leaders") == alive[leaders].tolist()
    assert found["parking"].pop("centres") == alive[expected["parking"].pop("centres")].tolist()
    assert (found.pop("particles"), expected.pop("particles")) == (16, 12)
    assert_close(found, expected, "summary")


def assert_close(found: Any, expected: Any, name: str) -> None:
    """Compare plain JSON, numbers up to rounding."""
    assert type(found) is type(expected), name
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), name
        for key, value in expected.items():
            assert_close(found[key], value, f"{name}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), name
        for place, value in enumerate(expected):
            assert_close(found[place], value, f"{name}[{place}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-9), name
    else:
        assert found == expected, name
