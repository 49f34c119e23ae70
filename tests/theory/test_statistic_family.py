"""Families of any statistic against closed forms: normal laws, von Mises, Ising rings, Boltzmann machines."""

# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from pair_oracles import assert_refused
from particleflow.errors import ArgumentError, KindError, ShapeError
from particleflow.kernels import Attention
from particleflow.measure import Measure
from particleflow.summation.local_mean import local_mean
from particleflow.theory.exponential_family import (
    Bernoulli,
    Conditional,
    Empirical,
    Multinoulli,
    StatisticFamily,
    base_measures,
    boltzmann_machine,
)
from shares import by_default

RNG = np.random.default_rng(3)


def powers(x):
    return jnp.concatenate([x, x**2])


NORMAL = StatisticFamily(powers, base_measures.box(-14.0, 16.0, nodes=160))


@pytest.mark.parametrize(("centre", "deviation"), [(0.7, 1.3), pytest.param(-1.0, 0.5, marks=pytest.mark.slow)])
def test_powers_on_the_line_make_normal_laws(centre, deviation):
    """θ = (a/σ², −1/(2σ²)), G = a²/(2σ²) + log σ√(2π)."""
    theta = jnp.array([centre / deviation**2, -0.5 / deviation**2])
    expected = centre**2 / (2 * deviation**2) + np.log(deviation * np.sqrt(2 * np.pi))
    at = np.array([[-1.0], [0.2], [2.5]])

    @jax.jit
    def read(theta):
        log_density, entropy = NORMAL.log_density(theta, at), NORMAL.entropy(theta)
        return NORMAL.log_normalizer(theta), NORMAL.mean(theta), NORMAL.covariance(theta), log_density, entropy

    log_mass, mean, found_covariance, log_density, entropy = read(theta)
    np.testing.assert_allclose(log_mass, expected, rtol=1e-12)
    np.testing.assert_allclose(mean, [centre, centre**2 + deviation**2], rtol=1e-11)
    v = deviation**2
    covariance = [[v, 2 * centre * v], [2 * centre * v, 2 * v**2 + 4 * centre**2 * v]]
    np.testing.assert_allclose(found_covariance, covariance, rtol=1e-10)
    np.testing.assert_allclose(log_density, stats.norm(centre, deviation).logpdf(at[:, 0]), rtol=1e-11)
    np.testing.assert_allclose(entropy, stats.norm(centre, deviation).entropy(), rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("weighted", by_default([False, True], [True]))
def test_maximum_likelihood_of_a_normal_law_is_mean_and_variance_of_its_draws(weighted):
    draws, weights = RNG.normal(0.4, 1.1, size=(40, 1)), RNG.uniform(0.5, 2.0, size=40)
    shares = weights if weighted else None
    mean = np.average(draws[:, 0], weights=shares)
    variance = np.average((draws[:, 0] - mean) ** 2, weights=shares)
    found = NORMAL.maximum_likelihood(draws, shares)
    np.testing.assert_allclose(found, [mean / variance, -0.5 / variance], rtol=1e-9)


@pytest.mark.slow
def test_ascending_the_likelihood_leads_to_the_fit():
    """θ ← θ + rate · (m − ∇G(θ)), the view of attention as a step of gradient ascent, ends where Newton's steps do."""
    machine, target = boltzmann_machine(3), RNG.normal(size=6)
    mean = machine.mean(jnp.asarray(target))
    slope = jax.grad(machine.log_likelihood)(jnp.zeros(6), mean)
    np.testing.assert_allclose(slope, mean - machine.mean(jnp.zeros(6)), rtol=1e-12)
    fitted = machine.fit(mean)
    np.testing.assert_allclose(fitted, target, rtol=1e-8)
    theta = jax.lax.fori_loop(0, 3000, lambda _, at: at + 2.0 * (mean - machine.mean(at)), jnp.zeros(6))
    np.testing.assert_allclose(theta, fitted, rtol=1e-6)


@pytest.mark.slow
def test_the_fit_has_the_derivative_of_its_equation():
    """dθ/dm = (∇²G)⁻¹, also inside of `jit`."""
    machine = boltzmann_machine(2, (-1.0, 1.0))
    target = jnp.array([0.3, -0.2, 0.5])
    slopes = jax.jit(jax.jacfwd(machine.fit))(machine.mean(target))
    np.testing.assert_allclose(slopes, np.linalg.inv(machine.covariance(target)), rtol=1e-7)


@pytest.mark.slow
def test_angles_on_the_circle_make_von_mises_laws():
    """G = log 2πI₀(κ), mean A(κ) in its direction, A = I₁/I₀."""
    family = StatisticFamily(lambda x: x, base_measures.circle(96))
    for size, angle in ((0.5, 0.3), (20.0, -2.0)):
        theta = size * jnp.array([np.cos(angle), np.sin(angle)])
        np.testing.assert_allclose(family.log_normalizer(theta), np.log(2 * np.pi * special.i0(size)), rtol=1e-12)
        ratio = special.i1(size) / special.i0(size)
        np.testing.assert_allclose(family.mean(theta), ratio * np.asarray(theta) / size, rtol=1e-11)
        at = np.array([0.1, 2.0])
        found = family.log_density(theta, np.stack([np.cos(at), np.sin(at)], axis=1))
        np.testing.assert_allclose(found, stats.vonmises(size, angle).logpdf(at), rtol=1e-11)
        np.testing.assert_allclose(family.fit(family.mean(theta)), theta, rtol=1e-7)


@pytest.mark.slow
def test_a_ring_of_spins_is_solved_by_its_transfer_matrix():
    """Σ_s exp(J Σ s_i s_{i+1} + h Σ s_i) = λ₊ⁿ + λ₋ⁿ, λ± = e^J cosh h ± √(e^{2J} sinh² h + e^{−2J})."""
    count, coupling, field = 9, 0.6, -0.3
    ring = StatisticFamily(
        lambda s: jnp.stack([s @ jnp.roll(s, 1), jnp.sum(s)]), base_measures.hypercube(count, (-1.0, 1.0))
    )

    def exact(theta):
        root = jnp.sqrt(jnp.exp(2 * theta[0]) * jnp.sinh(theta[1]) ** 2 + jnp.exp(-2 * theta[0]))
        middle = jnp.exp(theta[0]) * jnp.cosh(theta[1])
        return jnp.log((middle + root) ** count + (middle - root) ** count)

    theta = jnp.array([coupling, field])
    np.testing.assert_allclose(ring.log_normalizer(theta), exact(theta), rtol=1e-12)
    np.testing.assert_allclose(ring.mean(theta), jax.grad(exact)(theta), rtol=1e-11)
    np.testing.assert_allclose(ring.covariance(theta), jax.hessian(exact)(theta), rtol=1e-9)


def joint(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All states of four units and their probabilities under biases and couplings, in NumPy."""
    states = np.array(list(itertools.product([0.0, 1.0], repeat=4)))
    pairs = np.array([[s[i] * s[j] for i, j in itertools.combinations(range(4), 2)] for s in states])
    weights = np.exp(states @ theta[:4] + pairs @ theta[4:])
    return states, weights / weights.sum()


@pytest.mark.slow
def test_conditionals_of_a_boltzmann_machine_are_coins():
    """p(s_k = 1 | the others) = σ(b_k + Σ_j W_kj s_j), from the joint law by Bayes' rule."""
    theta = RNG.normal(size=10)
    states, probabilities = joint(theta)
    machine = boltzmann_machine(4)
    np.testing.assert_allclose(machine.mean(jnp.asarray(theta))[:4], probabilities @ states, rtol=1e-12)
    order = np.argsort(np.asarray(machine.base.points) @ 2.0 ** np.arange(4)[::-1])
    np.testing.assert_allclose(np.asarray(machine.probabilities(jnp.asarray(theta)))[order], probabilities, rtol=1e-12)
    couplings = np.zeros((4, 4))
    couplings[np.triu_indices(4, 1)] = theta[4:]
    couplings += couplings.T
    coins = Conditional(Bernoulli(4), couplings, theta[:4])
    given = np.asarray(coins.mean(jnp.asarray(states)))
    for index, unit in itertools.product(range(16), range(4)):
        flipped = states[index].copy()
        flipped[unit] = 1 - flipped[unit]
        other = int(np.flatnonzero((states == flipped).all(axis=1))[0])
        share = probabilities[index] / (probabilities[index] + probabilities[other])
        np.testing.assert_allclose(given[index, unit], share if states[index, unit] == 1 else 1 - share, rtol=1e-12)


def test_a_layer_of_a_restricted_machine_is_independent_given_the_other():
    """p(y | x) of e^{⟨y, Wx⟩ + ⟨b, y⟩ + ⟨c, x⟩}, whose couplings join the two layers only, against the joint law."""
    weight, bias, visible = RNG.normal(size=(2, 2)), RNG.normal(size=2), RNG.normal(size=2)
    theta = np.concatenate([visible, bias, [0.0, weight[0, 0], weight[1, 0], weight[0, 1], weight[1, 1], 0.0]])
    states, probabilities = joint(theta)  # units 0 and 1 are x, 2 and 3 are y
    layer = Conditional(Bernoulli(2), weight, bias)
    for x in itertools.product([0.0, 1.0], repeat=2):
        here = (states[:, :2] == x).all(axis=1)
        given = probabilities[here] / probabilities[here].sum()
        found = np.exp(layer.log_density(jnp.asarray([x] * 4), jnp.asarray(states[here][:, 2:])))
        np.testing.assert_allclose(found, given, rtol=1e-12)


@pytest.mark.slow
def test_attention_and_classifiers_are_conditionals():
    tokens, queries, matrix = RNG.normal(size=(7, 3)), RNG.normal(size=(4, 3)), RNG.normal(size=(3, 3))
    measure = Measure.weighted(tokens, RNG.uniform(0.2, 1.0, size=7))
    attend = Conditional(Empirical(measure), 1.7 * matrix)
    expected = local_mean(Attention(1.7, query=matrix), measure, jnp.asarray(queries))
    np.testing.assert_allclose(attend.mean(jnp.asarray(queries)), expected, rtol=1e-12)
    classify = Conditional(Multinoulli(np.ones(2)), matrix[:2], np.array([0.1, -0.4]))
    logits = queries @ matrix[:2].T + [0.1, -0.4]
    np.testing.assert_allclose(classify.mean(jnp.asarray(queries)), special.softmax(logits, axis=1), rtol=1e-12)
    drawn = classify.sample(jax.random.key(0), jnp.asarray(queries), 5)
    assert drawn.shape == (4, 5, 2)
    np.testing.assert_array_equal(drawn.sum(axis=2), 1.0)


@pytest.mark.slow
def test_draws_stand_for_their_law_where_many_have_a_share():
    """Under N(0, 1) as base, u = x gives G = θ²/2; far out few draws are left, and the family says so."""
    draws = np.random.default_rng(0).normal(size=(20000, 1))
    family = StatisticFamily(lambda x: x, Measure.uniform(draws))
    near, far = jnp.array([0.5]), jnp.array([6.0])
    np.testing.assert_allclose(family.log_normalizer(near), 0.125, atol=4 * np.sqrt(np.expm1(0.25) / 20000))
    assert family.effective_count(near) > 10000
    assert family.effective_count(far) < 50
    np.testing.assert_allclose(family.probabilities(near).sum(), 1.0, rtol=1e-12)


@pytest.mark.slow
def test_boxes_of_several_dimensions_and_single_precision():
    family = StatisticFamily(
        lambda x: jnp.concatenate([x, -(x**2)]), base_measures.box([-9.0, -8.0], [9.0, 8.0], nodes=60)
    )
    theta = jnp.array([0.3, -0.2, 0.5, 0.7])
    expected = sum(a**2 / (4 * b) + 0.5 * np.log(np.pi / b) for a, b in ((0.3, 0.5), (-0.2, 0.7)))
    np.testing.assert_allclose(family.log_normalizer(theta), expected, rtol=1e-11)
    single = StatisticFamily(powers, base_measures.box(-14.0, 16.0, nodes=160, dtype=jnp.float32))
    found = single.fit(jnp.array([0.5, 1.25], jnp.float32))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, [0.5, -0.5], rtol=1e-3)


@pytest.mark.slow
def test_draws_of_a_statistic_family_have_its_mean():
    theta = jnp.array([0.7, -0.4])
    draws = NORMAL.sample(jax.random.key(1), theta, 40000)
    assert draws.shape == (40000, 1)
    deviation = np.sqrt(np.diag(NORMAL.covariance(theta)) / 40000)
    assert (np.abs(np.asarray(NORMAL.statistic(draws).mean(axis=0) - NORMAL.mean(theta))) < 4.5 * deviation).all()


LINE = base_measures.box(0.0, 1.0, nodes=8)
# What is done, the error, and every piece of text that its message must hold.
WRONG = {
    "no measure": (lambda: StatisticFamily(powers, np.ones((3, 1))), KindError, ["`base`", "measure"]),
    "a measure with values": (
        lambda: StatisticFamily(powers, LINE.with_values(jnp.ones(8))),
        ArgumentError,
        ["`base`", "values"],
    ),
    "a number for a statistic": (lambda: StatisticFamily(jnp.sum, LINE), ShapeError, ["`function`", "(k,)", "()"]),
    "a mean outside of the hull": (
        lambda: NORMAL.fit([2.0, 3.0]),
        ArgumentError,
        ["`mean`", "convex hull"],
    ),
    "a mean of another dimension": (lambda: NORMAL.fit([1.0]), ShapeError, ["`mean`", "(2,)", "(1,)"]),
    "a box inside out": (lambda: base_measures.box(1.0, 0.0, nodes=4), ArgumentError, ["`low`", "`high`"]),
    "half a node": (lambda: base_measures.box(0.0, 1.0, nodes=1.5), ArgumentError, ["`nodes`", "1.5"]),
    "a cube too large": (lambda: base_measures.hypercube(40), ArgumentError, ["`dimension`", "40", "draws"]),
    "a bias of another length": (
        lambda: Conditional(Bernoulli(2), 1.0, [1.0, 2.0, 3.0]),
        ShapeError,
        ["`bias`", "(2,)", "(3,)"],
    ),
    "inputs of another length": (
        lambda: Conditional(Bernoulli(2)).mean(jnp.zeros((4, 3))),
        ShapeError,
        ["`inputs`", "(m, 2)", "(4, 3)"],
    ),
    "outputs of another number": (
        lambda: Conditional(Bernoulli(2)).log_density(jnp.zeros((4, 2)), jnp.zeros((3, 2))),
        ShapeError,
        ["4 inputs", "(3, 2)"],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_named(name):
    assert_refused(*WRONG[name])
