"""The overlap of two laws against quadrature, closed forms, matrix products and draws."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ive
from scipy.stats import norm

import particleflow as pf
from particleflow import kernels as k
from particleflow.errors import UserError

_RNG = np.random.default_rng(3)
LINE = np.array([-0.7, 0.0, 0.4, 3.0])


@pytest.mark.slow
def test_the_overlap_of_normal_laws_is_a_gaussian_of_twice_the_variance():
    """∫ N(z; x, s²) N(z; y, s²) dz by SciPy's quadrature, by the closed form, and by the kernel on a grid of nodes."""
    s, nodes = 0.5, np.linspace(-7.0, 9.0, 401)
    log_weights = np.full(401, np.log(nodes[1] - nodes[0]))
    kernel = k.Overlap(k.Gaussian(s), nodes[:, None], log_weights)
    found = np.exp(np.asarray(kernel.log_matrix(LINE[:, None], LINE[:, None])))
    exact = [
        [quad(lambda z, x=x, y=y: norm.pdf(z, x, s) * norm.pdf(z, y, s), -7, 9, epsabs=1e-13)[0] for y in LINE]
        for x in LINE
    ]
    np.testing.assert_allclose(found, exact, rtol=1e-11, atol=1e-12)
    closed = (4 * np.pi * s**2) ** -0.5 * np.exp(k.Gaussian(np.sqrt(2) * s).log_matrix(LINE[:, None], LINE[:, None]))
    np.testing.assert_allclose(found, closed, rtol=1e-12)
    measure = pf.Measure.uniform(LINE[:, None], np.sin(LINE))
    means = [pf.local_mean(each, measure, LINE[:, None] + 0.3) for each in (kernel, k.Gaussian(np.sqrt(2) * s))]
    np.testing.assert_allclose(*means, rtol=1e-12)


@pytest.mark.slow
def test_heat_for_twice_the_time_is_the_overlap_on_a_circle_and_on_a_graph():
    """Von Mises laws overlap in a Bessel function; a symmetric walk of t steps overlaps in one of 2t steps."""
    angles, kappa = 2 * np.pi * np.arange(64) / 64, 3.0
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    kernel = k.Overlap(k.Attention(kappa), circle, np.full(64, np.log(2 * np.pi / 64)))
    found = np.exp(np.asarray(kernel.log_matrix(circle[:1], circle)))[0]
    length = 2 * kappa * np.abs(np.cos(angles / 2))  # of κ(x + y)
    exact = ive(0, length) * np.exp(length - 2 * kappa) / (2 * np.pi * ive(0, kappa) ** 2)
    np.testing.assert_allclose(found, exact, rtol=1e-12)
    walk = _RNG.uniform(size=(6, 6)) + 6 * np.eye(6)
    for _ in range(2000):  # doubly stochastic and symmetric, by scaling
        walk = walk / walk.sum(axis=1, keepdims=True)
        walk = 0.5 * (walk + walk.T)
    letters = np.arange(6.0)[:, None]
    both = k.Overlap(k.Discrete(np.log(walk)), letters).log_matrix(letters, letters)
    np.testing.assert_allclose(np.exp(both), walk @ walk, rtol=1e-9)


@pytest.mark.slow
def test_it_is_the_chance_that_two_draws_agree():
    table = _RNG.normal(size=(3, 4))
    law = np.exp(table) / np.exp(table).sum(axis=1, keepdims=True)
    kernel = k.Overlap(k.Discrete(table), np.arange(4.0)[:, None])
    found = np.exp(float(kernel.log_matrix(jnp.array([[0.0]]), jnp.array([[2.0]]))[0, 0]))
    draws = [_RNG.choice(4, p=law[row], size=200_000) for row in (0, 2)]
    assert abs(found - law[0] @ law[2]) < 1e-14
    assert abs(np.mean(draws[0] == draws[1]) - found) < 4 * np.sqrt(found * (1 - found) / 200_000)


@pytest.mark.slow
def test_far_points_keep_their_digits_and_neighbours_are_counted_among_the_nodes():
    kernel = k.Overlap(k.Gaussian(0.5), np.linspace(-60, 60, 1201)[:, None])
    found = kernel.log_matrix(jnp.array([[-25.0]]), jnp.array([[25.0], [24.0]]))[0]
    assert abs(float(found[0] - found[1]) + (50.0**2 - 49.0**2)) < 1e-9  # e^{−2500}, below every number
    nodes = np.array([[0.0], [1.0], [2.0], [3.0]])
    nearest = k.Overlap(k.Nearest(2), nodes)
    measure = pf.Measure.uniform(np.array([[0.1], [1.6], [2.9]]), np.array([1.0, 2.0, 4.0]))
    shares = np.asarray(pf.attention_weights(nearest, measure, np.array([[1.4]])))[0]
    np.testing.assert_allclose(shares, [0.25, 0.5, 0.25])  # nodes {1, 2} of the query; {0, 1}, {1, 2}, {2, 3}
    for wrong in ({"nodes": np.zeros(3)}, {"nodes": nodes, "log_weights": np.zeros(3)}):
        with pytest.raises(UserError, match="nodes"):
            k.Overlap(k.Gaussian(1.0), **wrong)
