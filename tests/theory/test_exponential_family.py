"""Exponential families against SciPy, direct sums and quadrature."""
# Arguments of wrong types are among the things tested.
# pyright: reportArgumentType=false

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

import pair_oracles
from particleflow.errors import ArgumentError, DtypeError, ShapeError
from particleflow.kernels import Attention
from particleflow.measure import Measure
from particleflow.summation.local_mean import local_mean
from particleflow.theory.exponential_family import (
    Bernoulli,
    Empirical,
    GaussianBase,
    Multinoulli,
    StatisticFamily,
    UniformSphereBase,
)
from shares import by_default

RNG = np.random.default_rng(0)
TOKENS, WEIGHTS = RNG.normal(size=(19, 3)), RNG.uniform(0.1, 1.0, size=19)
CENTRE, ROOT = RNG.normal(size=3), RNG.normal(size=(3, 3))
SPREAD = ROOT @ ROOT.T + 0.3 * np.eye(3)
OUTCOMES = np.array([0.5, 2.0, 0.0, 1.5])
COINS = np.array(list(itertools.product([0.0, 1.0], repeat=3)))

# Families on finitely many points: (family, support, base weights).
FINITE = {
    "empirical": (Empirical(Measure.weighted(TOKENS, WEIGHTS)), TOKENS, WEIGHTS),
    "multinoulli": (Multinoulli(OUTCOMES), np.eye(4), OUTCOMES),
    "bernoulli": (Bernoulli(3), COINS, np.ones(8)),
}
FAMILIES = {name: family for name, (family, _, _) in FINITE.items()} | {
    "gaussian": GaussianBase(CENTRE, SPREAD),
    "sphere": UniformSphereBase(4),
    "statistic": StatisticFamily(lambda x: jnp.stack([x[0] * x[1], jnp.sin(x[2])]), Measure.weighted(TOKENS, WEIGHTS)),
}
by_finite = pytest.mark.parametrize(("family", "support", "weights"), FINITE.values(), ids=FINITE)


def parameter_of(family, seed: int, scale: float = 1.0):
    return jnp.asarray(scale * np.random.default_rng(seed).normal(size=family.dimension))


@by_finite
def test_finite_families_are_direct_sums(family, support, weights):
    theta, other = parameter_of(family, 1), parameter_of(family, 2)

    def probabilities(at):
        tilted = weights * np.exp(support @ np.asarray(at))
        return tilted / tilted.sum()

    @jax.jit
    def read(at, to):
        entropy, divergence = family.entropy(at), family.divergence(at, to)
        return family.log_normalizer(at), family.mean(at), family.covariance(at), entropy, divergence

    log_mass, found_mean, covariance, found_entropy, found_divergence = read(theta, other)
    p, q = probabilities(theta), probabilities(other)
    mean = p @ support
    np.testing.assert_allclose(log_mass, np.log(weights @ np.exp(support @ theta)), rtol=1e-13)
    np.testing.assert_allclose(found_mean, mean, rtol=1e-12, atol=1e-15)
    expected = (support - mean).T @ np.diag(p) @ (support - mean)
    np.testing.assert_allclose(covariance, expected, rtol=1e-11, atol=1e-14)
    seen = weights > 0
    entropy = -np.sum(p[seen] * np.log(p[seen] / weights[seen]))
    np.testing.assert_allclose(found_entropy, entropy, rtol=1e-11, atol=1e-13)
    divergence = np.sum(p[seen] * np.log(p[seen] / q[seen]))
    np.testing.assert_allclose(found_divergence, divergence, rtol=1e-11)


def test_gaussian_base_against_scipy():
    family, theta, other = FAMILIES["gaussian"], parameter_of(FAMILIES["gaussian"], 3), jnp.array([0.2, -0.4, 0.7])
    centre, at = CENTRE + SPREAD @ np.asarray(theta), RNG.normal(size=(6, 3))
    log_density: Any = stats.multivariate_normal.logpdf
    log_ratio = at @ np.asarray(theta) - float(family.log_normalizer(theta))
    np.testing.assert_allclose(log_density(at, centre, SPREAD) - log_density(at, CENTRE, SPREAD), log_ratio, rtol=1e-11)
    np.testing.assert_allclose(family.mean(theta), centre, rtol=1e-13)
    np.testing.assert_array_equal(family.covariance(theta), SPREAD)
    gap = np.asarray(other) - np.asarray(theta)
    np.testing.assert_allclose(family.divergence(theta, other), 0.5 * gap @ SPREAD @ gap, rtol=1e-11)
    shift = SPREAD @ np.asarray(theta)
    relative = 0.5 * shift @ np.linalg.solve(SPREAD, shift)  # KL to the base is minus the relative entropy
    np.testing.assert_allclose(family.entropy(theta), -relative, rtol=1e-11)


def test_gaussian_base_against_quadrature():
    family = GaussianBase([0.4], [[0.5]])
    exact = integrate.quad(lambda y: np.exp(1.3 * y - (y - 0.4) ** 2) / np.sqrt(np.pi), -12, 12, epsabs=1e-13)[0]
    np.testing.assert_allclose(family.log_normalizer(jnp.array([1.3])), np.log(exact), rtol=1e-11)


# In many dimensions SciPy's Bessel function underflows at small concentrations, so these are left out there.
LEAST_CONCENTRATIONS = {2: 1e-3, 3: 1e-3, 16: 1e-3, 64: 1e-3, 256: 10.0}


@pytest.mark.parametrize("dimension", by_default(LEAST_CONCENTRATIONS, [256]))
def test_sphere_against_bessel_functions(dimension):
    order, family = dimension / 2 - 1, UniformSphereBase(dimension)
    direction = np.random.default_rng(dimension).normal(size=dimension)
    direction /= np.linalg.norm(direction)
    value_and_mean = jax.jit(lambda theta: (family.log_normalizer(theta), family.mean(theta)))
    for concentration in (
        size for size in (1e-3, 0.3, 10.0, 999.0, 1001.0, 3e4) if size >= LEAST_CONCENTRATIONS[dimension]
    ):
        scaled = special.ive(order, concentration)
        found, mean = value_and_mean(jnp.asarray(concentration * direction))
        expected = special.gammaln(dimension / 2) + order * np.log(2 / concentration) + np.log(scaled) + concentration
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
        ratio = special.ive(order + 1, concentration) / scaled
        np.testing.assert_allclose(mean, ratio * direction, rtol=1e-11, atol=1e-14)


@pytest.mark.slow
def test_sphere_covariance_across_and_along_the_axis():
    covariance = jax.jit(UniformSphereBase(3).covariance)
    for concentration in (0.05, 2.0, 30.0, 2000.0):
        ratio = 1 / np.tanh(concentration) - 1 / concentration
        slope = 1 / concentration**2 - 1 / np.sinh(min(concentration, 300.0)) ** 2
        found = covariance(jnp.array([0.0, concentration, 0.0]))
        rtol = 1e-9 * max(1.0, concentration / 30)
        np.testing.assert_allclose(
            found, np.diag([ratio / concentration, slope, ratio / concentration]), rtol=rtol, atol=1e-12
        )


@pytest.mark.parametrize("dtype", by_default([jnp.float64, jnp.float32], [jnp.float32]))
def test_sphere_near_zero(dtype):
    family, tolerance = UniformSphereBase(4), {jnp.float64: 1e-11, jnp.float32: 2e-5}[dtype]
    read = jax.jit(lambda theta: (family.mean(theta), family.covariance(theta)))
    for size in (0.0, 1e-9, 1e-3, 3e-2, 0.1, 0.3):
        mean, covariance = read(jnp.asarray([0.0, size, 0.0, 0.0], dtype))
        ratio_over_size = 0.25 if size == 0 else special.ive(2, size) / special.ive(1, size) / size
        np.testing.assert_allclose(mean[1], ratio_over_size * size, rtol=tolerance)
        np.testing.assert_allclose(covariance[0, 0], ratio_over_size, rtol=tolerance)


def test_von_mises_fisher_density_and_entropy_against_scipy():
    direction, concentration = np.array([0.6, 0.0, -0.8]), 7.0
    frozen: Any = stats.vonmises_fisher
    known, family = frozen(direction, concentration), UniformSphereBase(3)
    theta, area = jnp.asarray(concentration * direction), 4 * np.pi
    at = known.rvs(5, random_state=np.random.default_rng(4))
    log_mass, entropy = jax.jit(lambda theta: (family.log_normalizer(theta), family.entropy(theta)))(theta)
    np.testing.assert_allclose(at @ np.asarray(theta) - log_mass - np.log(area), known.logpdf(at), rtol=1e-11)
    np.testing.assert_allclose(entropy + np.log(area), known.entropy(), rtol=1e-11)


def test_divergence_on_the_circle_against_quadrature():
    family, first, second = UniformSphereBase(2), np.array([2.0, 1.0]), np.array([-0.5, 0.7])
    angles = 2 * np.pi * np.arange(400) / 400  # the trapezoidal rule is exact to rounding for periodic functions
    at = np.stack([np.cos(angles), np.sin(angles)], axis=1)

    def log_density(theta):
        return at @ theta - special.logsumexp(at @ theta) + np.log(400)

    expected = np.mean(np.exp(log_density(first)) * (log_density(first) - log_density(second)))
    found = jax.jit(family.divergence)(jnp.asarray(first), jnp.asarray(second))
    np.testing.assert_allclose(found, expected, rtol=1e-11)


@pytest.mark.parametrize("name", by_default(FAMILIES, ["statistic"]))
def test_mean_and_covariance_are_derivatives(name):
    """By default for the family that no closed form is known of; the others are compared with theirs."""
    family = FAMILIES[name]
    theta, direct = parameter_of(family, 5), jax.jit(lambda at: (family.mean(at), family.covariance(at)))
    derived = jax.jit(lambda at: (jax.grad(family.log_normalizer)(at), jax.hessian(family.log_normalizer)(at)))
    for found, expected in zip(direct(theta), derived(theta), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_the_fit_to_a_mean_has_this_mean(name):
    """θ ↦ ∇G(θ) ↦ θ, up to directions in which all statistics agree (the outcomes of a multinoulli sum to one)."""
    family = FAMILIES[name]
    mean = family.mean(parameter_of(family, 12, 0.7))
    theta = family.fit(mean)
    np.testing.assert_allclose(family.mean(theta), mean, rtol=1e-9, atol=1e-10)
    for seed in range(3):  # and no other parameter makes draws of this mean more likely
        other = theta + parameter_of(family, seed, 0.3)
        assert family.log_likelihood(other, mean) <= family.log_likelihood(theta, mean) + 1e-12


@pytest.mark.parametrize("name", by_default(FAMILIES, ["gaussian"]))
def test_tilting_moves_the_origin(name):
    family = FAMILIES[name]
    origin, theta, other = (parameter_of(family, seed) for seed in (6, 7, 8))
    read = jax.jit(lambda f, at, to: (f.log_normalizer(at), f.mean(at), f.covariance(at), f.divergence(at, to)))
    tilted = family.tilted(origin)
    log_mass, mean, covariance, divergence = read(tilted, theta, other)
    expected = read(family, origin + theta, origin + other)
    np.testing.assert_allclose(log_mass, expected[0] - family.log_normalizer(origin), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(mean, expected[1], rtol=1e-12)
    np.testing.assert_allclose(covariance, expected[2], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(divergence, expected[3], rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(tilted.tilted(theta).mean(other), family.mean(origin + theta + other), rtol=1e-11)
    # Seen from p(· | origin), its own entropy is zero and that of every other member minus their divergence.
    assert abs(float(tilted.entropy(jnp.zeros_like(theta)))) < 1e-13
    np.testing.assert_allclose(tilted.entropy(theta), -family.divergence(origin + theta, origin), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", by_default(FAMILIES, ["gaussian"]))
def test_samples_have_the_mean_and_covariance(name):
    family = FAMILIES[name]
    theta, count = parameter_of(family, 9, 1.5), 20000
    draws = np.asarray(jax.jit(lambda key: family.sample(key, theta, count))(jax.random.key(3)))
    draws = np.asarray(family.statistic(jnp.asarray(draws)))
    assert draws.shape == (count, family.dimension)
    mean, covariance = np.asarray(family.mean(theta)), np.asarray(family.covariance(theta))
    deviation = np.sqrt(np.diag(covariance) / count)
    assert (np.abs(draws.mean(0) - mean) <= 4.5 * deviation + 1e-12).all()
    centred = draws - mean
    products = centred[:, :, None] * centred[:, None, :]
    assert (np.abs(products.mean(0) - covariance) <= 4.5 * products.std(0) / np.sqrt(count) + 1e-12).all()


@pytest.mark.slow
@pytest.mark.parametrize("dimension", by_default([2, 9], [9]))
def test_von_mises_fisher_draws_have_the_right_projection(dimension):
    axis = np.eye(dimension)[-1]
    sample = jax.jit(lambda key, theta: UniformSphereBase(dimension).sample(key, theta, 4000))
    angles = np.linspace(0, np.pi, 200001)
    for number, concentration in enumerate((0.0, 0.5, 40.0, 1e4)):
        draws = np.asarray(sample(jax.random.key(number), jnp.asarray(concentration * axis)))
        np.testing.assert_allclose(np.linalg.norm(draws, axis=1), 1.0, rtol=1e-12)
        # The angle to the axis has density ∝ e^{κ cos} sin^{d−2}; κ (cos − 1) = −2κ sin²(angle/2) keeps its digits.
        density = np.exp(-2 * concentration * np.sin(angles / 2) ** 2) * np.sin(angles) ** (dimension - 2)
        steps = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
        measured = 2 * np.arcsin(np.clip(np.linalg.norm(draws - axis, axis=1) / 2, 0, 1))
        cumulative = steps / steps[-1]
        assert stats.kstest(measured, lambda t, c=cumulative: np.interp(t, angles, c)).pvalue > 1e-3


@pytest.mark.slow
def test_attention_is_the_mean_of_the_empirical_family():
    measure, queries, beta = Measure.weighted(TOKENS, WEIGHTS), RNG.normal(size=(4, 3)), 2.3
    attended = local_mean(Attention(beta), measure, queries)
    means = jax.vmap(Empirical(measure).mean)(jnp.asarray(beta * queries))
    np.testing.assert_allclose(attended, means, rtol=1e-12)
    logits = beta * queries @ TOKENS.T + np.log(WEIGHTS)
    np.testing.assert_allclose(attended, pair_oracles.moments(logits, TOKENS)[1], rtol=1e-12)


def test_families_are_made_inside_jit():
    found = jax.jit(lambda w, s: Multinoulli(w).log_normalizer(jnp.zeros(3)) + GaussianBase(w, s).covariance(w)[0, 0])(
        jnp.array([1.0, 2.0, 3.0]), jnp.eye(3)
    )
    np.testing.assert_allclose(found, np.log(6.0) + 1.0, rtol=1e-14)


CLOUD = Measure.uniform(np.arange(6.0).reshape(3, 2))
NAN = float("nan")
# What is done, the error, and every piece of text that its message must hold.
WRONG = {
    "a family that carries values": (
        lambda: Empirical(CLOUD.with_values(jnp.zeros(3))),
        ArgumentError,
        ["base measure", "its own points"],
    ),
    "a parameter of another dimension": (
        lambda: Empirical(CLOUD).mean(jnp.zeros(3)),
        ShapeError,
        ["`parameter`", "(2,)", "(3,)"],
    ),
    "a parameter with an axis too many": (
        lambda: Bernoulli(2).mean(jnp.zeros((1, 2))),
        ShapeError,
        ["`parameter`", "(1, 2)"],
    ),
    "a parameter that would broadcast": (
        lambda: Multinoulli([1.0, 1.0]).mean(jnp.zeros(1)),
        ShapeError,
        ["(2,)", "(1,)"],
    ),
    "an integer parameter": (lambda: Bernoulli(2).entropy(np.zeros(2, int)), DtypeError, ["`parameter`", "int64"]),
    "a NaN parameter": (lambda: UniformSphereBase(2).mean([0.0, NAN]), ArgumentError, ["`parameter`", "nan", "[1]"]),
    "a sphere of another dimension": (
        lambda: UniformSphereBase(3).log_normalizer(jnp.zeros(2)),
        ShapeError,
        ["(3,)", "(2,)"],
    ),
    "a divergence between dimensions": (
        lambda: Bernoulli(2).divergence(jnp.zeros(2), jnp.zeros(3)),
        ShapeError,
        ["`second`", "(2,)", "(3,)"],
    ),
    "a tilt of another dimension": (
        lambda: Bernoulli(2).tilted(jnp.zeros(3)),
        ShapeError,
        ["`parameter`", "(2,)", "(3,)"],
    ),
    "a sphere of one dimension": (lambda: UniformSphereBase(1), ArgumentError, ["`dimension`", "at least 2", "1"]),
    "half a coin": (
        lambda: Bernoulli(1.5),
        ArgumentError,
        ["`dimension`", "integer", "1.5"],
    ),
    "a spread of another shape": (
        lambda: GaussianBase(np.zeros(2), np.eye(3)),
        ShapeError,
        ["`centre`", "`spread`", "(2,)", "(3, 3)"],
    ),
    "a spread that is not symmetric": (
        lambda: GaussianBase(np.zeros(2), np.array([[1.0, 0.5], [0.0, 1.0]])),
        ArgumentError,
        ["`spread`", "symmetric"],
    ),
    "a spread that is not positive": (
        lambda: GaussianBase(np.zeros(2), np.diag([1.0, -2.0])),
        ArgumentError,
        ["`spread`", "positive definite", "-2"],
    ),
    "a spread in another precision": (
        lambda: GaussianBase(np.zeros(2, np.float32), np.eye(2)),
        DtypeError,
        ["`centre` is float32", "`spread` is float64"],
    ),
    "negative outcomes": (lambda: Multinoulli([1.0, -0.5]), ArgumentError, ["`weights`", "negative", "-0.5"]),
    "outcomes without mass": (lambda: Multinoulli([0.0, 0.0]), ArgumentError, ["`weights`", "no mass"]),
    "a table of outcomes": (lambda: Multinoulli([[1.0]]), ShapeError, ["`weights`", "(d,)", "(1, 1)"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_named(name):
    pair_oracles.assert_refused(*WRONG[name])
