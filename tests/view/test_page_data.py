"""What the interactive page stores: codes, frames, projections and trees against independent answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import dendrogram, linkage
from sklearn.decomposition import PCA

from page_oracles import undo
from particleflow.errors import ShapeError
from particleflow.trajectory.trajectory import Trajectory
from particleflow.view.webpage import codec
from particleflow.view.webpage import page_data as data
from particleflow.view.webpage.page_tree import layout_merge_tree


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 7), st.integers(1, 2), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_codes_survive_prediction_in_blocks(frames: int, order: int, size: int, seed: int):
    codes = np.random.default_rng(seed).integers(0, 65536, (frames, 2, 5)).astype(np.uint16)
    blocks = (codes[i : i + size] for i in range(0, frames, size))
    sections, used = codec.code_sections("x", blocks, order)
    found: list[np.ndarray] = []
    for section in sections:
        found += list(undo(section.text, section.shape, order, found))
    assert np.array_equal(found, codes)
    assert used == sum(len(section.text) for section in sections)


@settings(max_examples=10, deadline=None)
@given(st.sampled_from([16, 14, 12]), st.floats(1e-6, 1e6), st.integers(0, 2**32 - 1))
def test_quantisation_error_is_at_most_half_a_step(bits: int, scale: float, seed: int):
    points = scale * np.random.default_rng(seed).normal(size=(50, 3))
    points[7] = np.nan
    grid = codec.CodeGrid(np.nanmin(points, axis=0), np.nanmax(points, axis=0), bits)
    codes = grid.encode(points)
    alive = np.arange(50) != 7
    error = np.abs(grid.low + grid.step * codes - points)[alive]
    assert (error <= 0.5000001 * grid.step).all()
    assert (codes[7] == 2**bits - 1).all()
    assert (codes[alive] < 2**bits - 1).all()


def test_smooth_runs_are_predicted_to_second_order():
    moment = np.linspace(0, 1, 20)[:, None]
    line = (20000 + 30000 * moment * np.linspace(0.1, 1, 400)).astype(np.uint16)
    noise = np.random.default_rng(0).integers(0, 200, (20, 400)).astype(np.uint16)
    assert codec.cheapest_order(line) == 2
    assert codec.cheapest_order(noise) == 1


def test_projection_is_that_of_scikit_learn():
    points = np.random.default_rng(1).normal(size=(5, 200, 6)) * np.array([5, 3, 2, 1, 0.5, 0.1])
    found = data.survey(Trajectory.from_arrays(np.arange(5.0), points))
    reference = PCA(3).fit(points.reshape(-1, 6))
    scores = np.abs(reference.transform(points.reshape(-1, 6)))
    assert np.allclose(np.maximum(-found.low, found.high), scores.max(axis=0))
    assert found.explained == pytest.approx(reference.explained_variance_ratio_.sum(), rel=1e-9)


def test_arc_length_is_the_length_of_the_path():
    angles = np.linspace(0, np.pi, 4001)
    points = np.stack([np.cos(angles), np.sin(angles)], axis=-1)[:, None, :].repeat(3, axis=1)
    found = data.survey(Trajectory.from_arrays(angles, points))
    assert found.arc[-1] == pytest.approx(np.pi, rel=1e-6)
    assert np.allclose(found.arc, angles, atol=1e-6)


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 400), st.integers(2, 100), st.integers(0, 2**32 - 1))
def test_chosen_frames_are_ordered_and_keep_both_ends(total: int, limit: int, seed: int):
    steps = np.random.default_rng(seed).exponential(size=total)
    chosen = data.choose_frames(np.cumsum(steps), np.cumsum(steps[::-1]), limit)
    assert chosen[0] == 0
    assert chosen[-1] == total - 1
    assert len(chosen) == min(limit, total)
    assert (np.diff(chosen) > 0).all()


def test_fast_motion_keeps_more_frames_than_rest():
    arc = np.concatenate([np.zeros(500), np.linspace(0, 1, 100), np.ones(400)])
    chosen = data.choose_frames(np.arange(1000.0), arc, 100)
    moving = ((chosen >= 500) & (chosen < 600)).sum()
    assert moving >= 45  # a tenth of the frames hold all of the motion, which is half of the weight


def test_largest_clusters_come_first():
    labels = np.array([[5, 5, 5, 9, 9, -1], [5, 5, 5, 5, 9, -1]])
    assert data.CodedLabels.of(labels)().tolist() == [[0, 0, 0, 1, 1, 65535], [0, 0, 0, 0, 1, 65535]]
    assert data.CodedLabels.of(np.array([[7, 3]]))().tolist() == [[1, 0]]


def test_merge_tree_has_scipy_merges_and_no_crossing():
    points = np.random.default_rng(4).normal(size=(30, 2))
    rows = linkage(points, "single")
    tree = layout_merge_tree(rows, leaves=30, begin=0.0, end=float(rows[-1, 2]) + 1, limit=100)
    assert len(tree["y"]) == 59  # 30 leaves and 29 merges
    inner = tree["birth"] > 0
    assert np.allclose(np.sort(tree["birth"][inner]), np.sort(rows[:, 2]))
    order = dendrogram(rows, no_plot=True)["leaves"]
    assert len(np.unique(tree["y"][~inner])) == len(order)
    assert tree["size"].max() == 30
    # every cluster's leaves are next to each other, so joins never cross a foreign branch
    for y, join, death in zip(tree["y"], tree["join"], tree["death"], strict=True):
        if not np.isfinite(join):
            continue
        low, high = sorted((y, join))
        passed = (tree["y"] > low + 1e-12) & (tree["y"] < high - 1e-12)
        alive_there = passed & (tree["birth"] < death) & (tree["death"] > death)
        assert not alive_there.any()


def test_merge_tree_by_labels_keeps_the_survivor():
    tree = layout_merge_tree(np.array([(0, 1, 1.0, 5), (0, 2, 3.0, 9)]), leaves=9, begin=0.0, end=4.0)
    assert sorted(zip(tree["label"], tree["birth"], tree["death"], strict=True)) == [
        (0, 0, 1),
        (0, 1, 3),
        (0, 3, 4),
        (1, 0, 1),
        (2, 0, 3),
    ]
    assert dict(zip(tree["label"][tree["birth"] == 0], tree["size"][tree["birth"] == 0], strict=True))[2] == 4
    with pytest.raises(ShapeError, match="merge_tree"):
        layout_merge_tree(np.zeros((3, 2)), leaves=3, begin=0.0, end=1.0)


def test_particles_are_thinned_only_when_few_frames_do_not_help():
    points = np.random.default_rng(3).normal(size=(150, 4000, 2)).cumsum(axis=0)
    run = Trajectory.from_arrays(np.arange(150.0), points)
    chosen, sections = data.fit(run, data.survey(run), None, 400_000)
    assert len(chosen.frames) == data.MINIMUM_FRAMES
    assert chosen.particles is not None
    assert (np.diff(chosen.particles) > 0).all()
    assert 0.5 * 400_000 < sum(len(section.text) for section in sections) <= 400_000
    found: list[np.ndarray] = []
    for section in sections:
        found += list(undo(section.text, section.shape, chosen.order, found))
    decoded = chosen.grid.low[:, None] + chosen.grid.step[:, None] * np.array(found)
    error = np.abs(np.swapaxes(decoded, 1, 2) - points[chosen.frames][:, chosen.particles])
    assert (error <= 0.50001 * chosen.grid.step).all()
