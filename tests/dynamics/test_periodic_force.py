"""Ewald's sums as a drift: sums over ever larger balls of boxes, any splitting, copies, and the energy it descends."""

import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from pair_oracles import assert_refused
from particleflow import drifts
from particleflow.errors import ArgumentError, ShapeError
from particleflow.summation.periodic.ewald import ewald


def velocity(points, charges, side, **settings):
    measure = pf.Measure(jnp.asarray(points), jnp.zeros(len(points)), values=jnp.asarray(charges)[:, None])
    return np.asarray(drifts.PeriodicForce(side, charged=True, **settings)(0.0, measure.sites, measure))


def cloud():
    rng = np.random.default_rng(0)
    points, charges = rng.uniform(0, 3, size=(10, 3)), rng.normal(size=10)
    return points, charges - charges.mean()


def test_any_splitting_and_any_copies_give_the_same_forces():
    points, charges = cloud()
    expected = velocity(points, charges, 3.0)
    np.testing.assert_allclose(velocity(points, charges, 3.0, splitting=4.5), expected, rtol=0, atol=1e-10)
    left = points + 3.0 * np.random.default_rng(1).integers(-5, 6, size=(10, 3))
    np.testing.assert_allclose(velocity(left, charges, 3.0), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(expected.sum(axis=0), 0, atol=1e-10)  # actio = reactio


@pytest.mark.slow
def test_it_is_the_sum_over_ever_larger_balls_of_boxes():
    """A box without a dipole, symmetric about 0: the sum over balls of boxes then needs no correction."""
    half = np.random.default_rng(2).uniform(0.2, 1.3, size=(3, 3))
    points, charges = np.concatenate([half, -half]), np.tile([1.0, -0.4, -0.6], 2)
    line = np.arange(-12, 13)
    copies = np.stack(np.meshgrid(line, line, line, indexing="ij"), axis=-1).reshape(-1, 3)
    copies = 3.0 * copies[np.sum(copies**2, axis=1) <= 12**2]
    steps = points[:, None, None] - points[None, :, None] - copies
    squares = np.sum(steps**2, axis=-1)
    slopes = np.where(squares > 1e-12, np.maximum(squares, 1e-12) ** -1.5, 0)
    direct = charges[:, None] * np.einsum("j,ijc,ijca->ia", charges, slopes, steps)
    np.testing.assert_allclose(velocity(points, charges, 3.0), direct, atol=2e-3)
    assert np.abs(direct).max() > 0.3


@pytest.mark.slow
def test_ions_of_salt_rest_and_a_displaced_one_descends_madelungs_energy():
    salt = np.stack(np.meshgrid(*[np.arange(2.0)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    signs = (-1.0) ** salt.sum(axis=1)
    np.testing.assert_allclose(velocity(salt, signs, 2.0), 0, atol=1e-11)
    assert 2 * float(ewald(salt, signs, 2.0).energy) / 8 == pytest.approx(-1.747564594633182, rel=1e-11)
    moved, step = salt.copy(), 1e-4 * np.eye(8)[:, :1] * np.eye(3)[0]
    moved[0] += [0.1, 0.2, -0.05]
    energies = [float(ewald(moved + sign * step, signs, 2.0).energy) for sign in (1, -1)]
    assert velocity(moved, signs, 2.0)[0, 0] == pytest.approx((energies[1] - energies[0]) / 2e-4, abs=1e-6)


@pytest.mark.slow
def test_masses_attract_as_like_charges_repel():
    points, _ = cloud()
    measure = pf.Measure.uniform(jnp.asarray(points))
    pull = np.asarray(drifts.PeriodicForce(3.0)(0.0, measure.sites, measure))
    np.testing.assert_allclose(10 * pull, -velocity(points, np.ones(10), 3.0), rtol=1e-9, atol=1e-10)


def test_what_it_cannot_do_is_refused():
    assert_refused(lambda: drifts.PeriodicForce(-1.0), ArgumentError, ["`side`", "-1"])
    assert_refused(lambda: drifts.PeriodicForce(1.0, splitting=0.0), ArgumentError, ["`splitting`", "0.0"])
    assert_refused(lambda: drifts.PeriodicForce(1.0, tolerance=2.0), ArgumentError, ["`tolerance`", "2.0"])
    assert_refused(lambda: velocity(np.ones((3, 2)), np.ones(3), 1.0), ShapeError, ["space", "2"])
    flat = pf.Measure.uniform(jnp.ones((3, 3)))
    charged = drifts.PeriodicForce(1.0, charged=True)
    assert_refused(lambda: charged(0.0, flat.sites, flat), ArgumentError, ["`charged`", "none"])
