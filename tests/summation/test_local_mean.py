"""The readings of the one operator, against direct sums."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pair_oracles
from particleflow import kernels as k
from particleflow.errors import ArgumentError
from particleflow.measure import Measure, Sites
from particleflow.summation import AbstractSummation, Auto, Blockwise, Dense
from particleflow.summation.local_mean import (
    attention_weights,
    local_covariance,
    local_expectation,
    local_mean,
    local_mode,
    local_moments,
    log_normalizer,
    resampled_local_mean,
)
from particleflow.summation.moments import Moments
from shares import by_default


def sites(*fields: Any) -> Sites:
    """Sites of anything that can be made into arrays."""
    return Sites(*fields)


def case_named(name: str) -> pair_oracles.Case:
    return next(case for case in pair_oracles.CASES if case.name == name)


def logits_of(case: pair_oracles.Case, queries: Sites, measure: Measure) -> np.ndarray:
    return pair_oracles.log_matrix(case, queries, measure.sites) + np.asarray(measure.log_weights)


def test_local_mean_is_nadaraya_watson_regression():
    rng = np.random.default_rng(0)
    inputs, targets, at = rng.normal(size=(31, 2)), rng.normal(size=31), rng.normal(size=(5, 2))
    weights = np.exp(-((at[:, None] - inputs[None]) ** 2).sum(-1) / (2 * 0.3**2))
    found = local_mean(k.Gaussian(0.3), Measure.uniform(inputs, values=targets), at)
    np.testing.assert_allclose(found, weights @ targets / weights.sum(1), rtol=1e-13)
    masses = log_normalizer(k.Gaussian(0.3), Measure.uniform(inputs, values=targets), at)
    np.testing.assert_allclose(masses, np.log(weights.mean(1)), rtol=1e-13)


def test_attention_is_softmax_attention():
    rng = np.random.default_rng(1)
    tokens, query, key, value = rng.normal(size=(13, 4)), *rng.normal(size=(3, 4, 4))
    scores = 0.5 * (tokens @ query.T) @ (tokens @ key.T).T
    shares = np.exp(scores - scores.max(1, keepdims=True))
    expected = (shares / shares.sum(1, keepdims=True)) @ (tokens @ value.T)
    found = local_mean(k.Attention(0.5, query, key), Measure.uniform(tokens, values=tokens @ value.T), tokens)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


WEIGHED = ["bilateral filter", "position matrix", "inverse distance", "causal attention"]


@pytest.mark.parametrize("name", by_default(WEIGHED, WEIGHED[3:]))
def test_attention_weights_are_shares_of_the_mass(name):
    """One point has no weight; the local mean is the mean under these weights."""
    case = case_named(name)
    queries, measure = pair_oracles.cloud(case.space, jnp.float64, 5, 9)
    logits = logits_of(case, queries, measure)
    weigh = jax.jit(attention_weights)
    found = np.asarray(weigh(case.build(jnp.float64), measure, queries))
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    np.testing.assert_allclose(found, shares / shares.sum(axis=1, keepdims=True), rtol=1e-12, atol=1e-15)
    mean = jax.jit(local_mean)(case.build(jnp.float64), measure, queries)
    np.testing.assert_allclose(found @ np.asarray(measure.carried), mean, rtol=1e-12, atol=1e-14)
    one = jax.tree_util.tree_map(lambda leaf: leaf[2], queries)
    np.testing.assert_allclose(weigh(case.build(jnp.float64), measure, one), found[2], rtol=1e-13)
    unseen = queries._replace(positions=jnp.full(5, -1.0))
    assert not np.any(weigh(k.StrictlyCausal(), measure, unseen))


def test_leaving_oneself_out_is_the_closed_form():
    """(y − ŷ)/(1 − S_ii) is the residual of the prediction from all others."""
    rng = np.random.default_rng(3)
    inputs, targets = rng.normal(size=(40, 2)), rng.normal(size=40)
    measure = Measure.uniform(inputs, values=targets, positions=np.arange(40.0))
    read = jax.jit(local_mean)
    whole, shares = (each(k.Gaussian(0.5), measure, measure) for each in (read, jax.jit(attention_weights)))
    others = read(k.Gaussian(0.5) * k.Others(), measure, measure)
    np.testing.assert_allclose(targets - others, (targets - whole) / (1 - np.diag(shares)), rtol=1e-12, atol=1e-12)


def test_inverse_distances_interpolate():
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    measure, at = Measure.uniform(points, values=np.array([3.0, -1.0, 7.0])), np.array([[1.0, 0.0], [0.5, 0.0]])
    found = jax.jit(local_mean)(k.InverseDistance(2.0), measure, at)
    shares = np.array([1 / 0.25, 1 / 0.25, 1 / 4.25])
    np.testing.assert_allclose(found, [-1.0, shares @ [3.0, -1.0, 7.0] / shares.sum()], rtol=1e-14)
    slope = jax.jit(jax.grad(lambda x: local_mean(k.InverseDistance(2.0), measure, x)))(jnp.asarray(points[1]))
    assert np.isfinite(slope).all()


def test_queries_may_be_an_array_one_point_sites_or_a_measure():
    case = case_named("causal attention")
    queries, measure = pair_oracles.cloud("vectors", jnp.float64, 6, 9)
    kernel = case.build(jnp.float64)
    expected = pair_oracles.moments(logits_of(case, queries, measure), np.asarray(measure.values))
    many = local_moments(kernel, measure, queries)
    np.testing.assert_allclose(many.mean, expected[1], rtol=1e-12, atol=1e-14)
    point, position = np.asarray(queries.points[4]), float(np.asarray(queries.positions)[4])
    one = local_moments(kernel, measure, sites(point, position))
    np.testing.assert_allclose(one.mean, expected[1][4], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(one.log_mass, expected[0][4], rtol=1e-12)
    from_list = local_moments(kernel, measure, sites(point.tolist(), int(position)))
    np.testing.assert_array_equal(from_list.mean, one.mean)
    itself = local_moments(kernel, measure, measure)
    by_hand = pair_oracles.moments(logits_of(case, measure.sites, measure), np.asarray(measure.values))
    np.testing.assert_allclose(itself.mean, by_hand[1], rtol=1e-12, atol=1e-14)


def test_a_query_that_sees_nothing():
    measure = Measure.uniform(np.zeros((3, 2)), values=np.array([1.0, 2.0, 3.0]))
    moments = local_moments(k.Ball(1.0), measure, np.array([[0.5, 0.0], [5.0, 0.0]]))
    np.testing.assert_array_equal(moments.log_mass[1], -np.inf)
    np.testing.assert_allclose(moments.mean, [2.0, 0.0], rtol=1e-15)
    np.testing.assert_array_equal(jax.jit(local_covariance)(k.Ball(1.0), measure, np.array([5.0, 0.0])), 0.0)
    resampled = jax.jit(resampled_local_mean, static_argnames="draws")
    found = resampled(jax.random.key(0), k.Ball(1.0), measure, np.array([5.0, 0.0]), draws=7)
    np.testing.assert_array_equal(found, 0.0)


@pytest.mark.parametrize(
    "summation", by_default([None, Dense(), Blockwise(3, 4)], [None]), ids=["auto", "dense", "blocks"]
)
def test_local_mode_is_the_class_of_most_weight(summation):
    rng = np.random.default_rng(2)
    inputs, classes, at = rng.normal(size=(41, 2)), rng.integers(0, 4, size=41), rng.normal(size=(9, 2))
    weights = np.exp(-np.linalg.norm(at[:, None] - inputs[None], axis=-1) / 0.4)
    votes = np.stack([weights[:, classes == c].sum(1) for c in range(4)], axis=1)
    measure = Measure.uniform(inputs, values=np.eye(4)[classes])
    found = jax.jit(local_mode)(k.Laplace(0.4), measure, at, summation=summation)
    np.testing.assert_array_equal(found, votes.argmax(1))
    assert jax.eval_shape(local_mode, k.Laplace(0.4), measure, at[0], summation=summation).shape == ()


COVARIANCES = ["gaussian", "causal attention", "on values", "self-localized", "bilateral filter"]


@pytest.mark.parametrize("summation", by_default([None, Blockwise(3, 4)], [None]), ids=["auto", "blocks"])
@pytest.mark.parametrize("name", by_default(COVARIANCES, ["causal attention"]))
def test_local_covariance_is_the_weighted_covariance(name, summation):
    case = case_named(name)
    queries, measure = pair_oracles.cloud("vectors", jnp.float64, 5, 23, seed=3)
    expected = pair_oracles.covariance(logits_of(case, queries, measure), np.asarray(measure.values))
    found = jax.jit(local_covariance)(case.build(jnp.float64), measure, queries, summation=summation)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-14)


class FirstHalf(AbstractSummation):
    """A summation that sees the first half of every measure only: whoever uses it, it shows."""

    def moments(self, kernel: k.AbstractKernel, measure: Measure, queries: Any, values: Any = None) -> Moments:
        half = jax.tree_util.tree_map(lambda leaf: leaf[: measure.count // 2], measure)
        return Dense().moments(kernel, half, queries, None if values is None else values[: measure.count // 2])


def test_local_covariance_is_summed_by_what_it_is_given():
    case = case_named("gaussian")
    queries, measure = pair_oracles.cloud("vectors", jnp.float64, 5, 23, seed=3)
    half = jax.tree_util.tree_map(lambda leaf: leaf[:11], measure)
    expected = pair_oracles.covariance(logits_of(case, queries, half), np.asarray(half.values))
    found = jax.jit(local_covariance)(case.build(jnp.float64), measure, queries, summation=FirstHalf())
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-14)


def test_a_summation_that_cannot_draw_says_so():
    _, measure = pair_oracles.cloud("vectors", jnp.float64, 5, 23)
    with pytest.raises(ArgumentError, match="FirstHalf can only sum and cannot draw"):
        resampled_local_mean(jax.random.key(0), k.Constant(), measure, measure, draws=3, summation=FirstHalf())


@pytest.mark.parametrize("summation", by_default([Auto(), Blockwise(4, 4)], [Auto()]))
def test_expectations_of_what_depends_on_the_query(summation):
    """Local linear regression from its normal equations, of affine data: its coefficients to rounding."""
    rng = np.random.default_rng(5)
    inputs, slope = rng.normal(size=(30, 2)), np.array([2.0, -0.5])
    measure = Measure.weighted(inputs, rng.uniform(0.1, 1.0, size=30), values=inputs @ slope + 3.0)

    def equations(x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
        row = jnp.concatenate([jnp.ones(1), y - x])
        return jnp.outer(row, jnp.append(row, z))

    queries = rng.normal(size=(4, 2))
    read = eqx.filter_jit(local_expectation)
    found = np.asarray(read(k.Gaussian(0.8), measure, queries, equations, summation=summation))
    assert found.shape == (4, 3, 4)
    for query, one in zip(queries, found, strict=True):
        np.testing.assert_allclose(np.linalg.solve(one[:, :3], one[:, 3]), [query @ slope + 3, *slope], rtol=1e-10)
    single = read(k.Gaussian(0.8), measure, queries[1], equations, summation=summation)
    np.testing.assert_allclose(single, found[1], rtol=1e-13)


def test_local_covariance_of_numbers_is_a_variance():
    case = case_named("on values")
    queries, measure = pair_oracles.cloud("vectors", jnp.float64, 5, 23, seed=4)
    numbers = measure.with_values(measure.carried[:, 0])
    at = queries._replace(values=jnp.asarray(queries.values)[:, 0])
    scalar = case._replace(log_pair=lambda x, y: -((x.value - y.value) ** 2) / (2 * 0.7**2))
    logits = logits_of(scalar, at, numbers)
    expected = pair_oracles.covariance(logits, np.asarray(numbers.values)[:, None])[:, 0, 0]
    read = jax.jit(local_covariance)
    found = read(case.build(jnp.float64), numbers, at)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-14)
    one = read(case.build(jnp.float64), numbers, jax.tree_util.tree_map(lambda leaf: leaf[2], at))
    np.testing.assert_allclose(one, expected[2], rtol=1e-11)


def test_local_covariance_keeps_its_digits_far_from_the_origin():
    rng = np.random.default_rng(5)
    points = rng.normal(size=(200, 2)) * 1e-3 + 1e3
    logits = -((points[:1, None] - points[None]) ** 2).sum(-1) / (2 * 1e-3**2)
    expected = pair_oracles.covariance(logits, points)[0]
    found = jax.jit(local_covariance)(k.Gaussian(1e-3), Measure.uniform(points), points[0])
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("draws", by_default([400, 10000], [400]))
def test_resampling_has_the_local_mean_and_the_error_of_the_local_covariance(draws):
    case = case_named("causal attention")
    queries, measure = pair_oracles.cloud("vectors", jnp.float64, 40, 23, seed=6)
    logits, values = logits_of(case, queries, measure), np.asarray(measure.values)
    _, mean = pair_oracles.moments(logits, values)
    deviation = np.sqrt(np.diagonal(pair_oracles.covariance(logits, values), axis1=1, axis2=2) / draws)
    found = resampled_local_mean(jax.random.key(1), case.build(jnp.float64), measure, queries, draws=draws)
    alone = deviation < 1e-12  # a query that sees one token only
    np.testing.assert_allclose(np.asarray(found)[alone], mean[alone], rtol=1e-12)
    scores = ((np.asarray(found) - mean) / np.where(alone, 1.0, deviation))[~alone]
    assert np.abs(scores).max() < 4.5  # about 70 normal scores: exceeded with probability 5e-4
    assert 0.6 < np.mean(scores**2) < 1.5  # χ² with about 70 degrees of freedom, ± 3 deviations


CUTS = [Blockwise(3, 4), Auto(dense_bytes=1), Blockwise(1, 23), Blockwise(9, 1), Auto()]


@pytest.mark.parametrize("name", by_default(["causal attention", "self-localized"], ["causal attention"]))
@pytest.mark.parametrize("cut", by_default(CUTS, CUTS[:1]), ids=repr)
@pytest.mark.slow
def test_one_key_gives_the_same_draws_however_the_sources_are_cut(name, cut):
    kernel = case_named(name).build(jnp.float64)
    queries, measure = pair_oracles.cloud("vectors", jnp.float64, 6, 23, seed=7)
    key = jax.random.key(3)
    drawn = [np.asarray(way.draw(key, kernel, measure, queries, 50)) for way in (Dense(), cut)]
    np.testing.assert_array_equal(drawn[1], drawn[0])
    means = [resampled_local_mean(key, kernel, measure, queries, draws=50, summation=way) for way in (Dense(), cut)]
    np.testing.assert_array_equal(means[0], means[1])


def test_points_are_drawn_with_the_weights_of_the_kernel():
    case = case_named("causal attention")
    queries, measure = pair_oracles.cloud("vectors", jnp.float64, 8, 9, seed=8)
    logits = logits_of(case, queries, measure)
    seeing = ~np.isneginf(logits.max(1))
    weights = np.exp(logits[seeing] - logits[seeing].max(1, keepdims=True))
    shares = weights / weights.sum(1, keepdims=True)
    assert 0 < (shares > 0).mean() < 0.8
    draws = 20000
    drawn = Blockwise(3, 4).draw(jax.random.key(4), case.build(jnp.float64), measure, queries, draws)
    counts = np.stack([np.bincount(row, minlength=9) for row in np.asarray(drawn)[seeing]])
    assert (counts[shares == 0] == 0).all()  # neither unseen points nor the fillers of the last block
    chi = np.where(shares > 0, (counts - draws * shares) ** 2 / (draws * np.where(shares > 0, shares, 1.0)), 0.0).sum()
    freedom = (shares > 0).sum() - len(shares)
    assert abs(chi - freedom) < 4 * np.sqrt(2 * freedom)  # χ², ± 4 deviations


def test_nothing_is_drawn_where_nothing_is_seen():
    measure = Measure.uniform(np.zeros((3, 2)))
    for way in (Dense(), Blockwise(1, 2)):
        drawn = way.draw(jax.random.key(0), k.Ball(1.0), measure, np.array([[0.5, 0.0], [5.0, 0.0]]), 7)
        assert (np.asarray(drawn)[0] >= 0).all()
        np.testing.assert_array_equal(drawn[1], np.full(7, -1))


@pytest.mark.slow
def test_blockwise_draws_never_hold_a_row():
    points = jax.ShapeDtypeStruct((100_000, 3), jnp.float64)

    def means(cloud: jax.Array) -> jax.Array:
        how = Blockwise(source_block=256)
        key = jax.random.key(0)
        return resampled_local_mean(key, k.Gaussian(1.0), Measure.uniform(cloud), cloud[:4], draws=50, summation=how)

    memory: Any = jax.jit(means).lower(points).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 100_000 * 50  # a row of noise alone would take 8 times as much


def test_resampling_of_numbers_and_single_points():
    measure = Measure.weighted(np.zeros((3, 1)), np.array([0.0, 2.0, 0.0]), values=np.array([1.0, 7.0, 3.0]))
    found = resampled_local_mean(jax.random.key(2), k.Constant(), measure, np.zeros(1), draws=5)
    assert found.shape == ()
    assert float(found) == 7.0
