"""Signed kernels as operators, against dense matrices and finite differences."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import pair_oracles
from particleflow import kernels as k
from particleflow.measure import Measure
from particleflow.summation import Blockwise, Dense
from particleflow.summation.operators import kernel_derivative, kernel_difference, laplacian, smoothed
from shares import by_default

# How they are summed adds nothing that the local mean does not have already.
by_summation = pytest.mark.parametrize(
    "summation", by_default([None, Dense(), Blockwise(4, 5)], [None]), ids=["auto", "dense", "blocks"]
)


@pytest.fixture
def setting():
    rng = np.random.default_rng(0)
    points, weights, values = rng.normal(size=(17, 2)), rng.uniform(0.2, 1, size=17), rng.normal(size=(17, 3))
    queries = np.concatenate([rng.normal(size=(5, 2)), [[60.0, 60.0]]])
    return points, weights, values, queries


def gaussian(x, y, width):
    return np.exp(-((x[:, None] - y[None]) ** 2).sum(-1) / (2 * width**2))


def ball(x, y, radius):
    return (np.linalg.norm(x[:, None] - y[None], axis=-1) < radius).astype(float)


@by_summation
@pytest.mark.parametrize("column", [slice(None), 0], ids=["vectors", "numbers"])
def test_smoothed(setting, summation, column):
    points, weights, values, queries = setting
    values = values[:, column]
    measure = Measure.weighted(points, weights, values=values)
    expected = (gaussian(queries, points, 0.7) * weights) @ values
    found = smoothed(k.Gaussian(0.7), measure, queries, summation=summation)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
    nothing = smoothed(k.Ball(0.5), measure, queries, summation=summation)[-1]
    np.testing.assert_array_equal(nothing, np.zeros(values.shape[1:]))


@by_summation
@pytest.mark.parametrize("column", [slice(None), 0], ids=["vectors", "numbers"])
def test_laplacian_and_normalised_laplacian(setting, summation, column):
    points, weights, values, _ = setting
    values = values[:, column]
    matrix = gaussian(points, points, 0.7) * weights
    degree = np.diag(matrix.sum(1))
    measure = Measure.weighted(points, weights, values=values)
    found = laplacian(k.Gaussian(0.7), measure, summation=summation)
    np.testing.assert_allclose(found, (degree - matrix) @ values, rtol=1e-11, atol=1e-13)
    walk = np.eye(17) - np.linalg.inv(degree) @ matrix
    found = laplacian(k.Gaussian(0.7), measure, normalised=True, summation=summation)
    np.testing.assert_allclose(found, walk @ values, rtol=1e-11, atol=1e-13)


def test_laplacian_of_a_constant_vanishes(setting):
    points, weights, _, _ = setting
    measure = Measure.weighted(points, weights, values=np.full(17, 3.0))
    assert np.abs(laplacian(k.Cauchy(0.7), measure)).max() < 1e-13


@by_summation
def test_kernel_difference(setting, summation):
    points, weights, values, queries = setting
    measure = Measure.weighted(points, weights, values=values)
    expected = ((gaussian(queries, points, 0.5) - ball(queries, points, 1.5)) * weights) @ values
    found = kernel_difference(k.Gaussian(0.5), k.Ball(1.5), measure, queries, summation=summation)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


@by_summation
def test_kernel_derivative_in_the_bandwidth(setting, summation):
    points, weights, values, queries = setting
    measure = Measure.weighted(points, weights, values=values)
    squares = ((queries[:, None] - points[None]) ** 2).sum(-1)
    exact = -(gaussian(queries, points, 0.7) * squares / 0.7**3 * weights) @ values
    found = kernel_derivative(k.Gaussian, 0.7, measure, queries, summation=summation)
    np.testing.assert_allclose(found, exact, rtol=1e-11, atol=1e-14)
    step = 1e-5
    difference = gaussian(queries, points, 0.7 - step) - gaussian(queries, points, 0.7 + step)
    np.testing.assert_allclose(found, (difference * weights) @ values / (2 * step), rtol=1e-7, atol=1e-9)


@pytest.mark.slow
def test_kernel_derivative_of_a_family_of_ones_own_in_float32():
    queries, measure = pair_oracles.cloud("vectors", jnp.float32, 4, 9)
    found = eqx.filter_jit(kernel_derivative)(lambda h: k.Laplace(h) * k.Alibi(0.1), 0.8, measure, queries)
    assert found.dtype == jnp.float32
    x, y = np.asarray(queries.points, np.float64), np.asarray(measure.points, np.float64)
    lags = np.abs(np.asarray(queries.positions)[:, None] - np.asarray(measure.positions)[None])
    distances = np.linalg.norm(x[:, None] - y[None], axis=-1)
    weights = np.exp(-distances / 0.8 - 0.1 * lags + np.asarray(measure.log_weights, np.float64))
    np.testing.assert_allclose(found, -(weights * distances / 0.64) @ np.asarray(measure.values), rtol=1e-4, atol=1e-6)
