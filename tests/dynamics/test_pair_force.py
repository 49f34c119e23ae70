"""Forces of pairs: brute force in NumPy, the exact fall of the mean square radius, and what a cut-off loses."""

import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from pair_oracles import assert_refused
from particleflow import drifts, kernels
from particleflow.errors import ArgumentError
from particleflow.summation import Tree
from shares import by_default


def brute_force(points, weights, charges, power, softening):
    steps = points[None] - points[:, None]
    squares = np.sum(steps**2, axis=-1) + softening**2
    np.fill_diagonal(squares, np.inf)
    return np.einsum("ij,ijd,j->id", squares ** (-power / 2), steps, weights * charges)


def velocity(drift, measure):
    return np.asarray(drift(0.0, measure.sites, measure))


@pytest.mark.parametrize("charged", by_default([False, True], [True]))
def test_forces_are_those_of_all_pairs(charged):
    rng = np.random.default_rng(0)
    points, log_weights, charges = rng.normal(size=(60, 3)), rng.normal(size=60), rng.choice([-1.0, 2.0], 60)
    measure = pf.Measure(
        jnp.asarray(points), jnp.asarray(log_weights), values=jnp.asarray(charges) if charged else None
    )
    weights = np.exp(log_weights)
    given = charges if charged else np.ones(60)
    expected = brute_force(points, weights, given, 3.0, 0.1) * (-given[:, None] if charged else 1)
    for how in (None, Tree(1e-8)):
        found = velocity(drifts.PairForce(kernels.InverseDistance(3.0, 0.1), charged, summation=how), measure)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_particles_left_out_of_their_own_sums_need_no_softening():
    points = np.random.default_rng(1).normal(size=(30, 2))
    measure = pf.Measure.uniform(jnp.asarray(points), positions=jnp.arange(30.0))
    found = velocity(drifts.PairForce(kernels.InverseDistance(2.0), positional=kernels.Others()), measure)
    np.testing.assert_allclose(found, brute_force(points, np.full(30, 1 / 30), np.ones(30), 2.0, 0.0), rtol=1e-9)


@pytest.mark.slow
def test_the_mean_square_falls_at_the_rate_of_the_pairs_that_are_summed():
    """In the plane ⟨x_i, v_i⟩ summed is −½ Σ w_i w_j over the pairs of K = r⁻², so that Σ w |x|² falls at their share.

    Beyond a cut-off R the share of pairs that is lost depends on R over the size of the cloud alone: not on the size.
    """
    points = np.random.default_rng(2).uniform(-1, 1, size=(400, 2))
    lost = []
    for size in (1.0, 10.0, 100.0):
        measure = pf.Measure.uniform(jnp.asarray(size * points))
        whole = velocity(drifts.PairForce(kernels.InverseDistance(2.0, 1e-6 * size)), measure)
        near = velocity(drifts.PairForce(kernels.InverseDistance(2.0, 1e-6 * size) * kernels.Ball(0.5 * size)), measure)
        by_tree = velocity(drifts.PairForce(kernels.InverseDistance(2.0, 1e-6 * size), summation=Tree(1e-6)), measure)
        falls = [-2 * np.mean(np.sum(size * points * each, axis=1)) for each in (whole, near, by_tree)]
        assert falls[0] == pytest.approx(1 - 1 / 400, abs=1e-6)
        assert falls[2] == pytest.approx(falls[0], abs=1e-5)
        lost.append(1 - falls[1] / falls[0])
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
    share = np.sum(distances >= 0.5) / (400 * 399)
    np.testing.assert_allclose(lost, share, atol=1e-5)
    assert share > 0.8


def test_a_particle_that_would_meet_itself_is_refused():
    assert_refused(
        lambda: drifts.PairForce(kernels.InverseDistance(3.0)), ArgumentError, ["`kernel`", "softening", "others"]
    )
    measure = pf.Measure.uniform(jnp.ones((3, 2)))
    charged = drifts.PairForce(kernels.Gaussian(1.0), charged=True)
    assert_refused(lambda: velocity(charged, measure), ArgumentError, ["`charged`", "no values"])
