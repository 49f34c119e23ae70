"""Every kernel against its formula, pair by pair and as a matrix."""

import inspect
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pair_oracles
from particleflow import kernels as k
from particleflow.measure import Measure
from particleflow.summation.local_mean import Normalised
from shares import by_default


def difference(found, expected) -> float:
    """The largest error of log K, which is the relative error of K; −∞ must be −∞."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(expected))
    seen = np.isfinite(expected)
    found, expected = found[seen], expected[seen]
    return float(np.max(np.abs(found - expected) / np.maximum(1, np.abs(expected)), initial=0.0))


@pytest.mark.parametrize("case", pair_oracles.CASES, ids=pair_oracles.NAMES)
def test_log_matrix_is_the_formula(case):
    queries, measure = pair_oracles.cloud(case.space, jnp.float64, 11, 17)
    found = case.build(jnp.float64).log_matrix(queries, measure.sites)
    assert found.dtype == jnp.float64
    assert difference(found, pair_oracles.log_matrix(case, queries, measure.sites)) <= 1e-13


@pytest.mark.parametrize("case", by_default(pair_oracles.CASES, pair_oracles.CASES[::8]), ids=lambda case: case.name)
def test_log_pair_is_the_formula(case):
    queries, measure = pair_oracles.cloud(case.space, jnp.float64, 3, 4, seed=1)
    kernel, expected = case.build(jnp.float64), pair_oracles.log_matrix(case, queries, measure.sites)
    for i, j in [(0, 0), (1, 3), (2, 1)]:
        x, y = (jax.tree_util.tree_map(lambda leaf, at=at: leaf[at], s) for s, at in ((queries, i), (measure.sites, j)))
        found = kernel.log_pair(x, y)
        assert found.shape == ()
        assert difference(found, expected[i, j]) <= 1e-13


def test_table_holds_every_kernel():
    def is_kernel(node):
        return isinstance(node, k.AbstractKernel)

    def classes_in(kernel):
        parts, _ = eqx.tree_flatten_one_level(kernel)
        found = {type(kernel)}
        for part in jax.tree_util.tree_leaves(parts, is_leaf=is_kernel):
            found |= classes_in(part) if is_kernel(part) else set()
        return found

    named = [getattr(k, name) for name in dir(k)] + [Normalised]
    public = {cls for cls in named if isinstance(cls, type) and issubclass(cls, k.AbstractKernel)}
    concrete = {cls for cls in public if not inspect.isabstract(cls)}
    covered = set().union(*(classes_in(case.build(jnp.float64)) for case in pair_oracles.CASES))
    missing = sorted(cls.__name__ for cls in concrete - covered)
    assert not missing, f"add these kernels, with their formula, to CASES in tests/oracles/pair_oracles.py: {missing}"


def test_plain_arrays_and_lists_are_points():
    x, y = [0.1, 0.4, -0.2], [1.0, 0.0, 0.5]
    expected = -((0.9**2 + 0.4**2 + 0.7**2) / (2 * 0.3**2))
    assert abs(float(k.Gaussian(0.3).log_pair(x, y)) / expected - 1) < 1e-14
    assert abs(float(k.Gaussian(0.3).log_pair(np.array(x), jnp.array(y))) / expected - 1) < 1e-14
    assert abs(float(k.Gaussian(0.3).log_matrix([x], [y, x])[0, 0]) / expected - 1) < 1e-14


def test_operators_build_the_algebra():
    x, y = jnp.array([0.1, 0.4]), jnp.array([1.0, 0.0])
    one, two = k.Gaussian(0.7), k.Cauchy(0.4)
    a, b = float(jnp.exp(one.log_pair(x, y))), float(jnp.exp(two.log_pair(x, y)))
    for kernel, expected in [
        (one * two, a * b),
        (one + two, a + b),
        (3.0 * one, 3 * a),
        (one * 3.0, 3 * a),
        (np.float64(3.0) * one, 3 * a),
        (jnp.asarray(3.0) * one, 3 * a),
        (one * two + 2 * one, a * b + 2 * a),
    ]:
        assert isinstance(kernel, k.AbstractKernel)
        assert abs(float(jnp.exp(kernel.log_pair(x, y))) / expected - 1) < 1e-14


def test_distances_in_many_dimensions():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(5, 100)), rng.normal(size=(7, 100))
    expected = -(((x[:, None] - y[None]) ** 2).sum(-1)) / (2 * 4.0**2)
    np.testing.assert_allclose(k.Gaussian(4.0).log_matrix(x, y), expected, rtol=1e-13)
    shifted = k.Gaussian(4.0).log_matrix(x + 1e6, y + 1e6)
    np.testing.assert_allclose(shifted, expected, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [k.Gaussian(4.0), pytest.param(k.Laplace(4.0), marks=pytest.mark.slow)], ids=repr)
@pytest.mark.parametrize("of", [pytest.param("values", marks=pytest.mark.slow), "gradients"])
def test_distances_in_many_dimensions_take_no_memory(kernel, of):
    def total(points):
        return jnp.sum(jnp.sin(kernel.log_matrix(points, points)))

    points = jax.ShapeDtypeStruct((512, 784), jnp.float32)
    pairs = 512 * 512 * 4  # all differences together would take 784 times as much
    function, allowed = {"values": (total, 8), "gradients": (jax.grad(total), 80)}[of]
    memory: Any = jax.jit(function).lower(points).compile().memory_analysis()
    assert memory.temp_size_in_bytes < allowed * pairs


def test_gaussian_on_the_sphere_is_attention():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(9, 5))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    gaussian, attention = k.Gaussian(0.25).log_matrix(x, x), k.Attention(16.0).log_matrix(x, x)
    np.testing.assert_allclose(gaussian, attention - 16.0, atol=1e-12)


def test_cosine_of_a_zero_vector_is_zero():
    kernel = k.Cosine(5.0)
    zero, some = jnp.zeros((1, 3)), jnp.array([[1.0, 2.0, 3.0]])
    assert float(kernel.log_matrix(zero, some)[0, 0]) == 0.0
    gradient = jax.jit(jax.grad(lambda z: kernel.log_matrix(z, some).sum()))(zero)
    assert np.isfinite(gradient).all()


def test_coinciding_points_have_finite_gradients():
    x = jnp.array([[0.3, -0.2]])
    for kernel in (k.Laplace(0.5), k.Triangle(1.0), k.Gaussian(0.5), k.Cauchy(0.5), k.Epanechnikov(1.0)):
        gradient = jax.jit(jax.grad(lambda q, kernel=kernel: kernel.log_matrix(q, x).sum()))(x)
        np.testing.assert_array_equal(gradient, np.zeros((1, 2)))


def test_a_negative_feature_product_shows():
    kernel = k.FeatureProduct(lambda x: x, lambda y: -y)
    assert np.isnan(kernel.log_matrix(jnp.ones((1, 2)), jnp.ones((1, 2)))).all()


def test_normalised_rows_sum_to_one_and_nothing_stays_nothing():
    rng = np.random.default_rng(5)
    points, weights = rng.normal(size=(23, 2)), rng.uniform(0.1, 1, size=23)
    queries = np.concatenate([rng.normal(size=(4, 2)), [[50.0, 50.0]]])
    kernel = Normalised(k.Epanechnikov(2.0), Measure.weighted(points, weights))
    transition = np.exp(np.asarray(jax.jit(lambda kernel: kernel.log_matrix(queries, points))(kernel))) * weights
    np.testing.assert_allclose(transition.sum(1), [1, 1, 1, 1, 0], atol=1e-14)


def test_letters_outside_the_alphabet_show_inside_jit():
    kernel = k.Discrete(np.zeros((3, 3)))
    matrix = jax.jit(lambda x, y: kernel.log_matrix(x, y))(
        jnp.array([[0.0], [3.0], [-1.0], [0.5]]), jnp.array([[1.0], [7.0]])
    )
    np.testing.assert_array_equal(np.isnan(matrix), [[False, True], [True, True], [True, True], [True, True]])
