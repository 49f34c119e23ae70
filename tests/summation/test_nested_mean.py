"""Local means of local means, kernels of three points, and two measures that look at each other, in NumPy."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from particleflow import kernels as k
from particleflow.errors import UserError
from particleflow.summation.nested_mean import Composed
from shares import by_default

_RNG = np.random.default_rng(8)
X, Z, WEIGHTS = _RNG.normal(size=(14, 2)), _RNG.normal(size=(14, 3)), _RNG.uniform(0.2, 1.0, size=14)
AT = _RNG.normal(size=(5, 2))
MEASURE = pf.Measure.weighted(X, WEIGHTS, Z)


def gaussian(x: np.ndarray, y: np.ndarray, width: float) -> np.ndarray:
    return np.exp(-((x[:, None] - y[None]) ** 2).sum(-1) / (2 * width**2))


def shares(pull: np.ndarray) -> np.ndarray:
    return pull * WEIGHTS / (pull * WEIGHTS).sum(axis=1, keepdims=True)


@pytest.mark.parametrize("between", by_default([None, jnp.tanh], [jnp.tanh]))
def test_a_hierarchy_is_one_mean_after_the_other(between):
    found = pf.hierarchical_mean([k.Gaussian(0.5), k.Laplace(0.8), k.Gaussian(0.9)], MEASURE, AT, between=between)
    bend = np.tanh if between is not None else lambda values: values
    laplace = np.exp(-np.sqrt(((X[:, None] - X[None]) ** 2).sum(-1)) / 0.8)
    inside = bend(shares(laplace) @ bend(shares(gaussian(X, X, 0.5)) @ Z))
    np.testing.assert_allclose(found, shares(gaussian(AT, X, 0.9)) @ inside, rtol=1e-12)


INNER = [k.Gaussian(0.5), k.Nearest(4), k.Ball(0.8)]


@pytest.mark.parametrize("inner", by_default(INNER, INNER[1:2]), ids=repr)
def test_a_localization_of_a_localization_is_one(inner):
    """With nothing between, both sums are one, that of the composed kernel; with a bend between they are not."""
    composed = Composed(k.Gaussian(0.9), inner, MEASURE)
    hierarchical_mean = eqx.filter_jit(pf.hierarchical_mean)
    plain = hierarchical_mean([inner, k.Gaussian(0.9)], MEASURE, AT)
    moments = eqx.filter_jit(pf.local_moments)(composed, MEASURE, AT)
    np.testing.assert_allclose(moments.mean, plain, rtol=1e-11)
    np.testing.assert_allclose(moments.log_mass, 0, atol=1e-12)
    bent = hierarchical_mean([inner, k.Gaussian(0.9)], MEASURE, AT, between=jnp.abs)
    assert np.abs(np.asarray(bent - plain)).max() > 0.05


@pytest.mark.slow
def test_so_is_a_localized_loss_of_local_means():
    """argmin_θ Σ_k K₁(x, x_k) |m(x_k) − θ|² is the local mean under the composed kernel."""
    inside = pf.local_mean(k.Gaussian(0.5), MEASURE, MEASURE)

    def loss(point: Any, value: Any, theta: Any) -> Any:
        return jnp.sum(jnp.square(value - theta))

    found = pf.localize(loss, k.Gaussian(0.9)).fit(MEASURE.with_values(inside), AT, [0.0, 0.0, 0.0]).parameters
    composed = Composed(k.Gaussian(0.9), k.Gaussian(0.5), MEASURE)
    np.testing.assert_allclose(found, pf.local_mean(composed, MEASURE, AT), rtol=1e-11)


def test_a_kernel_of_three_points_is_one_of_pairs():
    """Σ_j Σ_k w_j w_k K(x, y_j, y_k) z_j ∘ z_k / Σ_j Σ_k w_j w_k K, loop by loop."""

    def log_function(x: Any, y: Any, z: Any) -> Any:
        return jnp.sum(x * y * z) - 0.5 * jnp.sum(jnp.square(y - z))

    pairs = pf.paired(MEASURE, MEASURE, lambda one, two: one * two)
    found = eqx.filter_jit(pf.local_mean)(k.HigherOrder(log_function, 2), pairs, AT)
    for row, x in enumerate(AT):
        total, mass = np.zeros(3), 0.0
        for j in range(14):
            for i in range(14):
                pull = WEIGHTS[j] * WEIGHTS[i] * np.exp((x * X[j] * X[i]).sum() - 0.5 * ((X[j] - X[i]) ** 2).sum())
                total, mass = total + pull * Z[j] * Z[i], mass + pull
        np.testing.assert_allclose(found[row], total / mass, rtol=1e-11)


@pytest.mark.slow
def test_a_kernel_of_four_points_is_one_of_pairs_of_pairs():
    """K(x, u, v, w) on μ ⊗ (μ ⊗ μ), whose points are (u, v, w): a sum over all triples in NumPy."""

    def log_function(x: Any, u: Any, rest: Any) -> Any:
        v, w = rest[:2], rest[2:]
        return jnp.sum(x * u) - jnp.sum(jnp.square(u - v)) - 0.5 * jnp.sum(jnp.square(v - w)) + x[0] * w[1]

    few = pf.Measure.weighted(X[:6], WEIGHTS[:6], Z[:6])
    triples = pf.paired(few, pf.paired(few, few), lambda one, two: one + two)
    found = pf.local_mean(k.HigherOrder(log_function, 2), triples, AT)
    u, v, w = (X[:6].reshape(shape) for shape in ((6, 1, 1, 2), (1, 6, 1, 2), (1, 1, 6, 2)))
    law = np.einsum("i,j,k->ijk", *[WEIGHTS[:6]] * 3)
    values = Z[:6][:, None, None] + Z[:6][None, :, None]  # a pair carries the value of its first point
    for row, x in enumerate(AT):
        pull = law * np.exp((x * u).sum(-1) - ((u - v) ** 2).sum(-1) - 0.5 * ((v - w) ** 2).sum(-1) + x[0] * w[..., 1])
        expected = np.einsum("ijk,ijkc->c", pull, np.broadcast_to(values, (6, 6, 6, 3))) / pull.sum()
        np.testing.assert_allclose(found[row], expected, rtol=1e-11)


@pytest.mark.slow
def test_a_kernel_that_factors_leaves_one_sum():
    def log_function(x: Any, y: Any, z: Any) -> Any:
        return -jnp.sum(jnp.square(x - y)) / (2 * 0.9**2) - jnp.sum(jnp.square(x - z))

    other = pf.Measure.uniform(_RNG.normal(size=(6, 2)))
    found = pf.local_mean(k.HigherOrder(log_function, 2), pf.paired(MEASURE, other), AT)
    np.testing.assert_allclose(found, pf.local_mean(k.Gaussian(0.9), MEASURE, AT), rtol=1e-11)


@pytest.mark.slow
def test_cross_attention_reads_another_measure():
    """Queries of one measure, keys and values of the other; as a flow, both in one cloud with a mask of groups."""
    ours, theirs = _RNG.normal(size=(6, 2)), _RNG.normal(size=(9, 2))
    query, key, value = _RNG.normal(size=(3, 2, 2))
    pull = np.exp(0.7 * (ours @ query.T) @ (theirs @ key.T).T)
    expected = pull @ (theirs @ value.T) / pull.sum(axis=1, keepdims=True)
    kernel = k.Attention(0.7, query, key)
    found = pf.local_mean(kernel, pf.Measure.uniform(theirs, theirs @ value.T), pf.Measure.uniform(ours))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    groups = np.repeat([0.0, 1.0], [6, 9])
    mask = k.PositionMatrix(np.array([[-np.inf, 0.0], [0.0, -np.inf]]))
    both = pf.Measure.uniform(np.concatenate([ours, theirs]), positions=groups)
    velocity = pf.Attend(kernel, value=value, positional=mask)(0.0, both.sites, both)
    np.testing.assert_allclose(velocity[:6], expected, rtol=1e-11)


def test_what_cannot_be_is_refused():
    with pytest.raises(UserError, match="kernels"):
        pf.hierarchical_mean([], MEASURE, AT)
    with pytest.raises(UserError, match=r"kernels\[0\]"):
        pf.hierarchical_mean([0.3], MEASURE, AT)  # pyright: ignore[reportArgumentType]
