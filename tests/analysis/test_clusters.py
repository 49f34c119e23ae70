"""Clusters at one threshold and at all of them, against scikit-learn, SciPy and planted answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, is_valid_linkage, linkage
from scipy.spatial.distance import cdist
from sklearn.cluster import DBSCAN

from particleflow.analysis import (
    choose_threshold,
    chordal_from_angle,
    chordal_from_inner,
    cluster_count,
    cluster_counts,
    cluster_labels,
    cluster_masses,
    counts_by_threshold,
    effective_count,
    inner_from_chordal,
    largest_gap,
    persistence_diagram,
    single_linkage,
)
from particleflow.analysis.clusters import persistence
from particleflow.analysis.clusters.persistence import _linkage_from_edges, _spanning_tree
from particleflow.errors import ArgumentError, ShapeError
from particleflow.trajectory.trajectory import Trajectory


def on_sphere(generator: np.random.Generator, count: int, dimension: int) -> np.ndarray:
    points = generator.normal(size=(count, dimension))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def blobs(generator: np.random.Generator, count: int, dimension: int, centres: int, spread: float) -> np.ndarray:
    return on_sphere(generator, centres, dimension)[
        generator.integers(centres, size=count)
    ] + spread * generator.normal(size=(count, dimension))


CLOUDS = {
    "line": lambda g: g.uniform(size=(300, 1)),
    "circle": lambda g: on_sphere(g, 400, 2),
    "sphere": lambda g: on_sphere(g, 1500, 3),
    "cube": lambda g: g.uniform(size=(1500, 3)),
    "five dimensions": lambda g: on_sphere(g, 500, 5),
    "thirty dimensions": lambda g: on_sphere(g, 300, 30),
    "collapsed": lambda g: blobs(g, 2000, 3, 9, 1e-13),
    "equal points": lambda g: blobs(g, 500, 3, 4, 0.0),
    "blobs of the threshold's size": lambda g: blobs(g, 2000, 3, 12, 0.04),
    "blobs in the plane": lambda g: blobs(g, 2000, 2, 30, 0.05),
    "blobs in eight dimensions": lambda g: blobs(g, 1000, 8, 20, 0.03),
    "blobs in twenty dimensions": lambda g: blobs(g, 1000, 20, 90, 0.02),
    "far from the origin": lambda g: 1e5 + blobs(g, 800, 3, 12, 0.05),
    "blobs among dust": lambda g: np.concatenate([blobs(g, 800, 3, 5, 0.01), g.uniform(-1, 1, size=(800, 3))]),
}


@pytest.mark.parametrize("threshold", [0.01, 0.0447, 0.15, 0.6])
@pytest.mark.parametrize("name", CLOUDS)
def test_labels_are_those_of_dbscan_with_single_members(name, threshold):
    points = CLOUDS[name](np.random.default_rng(7))
    # Distances are given: scikit-learn's own |x|² + |y|² − 2⟨x, y⟩ loses four digits far from the origin.
    expected = DBSCAN(eps=threshold, min_samples=1, metric="precomputed").fit_predict(cdist(points, points))
    np.testing.assert_array_equal(cluster_labels(points, threshold), expected)  # both number by first appearance


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 12).flatmap(
        lambda d: st.lists(st.lists(st.integers(0, 4), min_size=d, max_size=d), min_size=1, max_size=60)
    ),
    st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 4.0]),
)
def test_labels_on_lattices_with_ties(points, threshold):
    cloud = np.array(points, dtype=float)
    if len(cloud) == 1:
        assert cluster_count(cloud, threshold) == 1
        return
    expected = fcluster(linkage(cloud, "single"), threshold, "distance")
    found = cluster_labels(cloud, threshold)
    assert len({*zip(found.tolist(), expected.tolist(), strict=True)}) == found.max() + 1 == expected.max()


def test_crowds_that_touch_only_through_their_rims_are_joined_and_a_hair_apart_they_are_not():
    generator = np.random.default_rng(0)
    disc = 0.45 * np.sqrt(generator.uniform(size=(3000, 1))) * on_sphere(generator, 3000, 2)
    rim = np.array([[0.45, 0.0]])
    left = np.concatenate([disc, rim])
    for gap, count in ((0.9999, 1), (1.0001, 2)):
        right = -left + [0.9 + gap, 0.0]
        assert cluster_count(np.concatenate([left, right]), 1.0) == count


@pytest.mark.parametrize("dimension", [2, 3, 6])
def test_crowds_on_two_opposite_corners_just_out_of_reach_stay_apart(dimension):
    corner = np.ones(dimension) / np.sqrt(dimension)
    for length, count in ((0.999, 1), (1.001, 2)):
        points = np.repeat([0 * corner, length * corner], 20, axis=0)
        assert cluster_count(points, 1.0) == count


def test_tiny_and_zero_thresholds():
    points = np.array([[0.0, 0.0], [0.0, 0.0], [1e-13, 0.0], [3.0, 1.0]])
    np.testing.assert_array_equal(cluster_labels(points, 0.0), [0, 0, 1, 2])
    np.testing.assert_array_equal(cluster_labels(points, 2e-13), [0, 0, 0, 1])


def test_particles_without_weight_belong_to_no_cluster_and_do_not_bridge():
    labels = cluster_labels([0.0, 1.0, 2.0], 1.0, weights=[1.0, 0.0, 3.0])
    np.testing.assert_array_equal(labels, [0, -1, 1])
    np.testing.assert_allclose(cluster_masses(labels, [1.0, 0.0, 3.0]), [0.25, 0.75])
    assert effective_count([0.25, 0.75]) == pytest.approx(1.6)


def test_spanning_tree_and_linkage_are_scipys():
    points = np.random.default_rng(3).normal(size=(400, 4))
    expected = linkage(points, "single")
    rows = _linkage_from_edges(*_spanning_tree(points, None))
    np.testing.assert_allclose(rows, expected, rtol=1e-12)
    np.testing.assert_array_equal(single_linkage(points), expected)


def test_large_clouds_have_a_valid_tree_with_planted_gaps(monkeypatch):
    monkeypatch.setattr(persistence, "_PAIRS_LIMIT", 1000)
    generator = np.random.default_rng(4)
    centres = np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]])
    points = centres[generator.integers(3, size=1500)] + 1e-4 * generator.uniform(size=(1500, 2))
    calls: list[tuple[int, int]] = []
    tree = single_linkage(points, progress=lambda done, total: calls.append((done, total)))
    assert is_valid_linkage(tree)
    np.testing.assert_allclose(tree[-2:, 2], [1.0, 4.0], atol=2e-4)
    np.testing.assert_array_equal(counts_by_threshold(points, [1e-3, 0.9, 1.1, 4.1]), [3, 3, 2, 1])
    assert calls[-1] == (1499, 1499)


def test_persistence_diagram_of_three_points():
    np.testing.assert_allclose(persistence_diagram([0.0, 1.0, 4.0]), [[0, 1], [0, 3], [0, np.inf]])
    np.testing.assert_allclose(persistence_diagram([[1.0, 2.0]]), [[0, np.inf]])


def test_largest_gap_finds_planted_clusters_and_ignores_rounding():
    count, low, high = largest_gap([0.0, 0.01, 1.0, 1.02, 3.0])
    assert (count, low, high) == (3, pytest.approx(0.02), pytest.approx(0.99))
    # Two clusters whose members coincide up to 1e-17 and 1e-14: the first gap, of a factor 1000, is rounding.
    count, _, high = largest_gap([0.0, 1e-17, 1e-14, 1.0, 1.0 + 1e-13])
    assert (count, high) == (2, pytest.approx(1.0))
    assert largest_gap([0.0, 2.0]) == (2, 0.0, 2.0)
    assert largest_gap([2.0, 2.0, 2.0]) == (1, 0.0, np.inf)


def test_thresholds_convert():
    assert chordal_from_inner(0.999) == pytest.approx(0.0447213595)
    assert inner_from_chordal(chordal_from_inner(0.3, 2.0), 2.0) == pytest.approx(0.3)
    assert chordal_from_angle(np.pi / 3) == pytest.approx(1.0)
    with pytest.raises(ArgumentError, match="between -1 and 1"):
        chordal_from_inner(1.5)
    with pytest.raises(ArgumentError, match="diameter"):
        inner_from_chordal(2.5)


def test_default_threshold_states_its_reason_and_scales():
    points = np.random.default_rng(0).normal(size=(2, 50, 4))
    sphere = choose_threshold(Trajectory.from_arrays([0, 1], points, metadata={"geometry": "sphere"}))
    assert sphere.value == pytest.approx(np.sqrt(0.002))
    assert (sphere.metric, "0.999" in sphere.reason) == ("chordal", True)
    layer = choose_threshold(Trajectory.from_arrays([0, 1], points, metadata={"geometry": "layer_norm"}))
    assert layer.value == pytest.approx(2 * np.sqrt(0.002))
    plain = choose_threshold(Trajectory.from_arrays([0, 1], points))
    scaled = choose_threshold(Trajectory.from_arrays([0, 1], 7 * points))
    assert scaled.value == pytest.approx(7 * plain.value)
    assert plain.value == pytest.approx(np.sqrt(0.002 * points[0].var(axis=0).sum()))
    assert choose_threshold(Trajectory.from_arrays([0], np.ones((1, 1, 1)))).value == pytest.approx(np.sqrt(0.002))


def test_counts_over_time_and_progress():
    scale = np.array([1.0, 0.5, 0.1])
    points = scale[:, None, None] * np.array([0.0, 1.0, 2.0, 5.0])[None, :, None]
    calls: list[tuple[int, int]] = []
    run = Trajectory.from_arrays([0, 1, 2], points)
    counts = cluster_counts(run, 0.6, progress=lambda done, total: calls.append((done, total)))
    np.testing.assert_array_equal(counts, [4, 2, 1])
    assert calls == [(1, 3), (2, 3), (3, 3)]


def test_errors_name_the_frame_the_particle_and_the_argument():
    points = np.zeros((5, 4, 2))
    points[3, 2, 1] = np.nan
    with pytest.raises(ArgumentError, match=r"Frame 3 \(time 30\).*particle 2.*trajectory\[:3\]"):
        cluster_counts(Trajectory.from_arrays([0, 10, 20, 30, 40], points), 0.1)
    with pytest.raises(ArgumentError, match="ensemble of 2"):
        cluster_counts(Trajectory.from_arrays([0.0], np.zeros((1, 2, 3, 2))), 0.1)
    with pytest.raises(ArgumentError, match="no frame"):
        cluster_counts(Trajectory.from_arrays([], np.zeros((0, 3, 2))), 0.1)
    with pytest.raises(ArgumentError, match="`threshold` must be non-negative"):
        cluster_labels([0.0, 1.0], -1.0)
    with pytest.raises(ArgumentError, match="particle 1"):
        cluster_labels([0.0, np.inf], 1.0)
    with pytest.raises(ShapeError, match="weights"):
        cluster_labels([0.0, 1.0], 1.0, weights=[1.0])
