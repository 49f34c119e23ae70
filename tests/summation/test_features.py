"""Sums of low rank against features written out in NumPy, their laws, and what they refuse."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pair_oracles
from pair_oracles import assert_close, assert_refused
from particleflow import kernels as k
from particleflow.app.scenario.scenario import from_document, make_flow
from particleflow.errors import ArgumentError
from particleflow.measure import Measure
from particleflow.summation import Features, RandomBatch
from particleflow.summation.features.positive_definite import Curves, LowRankForm
from particleflow.summation.features.random_frequencies import frequencies, normals, phases
from shares import by_default

METHODS = ("positive", "fourier", "phase", "nystrom")
RANK = 24


class Standard(NamedTuple):
    """log K = A + B + log κ of places u and v, weights part of B; κ is a list of curves of some columns."""

    u: np.ndarray
    v: np.ndarray
    a: np.ndarray
    b: np.ndarray
    curves: list[tuple[str, int, float]]


def shares_of(log_weights: np.ndarray) -> np.ndarray:
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def products(theta: np.ndarray, s: np.ndarray, log_weights: np.ndarray) -> Standard:
    """exp⟨θ, s⟩ as a Gaussian of centred and balanced features."""
    shares = shares_of(log_weights)
    middle, centre = theta.mean(axis=0), shares @ s
    u, v = theta - middle, s - centre
    balance = ((u**2).sum(1).mean() / (shares @ (v**2).sum(1))) ** 0.25
    a, b = theta @ centre, v @ middle + log_weights
    u, v = u / balance, v * balance
    return Standard(u, v, a + 0.5 * (u**2).sum(1), b + 0.5 * (v**2).sum(1), [("gaussian", u.shape[1], 0.0)])


def distances(curve: str, scale: float, power: float, x: np.ndarray, y: np.ndarray, log_weights: np.ndarray):
    """A curve of scale · |x − y|, seen from midway between the means."""
    origin = 0.5 * (x.mean(axis=0) + shares_of(log_weights) @ y)
    return Standard(
        scale * (x - origin), scale * (y - origin), np.zeros(len(x)), log_weights, [(curve, x.shape[1], power)]
    )


def log_kappa(u: np.ndarray, v: np.ndarray, curves: list[tuple[str, int, float]]) -> np.ndarray:
    total, begin = np.zeros((len(u), len(v))), 0
    for curve, width, power in curves:
        part = u[:, None, begin : begin + width] - v[None, :, begin : begin + width]
        squares, begin = (part**2).sum(-1), begin + width
        logs = {"gaussian": -squares / 2, "exponential": -np.sqrt(squares), "power": -power * np.log1p(squares)}
        total += logs[curve]
    return total


def greedy(kappa: np.ndarray, rank: int) -> list[int]:
    """Landmarks: each the row with the largest part that those before do not explain."""
    chosen: list[int] = []
    for _ in range(rank):
        inner = kappa[np.ix_(chosen, chosen)]
        explained = np.einsum("ij,ji->i", kappa[:, chosen], np.linalg.solve(inner, kappa[chosen])) if chosen else 0.0
        left = np.diag(kappa) - explained
        left[chosen] = -1.0
        chosen.append(int(np.argmax(left)))
    return chosen


def estimated(how: Features, form: Standard, log_weights: np.ndarray) -> np.ndarray:
    """κ̂ of all pairs, from the draw and the formula."""
    if how.method == "nystrom":
        noise = np.asarray(jax.random.gumbel(jax.random.key(how.seed), (len(form.v),), float))
        order = np.argsort(-(log_weights + noise))  # all are candidates, the heavy ones likely first
        chosen = order[greedy(np.exp(log_kappa(form.v[order], form.v[order], form.curves)), how.rank)]
        ours, theirs = (np.exp(log_kappa(each, form.v[chosen], form.curves)) for each in (form.u, form.v))
        return ours @ np.linalg.solve(theirs[chosen] + 1e-13 * np.eye(how.rank), theirs.T)
    kinds, widths, powers = zip(*form.curves, strict=True)
    count = how.rank // 2 if how.method == "fourier" else how.rank
    w = np.asarray(frequencies(how.seed, Curves(powers, kinds, widths), count, how.orthogonal is not False, float))
    left, right = form.u @ w.T, form.v @ w.T
    if how.method == "positive":
        ours, theirs = (np.exp(p - (e**2).sum(1)[:, None]) for p, e in ((left, form.u), (right, form.v)))
        return ours @ theirs.T / count
    if how.method == "fourier":
        return np.cos(left[:, None] - right[None]).mean(-1)
    angles = np.asarray(phases(how.seed, count, float))
    return 2 * np.cos(left + angles) @ np.cos(right + angles).T / count


CASES = {
    "attention with matrices": lambda x, y, w: products(0.6 * x @ pair_oracles.QUERY.T, y @ pair_oracles.KEY.T, w),
    "gaussian": lambda x, y, w: distances("gaussian", 1 / 0.6, 0.0, x, y, w),
    "laplace": lambda x, y, w: distances("exponential", 1 / 0.6, 0.0, x, y, w),
    "student": lambda x, y, w: distances("power", 1 / (0.7 * 2.5**0.5), 2.75, x, y, w),
}
COMBINATIONS = [(case, method) for case in CASES for method in METHODS]
POSSIBLE = [
    each for each in COMBINATIONS if each[1] != "positive" or each[0] in ("attention with matrices", "gaussian")
]
BY_DEFAULT = [
    ("attention with matrices", "nystrom"),
    ("gaussian", "fourier"),
]


@pytest.mark.parametrize("combination", by_default(POSSIBLE, BY_DEFAULT), ids="-".join)
def test_moments_are_those_of_the_features_written_out(combination):
    name, method = combination
    case = next(case for case in pair_oracles.CASES if case.name == name)
    queries, measure = pair_oracles.cloud("vectors", jnp.float64, 11, 40, seed=1)
    how = Features(RANK, method, seed=3)
    x, y, log_weights = (np.asarray(each) for each in (queries.points, measure.points, measure.log_weights))
    form = CASES[name](x, y, log_weights)
    np.testing.assert_allclose(
        form.a[:, None] + form.b[None] + log_kappa(form.u, form.v, form.curves),
        pair_oracles.log_matrix(case, queries, measure.sites) + log_weights,
        atol=1e-10,
    )
    weights = np.exp(form.a[:, None] + form.b[None]) * estimated(how, form, log_weights)
    masses, means = weights.sum(1), weights @ np.asarray(measure.values) / weights.sum(1)[:, None]
    found = jax.jit(how.moments)(case.build(jnp.float64), measure, queries)
    positive = masses > 0
    assert positive.any()
    tolerance = 1e-6 if method == "nystrom" else 1e-9
    np.testing.assert_allclose(found.log_mass[positive], np.log(masses[positive]), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found.mean[positive], means[positive], rtol=tolerance, atol=10 * tolerance)
    # A negative mass has no logarithm, and shows.
    assert np.isnan(np.asarray(found.log_mass)[~positive]).all()
    assert np.isnan(np.asarray(found.mean)[~positive]).all()


@pytest.mark.parametrize(
    ("how", "tolerance"), [(Features(15), 1e-6), pytest.param(Features(2**13, "fourier"), 0.2, marks=pytest.mark.slow)]
)
def test_two_curves_of_one_kernel_have_frequencies_of_their_own(how, tolerance):
    queries, measure = pair_oracles.cloud("vectors", jnp.float64, 6, 15, seed=2)
    kernel = k.Attention(0.5) * k.OnValues(k.Laplace(2.0)) * k.TimeGaussian(20.0)
    x, y, log_weights = (np.asarray(each) for each in (queries.points, measure.points, measure.log_weights))
    (f, g), (t, s) = ([np.asarray(each) for each in pair] for pair in zip(queries[1:], measure.sites[1:], strict=True))
    logits = 0.5 * x @ y.T - np.linalg.norm(t[:, None] - s[None], axis=-1) / 2 - (f[:, None] - g[None]) ** 2 / 800
    found = how.moments(kernel, measure, queries)
    log_mass, mean = pair_oracles.moments(logits + log_weights, np.asarray(measure.values))
    np.testing.assert_allclose(found.log_mass, log_mass, atol=tolerance)
    np.testing.assert_allclose(found.mean, mean, atol=tolerance)


# --- the laws of the draws -----------------------------------------------------------------------------------------


LAWS = [(curve, power, orthogonal)
        for curve, power in (("gaussian", 0.0), ("exponential", 0.0), ("power", 1.0), ("power", 2.75))
        for orthogonal in (True, False)]  # fmt: skip


@pytest.mark.parametrize("law", by_default(LAWS, [("gaussian", 0.0, False)]), ids=str)
def test_the_law_of_a_curve_has_it_as_its_fourier_transform(law):
    curve, power, orthogonal = law
    steps = np.random.default_rng(5).normal(size=(6, 3)) * np.array([0.1, 0.3, 0.6, 1.0, 1.5, 2.5])[:, None]
    w = np.asarray(frequencies(1, Curves((power,), (curve,), (3,)), 30_000, orthogonal, float))
    expected = np.exp(log_kappa(steps, np.zeros((1, 3)), [(curve, 3, power)]))[:, 0]
    np.testing.assert_allclose(np.cos(steps @ w.T).mean(1), expected, atol=4 * (1 / 30_000) ** 0.5)


@pytest.mark.slow
def test_orthogonal_draws_are_orthogonal_and_have_the_lengths_of_normal_ones():
    w = np.asarray(normals(jax.random.key(0), 4000, 5, True, float))
    grams = np.einsum("gik,gjk->gij", w.reshape(800, 5, 5), w.reshape(800, 5, 5))
    assert np.abs(grams - grams * np.eye(5)).max() < 1e-12
    np.testing.assert_allclose((w**2).sum(1).mean(), 5.0, atol=4 * (10 / 4000) ** 0.5)
    np.testing.assert_allclose((w**2).sum(1).var(), 10.0, rtol=0.15)
    np.testing.assert_allclose(w.mean(0), 0.0, atol=4 / 4000**0.5)
    assert normals(jax.random.key(0), 7, 5, True, jnp.float32).shape == (7, 5)


PAIRS = [
    (np.array([0.3, -0.2, 0.4]), np.array([0.1, 0.5, 0.2])),
    (np.array([0.5, 0.1, -0.6]), np.array([-0.4, 0.3, 0.6])),
]
VARIANCES = {
    "phase": lambda kappa, mirrored: 1 - kappa**2 + kappa**4 / 2,
    "fourier": lambda kappa, mirrored: (1 - kappa**2) ** 2,
    "positive": lambda kappa, mirrored: kappa**2 * (mirrored - 1),
}


def many_estimates(method: str, x: np.ndarray, y: np.ndarray, rank: int, draws: int, seed: int) -> np.ndarray:
    """κ̂(x, y) of independent draws, by the summation's own code: the shares of two sources x and y."""
    from particleflow.summation.features.positive_features import positive_moments
    from particleflow.summation.features.trigonometric import trigonometric_moments

    zeros, count = jnp.zeros(1), rank // 2 if method == "fourier" else rank
    values = jnp.array([[0.0], [1.0]])
    form = LowRankForm(
        Curves((0.0,), ("gaussian",), (3,)), jnp.asarray(x)[None], jnp.stack([x, y]), zeros, jnp.zeros(2)
    )
    w = normals(jax.random.key(seed), draws * count, 3, False, float).reshape(draws, count, 3)
    angles = phases(seed, draws * count, float).reshape(draws, count)

    def one(drawn: Any, phase: Any) -> Any:
        if method == "positive":
            return positive_moments(form, values, drawn)
        return trigonometric_moments(form, values, drawn, phase if method == "phase" else None)

    found = jax.jit(jax.vmap(one))(w, angles)
    return np.asarray(jnp.exp(found.log_mass[:, 0]) * found.mean[:, 0, 0])


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=["near", "far"])
@pytest.mark.parametrize("method", VARIANCES)
def test_variances_are_those_of_the_formulas_within_five_percent(method, pair):
    x, y = pair
    found = many_estimates(method, x, y, 32, 20_000, seed=6)
    kappa, mirrored = np.exp(-((x - y) ** 2).sum() / 2), np.exp(((x + y) ** 2).sum())
    expected = VARIANCES[method](kappa, mirrored) / 32
    np.testing.assert_allclose(found.var(), expected, rtol=0.05)
    np.testing.assert_allclose(found.mean(), kappa, atol=4 * (expected / 20_000) ** 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["positive", "fourier", "phase"])
def test_errors_fall_as_the_root_of_the_number_of_features(method):
    (x, y), ranks = PAIRS[0], 2 ** np.arange(4, 13)
    kappa, errors = np.exp(-((x - y) ** 2).sum() / 2), []
    for rank in ranks:
        found = many_estimates(method, x, y, int(rank), max(1000, 2**18 // int(rank)), seed=7)
        errors.append(np.sqrt(np.mean((found - kappa) ** 2)))
    slope = np.polyfit(np.log(ranks), np.log(errors), 1)[0]
    assert -0.52 < slope < -0.45


# --- what may go wrong, and shows ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fourier", "phase"])
def test_a_negative_mass_is_not_a_number_and_a_positive_one_is(method):
    points = np.random.default_rng(8).normal(size=(60, 3))
    far = points[:30] + 6.0  # masses below e^{-30}: what features say of them is noise of either sign
    look = jax.jit(lambda how, at: how.moments(k.Gaussian(0.7), Measure.uniform(points), at))
    found = look(Features(RANK, method), np.concatenate([points, far]))
    log_mass, mean = np.asarray(found.log_mass), np.asarray(found.mean)
    assert np.isnan(log_mass[60:]).any()
    np.testing.assert_array_equal(np.isnan(log_mass), np.isnan(mean).any(axis=1))
    positive = look(Features(RANK, "positive"), far)
    assert np.isfinite(positive.log_mass).all()


FAR = [(method, precision) for method in METHODS for precision in ("float64", "float32")]


@pytest.mark.parametrize("case", by_default(FAR, [("positive", "float32")]), ids="-".join)
def test_points_far_from_the_origin_do_not_overflow(case):
    method, dtype = case[0], jnp.dtype(case[1])
    rng = np.random.default_rng(9)
    points = np.asarray(0.3 * rng.normal(size=(200, 3)) + 300.0, dtype)
    kernel, measure = k.Attention(jnp.asarray(1.0, dtype)), Measure.uniform(jnp.asarray(points))
    found = jax.jit(Features(256, method).moments)(kernel, measure, measure)
    exact = points.astype(np.float64)
    log_mass, mean = pair_oracles.moments(exact @ exact.T - np.log(200), exact)  # exponents of 270,000
    assert found.mean.dtype == found.log_mass.dtype == dtype
    # Random features are noisy where a query sees little; over all queries their error is what R allows.
    noise = 1e-6 if method == "nystrom" and dtype == jnp.float64 else 0.15
    assert np.sqrt(np.mean((np.asarray(found.log_mass, np.float64) - log_mass) ** 2)) < noise
    assert np.sqrt(np.mean((np.asarray(found.mean, np.float64) - mean) ** 2)) < noise


@pytest.mark.slow
def test_weights_over_ten_orders_values_apart_and_a_kernel_of_no_point():
    rng = np.random.default_rng(10)
    points, log_weights = rng.normal(size=(50, 2)), rng.uniform(-23, 0, size=50)
    measure, other = Measure(points, log_weights), rng.normal(size=(50, 4))
    squares = ((points[:, None] - points[None]) ** 2).sum(-1)
    expected = pair_oracles.moments(-squares / 18 + log_weights, other)
    assert_close(Features(48).moments(k.Gaussian(3.0), measure, measure, values=other), *expected, 1e-7)
    expected = pair_oracles.moments(np.zeros((50, 50)) + log_weights, other[:, :1])
    for method in ("positive", "nystrom"):
        found = Features(8, method).moments(k.Constant(), measure, measure, values=other[:, 0])
        assert_close(found, *expected, 1e-10)
    nothing = Features(8).moments(0.0 * k.Gaussian(1.0), measure, measure)
    assert np.isneginf(nothing.log_mass).all()
    assert Features(8).moments(k.Gaussian(1.0), measure, np.zeros((0, 2))).mean.shape == (0, 2)


REFUSED = {
    "a mask": (k.Attention(1.0) * k.Causal(), {}, ["its factor Causal", "band of positions"]),
    "a slope": (k.Gaussian(1.0) * k.Alibi(0.1), {}, ["its factor Alibi", "band of positions"]),
    "a ball": (k.Ball(1.0), {}, ["its factor Ball", "no positive law"]),
    "a sum": (k.Gaussian(1.0) + k.Cauchy(1.0), {}, ["its factor Mixture", "neither bilinear nor"]),
    "a curve": (k.Laplace(1.0), {"method": "positive"}, ["'positive'", "exponential", "'nystrom'"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_kernels_without_features_are_refused_with_the_reason(name):
    kernel, options, pieces = REFUSED[name]
    queries, measure = pair_oracles.cloud("vectors", jnp.float64, 4, 6)
    assert_refused(lambda: Features(8, **options).moments(kernel, measure, queries), ArgumentError, pieces)


BAD = {
    "method": ({"method": "magic"}, ["`method`", "positive, fourier, phase, nystrom", "'magic'"]),
    "rank": ({"rank": 0}, ["`rank`", "positive integer", "0"]),
    "odd": ({"rank": 7, "method": "fourier"}, ["`rank`", "even", "7"]),
    "seed": ({"seed": -1}, ["`seed`", "at least 0", "-1"]),
    "orthogonal": ({"orthogonal": True}, ["`orthogonal`", "'nystrom' draws none"]),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_settings_are_refused(name):
    options, pieces = BAD[name]
    assert_refused(lambda: Features(**options), ArgumentError, pieces)


# --- seeds, derivatives, batches, scenarios -----------------------------------------------------------------------


def test_a_draw_is_a_function_of_the_seed():
    queries, measure = pair_oracles.cloud("vectors", jnp.float64, 5, 30, seed=4)
    how = Features(RANK, "positive", seed=5)
    first = how.moments(k.Gaussian(1.0), measure, queries)
    again = jax.jit(lambda how: how.moments(k.Gaussian(1.0), measure, queries))(Features(RANK, "positive", seed=5))
    np.testing.assert_allclose(again.mean, first.mean, rtol=1e-14)
    other = Features(RANK, "positive", seed=6).moments(k.Gaussian(1.0), measure, queries)
    assert np.abs(np.asarray(other.mean - first.mean)).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("method", by_default(METHODS, ["positive"]))
def test_derivatives_are_those_of_the_features_with_the_origin_held(method):
    queries, measure = pair_oracles.cloud("vectors", jnp.float64, 4, 20, seed=11)
    how, kernel = Features(20 if method == "nystrom" else RANK, method), k.Gaussian(1.5)

    def reading(points):
        moved = how.moments(kernel, measure, queries._replace(points=points))
        return jnp.sum(moved.log_mass) + jnp.sum(jnp.sin(moved.mean))

    def held(points):
        """By the formulas, in NumPy: only what depends on the queries moves, and the origin does not."""
        x, y, log_weights = (np.asarray(each) for each in (queries.points, measure.points, measure.log_weights))
        form = distances("gaussian", 1 / 1.5, 0.0, x, y, log_weights)
        form = form._replace(u=form.u + (points - x) / 1.5)
        weights = np.exp(form.b)[None] * estimated(how, form, log_weights)
        return (
            np.log(weights.sum(1)).sum() + np.sin(weights @ np.asarray(measure.values) / weights.sum(1)[:, None]).sum()
        )

    start = np.asarray(queries.points)
    forward, backward = (jax.jit(each(reading))(queries.points) for each in (jax.jacfwd, jax.grad))
    np.testing.assert_allclose(forward, backward, rtol=1e-8, atol=1e-8)
    for step in 1e-5 * np.random.default_rng(12).normal(size=(3, *start.shape)):
        slope = (held(start + step) - held(start - step)) / 2
        np.testing.assert_allclose(
            np.sum(np.asarray(backward) * step), slope, rtol=2e-3 if method == "nystrom" else 1e-5
        )


@pytest.mark.slow
@pytest.mark.parametrize("method", by_default(METHODS, ["nystrom"]))
def test_batches_are_sums_one_by_one(method):
    clouds = jnp.asarray(np.random.default_rng(13).normal(size=(3, 30, 2)))
    how = Features(12, method)

    def mean(points):
        return how.moments(k.Attention(0.7), Measure.uniform(points), points).mean

    batched = jax.jit(jax.vmap(mean))(clouds)
    np.testing.assert_allclose(batched, jnp.stack([mean(cloud) for cloud in clouds]), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"kind": "features", "rank": 12, "method": "positive"}, Features(12, "positive")),
        ({"kind": "features"}, Features(256, "nystrom")),
        ({"kind": "random_batch", "batch": 8, "seed": 3}, RandomBatch(8, 3)),
    ],
    ids=lambda each: str(each)[:24],
)
def test_a_scenario_names_them(table, expected, tmp_path):
    kernel = {"kind": "attention", "beta": 1.0}
    document = {
        "initial": {"kind": "uniform_sphere", "dim": 8, "count": 16},
        "geometry": "sphere",
        "drift": [{"kind": "attend", "kernel": kernel, "summation": table}],
        "time": {"end": 1.0},
    }
    flow = make_flow(from_document(document, "low_rank", tmp_path).document)
    assert flow.drift.interactions(0.0)[0].summation == expected
