"""Labels through time and the merge tree, against planted collisions, root finding and SciPy."""

from typing import Any

import numpy as np
import pytest
from scipy.cluster.hierarchy import dendrogram, is_valid_linkage, linkage
from scipy.optimize import root_scalar
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist

from particleflow.analysis import cluster_labels, track_clusters
from particleflow.analysis.clusters.merge_tree import _forest_of_many, first_contacts
from particleflow.analysis.clusters.tracking import ClusterTrack
from particleflow.errors import ArgumentError
from particleflow.trajectory.trajectory import Trajectory


def moving(times, starts, speeds, sizes) -> Trajectory:
    """Clusters of particles on one point each, which move along a line at constant speeds."""
    start, speed = np.repeat(starts, sizes), np.repeat(speeds, sizes)
    return Trajectory.from_arrays(times, (start + np.asarray(times)[:, None] * speed)[:, :, None])


def test_merge_times_survivors_and_labels_of_a_planted_tree():
    # Sizes 5, 3, 2, 4 at 0, 10, 14, 40; threshold 1. Contact when the gap is 1:
    # 10 and 14 close at speed 1: t = 3. Then 0 and 10 at speed 1: t = 9. Then 40 and the rightmost of the rest.
    times = np.linspace(0, 40, 58)
    points = np.empty((58, 14, 1))
    position = np.stack([0 * times, 10 - times * (times < 10) - 10 * (times >= 10), 14 - 2 * times, 40 - times], axis=1)
    position[:, 2] = np.maximum(14 - 2 * times, position[:, 1])  # caught up with the second, it stays with it
    points[:, :, 0] = np.repeat(position, [5, 3, 2, 4], axis=1)
    track = track_clusters(Trajectory.from_arrays(times, points), 1.0)
    for merge, truth in zip(track.tree.merges, [3.0, 9.0, 39.0], strict=True):
        assert merge.between.before < truth <= merge.between.after
    label = {"five": 0, "four": 1, "three": 2, "two": 3}  # the first frame's labels go by mass
    expected = [("three", "two", 5), ("five", "three", 10), ("five", "four", 14)]
    found = [(merge.survivor, merge.absorbed, merge.size) for merge in track.tree.merges]
    assert found == [(label[a], label[b], size) for a, b, size in expected]
    np.testing.assert_array_equal(track.labels[0], np.repeat([0, 2, 3, 1], [5, 3, 2, 4]))
    np.testing.assert_array_equal(track.labels[20], np.repeat([0, 1], [10, 4]))
    assert (track.labels[-1] == 0).all()
    np.testing.assert_array_equal(track.counts[[0, 10, 20, 57]], [4, 3, 2, 1])
    np.testing.assert_allclose(track.largest_mass[[0, 20, 57]], [5 / 14, 10 / 14, 1.0])
    np.testing.assert_allclose(track.effective_count[0], 14**2 / (25 + 9 + 4 + 16))


def test_merges_inside_one_interval_come_in_the_order_of_contact():
    # Three clusters meet between the only two frames; threshold 1.
    run = Trajectory.from_arrays([0.0, 1.0], np.array([[0.0, 6, 9], [0.0, 0.0, 0.0]])[:, :, None])
    tree = track_clusters(run, 1.0).tree
    # |9−6|: 3 → 0 touches 1 at 2/3; |6−0|: 6 → 0 at 5/6.
    np.testing.assert_array_equal(tree.times, [0.5, 0.5])
    assert [(m.survivor, m.absorbed) for m in tree.merges] == [(1, 2), (1, 0)]  # two together outweigh one


def test_heavier_cluster_survives_by_mass_not_by_number():
    points = np.array([[0.0, 0.0, 0.0, 5.0], [0.0, 0.0, 0.0, 0.5]])[:, :, None]
    run = Trajectory.from_arrays([0, 1], points, log_weights=np.log([0.1, 0.1, 0.1, 0.7]))
    track = track_clusters(run, 1.0)
    np.testing.assert_array_equal(track.labels, [[1, 1, 1, 0], [0, 0, 0, 0]])
    assert track.tree.merges[0].mass == pytest.approx(1.0)
    assert track.tree.merges[0].absorbed_mass == pytest.approx(0.3)


def test_splits_keep_the_label_with_the_larger_part():
    points = np.array([[0.0, 0.1, 0.2, 0.3, 0.4], [0.0, 0.1, 0.2, 9.0, 9.1], [0.0, 0.1, 0.2, 0.3, 0.4]])[:, :, None]
    track = track_clusters(Trajectory.from_arrays([0, 1, 2], points), 0.15)
    np.testing.assert_array_equal(track.labels, [[0] * 5, [0, 0, 0, 1, 1], [0] * 5])
    assert [(birth.label, birth.parent, birth.frame) for birth in track.tree.births] == [(0, -1, 0), (1, 0, 1)]
    assert [(merge.survivor, merge.absorbed, merge.frame) for merge in track.tree.merges] == [(0, 1, 2)]


def test_labels_follow_clusters_that_cross_the_box_while_particles_are_exchanged():
    generator = np.random.default_rng(0)
    times = np.linspace(0, 1, 200)
    member = np.repeat([0, 1, 2], [40, 30, 20])
    centres = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])
    orbit = centres[None] + 0.8 * np.stack([np.cos(9 * times), np.sin(9 * times)], axis=1)[:, None]
    points = orbit[:, member] + 0.02 * generator.normal(size=(200, 90, 2))
    points[100:, 0] = orbit[100:, 2]  # one particle changes its cluster
    labels = track_clusters(Trajectory.from_arrays(times, points), 0.4).labels
    expected = np.tile(member, (200, 1))
    expected[100:, 0] = 2
    np.testing.assert_array_equal(labels, expected)


@pytest.mark.parametrize("spread", [0.02, 0.3])
def test_merge_of_crowds_is_that_of_their_closest_particles(spread):
    generator = np.random.default_rng(2)
    left = spread * generator.uniform(-1, 1, size=(2200, 2))
    right = spread * generator.uniform(-1, 1, size=(2000, 2))
    shift = np.array([3.0, 0.1])

    def gap(time: float) -> float:
        return float(cdist(left, right + shift * (1 - time)).min()) - 0.5

    truth = root_scalar(gap, bracket=(0, 1), xtol=1e-12).root
    times = np.linspace(0, 1, 31)
    points = np.stack([np.concatenate([left, right + shift * (1 - time)]) for time in times])
    tree = track_clusters(Trajectory.from_arrays(times, points), 0.5).tree
    assert len(tree.merges) == 1
    assert tree.resolution <= 1 / 32
    before, after = tree.merges[0].between
    assert before < truth <= after
    assert after - before == pytest.approx(1 / 30)


@pytest.mark.parametrize("seed", range(6))
def test_first_contacts_are_the_spanning_forest_of_all_touches(seed):
    generator = np.random.default_rng(seed)
    before = generator.uniform(size=(120, 2))
    after = 0.4 * before + 0.02 * generator.normal(size=(120, 2))
    owner = cluster_labels(before, 0.06)
    distance = cdist(before, before), cdist(after, after)
    graph = np.full((owner.max() + 1,) * 2, np.inf)
    for i, j in zip(*np.nonzero((distance[1] <= 0.06) & (owner[:, None] != owner)), strict=True):
        fraction = (distance[0][i, j] - 0.06) / (distance[0][i, j] - distance[1][i, j])
        graph[owner[i], owner[j]] = min(graph[owner[i], owner[j]], 1 + fraction)
    expected = np.sort(minimum_spanning_tree(np.where(np.isfinite(graph), graph, 0)).data - 1)
    assert expected.size > 10
    crowd = np.full(120, np.argmax(np.bincount(owner)))
    found, resolution = first_contacts(before, after, owner, crowd, 0.06)
    assert resolution == 0.0
    np.testing.assert_allclose([contact.fraction for contact in found], expected, atol=1e-12)
    np.testing.assert_allclose(_forest_of_many(before, after, owner, 0.06).fraction, expected, atol=1e-12)


def test_many_clusters_that_meet_at_once_merge_in_the_order_of_their_spanning_tree():
    # From scattered to one point between two frames: pairs at distance D touch at the fraction 1 − r/D of the interval.
    start = np.random.default_rng(6).normal(size=(1500, 2))
    run = Trajectory.from_arrays([0.0, 1.0], np.stack([start, np.zeros_like(start)]))
    tree = track_clusters(run, 1e-6).tree
    assert tree.resolution == 0.0
    # A merge has the sizes of SciPy's only if all merges before it were the same.
    np.testing.assert_array_equal(tree.linkage()[:, 3], linkage(start, "single")[:, 3])


def test_shrinking_cloud_merges_like_single_linkage():
    # x(t) = e^{−t} x(0): two clusters touch at t = log(D / r) for every spanning-tree length D, in that order.
    start = np.random.default_rng(5).normal(size=(60, 3))
    times = np.linspace(0, 6, 601)
    run = Trajectory.from_arrays(times, np.exp(-times)[:, None, None] * start)
    tree = track_clusters(run, 0.05).tree
    expected = linkage(start, "single")
    later = expected[:, 2] > 0.05
    truth = np.log(expected[later, 2] / 0.05)
    brackets = np.array([merge.between for merge in tree.merges])
    assert ((brackets[:, 0] < truth) & (truth <= brackets[:, 1])).all()
    np.testing.assert_allclose(np.diff(brackets), 0.01)
    rows = tree.linkage()
    assert is_valid_linkage(rows)
    assert sorted(rows[:, 3]) == sorted(expected[:, 3])
    assert dendrogram(rows, no_plot=True)["ivl"]


def test_linkage_of_a_forest_can_be_completed():
    times = np.linspace(0, 10, 50)  # the gap of 5 closes at speed 0.4: 1.5 is left at t = 8.75
    middle = (times[times < 8.75].max() + times[times > 8.75].min()) / 2
    run = moving(times, [0.0, 5.0, 100.0], [0.0, -0.4, 0.0], [3, 2, 2])
    tree = track_clusters(run, 1.5).tree
    assert tree.roots == [0, 2]
    np.testing.assert_allclose(tree.linkage(), [[0, 1, middle, 2]])
    np.testing.assert_allclose(tree.linkage(sizes="particles"), [[0, 1, middle, 5]])
    complete = tree.linkage(complete_at=10.0)
    np.testing.assert_allclose(complete, [[0, 1, middle, 2], [2, 3, 10.0, 3]])
    assert is_valid_linkage(complete)
    with pytest.raises(ArgumentError, match="leaves"):
        tree.linkage(sizes="mass")


def test_noisy_runs_conserve_clusters():
    # Births minus merges is the number of clusters, whatever splits and merges in between.
    generator = np.random.default_rng(1)
    points = np.cumsum(0.05 * generator.normal(size=(40, 300, 2)), axis=0) + generator.uniform(size=(300, 2))
    track = track_clusters(Trajectory.from_arrays(np.arange(40), points), 0.05)
    alive = len(track.tree.births) - len(track.tree.merges)
    assert alive == track.counts[-1] == len(track.tree.roots)
    for labels, count in zip(track.labels, track.counts, strict=True):
        assert np.unique(labels).size == count
    assert (np.diff([merge.time for merge in track.tree.merges if merge.frame == 7]) >= 0).all()


def test_one_particle_one_frame_and_dead_particles():
    track = track_clusters(Trajectory.from_arrays([0.0], np.zeros((1, 1, 1))), 1.0)
    assert track.counts.tolist() == [1]
    assert track.tree.linkage().shape == (0, 4)
    dead = Trajectory.from_arrays(
        [0, 1], np.array([[0.0, 1, 2], [0, 1, 1.5]])[:, :, None], log_weights=[0.0, -np.inf, 0.0]
    )
    np.testing.assert_array_equal(track_clusters(dead, 1.6).labels, [[0, -1, 1], [0, -1, 0]])


def test_a_track_is_the_same_after_a_journey_as_arrays(tmp_path):
    """Also through a file that holds nothing but numbers and text."""
    angles = np.array([[0.0, 0.5, 2.0, 2.4], [0.1, 0.4, 2.1, 2.3], [0.24, 0.26, 2.19, 2.21], [1.19, 1.2, 1.21, 1.22]])
    points = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    track = track_clusters(Trajectory.from_arrays(np.arange(4.0), points), 0.2)
    assert len(track.tree.merges) > 0
    sent: dict[str, Any] = track.arrays()
    np.savez(tmp_path / "track.npz", **sent)
    with np.load(tmp_path / "track.npz", allow_pickle=False) as arrays:
        again = ClusterTrack.from_arrays(arrays)
    assert (again.threshold, again.tree) == (track.threshold, track.tree)
    for name in ("times", "labels", "counts", "largest_mass", "effective_count"):
        np.testing.assert_array_equal(getattr(again, name), getattr(track, name))
