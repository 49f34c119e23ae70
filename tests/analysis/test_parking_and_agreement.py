"""Parking centres, agreement with labels and pairwise similarity."""

import numpy as np
import pytest
from sklearn import metrics

from particleflow.analysis import (
    adjusted_rand_index,
    expected_centres,
    normalized_mutual_information,
    parking_centres,
    parking_separation,
    silhouette,
    similarity_quantiles,
    summarize,
)
from particleflow.errors import ArgumentError, ShapeError
from particleflow.trajectory.trajectory import Trajectory


def test_parking_by_hand():
    line = np.array([0.0, 0.5, 1.5, 1.1, 3.0, 2.4])
    np.testing.assert_array_equal(parking_centres(line, separation=1.0, metric="euclidean"), [0, 2, 4])
    order = [5, 4, 3, 2, 1, 0]
    np.testing.assert_array_equal(parking_centres(line, separation=1.0, metric="euclidean", positions=order), [5, 3, 0])
    assert parking_separation(64.0) == 0.5
    assert expected_centres(64.0) == pytest.approx(9.4, abs=0.01)
    circle = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    assert parking_centres(circle, separation=4.0).size == 1  # no two directions are that far apart
    assert parking_centres(circle, separation=1.5).size == 3
    with pytest.raises(ArgumentError, match="exactly one"):
        parking_centres(line)


def test_parking_on_the_circle_has_renyis_density():
    generator = np.random.default_rng(0)
    found = []
    for _ in range(60):
        angles = generator.uniform(0, 2 * np.pi, size=4000)
        points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        centres = parking_centres(points, beta=4000.0)
        gaps = np.diff(np.sort(angles[centres]))
        assert gaps.min() > parking_separation(4000.0)
        found.append(centres.size)
    # A sequence of 4,000 leaves a few holes unfilled: the mean stays just below the saturated one.
    assert np.mean(found) == pytest.approx(expected_centres(4000.0), rel=0.015)


@pytest.mark.parametrize("classes", [1, 2, 7])
def test_agreement_is_scikit_learns(classes):
    generator = np.random.default_rng(classes)
    labels = generator.integers(5, size=200)
    reference = np.where(generator.uniform(size=200) < 0.6, labels, generator.integers(5, size=200)) % classes
    for ours, theirs in (
        (adjusted_rand_index, metrics.adjusted_rand_score),
        (normalized_mutual_information, metrics.normalized_mutual_info_score),
    ):
        assert ours(labels, reference) == pytest.approx(theirs(reference, labels), abs=1e-12)
        assert ours(reference, reference) == pytest.approx(1.0)
        assert ours(labels[:1], reference[:1]) == 1.0


def test_agreement_ignores_names_and_sees_independence():
    labels = np.repeat([3, 9, 4], 50)
    assert adjusted_rand_index(labels, np.repeat([0, 1, 2], 50)) == 1.0
    assert normalized_mutual_information(labels, np.tile([0, 1], 75)) == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(ShapeError, match="one length"):
        adjusted_rand_index([0, 1], [0])


def test_silhouette_is_scikit_learns():
    generator = np.random.default_rng(0)
    points = generator.normal(size=(700, 3)) + 3 * generator.integers(4, size=(700, 1))
    labels = generator.integers(4, size=700)
    labels[0] = 9  # alone in its cluster
    expected = metrics.silhouette_score(points, labels)
    assert silhouette(points, labels) == pytest.approx(expected, rel=1e-10)
    dead = np.concatenate([labels, [-1]])
    assert silhouette(np.concatenate([points, [[50.0, 0, 0]]]), dead) == pytest.approx(expected, rel=1e-10)
    each = np.asarray(metrics.silhouette_samples(points, labels))
    sample = silhouette(points, labels, maximum=300, seed=1)
    assert abs(sample - expected) < 4 * each.std() / np.sqrt(300)
    assert sample != pytest.approx(expected, rel=1e-10)
    with pytest.raises(ArgumentError, match="two clusters"):
        silhouette(points, np.zeros(700))


def test_similarity_quantiles_of_all_pairs_are_numpys():
    generator = np.random.default_rng(0)
    points = generator.normal(size=(3, 30, 4))
    run = Trajectory.from_arrays([0, 1, 2], points, metadata={"geometry": "sphere"})
    found = similarity_quantiles(run, probabilities=[0, 0.1, 0.5, 1])
    assert (found.measure, found.sampled, found.pairs) == ("cosine", False, 435)
    unit = points / np.linalg.norm(points, axis=2, keepdims=True)
    for frame in range(3):
        pairs = (unit[frame] @ unit[frame].T)[np.triu_indices(30, 1)]
        expected = np.quantile(pairs, [0, 0.1, 0.5, 1], method="inverted_cdf")
        np.testing.assert_allclose(found.values[frame], expected, rtol=1e-12)
        assert found.mean[frame] == pytest.approx(pairs.mean())


def test_weighted_similarity_counts_pairs_by_mass():
    points = np.array([[[0.0], [1.0], [3.0]]])
    run = Trajectory.from_arrays([0], points, log_weights=np.log([0.5, 0.3, 0.2]))
    found = similarity_quantiles(run, probabilities=[0.4, 0.6, 0.8])
    # Masses .15 (distance 1), .06 (2), .10 (3) over .31: cumulated .484, .677, 1.
    np.testing.assert_allclose(found.values[0], [1, 2, 3])
    assert found.mean[0] == pytest.approx((0.15 + 0.12 + 0.30) / 0.31)


@pytest.mark.parametrize("heavier", [0.0, 9.0, 45.0], ids=["none", "most", "all but 1e-17"])
def test_sampled_similarity_agrees_within_its_stated_error(heavier):
    """Also where one particle has most or nearly all of the mass, so that two drawn particles are mostly that one."""
    generator = np.random.default_rng(0)
    points, log_weights = generator.normal(size=(1, 800, 3)), generator.normal(size=800)
    log_weights[3] += heavier
    run = Trajectory.from_arrays([0], points, metadata={"geometry": "sphere"}, log_weights=log_weights)
    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    error = 4 * np.sqrt(levels * (1 - levels) / 20_000)
    sampled = similarity_quantiles(run, probabilities=levels, maximum_pairs=20_000, seed=5)
    low = similarity_quantiles(run, probabilities=levels - error, maximum_pairs=10**6).values
    high = similarity_quantiles(run, probabilities=levels + error, maximum_pairs=10**6).values
    assert sampled.sampled
    assert ((low <= sampled.values) & (sampled.values <= high)).all()


def test_close_fraction_counts_pairs_above_the_published_level():
    angles = np.array([0.0, 0.04, 2.0])  # cos 0.04 = 0.9992
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)[None]
    found = similarity_quantiles(Trajectory.from_arrays([0], points, metadata={"geometry": "sphere"}))
    assert found.close is not None
    assert found.close[0] == pytest.approx(1 / 3)


@pytest.mark.parametrize("log_weights", [None, [0.0, -np.inf]], ids=["one particle", "one with mass"])
@pytest.mark.parametrize(("geometry", "dimension"), [("sphere", 2), ("sphere", 3), ("euclidean", 1), ("euclidean", 2)])
def test_without_a_pair_there_are_no_similarities_and_everything_else_is_there(geometry, dimension, log_weights):
    points = np.random.default_rng(0).normal(size=(4, 1 if log_weights is None else 2, dimension))
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    run = Trajectory.from_arrays(np.arange(4.0), points, log_weights=log_weights, metadata={"geometry": geometry})
    found = similarity_quantiles(run)
    assert found.pairs == 0
    assert np.isnan(found.values).all()
    assert np.isnan(found.mean).all()
    assert found.close is None or np.isnan(found.close).all()
    summary = summarize(run)
    assert summary["similarity"] is None
    assert summary["omitted"]["similarity"] == summary["omitted"]["persistence"] == "fewer than two particles have mass"
    assert summary["clusters"]["counts"] == [1, 1, 1, 1]
    moved = np.linalg.norm(points[0, 0] - points[-1, 0])
    assert summary["distances"]["wasserstein2"] == pytest.approx(moved)
