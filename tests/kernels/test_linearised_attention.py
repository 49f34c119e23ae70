"""Attention variants: features in O(N), bands, and the blend of both; each against brute force, causal forms too."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

import particleflow as pf
from particleflow import drifts, kernels
from particleflow.errors import ArgumentError, ShapeError
from particleflow.summation import Auto, Dense, Separated

_RNG = np.random.default_rng(161)
COUNT = 150  # two blocks and a part of one
UNKNOWN: Any = "relu"
POINTS, QUERY, KEY = _RNG.normal(size=(COUNT, 3)), *_RNG.normal(size=(2, 4, 3))
WEIGHTS = np.where(np.arange(COUNT) == 7, 0.0, _RNG.uniform(0.1, 1.0, COUNT))
# Positions in no order, some of them equal.
POSITIONS = np.where(np.arange(COUNT) % 10 == 0, 3.0, _RNG.permutation(COUNT))
MEASURE = pf.Measure.weighted(POINTS, WEIGHTS, values=_RNG.normal(size=(COUNT, 2)), positions=POSITIONS)
MORE = ["elu_reversed", "softplus"]
MASKS = {"none": None, "causal": kernels.Causal(), "strictly causal": kernels.StrictlyCausal()}


summed = jax.jit(lambda how, kernel, measure: how.moments(kernel, measure, measure.sites))


def off(found, expected):
    return float(np.max(np.abs(np.asarray(found) - np.asarray(expected))))


def features(name, rows):
    elu = lambda u: np.where(u > 0, u + 1, np.exp(np.minimum(u, 0)))  # noqa: E731
    return {"elu": elu, "elu_reversed": lambda u: elu(-u), "softplus": lambda u: np.log1p(np.exp(u))}[name](rows)


IN_ORDER = np.arange(float(COUNT))


@pytest.mark.parametrize(
    ("mask", "positions"),
    [
        pytest.param("none", POSITIONS, id="none"),
        pytest.param("causal", POSITIONS, id="causal"),
        pytest.param("strictly causal", POSITIONS, id="strictly causal", marks=pytest.mark.slow),
        pytest.param("causal", IN_ORDER, id="causal in order", marks=pytest.mark.slow),
        pytest.param("strictly causal", IN_ORDER, id="strictly causal in order", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", ["elu", *(pytest.param(each, marks=pytest.mark.slow) for each in MORE)])
def test_features_first_are_the_kernel_sum(name, mask, positions):
    """Log-masses and means within 1e-12 of brute force in NumPy and of the sum over all pairs."""
    linear = kernels.LinearisedAttention(name, QUERY, KEY)
    kernel = linear if MASKS[mask] is None else linear * MASKS[mask]
    measure = pf.Measure.weighted(POINTS, WEIGHTS, values=MEASURE.values, positions=positions)
    found = summed(Separated(), kernel, measure)
    matrix = features(name, POINTS @ QUERY.T) @ features(name, POINTS @ KEY.T).T * WEIGHTS
    lags = positions[:, None] - positions[None]
    matrix = matrix * {"none": lags > -np.inf, "causal": lags >= 0, "strictly causal": lags > 0}[mask]
    mass = matrix.sum(axis=1)
    seen = mass > 0
    assert off(np.asarray(found.log_mass)[seen], np.log(mass[seen])) < 1e-12
    assert np.isneginf(np.asarray(found.log_mass)[~seen]).all()
    means = matrix @ np.asarray(MEASURE.values) / np.where(seen, mass, 1.0)[:, None]
    assert off(found.mean, means) < 1e-12
    dense = summed(Dense(), kernel, measure)
    assert off(found.mean, dense.mean) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("name", ["elu", *(pytest.param(each, marks=pytest.mark.slow) for each in MORE)])
def test_features_smaller_than_any_number_still_count(name):
    """log K and its gradient at |x| up to 3e3 against SciPy's log-sum over features: within 1e-12, relatively."""
    kernel, points = kernels.LinearisedAttention(name, QUERY, KEY), 1e3 * POINTS[:20]
    logs = {
        "elu": lambda u: np.where(u > 0, np.log1p(np.maximum(u, 0)), u),
        "softplus": lambda u: np.where(u > -37, np.log(np.logaddexp(0, np.maximum(u, -37))), u),
    }
    log = logs["softplus" if name == "softplus" else "elu"]
    sign = -1 if name == "elu_reversed" else 1
    pairs = log(sign * points @ QUERY.T)[:, None] + log(sign * points @ KEY.T)[None]
    expected = logsumexp(pairs, axis=-1)
    assert expected.min() < -1e3
    np.testing.assert_allclose(kernel.log_matrix(points, points), expected, rtol=1e-12, atol=1e-12)
    near = np.concatenate([POINTS[:20], points])  # pairs of near points are those without the far ones, to the bit
    np.testing.assert_array_equal(kernel.log_matrix(near, near)[:20, :20], kernel.log_matrix(near[:20], near[:20]))
    slope = jax.grad(lambda x: jnp.min(kernel.log_matrix(x[None], points)))
    slopes = jax.jit(jax.vmap(slope))(jnp.asarray(points))
    assert np.isfinite(slopes).all()
    assert np.linalg.norm(slopes, axis=1).min() > 0


def test_features_are_chosen_where_there_are_any():
    linear = kernels.LinearisedAttention()
    assert Auto().select(linear * kernels.Causal(), MEASURE, MEASURE.sites).summation == Separated()
    for other in (kernels.Attention(), linear * kernels.Window(3.0), linear * kernels.Gaussian(1.0)):
        assert Auto().select(other, MEASURE, MEASURE.sites).summation != Separated()
        with pytest.raises(ArgumentError, match="no inner product of features"):
            Separated().moments(other, MEASURE, MEASURE.sites)
    own = kernels.FeatureProduct(jnp.exp, jnp.exp)
    assert off(summed(Separated(), own, MEASURE).mean, summed(Dense(), own, MEASURE).mean) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("positions", [POSITIONS, np.arange(float(COUNT))], ids=["any order", "in order"])
def test_gradients_and_single_precision(positions):
    def total(points, how):
        measure = pf.Measure.uniform(points, positions=jnp.asarray(positions, points.dtype))
        kernel = kernels.LinearisedAttention() * kernels.Causal()
        return jnp.sum(how.moments(kernel, measure, measure.sites).mean ** 2)

    ours, theirs = (jax.grad(total)(jnp.asarray(POINTS), how) for how in (Separated(), Dense()))
    assert off(ours, theirs) < 1e-12
    single = jnp.asarray(POINTS, jnp.float32)
    assert off(total(single, Separated()), total(single, Dense())) < 1e-6 * float(total(single, Dense()))
    assert total(single, Separated()).dtype == jnp.float32


@pytest.mark.slow
@pytest.mark.parametrize(
    "positional",
    [pytest.param(None, id="both ways", marks=pytest.mark.slow), pytest.param(kernels.Causal(), id="causal")],
)
def test_near_and_far_are_the_sum_of_their_parts(positional):
    """w₁ · softmax inside the band and w₂ · Σ_l of linearised attentions, brute force in NumPy: within 1e-12."""
    value = _RNG.normal(size=(3, 3))
    blend = drifts.near_and_far(5.0, ("elu", "elu_reversed"), 0.5, QUERY, KEY, value, (0.7, 1.9), positional)
    places = np.arange(float(COUNT))
    measure = pf.Measure.uniform(POINTS, positions=places)
    lags = places[:, None] - places[None]
    past = lags > -np.inf if positional is None else lags >= 0
    softmax = np.exp(0.5 * (POINTS @ QUERY.T) @ (POINTS @ KEY.T).T) * (np.abs(lags) < 5) * past
    expected = 0.7 * softmax @ POINTS / softmax.sum(axis=1, keepdims=True)
    for name in ("elu", "elu_reversed"):
        matrix = features(name, POINTS @ QUERY.T) @ features(name, POINTS @ KEY.T).T * past
        expected = expected + 1.9 * matrix @ POINTS / matrix.sum(axis=1, keepdims=True)
    found = jax.jit(lambda: blend(0.0, measure.sites, measure))()
    assert off(found, expected @ value.T) < 1e-12
    near, far = blend.drifts
    parts = jax.jit(lambda: 0.7 * near(0.0, measure.sites, measure) + 1.9 * far(0.0, measure.sites, measure))()
    assert off(found, parts) < 1e-12
    assert len(blend.interactions(0.0)) == 3
    assert abs(float(np.asarray(blend.interactions(0.0)[1].output)) - 1.9) < 1e-14


@pytest.mark.slow
def test_weights_of_a_blend_are_learned_and_stay_positive():
    """Ten steps of gradient descent towards a repelling target push both weights down, never through zero."""
    blend = drifts.near_and_far(5.0, weights=(0.3, 0.2))
    measure = pf.Measure.uniform(POINTS, positions=np.arange(float(COUNT)))
    target = -blend(0.0, measure.sites, measure)

    @jax.jit
    def loss(log_weights):
        moved = drifts.Blend(blend.drifts, jnp.exp(log_weights))
        return jnp.mean((moved(0.0, measure.sites, measure) - target) ** 2)

    slope, log_weights = jax.jit(jax.grad(loss)), blend.log_weights
    for _ in range(10):
        log_weights = log_weights - 5.0 * slope(log_weights)
    assert float(loss(log_weights)) < float(loss(blend.log_weights))
    assert (np.exp(log_weights) < [0.3, 0.2]).all()
    assert (np.exp(log_weights) > 0).all()


def test_what_cannot_be_is_refused():
    attend = pf.Attend(kernels.Attention())
    for make, kind, message in [
        (lambda: drifts.Blend([attend], jnp.asarray([1.0, 2.0])), ShapeError, "each of 1 drifts"),
        (lambda: drifts.Blend([attend], jnp.asarray([-1.0])), ArgumentError, "must be positive"),
        (lambda: kernels.LinearisedAttention(UNKNOWN), ArgumentError, "one of 'elu', 'elu_reversed', 'softplus'"),
    ]:
        with pytest.raises(kind, match=message):
            make()
