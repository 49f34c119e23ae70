"""Attention statistics, parking centres, agreement with labels and pairwise similarity."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn import metrics

from particleflow.analysis import (
    adjusted_rand_index,
    attention_matrix,
    attention_statistics,
    expected_centres,
    normalized_mutual_information,
    parking_centres,
    parking_separation,
    silhouette,
    similarity_quantiles,
)
from particleflow.analysis.attention import _log_rows
from particleflow.errors import ArgumentError, ShapeError
from particleflow.trajectory import Trajectory


def test_attention_matrix_is_the_softmax():
    generator = np.random.default_rng(0)
    points, query, key = generator.normal(size=(12, 3)), generator.normal(size=(2, 3)), generator.normal(size=(2, 3))
    weights = generator.dirichlet(np.ones(12))
    logits = 1.7 * (points @ query.T) @ (points @ key.T).T + np.log(weights)
    found = attention_matrix(points, 1.7, query=query, key=key, weights=weights)
    np.testing.assert_allclose(found, softmax(logits, axis=1), rtol=1e-12)
    masked = np.where(np.tril(np.ones((12, 12))) > 0, logits, -np.inf)
    causal = attention_matrix(points, 1.7, query=query, key=key, weights=weights, causal=True)
    np.testing.assert_allclose(causal, softmax(masked, axis=1), rtol=1e-12)


def test_statistics_of_uniform_attention():
    statistics = attention_statistics(np.random.default_rng(0).normal(size=(8, 2)), 0.0)
    assert statistics.rank == 1
    assert statistics.entropy == pytest.approx(np.log(8))
    assert statistics.effective_targets == pytest.approx(8)
    assert statistics.boolean_distance == pytest.approx(1 / 8)
    assert statistics.leaders == [0]  # a tie goes to the first


def test_statistics_of_two_leaders_on_a_line():
    # On a line with large β every token attends to the end on its side: a Boolean matrix of rank 2.
    points = np.array([-1.0, -0.6, -0.3, 0.4, 0.7, 1.1, 1.2])
    statistics = attention_statistics(points, 800.0)
    assert statistics.rank == 2
    assert statistics.leaders == [6, 0]
    np.testing.assert_allclose(statistics.followers, [4 / 7, 3 / 7])
    # The least decided row is x = 0.4, whose two best targets differ by 0.1: e^{−800·0.4·0.1}, far below 1 − 1.
    assert statistics.boolean_distance == pytest.approx(np.exp(-32), rel=1e-6)
    assert statistics.entropy < 1e-10
    # Two second-best targets at 0.9 leave 1 − A = 2 e^{−800·0.4·0.2} on the row 0.4, which 1 − A in floats is not.
    twice = attention_statistics([0.4, 0.9, 0.9, 1.1], 800.0)
    assert twice.boolean_distance == pytest.approx(2 * np.exp(-64), rel=1e-6)


def test_statistics_do_not_depend_on_the_blocks(monkeypatch):
    points = np.random.default_rng(1).normal(size=(50, 3))
    whole = attention_statistics(points, 2.0, causal=True)
    monkeypatch.setattr("particleflow.analysis.attention._BLOCK_ENTRIES", 350)
    assert len(list(_log_rows(points, 2.0, None, None, True, None))) == 8
    parts = attention_statistics(points, 2.0, causal=True)
    assert parts.entropy == pytest.approx(whole.entropy, rel=1e-13)
    assert (parts.rank, parts.leaders) == (whole.rank, whole.leaders)
    matrix = attention_matrix(points, 2.0, causal=True)
    assert whole.rank == np.linalg.matrix_rank(matrix, tol=1e-6 * np.linalg.norm(matrix, 2))
    assert whole.boolean_distance == pytest.approx(np.minimum(matrix, 1 - matrix).max())


def test_attention_refuses_matrices_that_do_not_fit():
    with pytest.raises(ShapeError, match="query"):
        attention_statistics(np.zeros((3, 2)), 1.0, query=np.zeros((2, 3)))
    with pytest.raises(ArgumentError, match="beta"):
        attention_statistics(np.zeros((3, 2)), float("nan"))


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


def test_sampled_similarity_agrees_within_its_stated_error():
    generator = np.random.default_rng(0)
    points = generator.normal(size=(1, 800, 3))
    run = Trajectory.from_arrays([0], points, metadata={"geometry": "sphere"}, log_weights=generator.normal(size=800))
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
    with pytest.raises(ArgumentError, match="two particles"):
        similarity_quantiles(Trajectory.from_arrays([0], np.ones((1, 1, 2))))
