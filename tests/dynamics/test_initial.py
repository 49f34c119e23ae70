"""Initial clouds against closed forms, SciPy and brute force."""

# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportCallIssue=false, reportOptionalOperand=false, reportOptionalSubscript=false

import jax
import numpy as np
import pytest
from scipy import stats

import particleflow as pf
from particleflow.dynamics.initial import (
    Equiangular,
    FromFile,
    GaussHermite,
    Gaussian,
    Grid,
    ImagePatches,
    Mixture,
    Moons,
    Quantiles,
    Rings,
    TextTokens,
    UniformCircle,
    UniformSphere,
)
from particleflow.errors import ArgumentError, ShapeError

KEY = jax.random.key(7)
COUNT = 4000  # of every cloud, here and in `test_initial_densities`, so that they share programs


def test_uniform_sphere_has_unit_norm_and_the_moments_of_the_sphere():
    points = np.asarray(pf.initial.UniformSphere(dim=3).sample(KEY, 20_000))
    assert np.allclose(np.linalg.norm(points, axis=1), 1, atol=1e-14)
    # each coordinate of a uniform point of S² is uniform on [−1, 1]
    assert stats.kstest(points[:, 0], stats.uniform(-1, 2).cdf).pvalue > 1e-3
    assert np.allclose(points.T @ points / len(points), np.eye(3) / 3, atol=0.02)


def test_the_same_key_gives_the_same_cloud_and_another_key_another():
    first, again = (np.asarray(UniformSphere(4).sample(KEY, 5)) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.allclose(first, np.asarray(UniformSphere(4).sample(jax.random.key(8), 5)))


def test_equispaced_circle_with_a_sine():
    count, mode, amplitude = COUNT, 3, 1e-2
    points = np.asarray(UniformCircle("equispaced", mode, amplitude).sample(KEY, count))
    base = 2 * np.pi * np.arange(count) / count
    angle = base + amplitude * np.sin(2 * np.pi * np.arange(count) * mode / count)
    assert np.allclose(points, np.stack([np.cos(angle), np.sin(angle)], axis=1), atol=1e-14)


@pytest.mark.parametrize("order", [0.0, 0.3, 0.8])
def test_moebius_image_has_the_order_parameter_asked_for(order):
    points = np.asarray(UniformCircle("equispaced", order=order).sample(KEY, COUNT))
    assert np.allclose(np.linalg.norm(points, axis=1), 1, atol=1e-14)
    assert np.allclose(points.mean(axis=0), [order, 0], atol=1e-12)


def test_random_circle_is_uniform():
    points = np.asarray(UniformCircle().sample(KEY, COUNT))
    angles = np.arctan2(points[:, 1], points[:, 0])
    assert stats.kstest(angles, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-3


def test_gaussian_has_mean_and_covariance():
    scale = np.array([[1.0, 0.5], [0.0, 0.3]])
    points = np.asarray(Gaussian(2, scale, [2.0, -1.0]).sample(KEY, 40_000))
    assert np.allclose(points.mean(axis=0), [2, -1], atol=0.03)
    assert np.allclose(np.cov(points.T), scale @ scale.T, atol=0.03)


def test_mixture_labels_say_which_blob():
    centres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    start = Mixture(centres=centres, width=0.1, weights=[1.0, 0.0, 3.0]).start(KEY, COUNT)
    points, labels = np.asarray(start.measure.points), start.labels
    nearest = np.argmin(np.linalg.norm(points[:, None] - centres[None], axis=2), axis=1)
    assert np.array_equal(nearest, labels)
    assert not (labels == 1).any()
    assert abs((labels == 2).mean() - 0.75) < 0.03


def test_moons_and_rings_lie_on_their_curves():
    moons = Moons(noise=0.0).start(KEY, COUNT)
    points = np.asarray(moons.measure.points)
    centres = np.where((moons.labels == 0)[:, None], [[0.0, 0.0]], [[1.0, 0.5]])
    assert np.allclose(np.linalg.norm(points - centres, axis=1), 1, atol=1e-14)
    assert (points[moons.labels == 0, 1] >= 0).all()
    rings = Rings(radii=[1.0, 2.5], noise=0.0).start(KEY, COUNT)
    assert np.allclose(np.linalg.norm(rings.measure.points, axis=1), np.where(rings.labels == 0, 1.0, 2.5), atol=1e-14)


def test_grid_is_the_product_of_its_axes():
    points = np.asarray(Grid([2, 3], low=0.0, high=1.0).sample(KEY))
    assert np.array_equal(points, [[0, 0], [0, 0.5], [0, 1], [1, 0], [1, 0.5], [1, 1]])
    with pytest.raises(ArgumentError, match="6 particles of its own"):
        Grid([2, 3]).sample(KEY, 5)


@pytest.mark.parametrize("rho", [-1 / 6, 0.0, 0.4, 1.0])
def test_equiangular_tokens_have_one_inner_product(rho):
    points = np.asarray(Equiangular(rho, dim=9).sample(KEY, 7))
    gram = np.full((7, 7), rho) + (1 - rho) * np.eye(7)
    assert np.allclose(points @ points.T, gram, atol=1e-14)
    assert np.asarray(Equiangular(rho).sample(KEY, 7)).shape == (7, 7)


def test_impossible_simplices_are_refused():
    with pytest.raises(ArgumentError, match=r"cannot all be at an inner product below -0\.25"):
        Equiangular(-0.3).sample(KEY, 5)
    with pytest.raises(ArgumentError, match="5 equiangular tokens need 5"):
        Equiangular(0.1, dim=4).sample(KEY, 5)


def test_quantiles_are_those_of_scipy():
    levels = (np.arange(COUNT) + 0.5) / COUNT
    gaussian = np.asarray(Quantiles("gaussian", 1.0, 2.0).sample(KEY, COUNT))[:, 0]
    uniform = np.asarray(Quantiles("uniform", 1.0, 2.0).sample(KEY, COUNT))[:, 0]
    assert np.allclose(gaussian, stats.norm(1, 2).ppf(levels), atol=1e-12)
    assert np.allclose(uniform, stats.uniform(-1, 4).ppf(levels), atol=1e-14)


def test_gauss_hermite_has_the_moments_of_its_law():
    """Every monomial below degree 2 · nodes: E ξ^k = (k − 1)!! of independent coordinates, mapped by the scale."""
    measure = GaussHermite(2, 5).start(KEY).measure
    weights, (first, second) = np.exp(np.asarray(measure.log_weights)), np.asarray(measure.points).T
    exact = [1.0, 0.0, 1.0, 0.0, 3.0, 0.0, 15.0, 0.0, 105.0, 0.0]
    for one in range(10):
        for other in range(10):
            assert abs(weights @ (first**one * second**other) - exact[one] * exact[other]) < 1e-10
    scale = np.array([[1.0, 0.5], [0.2, 2.0]])
    moved = GaussHermite(2, 3, scale, [1.0, -1.0]).start(KEY).measure
    shares, away = np.exp(np.asarray(moved.log_weights)), np.asarray(moved.points) - np.array([1.0, -1.0])
    assert np.max(np.abs(shares @ away)) < 1e-14
    assert np.max(np.abs(away.T @ (shares[:, None] * away) - scale @ scale.T)) < 1e-13


def test_text_tokens_repeat_with_their_words():
    start = TextTokens("The cat, the dog", dim=32).start(KEY)
    points = np.asarray(start.measure.points)
    assert start.labels.tolist() == [0, 1, 2, 0, 3]
    assert np.allclose(points[0], points[3])
    assert np.allclose(np.linalg.norm(points, axis=1), 1)
    assert np.array_equal(start.measure.positions, np.arange(5.0))
    moved = np.asarray(TextTokens("The cat, the dog", dim=32, position_scale=0.1).sample(KEY))
    frequency = 10000.0 ** (-(np.arange(32) - np.arange(32) % 2) / 32)
    angle = 3 * frequency
    encoding = 0.1 * np.where(np.arange(32) % 2 == 0, np.sin(angle), np.cos(angle))
    assert np.allclose(moved[3] - points[3], encoding, atol=1e-12)


def test_text_tokens_take_a_table(tmp_path):
    table = np.diag([1.0, 2.0, 4.0])
    np.savez(tmp_path / "table.npz", vectors=table, tokens=np.array(["a", "b", "c"]))
    points = TextTokens("c a", embedding=tmp_path / "table.npz").sample(KEY)
    assert np.allclose(points, [[0, 0, 1], [1, 0, 0]])
    with pytest.raises(ArgumentError, match="no vector for 'd'"):
        TextTokens("d", embedding=tmp_path / "table.npz").sample(KEY)
    np.save(tmp_path / "table.npy", table)
    rows = np.asarray(TextTokens("c a c", embedding=tmp_path / "table.npy").sample(KEY))
    assert np.array_equal(rows[0], rows[2])


def test_image_patches_are_cut_in_reading_order(tmp_path):
    image = np.arange(24.0).reshape(4, 6)
    np.save(tmp_path / "image.npy", image)
    start = ImagePatches(tmp_path / "image.npy", patch=2, centred=False).start(KEY)
    expected = [image[r : r + 2, c : c + 2].ravel() for r in (0, 2) for c in (0, 2, 4)]
    assert np.array_equal(start.measure.points, expected)
    placed = np.asarray(ImagePatches(tmp_path / "image.npy", patch=2, place_scale=0.5).sample(KEY))
    assert np.allclose(placed[:, :4].mean(axis=0), 0, atol=1e-12)
    assert np.allclose(placed[:, 4:], [[r, c] for r in (-0.5, 0.5) for c in (-0.5, 0.0, 0.5)])


def test_files_give_back_what_was_written(tmp_path):
    points = np.random.default_rng(0).standard_normal((6, 2))
    np.save(tmp_path / "a.npy", points)
    np.savetxt(tmp_path / "a.csv", points, delimiter=",", fmt="%.17g", header="x,y", comments="")
    weights = np.log(np.arange(1.0, 7.0))
    np.savez(tmp_path / "a.npz", points=points, log_weights=weights, labels=np.arange(6), positions=np.arange(6.0))
    for name in ("a.npy", "a.csv", "a.npz"):
        assert np.array_equal(FromFile(tmp_path / name).sample(KEY), points)
    start = FromFile(tmp_path / "a.npz").start(KEY)
    assert np.array_equal(start.measure.log_weights, weights)
    assert start.labels.tolist() == [0, 1, 2, 3, 4, 5]
    run = pf.Trajectory.from_arrays([0.0, 1.0], np.stack([points, 2 * points]), labels=np.arange(6))
    run.save(tmp_path / "trajectory.h5")
    assert np.array_equal(FromFile(tmp_path).sample(KEY), 2 * points)
    assert np.array_equal(FromFile(tmp_path / "trajectory.h5", frame=0).sample(KEY), points)


def test_bad_files_are_refused(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (tmp_path / "words.csv").write_text("a,b\nc,d\n")
    (tmp_path / "noise.npz").write_bytes(b"not a zip")
    for name in ("objects.npy", "words.csv", "noise.npz"):
        with pytest.raises(ArgumentError, match="cannot be read as a cloud"):
            FromFile(tmp_path / name).start(KEY)
    with pytest.raises(ArgumentError, match="no such file"):
        FromFile(tmp_path / "missing.npy")


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: UniformSphere(0), ArgumentError),
        (lambda: UniformSphere(2.5), ArgumentError),
        (lambda: UniformSphere(3).sample(KEY, 0), ArgumentError),
        (lambda: UniformSphere(3).sample(KEY), ArgumentError),
        (lambda: UniformSphere(3).sample(KEY, 10**12), ArgumentError),
        (lambda: UniformCircle(order=1.0), ArgumentError),
        (lambda: Gaussian(2, centre=[1.0, 2.0, 3.0]), ShapeError),
        (lambda: Mixture(weights=[1.0]), ShapeError),
        (lambda: Mixture(components=2, weights=[-1.0, 2.0]), ArgumentError),
        (lambda: TextTokens(), ArgumentError),
        (lambda: TextTokens(" \n").sample(KEY), ArgumentError),
        (lambda: Grid([]), ArgumentError),
        (lambda: GaussHermite(1, 1000), ArgumentError),
        (lambda: GaussHermite(20, 20), ArgumentError),
        (lambda: GaussHermite(2, 3, centre=[1.0]), ShapeError),
    ],
)
def test_wrong_parameters_are_refused(make, error):
    with pytest.raises(error):
        make()
