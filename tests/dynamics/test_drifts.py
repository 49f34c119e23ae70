"""Every drift against its formula in NumPy."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flows_oracles as oracle
import pair_oracles
import particleflow as pf
from particleflow import drifts, kernels
from particleflow.errors import ArgumentError, KindError, ShapeError
from particleflow.measure import Sites

_RNG = np.random.default_rng(41)
POINTS = _RNG.normal(size=(6, 3))
WEIGHTS = _RNG.uniform(0.2, 1.0, size=6)
QUERY, KEY, VALUE, OUTPUT = _RNG.normal(size=(4, 3, 3))
POSITIONS = np.arange(6.0)
SCORES = (POINTS @ QUERY.T) @ (POINTS @ KEY.T).T


def at(drift, time=0.0, weights=WEIGHTS):
    measure = pf.Measure.weighted(POINTS, weights, positions=POSITIONS)
    return np.asarray(moved(drift, time, measure))


@eqx.filter_jit
def moved(drift, time, measure):
    return drift(time, measure.sites, measure)


def check(drift, expected, time=0.0):
    assert np.max(np.abs(at(drift, time) - expected)) < 1e-13 * max(1.0, np.max(np.abs(expected)))


def normalised(kernel_matrix):
    weighted = kernel_matrix * WEIGHTS
    return weighted / weighted.sum(axis=1, keepdims=True)


@pytest.mark.slow
def test_attention_with_output_and_positional_kernel():
    kernel = kernels.Attention(beta=0.3, query=QUERY, key=KEY)
    mask = np.tril(np.ones((6, 6)))
    drift = drifts.Attend(kernel, value=VALUE, output=OUTPUT, positional=kernels.Causal())
    check(drift, normalised(np.exp(0.3 * SCORES) * mask) @ POINTS @ VALUE.T @ OUTPUT.T)


@pytest.mark.parametrize(("value", "matrix"), [(0.5, 0.5 * np.eye(3)), ([1.0, 2.0, -1.0], np.diag([1.0, 2.0, -1.0]))])
def test_value_as_number_or_diagonal(value, matrix):
    kernel = kernels.Attention(beta=0.3, query=value, key=value)
    scores = (POINTS @ matrix) @ (POINTS @ matrix).T
    check(drifts.Attend(kernel, value=value), normalised(np.exp(0.3 * scores)) @ POINTS @ matrix)


def test_unnormalised_attention_carries_the_weights():
    drift = drifts.Attend(kernels.Attention(beta=0.3, query=QUERY, key=KEY), value=VALUE, normalization="none")
    check(drift, (np.exp(0.3 * SCORES) * WEIGHTS) @ POINTS @ VALUE.T)


def test_relatives_of_attention():
    squares = np.sum(((POINTS @ QUERY.T)[:, None] - (POINTS @ KEY.T)[None]) ** 2, axis=2)
    rectified = np.maximum(SCORES + 3.0, 0.0)
    cases = [
        (drifts.Attend(kernels.Sigmoid(beta=1.0, offset=-0.5, query=QUERY, key=KEY), normalization="none"),
         (WEIGHTS / (1 + np.exp(-SCORES + 0.5))) @ POINTS),
        (drifts.Attend(kernels.Rectified(beta=1.0, offset=3.0, query=QUERY, key=KEY), normalization="none"),
         (rectified * WEIGHTS) @ POINTS),
        (drifts.Attend(kernels.SquaredDistanceAttention(beta=0.2, query=QUERY, key=KEY)),
         normalised(np.exp(-0.2 * squares)) @ POINTS),
        (drifts.LinearAttention(query=QUERY, key=KEY, value=VALUE), (SCORES * WEIGHTS) @ POINTS @ VALUE.T),
    ]  # fmt: skip
    for drift, expected in cases:
        check(drift, expected)


def test_doubly_stochastic_attention():
    kernel = kernels.Attention(beta=0.5)
    measure = pf.Measure.uniform(POINTS)
    found = np.asarray(moved(drifts.Attend(kernel, value=VALUE, normalization="sinkhorn"), 0.0, measure))
    weights = oracle.attention_weights(POINTS, 0.5, 1.0, 1.0, normalization="sinkhorn")
    assert np.max(np.abs(weights.sum(axis=0) - 1)) < 1e-12
    assert np.max(np.abs(found - weights @ POINTS @ VALUE.T)) < 1e-11


@pytest.mark.parametrize("beta", [5.0, 50.0])
def test_sinkhorn_weights_are_doubly_stochastic_for_weighted_points(beta):
    """Σ_i w_i p_ij = w_j: with every value 1 in one place, the column sums can be read off."""
    measure = pf.Measure.weighted(POINTS / 3, WEIGHTS / WEIGHTS.sum(), values=np.eye(6))
    drift = drifts.Attend(kernels.Attention(beta=beta), normalization="sinkhorn")
    rows = np.asarray(moved(drift, 0.0, measure))
    assert np.max(np.abs(rows.sum(axis=1) - 1)) < 1e-12
    assert np.max(np.abs((WEIGHTS / WEIGHTS.sum()) @ rows * WEIGHTS.sum() / WEIGHTS - 1)) < 1e-9


def test_mean_shift_towards_data_and_blurring():
    data = _RNG.normal(size=(9, 3))
    gaussian = np.exp(-np.sum((POINTS[:, None] - data[None]) ** 2, axis=2) / (2 * 0.8**2))
    shift = gaussian @ data / gaussian.sum(axis=1, keepdims=True) - POINTS
    check(drifts.MeanShift(kernels.Gaussian(0.8), data=pf.Measure.uniform(data)), shift)
    own = normalised(np.exp(-np.sum((POINTS[:, None] - POINTS[None]) ** 2, axis=2) / (2 * 0.8**2)))
    check(drifts.MeanShift(kernels.Gaussian(0.8)), own @ POINTS - POINTS)
    check(drifts.LogNormalizerAscent(kernels.Gaussian(0.8), data=pf.Measure.uniform(data)), shift)
    check(
        drifts.LogNormalizerAscent(kernels.Gaussian(0.8), rate=0.1, data=pf.Measure.uniform(data)), 0.1 * shift / 0.64
    )


def test_mean_shift_that_sees_nothing_stays():
    far = pf.Measure.uniform(np.full((1, 3), 50.0))
    assert np.max(np.abs(at(drifts.MeanShift(kernels.Ball(1.0), data=far)))) == 0


def test_log_normalizer_ascent_of_attention():
    """(1/β)∇G = QᵀK m."""
    drift = drifts.LogNormalizerAscent(kernels.Attention(beta=0.3, query=QUERY, key=KEY))
    check(drift, normalised(np.exp(0.3 * SCORES)) @ POINTS @ KEY.T @ QUERY)


def test_plain_fields():
    weight, bias, output = _RNG.normal(size=(5, 3)), _RNG.normal(size=5), _RNG.normal(size=(3, 5))
    hidden = POINTS @ weight.T + bias
    check(drifts.FeedForward(weight, bias, output, 0.25, "tanh"), np.tanh(hidden) @ output.T + 0.25)
    check(drifts.FeedForward(weight, bias, output, 0.0, "relu"), np.maximum(hidden, 0) @ output.T)
    check(drifts.FeedForward(VALUE, 0.1, activation="sigmoid"), 1 / (1 + np.exp(-(POINTS @ VALUE.T + 0.1))))
    check(drifts.Linear(VALUE), POINTS @ VALUE.T)
    centre = np.array([0.3, -0.2, 0.1])
    away = POINTS - centre
    check(drifts.Confinement(2.0, 4.0, centre), -2.0 * np.sum(away**2, axis=1, keepdims=True) * away)
    check(drifts.Linear(2.0) + 0.5 * drifts.Linear(VALUE), 2 * POINTS + 0.5 * POINTS @ VALUE.T)


@pytest.mark.parametrize(("power", "slope"), [(2.0, -1.5), (3.0, 0.0), (4.0, 0.0)])
def test_confinement_has_its_derivative_at_the_centre(power, slope):
    """−1.5 |x|^{power−2} x is linear for power 2, and flat at its centre for all others."""
    centre, one = jnp.asarray([0.3, -0.2, 0.1]), pf.Measure.uniform(POINTS[:1])
    drift = drifts.Confinement(1.5, power, centre)
    derivative = jax.jacfwd(lambda point: drift(0.0, Sites(point[None]), one)[0])(centre)
    np.testing.assert_array_equal(derivative, slope * np.eye(3))


def test_random_feed_forward_is_reproducible():
    one, two = (at(drifts.RandomFeedForward(3, width=8, seed=seed)) for seed in (5, 5))
    other = at(drifts.RandomFeedForward(3, width=8, seed=6))
    assert (one == two).all()
    assert np.max(np.abs(one - other)) > 0.1


def test_schedules_and_layers():
    ramp = drifts.Ramp(1.0, 4.0, end=2.0, scale="log")
    assert abs(ramp(1.0) - 2.0) < 1e-14
    assert abs(drifts.Decay(3.0, 2.0, 0.5)(6.0) - 1.5) < 1e-14
    steps = drifts.Steps([1.0, 5.0, 2.0], duration=0.1)
    assert [float(steps(t)) for t in (0.0, 0.1, 0.15, 0.2, 0.30000000000000004, 9.0)] == [1.0, 5.0, 5.0, 2.0, 2.0, 2.0]
    varying = drifts.Varying(drifts.Attend(kernels.Attention(beta=9.0, query=QUERY, key=KEY)), ramp, "kernel.beta")
    check(varying, normalised(np.exp(2.0 * SCORES)) @ POINTS, time=1.0)
    layers = drifts.Layers([drifts.Linear(1.0), drifts.Linear(VALUE)], duration=0.5)
    check(layers, POINTS, time=0.2)
    check(layers, POINTS @ VALUE.T, time=0.5)
    check(layers, POINTS @ VALUE.T, time=7.0)
    with pytest.raises(ArgumentError, match="asks Attention for 'width'"):
        drifts.Varying(drifts.Attend(kernels.Attention()), ramp, "kernel.width")


def test_position_encodings_change_what_is_seen():
    encoding = kernels.Sinusoidal(scale=0.3, base=100.0)
    angles = POSITIONS[:, None] * 100.0 ** (-np.array([0.0, 0.0, 2.0]) / 3)
    shifted = POINTS + 0.3 * np.where(np.arange(3) % 2 == 0, np.sin(angles), np.cos(angles))
    drift = drifts.Attend(kernels.Encoded(kernels.Attention(beta=0.5), encoding))
    check(drift, normalised(np.exp(0.5 * shifted @ shifted.T)) @ POINTS)
    table = _RNG.normal(size=(6, 3))
    drift = drifts.Attend(kernels.Encoded(kernels.Attention(beta=0.5), kernels.PositionTable(table)))
    check(drift, normalised(np.exp(0.5 * (POINTS + table) @ (POINTS + table).T)) @ POINTS)


def test_queries_need_not_be_particles():
    queries = _RNG.normal(size=(4, 3))
    drift = drifts.Attend(kernels.Attention(beta=0.4))
    found = np.asarray(drift(0.0, Sites(jnp.asarray(queries)), pf.Measure.weighted(POINTS, WEIGHTS)))
    shares = np.exp(0.4 * queries @ POINTS.T) * WEIGHTS
    assert np.max(np.abs(found - shares @ POINTS / shares.sum(axis=1, keepdims=True))) < 1e-13


def test_gradients_of_hard_choices_are_finite():
    start = jnp.asarray(POINTS)

    def total(points):
        measure = pf.Measure.uniform(points)
        return jnp.sum(jnp.square(drifts.Attend(kernels.Rectified(beta=1.0))(0.0, measure.sites, measure)))

    assert np.isfinite(np.asarray(jax.jit(jax.grad(total))(start))).all()


ATTENTION, DATA = kernels.Attention(), pf.Measure.uniform(POINTS)
BALANCED = drifts.Attend(ATTENTION, normalization="sinkhorn")
REFUSED = {
    "a ramp of no time": (lambda: drifts.Ramp(1.0, 9.0, end=0.0), ["`end`", "later than `begin`", "0.0"]),
    "a ramp backwards": (lambda: drifts.Ramp(1.0, 9.0, end=1.0, begin=2.0), ["`end`", "at 2.0", "is 1.0"]),
    "logarithms through zero": (lambda: drifts.Ramp(-1.0, 9.0, end=1.0, scale="log"), ["`first`", "-1.0 and 9.0"]),
    "logarithms from zero": (lambda: drifts.Ramp(0.0, 9.0, end=1.0, scale="log"), ["`last`", "0.0 and 9.0", "linear"]),
    "a schedule of a count": (
        lambda: drifts.Varying(drifts.MeanShift(kernels.Nearest(5)), drifts.Ramp(1.0, 9.0, 1.0), "kernel.count"),
        ["`parameter`", "'kernel.count' is 5", "fixed"],
    ),
    "a schedule of nothing": (
        lambda: drifts.Varying(drifts.Attend(ATTENTION), drifts.Ramp(1.0, 9.0, 1.0), "positional"),
        ["`parameter`", "is None"],
    ),
    "an infinite rate": (lambda: drifts.LogNormalizerAscent(kernels.Attention(0.0)), ["`rate`", "is 0"]),
    "data that is balanced": (
        lambda: drifts.Attend(ATTENTION, normalization="sinkhorn", data=DATA),
        ["`data`", "sinkhorn", "'row'"],
    ),
    "data that heads balance": (lambda: drifts.MultiHead([BALANCED, BALANCED], data=DATA), ["`data`", "sinkhorn"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused(name):
    act, pieces = REFUSED[name]
    pair_oracles.assert_refused(act, ArgumentError, pieces)


def test_a_ramp_of_logarithms_may_be_negative():
    assert abs(drifts.Ramp(-1.0, -4.0, end=2.0, scale="log")(1.0) + 2.0) < 1e-14


def test_a_function_is_a_drift():
    """−t x + Σ w_j y_j, alone, in a sum, and from one point to all others."""

    def function(t, x, mu):
        return -t * x + (jnp.exp(mu.log_weights) @ mu.points)[None]

    total = WEIGHTS @ POINTS
    check(drifts.FunctionDrift(function), -0.5 * POINTS + total, time=0.5)
    check(drifts.FunctionDrift(function) + 2.0 * drifts.Linear(VALUE), total + 2.0 * POINTS @ VALUE.T)
    others = Sites(jnp.ones((2, 3)))
    found = drifts.FunctionDrift(function)(1.0, others, pf.Measure.weighted(POINTS, WEIGHTS))
    np.testing.assert_allclose(found, total[None] - np.ones((2, 3)), rtol=1e-14)


@pytest.mark.parametrize(
    ("function", "error", "said"),
    [
        (lambda x: x, ArgumentError, "f\\(t, x, mu\\).*too many positional"),
        (3.0, KindError, "but is 3.0"),
        (drifts.Linear, KindError, "but is <class"),
        (drifts.Linear(1.0), KindError, "but is Linear"),
    ],
)
def test_what_is_no_function_of_time_points_and_measure_is_refused(function, error, said):
    with pytest.raises(error, match=said):
        drifts.FunctionDrift(function)


@pytest.mark.parametrize("shape", [(), (3,), (6, 2), (1, 3)])
def test_a_function_returns_one_velocity_a_point(shape):
    with pytest.raises(ShapeError, match=r"one velocity a point, of shape \(6, 3\)"):
        at(drifts.FunctionDrift(lambda t, x, mu: jnp.zeros(shape)))


NONE: dict[str, Any] = {"function": lambda t, x, mu: -x, "text": "gaussian", "number": 3}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: pf.Flow(NONE["function"]), r"subclass of AbstractDrift, or drifts.FunctionDrift\(f\)"),
        (lambda: pf.Flow([drifts.Linear(1.0), NONE["function"]]), r"drifts\[1\].*subclass of AbstractDrift"),
        (lambda: pf.Attend(NONE["text"]), "subclass of AbstractKernel"),
        (lambda: pf.drifts.MeanShift(NONE["function"]), "subclass of AbstractKernel"),
        (lambda: pf.Attend(kernels.Attention(), summation=NONE["text"]), "subclass of AbstractSummation"),
    ],
)
def test_what_to_subclass_is_named(make, said):
    with pytest.raises(KindError, match=said):
        make()


def test_what_an_observable_is_is_named():
    with pytest.raises(ArgumentError, match="function of the present"):
        pf.simulate(pf.Flow(drifts.Linear(1.0)), POINTS, [0.0, 1.0], rtol=1e-3, atol=1e-3, observe=[NONE["number"]])
