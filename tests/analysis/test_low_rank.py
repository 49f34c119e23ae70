"""Ranks of blocks of a kernel matrix, and the figures of the last seed."""

import matplotlib.image
import numpy as np
import pytest
from scipy.linalg import svdvals

import particleflow as pf
from pair_oracles import assert_refused
from particleflow.analysis import block_ranks, convergence_slope, feature_errors, numerical_rank
from particleflow.errors import ArgumentError, ShapeError
from shares import by_default


@pytest.mark.parametrize("count", by_default([200, 400], [200]))
def test_the_rank_of_one_over_the_distance_between_two_segments(count):
    x, y = np.linspace(1, 2, count), np.linspace(-0.5, 0.5, count)
    matrix = 1 / np.abs(x[:, None] - y)
    assert [numerical_rank(matrix, tolerance) for tolerance in (1e-3, 1e-6, 1e-12)] == [3, 5, 10]
    found = block_ranks((1.5,), (1e-3, 1e-6, 1e-12), count)
    assert found.ranks.tolist() == [[3, 5, 10]]
    values = svdvals(matrix)
    np.testing.assert_allclose(found.singular_values[0, :8], values[:8] / values[0], rtol=1e-5)


def test_ranks_grow_as_the_logarithm_of_the_tolerance_and_fall_with_the_distance():
    found = block_ranks(count=80)
    # y* = 0: |y| ≤ ½ = δ (c − ½) ≤ δ |x|, and a Taylor polynomial of p terms is wrong by δ^p of the largest entry.
    most = np.ceil(np.log(found.tolerances) / np.log(0.5 / (found.separations[:, None] - 0.5)))
    assert (found.ranks <= most).all()
    constants = found.ranks / -np.log(found.tolerances)
    assert (constants.max(axis=1) < 0.6).all()  # rank ≤ C |log ε| with one C for all tolerances
    assert (np.diff(found.ranks, axis=0) <= 0).all()
    assert (np.diff(found.ranks, axis=1) > 0).all()


def test_a_matrix_of_three_products_has_rank_three():
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(40, 3)) @ rng.normal(size=(3, 30))
    assert [numerical_rank(matrix, tolerance) for tolerance in (1e-2, 1e-12)] == [3, 3]
    assert numerical_rank(np.zeros((3, 4)), 0.1) == 0
    assert numerical_rank(np.eye(4), 1e-9) == 4


def test_wrong_arguments_are_refused():
    assert_refused(lambda: block_ranks((1.5, 0.9)), ArgumentError, ["`separations`", "exceed 1", "0.9"])
    assert_refused(lambda: numerical_rank(np.eye(2), 2.0), ArgumentError, ["`tolerance`", "between 0 and 1", "2.0"])
    assert_refused(lambda: numerical_rank(np.ones(2), 0.1), ShapeError, ["`matrix`", "(2,)"])
    assert_refused(lambda: feature_errors(np.eye(2), {3: np.eye(3)}), ShapeError, ["rank 3", "(2, 2)", "(3, 3)"])


def cosines(points: np.ndarray, rank: int, generator: np.random.Generator) -> np.ndarray:
    """ZZᵀ of random Fourier features, in NumPy."""
    angles = points @ generator.normal(size=(rank // 2, points.shape[1])).T
    z = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * (2 / rank) ** 0.5
    return z @ z.T


@pytest.mark.slow
def test_the_figures_show_what_they_are_given(tmp_path):
    generator, points = np.random.default_rng(1), np.linspace(-3, 3, 40)[:, None]
    exact = np.exp(-((points - points.T) ** 2) / 2)
    matrices = {rank: cosines(points, rank, generator) for rank in (512, 4, 32)}
    axes = pf.view.feature_convergence(exact, matrices, panels=2)
    assert [ax.get_title() for ax in axes] == [
        "$K$",
        "$ZZ^\\top$, $R$ = 4",
        "$ZZ^\\top$, $R$ = 512",
        "error of an entry",
    ]
    for ax, matrix in zip(axes[:-1], (exact, matrices[4], matrices[512]), strict=True):
        np.testing.assert_array_equal(ax.images[0].get_array(), matrix)
    ranks, errors = axes[-1].lines[0].get_data()
    np.testing.assert_array_equal(ranks, [4, 32, 512])
    np.testing.assert_allclose(errors, [np.sqrt(np.mean((matrices[rank] - exact) ** 2)) for rank in ranks])
    assert -0.8 < convergence_slope(ranks, errors).slope < -0.2
    broken = pf.view.feature_convergence(exact, {2: np.full_like(exact, np.nan), **matrices}, panels=2)[-1]
    for panel in (axes[-1], broken):  # one error that is no number leaves the guide where it is
        level = np.exp(np.mean(np.log(errors * np.sqrt(ranks))))
        guide = panel.lines[1]
        np.testing.assert_allclose(guide.get_ydata() * np.sqrt(guide.get_xdata()), level, rtol=1e-12)
    found = block_ranks((1.5, 3.0))
    ax = pf.view.block_ranks(found)
    lines = [line for line in ax.lines if line.get_label() in ("1.5", "3")]
    for line, values in zip(lines, found.singular_values, strict=True):
        shown = np.asarray(line.get_ydata())
        np.testing.assert_array_equal(shown, values[: len(shown)])
    for number, figure in enumerate((axes[0].get_figure(root=True), ax.get_figure(root=True))):
        assert figure is not None
        figure.savefig(tmp_path / f"{number}.png", dpi=30)
        assert matplotlib.image.imread(tmp_path / f"{number}.png").std() > 0.01
