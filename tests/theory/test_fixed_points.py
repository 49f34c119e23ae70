"""Fixed points, their eigenvalues and kinds against closed forms, direct Jacobians in NumPy, and SciPy."""
# Arguments of wrong types are among the things tested.
# pyright: reportArgumentType=false

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize
from scipy.special import iv, logsumexp

import particleflow as pf
from pair_oracles import assert_refused
from particleflow import drifts, geometry, kernels
from particleflow.discretization import Spectral
from particleflow.errors import ArgumentError, KindError, ShapeError

RNG = np.random.default_rng(14)
COUNT = 6  # most tests share one number of particles, and with it what is compiled
ANGLES = 2 * np.pi * np.arange(COUNT) / COUNT


def circle(angles) -> np.ndarray:
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def attention(beta: float, value: float = 1.0, **options) -> pf.Flow:
    return pf.Flow(pf.Attend(kernels.Attention(jnp.asarray(beta)), value=value, **options), geometry=pf.Sphere())


def only(found) -> Any:
    (point,) = found
    assert point.found
    return point


def assert_spectrum(found: np.ndarray, expected, tolerance: float = 1e-9) -> None:
    """Both hold the same numbers, matched one to one so that the largest difference is small."""
    expected = np.asarray(expected, complex)
    assert found.shape == expected.shape
    rows, columns = optimize.linear_sum_assignment(np.abs(found[:, None] - expected[None]))
    assert np.abs(found[rows] - expected[columns]).max() <= tolerance


def circulant_rates(beta: float, normalization: str, value: float) -> np.ndarray:
    """θ'_i = (V/Z) Σ_j w(θ_j − θ_i), w(φ) = e^{β cos φ} sin φ, linearised at equal spacing: λ_k by one FFT."""
    slope = np.exp(beta * np.cos(ANGLES)) * (np.cos(ANGLES) - beta * np.sin(ANGLES) ** 2)
    mass = np.exp(beta * np.cos(ANGLES)).sum() if normalization == "row" else COUNT
    return value * (np.fft.fft(slope) - slope.sum()) / mass


@pytest.mark.parametrize(
    ("beta", "normalization", "value"),
    [
        pytest.param(0.5, "row", 1.0, marks=pytest.mark.slow),
        (4.0, "row", -1.0),
        pytest.param(2.0, "none", 1.0, marks=pytest.mark.slow),
    ],
)
def test_equispaced_tokens_have_the_eigenvalues_of_a_circulant(beta, normalization, value):
    point = only(pf.fixed_points(attention(beta, value, normalization=normalization), circle(ANGLES + 0.3)))
    rates: Any = circulant_rates(beta, normalization, value)
    assert_spectrum(point.eigenvalues, rates, 1e-12)
    assert point.moved < 1e-14
    assert (point.nature.rotations, point.nature.translations, point.nature.spirals) == (1, 0, False)
    grow = int((rates.real > 1e-9).sum())
    assert (point.nature.unstable, point.nature.stable) == (grow, COUNT - 1 - grow)
    assert (point.nature.kind == "stable") == (grow == 0)


def test_a_search_finds_its_way_back_to_repelling_tokens():
    start = circle(ANGLES + 0.05 * RNG.normal(size=COUNT))
    point = only(pf.fixed_points(attention(4.0, -1.0), start))
    assert point.residual_before > 1e-3
    assert point.residual < 1e-14
    angles = np.sort(np.mod(np.arctan2(point.points[:, 1], point.points[:, 0]), 2 * np.pi))
    np.testing.assert_allclose(np.diff(angles), 2 * np.pi / COUNT, atol=1e-12)
    np.testing.assert_allclose(point.moved, np.linalg.norm(point.points - start, axis=1).max(), rtol=1e-12)


def dense_rates(beta: float, angles: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The eigenvalues of θ'_i = Σ_j A_ij sin(θ_j − θ_i), A = softmax, in NumPy; complex steps are exact to rounding."""

    def field(theta):
        gap = theta[None, :] - theta[:, None]
        mass = weights[None, :] * np.exp(beta * np.cos(gap))
        return (mass * np.sin(gap)).sum(axis=1) / mass.sum(axis=1)

    columns = [field(angles + 1e-30j * unit).imag / 1e-30 for unit in np.eye(len(angles))]
    return np.linalg.eigvals(np.stack(columns, axis=1))


CLUSTERED = np.array([0.0, np.pi, np.pi, 0.0, np.pi, 0.0])
WEIGHTS = np.array([0.1, 0.2, 0.3, 0.15, 0.05, 0.2])


@pytest.mark.slow
@pytest.mark.parametrize(
    "weights",
    [pytest.param(np.full(COUNT, 1 / COUNT), marks=pytest.mark.slow, id="equal"), pytest.param(WEIGHTS, id="weighted")],
)
def test_clusters_taken_together_have_all_eigenvalues_of_their_particles(weights):
    """Two antipodal clusters: the spectrum of two weighted points and of weightless ones is that of all particles."""
    flow, guess = attention(1.5), pf.Measure.weighted(circle(CLUSTERED), weights)
    expected = dense_rates(1.5, CLUSTERED, weights)
    dense, merged = (only(pf.fixed_points(flow, guess, merge=merge)) for merge in (None, 1e-3))
    assert_spectrum(dense.spectrum, expected, 1e-12)
    assert_spectrum(merged.spectrum, expected, 1e-12)
    assert merged.sizes.tolist() == [3, 3]
    assert sorted(merged.multiplicities.tolist()) == [1, 1, 2, 2]
    # the tolerance is a share of the largest eigenvalue, which rounding knows to its last digit only
    assert replace(merged.nature, tolerance=0.0) == replace(dense.nature, tolerance=0.0)
    assert abs(merged.nature.tolerance - dense.nature.tolerance) < 1e-18
    assert merged.nature.kind == "saddle"
    assert merged.nature.unstable == 1


@pytest.mark.parametrize("merge", [None, pytest.param(1e-3, marks=pytest.mark.slow)])
def test_consensus_attracts_at_rate_one_but_for_rotations(merge):
    point = only(pf.fixed_points(attention(3.0), circle(np.full(COUNT, 1.1)), merge=merge))
    assert_spectrum(point.spectrum, [0.0] + [-1.0] * (COUNT - 1), 1e-12)
    assert str(point.nature) == "stable: 5 stable, 1 neutral (1 rotation)"


@pytest.mark.slow
def test_a_layer_has_multipliers():
    """N(x + h e) shrinks a tangent direction by 1/(1 + h); of two antipodal halves one by 1/(1 − h tanh β), too."""
    step, beta = 0.5, 1.5
    point = only(pf.fixed_points(attention(beta), circle(np.full(COUNT, 0.4)), layer=step))
    assert_spectrum(point.eigenvalues, [1.0] + [1 / (1 + step)] * (COUNT - 1), 1e-12)
    assert point.nature.kind == "stable"
    assert point.layer == step
    halves = only(pf.fixed_points(attention(beta), circle(CLUSTERED), layer=step))
    length = 1 + step * np.tanh(beta)  # |x + h m| at both halves, and with it every multiplier is one of a flow's rates
    flow = dense_rates(beta, CLUSTERED, np.full(COUNT, 1 / COUNT))
    assert_spectrum(halves.eigenvalues, 1 + step * flow / length, 1e-12)


DATA = np.concatenate([RNG.normal(size=(12, 2)) * 0.4, RNG.normal(size=(9, 2)) * 0.3 + [2.0, 0.5]])


def log_density(x, width=0.5) -> Any:
    return logsumexp(-((x - DATA) ** 2).sum(axis=1) / (2 * width**2))


@pytest.mark.slow
def test_modes_of_a_density_estimate():
    """ẋ = m(x) − x is σ²∇log p, so its eigenvalues are those of σ² times the Hessian of log p."""
    width, data = 0.5, pf.Measure.uniform(DATA)
    flow = pf.Flow(pf.MeanShift(kernels.Gaussian(width), data=data))
    guesses = np.array([[[0.1, 0.1]], [[2.1, 0.4]], [[-0.2, 0.0]], [[1.1, 0.3]]])
    found: Any = pf.fixed_points(flow, guesses)
    assert sorted(guess for point in found for guess in point.guesses) == [0, 1, 2, 3]
    assert len(found) == 3
    assert [point.nature.kind for point in found if 3 in point.guesses] == ["saddle"]
    for point in found:
        (place,) = point.points
        weights = np.exp(-((place - DATA) ** 2).sum(axis=1) / (2 * width**2))
        weights /= weights.sum()
        np.testing.assert_allclose(weights @ DATA, place, atol=1e-12)
        covariance = (DATA - place).T @ (weights[:, None] * (DATA - place))
        assert_spectrum(point.eigenvalues, np.linalg.eigvalsh(covariance / width**2 - np.eye(2)), 1e-10)
    mode = next(point for point in found if 0 in point.guesses)
    best = optimize.minimize(lambda x: -log_density(x), [0.1, 0.1], tol=1e-12).x
    np.testing.assert_allclose(mode.points[0], best, atol=1e-6)
    assert mode.nature.kind == "stable"


@pytest.mark.slow
def test_guesses_are_drawn_from_an_initial_kind():
    """Clouds of a kind on the geometry, as points given by hand; a density where densities are carried."""
    flow, key = pf.Flow(drifts.Linear(np.diag([1.0, -0.5])), geometry=pf.Sphere(2.0)), jax.random.key(3)
    found = pf.fixed_points(flow, pf.initial.Gaussian(2), count=COUNT, draws=2, key=key)
    clouds = [np.asarray(pf.initial.Gaussian(2).sample(each, COUNT)) for each in jax.random.split(key, 2)]
    by_hand = pf.fixed_points(flow, [pf.Measure.uniform(2 * each / norms(each)) for each in clouds])
    assert [each.guesses for each in found] == [each.guesses for each in by_hand]
    for point, other in zip(found, by_hand, strict=True):
        assert point.found
        np.testing.assert_allclose(point.points, other.points, atol=1e-12)
        # every particle is at an eigenvector, ±2 along an axis
        np.testing.assert_allclose(np.sort(np.abs(point.points), axis=1), np.tile([0.0, 2.0], (COUNT, 1)), atol=1e-9)
    warm, how = pf.Flow(pf.Attend(kernels.Attention(1.0), normalization="none"), pf.Sphere(), 0.3), Spectral(8)
    uniform = only(pf.fixed_points(warm, pf.initial.UniformSphere(2), discretization=how))
    modes = np.arange(1, 9)
    rates = modes**2 * (iv(modes, 1.0) - 0.3)  # growth less diffusion, each of a cosine and a sine; the mass stays
    assert_spectrum(uniform.eigenvalues, [0.0, *rates, *rates], 1e-10)


def norms(points: np.ndarray) -> np.ndarray:
    return np.linalg.norm(points, axis=1, keepdims=True)


def test_linear_drifts_have_the_eigenvalues_of_their_matrix():
    spiral = np.array([[-0.5, 2.0, 0.0], [-2.0, -0.5, 0.0], [0.0, 0.0, 0.3]])
    point = only(pf.fixed_points(pf.Flow(drifts.Linear(spiral)), RNG.normal(size=(1, 3))))
    assert_spectrum(point.eigenvalues, [-0.5 + 2j, -0.5 - 2j, 0.3], 1e-12)
    np.testing.assert_allclose(point.points, 0.0, atol=1e-14)
    assert str(point.nature) == "saddle, spiralling: 1 unstable, 2 stable"
    assert "0.3, -0.5 + 2i" in str(point)


@pytest.mark.slow
def test_mean_field_magnets_have_three_fixed_points():
    """ẋ = tanh(βx) − x: the zero is unstable for β > 1, and the magnetisations ±m have −1 + β(1 − m²)."""
    beta = 1.7
    flow = pf.Flow([drifts.FeedForward(np.array([[beta]])), drifts.Linear(-1.0)])
    found: Any = pf.fixed_points(flow, np.array([[[1e-3]], [[0.8]], [[-1.2]], [[1.1]]]))
    size: Any = optimize.brentq(lambda m: np.tanh(beta * m) - m, 0.1, 1.0, xtol=1e-15)
    expected = {0.0: beta - 1, size: beta * (1 - size**2) - 1, -size: beta * (1 - size**2) - 1}
    assert len(found) == 3
    for point, (place, rate) in zip(found, expected.items(), strict=True):
        np.testing.assert_allclose(point.points, place, atol=1e-12)
        np.testing.assert_allclose(point.eigenvalues, rate, atol=1e-12)
    assert [point.guesses for point in found] == [(0,), (1, 3), (2,)]
    assert [point.nature.kind for point in found] == ["unstable", "stable", "stable"]


NOISY = pf.Flow(drifts.Linear(-1.0), temperature=0.1)
PLAIN = pf.Flow(drifts.Linear(-1.0))
CAUSAL = pf.Flow(pf.Attend(kernels.Attention(1.0), positional=kernels.Causal()), geometry=pf.Sphere())
# What is done, the error, and every piece of text that its message must hold.
WRONG = {
    "noise": (lambda: pf.fixed_points(NOISY, np.ones((2, 2))), ArgumentError, ["temperature", "law", "density"]),
    "a drift": (lambda: pf.fixed_points(PLAIN.drift, np.ones((2, 2))), KindError, ["`flow`", "Flow(drift)"]),
    "too many unknowns": (
        lambda: pf.fixed_points(PLAIN, np.ones((40, 30))),
        ArgumentError,
        ["1200 unknowns", "`max_unknowns` is 1024", "`merge`"],
    ),
    "no unknowns": (lambda: pf.fixed_points(PLAIN, np.ones((2, 2)), max_unknowns=0), ArgumentError, ["`max_unknowns`"]),
    "a layer of no size": (lambda: pf.fixed_points(PLAIN, np.ones((2, 2)), layer=0.0), ArgumentError, ["`layer`"]),
    "no tolerance": (lambda: pf.fixed_points(PLAIN, np.ones((2, 2)), tolerance=-1.0), ArgumentError, ["`tolerance`"]),
    "no distance": (lambda: pf.fixed_points(PLAIN, np.ones((2, 2)), merge=0.0), ArgumentError, ["`merge`"]),
    "numbers without particles": (lambda: pf.fixed_points(PLAIN, np.ones(3)), ShapeError, ["`guesses`", "(n, d)"]),
    "off the sphere": (lambda: pf.fixed_points(attention(1.0), np.ones((2, 2))), ArgumentError, ["Sphere", "off it"]),
    "merging what has positions": (
        lambda: pf.fixed_points(CAUSAL, circle(ANGLES), merge=0.1),
        ArgumentError,
        ["`merge`", "positions"],
    ),
    "merging what has values": (
        lambda: pf.fixed_points(
            attention(1.0), pf.Measure.uniform(circle(ANGLES), values=jnp.ones((COUNT, 2))), merge=0.1
        ),
        ArgumentError,
        ["`merge`", "values"],
    ),
    "a number of particles for points": (
        lambda: pf.fixed_points(PLAIN, np.ones((2, 2)), count=3),
        ArgumentError,
        ["`count`", "initial kind"],
    ),
    "no number of particles": (
        lambda: pf.fixed_points(PLAIN, pf.initial.Gaussian(2)),
        ArgumentError,
        ["`count` is needed"],
    ),
    "no draws": (lambda: pf.fixed_points(PLAIN, pf.initial.Gaussian(2), count=3, draws=0), ArgumentError, ["`draws`"]),
    "a map without a flow": (
        lambda: pf.fixed_points(pf.Flow(drifts.Linear(-1.0), geometry=geometry.PostNorm()), np.ones((1, 2))),
        ArgumentError,
        ["post_norm", "map"],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_has_no_fixed_points_is_refused(name):
    assert_refused(*WRONG[name])
