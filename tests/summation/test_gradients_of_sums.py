"""Derivatives of the one operator: identities, finite differences, and no NaN where there is nothing to see."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pair_oracles
from particleflow import kernels as k
from particleflow.measure import Measure, Sites
from particleflow.summation import Blockwise, Dense, Native
from particleflow.summation.local_mean import Normalised, local_covariance, local_mean, log_normalizer
from shares import by_default

EXACT = {"dense": Dense(), "blocks": Blockwise(3, 4), "native": Native()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("differentiate", "summation"),
    [
        pytest.param(jax.grad, Blockwise(1, 1), id="grad-blocks"),
        pytest.param(jax.jacfwd, Native(), id="jacfwd-native"),
        pytest.param(jax.grad, Native(), id="grad-native", marks=pytest.mark.slow),
        pytest.param(jax.jacfwd, Blockwise(1, 1), id="jacfwd-blocks", marks=pytest.mark.slow),
    ],
)
def test_gradients_survive_masses_whose_squares_do_not_fit(differentiate, summation):
    # The first block sees nothing, so its shift is 0 and the mass is e^level: in float32 its square is out of range.
    points = jnp.array([[0.0], [1.0], [2.0]], jnp.float32)
    measure = Measure(points, jnp.zeros(3, jnp.float32), positions=jnp.array([9.0, 0.0, 0.0], jnp.float32))

    def mean(query, level):
        at, shifted = Sites(query, jnp.zeros(1, jnp.float32)), measure.with_log_weights(jnp.full(3, level))
        return summation.moments(k.Attention(1.0) * k.Window(1.0), shifted, at).mean[0, 0]

    alone, batched = jax.jit(differentiate(mean)), jax.jit(jax.vmap(differentiate(mean)))
    query, share = jnp.array([[0.5]], jnp.float32), 1 / (1 + np.exp(-0.5))
    levels = jnp.array([-46, -45, -44, -30, 30, 43, 44, 45, 80], jnp.float32)
    for level in levels:
        np.testing.assert_allclose(alone(query, level), [[share * (1 - share)]], rtol=1e-4)
    found = batched(jnp.broadcast_to(query, (9, 1, 1)), levels)
    np.testing.assert_allclose(found, np.full((9, 1, 1), share * (1 - share)), rtol=1e-4)


@pytest.mark.parametrize("summation", by_default(EXACT.values(), [EXACT["native"]]), ids=EXACT)
def test_gradient_of_log_mass_is_beta_times_mean(summation):
    rng = np.random.default_rng(12)
    measure = Measure.weighted(rng.normal(size=(23, 3)), rng.uniform(0.1, 1, size=23))
    queries, beta = jnp.asarray(rng.normal(size=(6, 3))), 2.7
    kernel = k.Attention(beta)
    gradient = jax.jit(jax.grad(lambda q: log_normalizer(kernel, measure, q, summation=summation).sum()))(queries)
    logits = beta * np.asarray(queries) @ np.asarray(measure.points).T + np.asarray(measure.log_weights)
    np.testing.assert_allclose(gradient, beta * pair_oracles.moments(logits, np.asarray(measure.points))[1], rtol=1e-12)


@pytest.mark.parametrize(
    ("differentiate", "summation"),
    [
        pytest.param(jax.jacfwd, Dense(), id="forward-dense", marks=pytest.mark.slow),
        pytest.param(jax.jacrev, Blockwise(3, 4), id="reverse-blocks", marks=pytest.mark.slow),
        pytest.param(jax.jacrev, Dense(), id="reverse-dense", marks=pytest.mark.slow),
        pytest.param(jax.jacfwd, Blockwise(3, 4), id="forward-blocks", marks=pytest.mark.slow),
        pytest.param(jax.jacrev, Native(), id="reverse-native"),
        pytest.param(jax.jacfwd, Native(), id="forward-native", marks=pytest.mark.slow),
    ],
)
def test_jacobian_of_mean_is_beta_times_covariance(differentiate, summation):
    rng = np.random.default_rng(13)
    measure = Measure.weighted(rng.normal(size=(23, 3)), rng.uniform(0.1, 1, size=23))
    queries, kernel = jnp.asarray(rng.normal(size=(4, 3))), k.Attention(2.7)
    logits = 2.7 * np.asarray(queries) @ np.asarray(measure.points).T + np.asarray(measure.log_weights)
    expected = 2.7 * pair_oracles.covariance(logits, np.asarray(measure.points))
    one_by_one = differentiate(lambda q: local_mean(kernel, measure, q, summation=summation))
    np.testing.assert_allclose(jax.jit(jax.vmap(one_by_one))(queries), expected, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(
        2.7 * local_covariance(kernel, measure, queries, summation=summation), expected, rtol=1e-11, atol=1e-13
    )


BLIND = [
    pytest.param("bilateral filter", Blockwise(3, 4), id="bilateral filter-blocks", marks=pytest.mark.slow),
    pytest.param("triangle", Blockwise(3, 4), id="triangle-blocks", marks=pytest.mark.slow),
    pytest.param("strictly causal", Native(), id="strictly causal-native"),
    pytest.param("triangle", Native(), id="triangle-native", marks=pytest.mark.slow),
    *(
        pytest.param(name, Dense(), id=f"{name}-dense", marks=pytest.mark.slow)
        for name in ("strictly causal", "triangle", "mixture of compact ones", "bilateral filter")
    ),
]


def seen_and_unseen(case, dtype):
    """A cloud whose first query is far from everything, in space, in sequence and in value."""
    queries, measure = pair_oracles.cloud(case.space, dtype, 4, 9, seed=14)
    return jax.tree_util.tree_map(lambda leaf: leaf.at[0].set(-90.0), queries), measure


@pytest.mark.parametrize(("name", "summation"), BLIND)
def test_gradients_are_finite_where_a_query_sees_nothing(name, summation):
    case = next(case for case in pair_oracles.CASES if case.name == name)
    queries, measure = seen_and_unseen(case, jnp.float64)
    kernel = case.build(jnp.float64)

    def reading(kernel, measure, points):
        moments = summation.moments(kernel, measure, queries._replace(points=points))
        return jnp.sum(jnp.exp(moments.log_mass)) + jnp.sum(jnp.sin(moments.mean))

    assert eqx.filter_jit(summation.moments)(kernel, measure, queries).log_mass[0] == -np.inf
    gradients = eqx.filter_jit(eqx.filter_grad(lambda args: reading(*args)))((kernel, measure, queries.points))
    for leaf in jax.tree_util.tree_leaves(eqx.filter(gradients, eqx.is_array)):
        assert np.isfinite(leaf).all()
    forward = eqx.filter_jit(jax.jacfwd(lambda points: reading(kernel, measure, points)))(queries.points)
    np.testing.assert_allclose(forward, gradients[2], rtol=1e-9, atol=1e-12)
    step = 1e-6 * np.random.default_rng(15).normal(size=queries.points.shape)
    compiled = eqx.filter_jit(reading)
    slope = compiled(kernel, measure, queries.points + step) - compiled(kernel, measure, queries.points - step)
    np.testing.assert_allclose(slope, 2 * np.sum(np.asarray(forward) * step), rtol=1e-5, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(
    "summation",
    [pytest.param(Dense(), marks=pytest.mark.slow), Blockwise(3, 4), Native()],
    ids=["dense", "blocks", "native"],
)
def test_gradients_under_vmap_where_queries_see_nothing(summation):
    case = next(case for case in pair_oracles.CASES if case.name == "epanechnikov")
    queries, measure = seen_and_unseen(case, jnp.float64)
    kernel = case.build(jnp.float64)

    def reading(point):
        moments = summation.moments(kernel, measure, point[None])
        return moments.mean[0, 0] + jnp.where(jnp.isneginf(moments.log_mass[0]), 0.0, moments.log_mass[0])

    gradient = jax.jit(jax.grad(reading))
    one_by_one = jnp.stack([gradient(point) for point in queries.points])
    batched = jax.jit(jax.vmap(jax.grad(reading)))(queries.points)
    np.testing.assert_allclose(batched, one_by_one, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(batched[0], np.zeros(3))
    assert np.abs(batched[1:]).max() > 0.1
    np.testing.assert_allclose(
        jax.jit(jax.vmap(jax.jacfwd(reading)))(queries.points), one_by_one, rtol=1e-10, atol=1e-12
    )


def test_gradients_of_a_normalised_kernel_where_a_query_sees_nothing():
    _, measure = pair_oracles.cloud("vectors", jnp.float64, 4, 9, seed=14)
    kernel = Normalised(k.Triangle(2.0), measure)

    def reading(points):
        return jnp.sum(jnp.exp(kernel.log_matrix(points, measure.points)))

    near, far = measure.points[:1] + 0.1, measure.points[:1] + 90.0
    reading = jax.jit(reading)
    gradient = jax.jit(jax.grad(reading))(jnp.concatenate([near, far]))
    np.testing.assert_array_equal(gradient[1], np.zeros(3))
    steps = 1e-6 * np.eye(3)
    slopes = [(reading(near + step[None]) - reading(near - step[None])) / 2e-6 for step in steps]
    np.testing.assert_allclose(gradient[0], slopes, rtol=1e-6)


def test_gradient_with_respect_to_a_weight_of_zero_is_finite():
    measure = Measure(np.ones((3, 2)), np.array([0.0, -np.inf, -1.0]), values=np.array([1.0, 5.0, 2.0]))

    def mean(log_weights):
        return local_mean(k.Constant(), measure.with_log_weights(log_weights), jnp.zeros(2))

    share = 1 / (1 + np.exp(-1.0))
    expected = [-share * (1 - share), 0.0, share * (1 - share)]
    np.testing.assert_allclose(jax.jit(jax.grad(mean))(measure.log_weights), expected, rtol=1e-12)
