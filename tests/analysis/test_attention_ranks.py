"""Ranks of attention matrices, against singular values of brute-force matrices by NumPy and SciPy."""

import json

import numpy as np
import pytest
from scipy.linalg import svdvals

import particleflow as pf
from pair_oracles import assert_refused
from particleflow.analysis import attention_ranks
from particleflow.errors import ArgumentError, ShapeError


def softmax(points: np.ndarray, beta: float) -> np.ndarray:
    weights = np.exp(beta * (points @ points.T - 1))
    return weights / weights.sum(axis=1, keepdims=True)


def clustered(sizes: tuple[int, ...], spread: float) -> np.ndarray:
    """Points about the ends of the axes of a space of as many dimensions as there are clusters."""
    rng = np.random.default_rng(0)
    points = np.repeat(np.eye(len(sizes)), sizes, axis=0) + spread * rng.normal(size=(sum(sizes), len(sizes)))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def test_rank_one_loses_a_constant_share_and_the_number_of_clusters_little():
    """k clusters of one size, far apart: A is k blocks 1/m, all singular values 1: rank one leaves √(1 − 1/k)."""
    for spread, allowed in ((0.0, 1e-3), (0.02, 0.02)):
        found = attention_ranks(softmax(clustered((20, 20, 20, 20), spread), 12.0), (-1,))
        assert abs(found.left[1] - np.sqrt(3 / 4)) < 0.01
        assert found.left[4] < allowed
    assert attention_ranks(softmax(clustered((20, 20, 20, 20), 0.0), 60.0), (-1,)).left[1] == pytest.approx(
        np.sqrt(0.75), rel=1e-12
    )


def test_what_is_left_and_ranks_beside_bands_are_those_of_brute_force():
    matrix = softmax(clustered((13, 8, 9), 0.2), 5.0)
    found = attention_ranks(matrix, (-1, 0, 3, 10), (1e-1, 1e-3))
    u, values, v = np.linalg.svd(matrix)
    for rank in (0, 1, 3, 7):
        best = (u[:, :rank] * values[:rank]) @ v[:rank]
        assert found.left[rank] == pytest.approx(np.linalg.norm(matrix - best) / np.linalg.norm(matrix), rel=1e-9)
    for width, row in zip((-1, 0, 3, 10), found.ranks, strict=True):
        beside = matrix - (np.triu(np.tril(matrix, width), -width) if width >= 0 else 0)
        assert row.tolist() == [int(np.sum(svdvals(beside) > limit * values[0])) for limit in (1e-1, 1e-3)]
    assert json.loads(json.dumps(found.to_dict()))["ranks"]["none"] == found.ranks[0].tolist()


def test_beside_a_band_ranks_fall_for_a_slowly_decaying_kernel_and_rise_for_clusters():
    """1/(1 + |i − j|) and blocks of rank one, which a band cuts into; ε = .1."""
    places = np.arange(96)
    slow = attention_ranks(1 / (1.0 + np.abs(places[:, None] - places)), (-1, 0, 1, 2, 4, 8), (0.1,))
    assert slow.ranks[0, 0] > 30
    assert slow.ranks[-1, 0] <= 3
    blocks = attention_ranks(softmax(clustered((20, 20, 20, 20), 0.0), 12.0), (-1, 4), (0.1,))
    assert blocks.ranks[0, 0] == 4 < blocks.ranks[1, 0]


def test_wrong_arguments_are_refused():
    assert_refused(lambda: attention_ranks(np.ones((2, 3))), ShapeError, ["`matrix`", "(2, 3)"])
    assert_refused(lambda: attention_ranks(np.eye(2), tolerances=(2.0,)), ArgumentError, ["`tolerances`", "2.0"])
    assert_refused(lambda: attention_ranks(np.eye(2), (-2,)), ArgumentError, ["`widths`", "-2"])


def test_the_figure_shows_the_numbers():
    points = clustered((20, 20, 20), 0.02)
    run = pf.Trajectory.from_arrays([0.0], points[None])
    with pytest.raises(ArgumentError, match="beta"):
        pf.view.attention_ranks(run)
    axes = pf.view.attention_ranks(run, beta=12.0)
    found = attention_ranks(softmax(points, 12.0), (-1,))
    ranks, left = axes[0].lines[0].get_data()
    np.testing.assert_allclose(left, found.left[np.asarray(ranks, int)], rtol=1e-6)
    assert [line.get_label().split(":")[0] for line in axes[0].lines[1:]] == ["rank 1", "rank 3, as clusters"]


def test_the_figure_of_a_matrix_keeps_its_order():
    places = np.arange(40)
    matrix = 1 / (1.0 + np.abs(places[:, None] - places))
    axes = pf.view.attention_ranks(matrix)
    found = attention_ranks(matrix)
    np.testing.assert_allclose(axes[0].lines[0].get_ydata(), found.left[1:40], rtol=1e-12)
    np.testing.assert_array_equal(axes[1].lines[0].get_ydata(), found.ranks[1:, 0])
    assert_refused(lambda: pf.view.attention_ranks(np.eye(1025)), ArgumentError, ["1025", "1024"])


@pytest.mark.parametrize("beta", [12.0, *(pytest.param(beta, marks=pytest.mark.slow) for beta in (0.01, 1e4))])
def test_the_legends_of_ranks_lie_over_no_line(beta):
    """Measured in pixels, of matrices of rank nearly one, of as many as clusters, and of full rank."""
    run = pf.Trajectory.from_arrays([0.0], clustered((20, 20, 20), 0.02)[None])
    axes = pf.view.attention_ranks(run, beta=beta)
    axes[0].figure.canvas.draw()
    for ax in axes:
        box = ax.get_legend().get_window_extent()
        for line in ax.lines:
            assert not line.get_transform().transform_path(line.get_path()).intersects_bbox(box, filled=False)
