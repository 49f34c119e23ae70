"""Densities of initial kinds: they sum to one, and clouds are drawn from them."""

# pyright: reportOptionalMemberAccess=false

from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

from particleflow import initial
from particleflow.errors import ArgumentError, ShapeError
from shares import by_default

KEY = jax.random.key(3)
ON_CIRCLE: dict[str, Any] = {
    "uniform": initial.UniformSphere(2),
    "poisson": initial.UniformCircle(order=0.6),
    "moved": initial.UniformCircle(mode=3, amplitude=0.2, order=0.3),
    "von mises": initial.VonMisesFisher([0.0, 2.0], 3.0),
    "wave": initial.CircleWave(2, 0.7),
}
FLAT: dict[str, Any] = {
    "gaussian": initial.Gaussian(2, scale=[[0.5, 0.2], [0.0, 0.8]], centre=[0.3, -0.2]),
    "mixture": initial.Mixture(3, 2, 0.8, 0.3, weights=[1.0, 2.0, 3.0]),
    "moons": initial.Moons(0.2),
    "rings": initial.Rings((0.5, 1.5), 0.2),
    "box": initial.UniformBox([-1.0, 0.0], [1.0, 1.5]),
    "quantiles": initial.Quantiles("gaussian", 0.2, 0.7),
    "uniform quantiles": initial.Quantiles("uniform", 0.2, 0.7),
}


@pytest.mark.parametrize("name", by_default(ON_CIRCLE, ["moved", "wave"]))
def test_angles_are_drawn_from_the_density_on_the_circle(name):
    angles = -np.pi + 2 * np.pi * (np.arange(20_000) + 0.5) / 20_000
    density = ON_CIRCLE[name].density(KEY)
    assert (density.space, density.dimension) == ("sphere", 2)
    values = density.values(np.stack([np.cos(angles), np.sin(angles)], axis=1))
    assert abs(values.mean() * 2 * np.pi - 1) < 1e-7
    drawn = np.asarray(ON_CIRCLE[name].sample(KEY, 4000))
    below = np.interp(np.arctan2(drawn[:, 1], drawn[:, 0]), angles, np.cumsum(values) / np.sum(values))
    assert stats.kstest(below, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("name", by_default(FLAT, [name for name in FLAT if name != "uniform quantiles"]))
def test_points_are_drawn_from_the_density_in_flat_space(name):
    """The density has mass one, and the mean and covariance of a cloud, to sampling error."""
    density = FLAT[name].density(KEY)
    assert density.space == "flat"
    count = 600 if density.dimension == 1 else 300
    axis = -6 + 12 * (np.arange(count) + 0.5) / count
    points = np.stack([each.ravel() for each in np.meshgrid(*[axis] * density.dimension, indexing="ij")], axis=1)
    masses = density.values(points) * (12 / count) ** density.dimension
    assert abs(masses.sum() - 1) < (1e-9 if "box" not in name and "uniform" not in name else 0.03)
    drawn = np.asarray(FLAT[name].sample(KEY, 4000))
    centre = masses @ points
    spread = (points - centre).T @ (masses[:, None] * (points - centre))
    assert np.allclose(drawn.mean(axis=0), centre, atol=0.06)
    assert np.allclose(np.cov(drawn.T), spread, atol=0.08)


def _scipy_fisher(mean: np.ndarray, strength: Any) -> Any:
    return stats.vonmises_fisher(mean, strength)


@pytest.mark.slow
def test_von_mises_fisher_is_that_of_scipy():
    mean, points = np.array([1.0, 2.0, -2.0]) / 3, np.asarray(initial.UniformSphere(3).sample(KEY, 20))
    for strength in (0.0, 0.7, 50.0):
        values = initial.VonMisesFisher(mean, strength).density(KEY).values(points)
        expected = _scipy_fisher(mean, strength).pdf(points) if strength else np.full(20, 0.25 / np.pi)
        assert np.allclose(values, expected, rtol=1e-10)
    drawn = np.asarray(initial.VonMisesFisher(3 * mean, 4.0).sample(KEY, 4000))
    assert np.allclose(drawn.mean(axis=0), mean * (1 / np.tanh(4.0) - 0.25), atol=0.03)
    assert np.allclose(initial.UniformSphere(3).density(KEY).values(points), 0.25 / np.pi)


def test_clouds_without_a_density_say_so():
    clouds = [
        initial.Grid([2, 2]), initial.Equiangular(), initial.Moons(0.0), initial.Rings(noise=0.0),
        initial.Mixture(width=0.0), initial.UniformCircle(mode=3, amplitude=0.5),
    ]  # fmt: skip
    assert all(each.density(KEY) is None for each in clouds)


def test_impossible_laws_are_refused():
    for make, error in (
        (lambda: initial.VonMisesFisher([0.0, 0.0]), ArgumentError),
        (lambda: initial.VonMisesFisher([1.0]), ShapeError),
        (lambda: initial.CircleWave(2, 1.5), ArgumentError),
        (lambda: initial.UniformBox([1.0], [0.0]), ArgumentError),
        (lambda: initial.UniformBox([1.0], [2.0, 3.0]), ShapeError),
        (lambda: initial.DensityFunction(np.sin, 2, "round"), ArgumentError),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(error):
            make()
