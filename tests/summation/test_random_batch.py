"""The stochastic sum: exact with one batch, right on average with many, the same bits for the same points."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pair_oracles
from pair_oracles import assert_close, assert_refused
from particleflow import kernels as k
from particleflow.errors import ArgumentError
from particleflow.measure import Measure
from particleflow.summation import RandomBatch
from particleflow.summation.candidates import Candidate
from shares import by_default


def jittered(points: np.ndarray, draws: int) -> jax.Array:
    """The same cloud many times, each moved by less than anybody sees, so that each has batches of its own."""
    return jnp.asarray(points + 1e-12 * np.random.default_rng(1).normal(size=(draws, 1, 1)))


@pytest.mark.parametrize("precision", by_default(["float64", "float32"], ["float64"]))
def test_one_batch_is_the_exact_sum(precision):
    dtype = jnp.dtype(precision)
    case = next(case for case in pair_oracles.CASES if case.name == "causal attention")
    queries, measure = pair_oracles.cloud("vectors", dtype, 11, 17)
    logits = pair_oracles.log_matrix(case, queries, measure.sites) + np.asarray(measure.log_weights, np.float64)
    found = RandomBatch(17).moments(case.build(dtype), measure, queries)
    assert found.mean.dtype == found.log_mass.dtype == dtype
    assert_close(
        found, *pair_oracles.moments(logits, np.asarray(measure.values)), 1e-12 if dtype == jnp.float64 else 1e-5
    )


def test_every_query_sees_a_batch_and_every_source_is_in_one():
    points = np.random.default_rng(2).normal(size=(23, 2))
    found = RandomBatch(5).moments(k.Constant(), Measure.uniform(points), points, values=np.eye(23))
    seen = np.asarray(found.mean) > 0
    assert set(seen.sum(1)) == {4, 5}  # 23 sources in five batches
    batches = np.unique(seen, axis=0)
    assert batches.shape == (5, 23)
    np.testing.assert_array_equal(batches.sum(0), 1)
    np.testing.assert_allclose(found.log_mass, 0.0, atol=1e-12)  # masses are scaled up to those of the whole
    sizes = [(seen == batch).all(1).sum() for batch in batches]
    assert set(sizes) == {4, 5}  # and so are the queries


@pytest.mark.slow
def test_masses_are_right_on_average_and_errors_fall_with_the_batch():
    points = np.random.default_rng(3).normal(size=(60, 2))
    weights = np.random.default_rng(4).uniform(0.1, 1.0, size=60)
    kernel, spread = np.exp(points[:5] @ points.T) * weights, []
    for batch in (6, 30):

        def mass(cloud, batch=batch):
            measure = Measure.weighted(cloud, jnp.asarray(weights))
            return jnp.exp(RandomBatch(batch).moments(k.Attention(1.0), measure, cloud[:5]).log_mass)

        masses = np.asarray(jax.jit(jax.vmap(mass))(jittered(points, 3000)))
        expected = kernel.var(axis=1, ddof=1) * 60**2 * (1 / batch - 1 / 60)  # drawn without replacement
        np.testing.assert_allclose(masses.mean(0), kernel.sum(1), atol=5 * (expected.max() / 3000) ** 0.5)
        np.testing.assert_allclose(masses.var(0), expected, rtol=0.2)
        spread.append(masses.std(0))
    assert (spread[1] < 0.5 * spread[0]).all()


@pytest.mark.slow
def test_the_same_points_have_the_same_batches_and_moved_ones_others():
    points = np.random.default_rng(5).normal(size=(50, 3))
    measure = Measure.uniform(points)
    first = RandomBatch(8, seed=2).moments(k.Gaussian(1.0), measure, points)
    again = jax.jit(lambda how: how.moments(k.Gaussian(1.0), measure, points))(RandomBatch(8, seed=2))
    assert_close(again, first.log_mass, first.mean, 1e-13)
    for moved, seed in ((points, 3), (points + 1e-9 * np.eye(50, 3), 2)):
        other = RandomBatch(8, seed=seed).moments(k.Gaussian(1.0), Measure.uniform(moved), moved)
        assert np.abs(np.asarray(other.mean - first.mean)).max() > 1e-3


@pytest.mark.slow
def test_derivatives_are_those_of_the_batch():
    points = jnp.asarray(np.random.default_rng(6).normal(size=(9, 2)))
    gradient = jax.jit(
        jax.grad(lambda x: RandomBatch(9).moments(k.Attention(1.3), Measure.uniform(points), x).log_mass.sum())
    )(points)
    logits = 1.3 * np.asarray(points) @ np.asarray(points).T
    np.testing.assert_allclose(gradient, 1.3 * pair_oracles.moments(logits, np.asarray(points))[1], rtol=1e-12)


def test_it_promises_nothing_and_refuses_batches_of_nothing():
    _, measure = pair_oracles.cloud("vectors", jnp.float64, 3, 9)
    assert not isinstance(RandomBatch(), Candidate)  # so `Auto` never takes it
    assert RandomBatch(4).moments(k.Attention(1.0), measure, np.zeros((0, 3))).mean.shape == (0, 2)
    assert_refused(lambda: RandomBatch(0), ArgumentError, ["`batch`", "positive integer", "0"])
    assert_refused(lambda: RandomBatch(4, -1), ArgumentError, ["`seed`", "at least 0", "-1"])
