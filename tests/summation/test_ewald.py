"""Periodic electrostatics: Madelung's constants, any splitting, and brute-force lattice sums."""

import jax.numpy as jnp
import numpy as np
import pytest

from pair_oracles import assert_refused
from particleflow.errors import ArgumentError, ShapeError
from particleflow.summation.periodic.ewald import ewald

SALT = 1.747564594633182190636212035544397403481  # Madelung's constant of NaCl
CAESIUM_CHLORIDE = 1.76267477307098839793567332063864429117
WIGNER = -2.837297479480619666  # of a charge and its copies, in a neutralising background


@pytest.mark.slow
def test_madelung_of_salt_does_not_depend_on_the_splitting():
    places = np.stack(np.meshgrid(*[np.arange(2.0)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    signs = (-1.0) ** places.sum(axis=1)
    for splitting in (0.7, 1.3, 2.2):
        found = ewald(places, signs, 2.0, splitting=splitting)
        np.testing.assert_allclose(found.potentials, -SALT * signs, rtol=1e-11)
        np.testing.assert_allclose(found.gradients, 0, atol=1e-10)
    caesium = ewald(np.array([[0.0, 0, 0], [0.5, 0.5, 0.5]]), np.array([1.0, -1.0]), 1.0)
    np.testing.assert_allclose(caesium.potentials[0] * np.sqrt(3) / 2, -CAESIUM_CHLORIDE, rtol=1e-11)
    alone = ewald(np.zeros((1, 3)), np.ones(1), 1.0, background=True)
    np.testing.assert_allclose(alone.potentials, WIGNER, rtol=1e-11)


def neutral() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    places, charges = rng.uniform(0, 3, size=(8, 3)), rng.normal(size=8)
    return places, charges - charges.mean()


@pytest.mark.slow
def test_any_splitting_gives_the_same_potentials_and_gradients():
    places, charges = neutral()
    first, *others = (ewald(places, charges, 3.0, splitting=alpha) for alpha in (0.6, 1.0, 1.7))
    for other in others:
        for one, two in zip(first, other, strict=True):
            np.testing.assert_allclose(one, two, rtol=0, atol=1e-10)
    np.testing.assert_allclose(first.energy, 0.5 * np.sum(charges * first.potentials), rtol=1e-13)
    step = 1e-5
    for axis in range(3):
        moved = [
            ewald(places + sign * step * np.eye(8)[:, :1] * np.eye(3)[axis], charges, 3.0).energy for sign in (1, -1)
        ]
        slope = (moved[0] - moved[1]) / (2 * step)
        np.testing.assert_allclose(charges[0] * first.gradients[0, axis], slope, atol=1e-7)


def test_it_is_the_sum_over_ever_larger_balls_of_boxes():
    """Balls of boxes converge to Ewald's sum plus 2π/(3 L³) |Σ q y|² terms of the dipole, which is made 0 here."""
    rng = np.random.default_rng(1)
    half = rng.uniform(0.2, 1.3, size=(3, 3))
    places = np.concatenate([half, -half])  # symmetric about 0 with equal charges: no dipole
    charges = np.tile([1.0, -0.4, -0.6], 2)
    found = np.asarray(ewald(places, charges, 3.0).potentials)
    line = np.arange(-14, 15)
    copies = np.stack(np.meshgrid(line, line, line, indexing="ij"), axis=-1).reshape(-1, 3)
    copies = copies[np.sum(copies**2, axis=1) <= 14**2]
    # The quadrupole of a box makes potentials inside of a ball of boxes lower by 2π/(3 L³) Σ q |y|².
    shift = 2 * np.pi / (3 * 27) * np.sum(charges * np.sum(places**2, axis=1))
    for i in range(3):
        steps = places[i] - places[None] + 3.0 * copies[:, None]
        distances = np.linalg.norm(steps, axis=-1)
        direct = np.sum(np.where(distances > 1e-9, charges / np.where(distances > 1e-9, distances, 1), 0))
        assert direct + shift == pytest.approx(found[i], abs=2e-3)


def test_charged_boxes_and_wrong_shapes_are_refused():
    places, charges = neutral()
    assert_refused(lambda: ewald(places, charges + 1, 3.0), ArgumentError, ["`charges`", "sum to 0", "`background`"])
    assert_refused(lambda: ewald(places[:, :2], charges, 3.0), ShapeError, ["`points`", "(8, 2)"])
    assert_refused(lambda: ewald(places, charges, 3.0, splitting=-1.0), ArgumentError, ["`splitting`", "-1"])
    assert jnp.isfinite(ewald(places, charges + 1, 3.0, background=True).energy)
