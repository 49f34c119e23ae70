"""Every method that promises a tolerance keeps it on clouds chosen to hurt, mean and log-mass, against NumPy.

`Auto.choices` names all methods that promise to keep it for these points, the cheapest first and an exact one last.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from particleflow import kernels as k
from particleflow.measure import Measure
from particleflow.summation import Auto

COUNT, LOOKED_AT, TOLERANCE = 5000, 300, 1e-5


def squares(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.sum((x[:, None] - y[None]) ** 2, axis=-1)


# Kernels with their logarithms in NumPy, the dimension of the points, and whether these lie on the sphere.
PROBLEMS: dict[str, tuple[Any, Any, int, bool]] = {
    "circle": (k.Attention(9.0), lambda x, y: 9 * x @ y.T, 2, True),
    "sphere": (k.Attention(4.0), lambda x, y: 4 * x @ y.T, 3, True),
    "narrow on the sphere": (k.Attention(400.0), lambda x, y: 400 * x @ y.T, 3, True),
    "plane": (k.Gaussian(0.5), lambda x, y: -squares(x, y) / (2 * 0.5**2), 2, False),
    "narrow in the plane": (k.Gaussian(0.02), lambda x, y: -squares(x, y) / (2 * 0.02**2), 2, False),
    "six dimensions": (k.Gaussian(12.0), lambda x, y: -squares(x, y) / (2 * 12.0**2), 6, False),
}
CLOUDS = ("tight clusters", "one far outlier", "far from the origin", "weights over ten orders", "duplicates")


def hurtful(cloud: str, dimension: int, on_sphere: bool) -> Measure:
    rng = np.random.default_rng(10)
    points, log_weights = rng.normal(size=(COUNT, dimension)), np.zeros(COUNT)
    if cloud == "tight clusters":
        points = points[rng.integers(0, 6, COUNT)] + 1e-6 * rng.normal(size=points.shape)
    if cloud == "one far outlier":
        points = 0.3 * points + np.eye(dimension)[0]
        points[-1] = -30 * np.eye(dimension)[0]
    if cloud == "far from the origin":  # all of a sphere cannot be: there it is one small piece
        points = 0.1 * points + 7 if on_sphere else points + 1e3
    if cloud == "weights over ten orders":
        log_weights = np.log(10) * rng.uniform(-10, 0, COUNT)
    if cloud == "duplicates":
        points = points[rng.integers(0, COUNT // 50, COUNT)]
    if on_sphere:
        points /= np.linalg.norm(points, axis=1, keepdims=True)
    return Measure(jnp.asarray(points), jnp.asarray(log_weights))


def brute_force(log_kernel: Any, queries: np.ndarray, measure: Measure) -> tuple[np.ndarray, np.ndarray]:
    """Log-mass and mean in extended precision."""
    sources, log_weights = (np.asarray(each, np.longdouble) for each in (measure.points, measure.log_weights))
    logits = log_kernel(queries.astype(np.longdouble), sources) + log_weights
    highest = logits.max(axis=1, keepdims=True)
    weights = np.exp(logits - highest)
    masses = weights.sum(axis=1)
    return np.log(masses) + highest[:, 0], weights @ sources / masses[:, None]


@pytest.mark.slow
@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_all_that_promise_a_tolerance_keep_it(problem, cloud):
    kernel, log_kernel, dimension, on_sphere = PROBLEMS[problem]
    measure = hurtful(cloud, dimension, on_sphere)
    points = np.asarray(measure.points)
    looked_at = np.append(np.random.default_rng(11).choice(COUNT - 1, LOOKED_AT - 1, replace=False), COUNT - 1)
    log_mass, mean = brute_force(log_kernel, points[looked_at], measure)
    choices = list(Auto(tolerance=TOLERANCE).choices(kernel, measure, measure))
    assert choices[-1].error == 0
    for choice in choices:
        found = choice.summation.moments(kernel, measure, measure)
        off = np.abs(np.asarray(found.log_mass)[looked_at] - log_mass).max()
        moved = np.linalg.norm(np.asarray(found.mean)[looked_at] - mean, axis=1).max()
        rounding = 1e-15 * (1 + np.abs(log_kernel(points[looked_at], points)).max())  # of scores
        assert choice.error <= TOLERANCE
        assert off <= choice.error + 10 * rounding, choice.reason
        assert moved / np.linalg.norm(points, axis=1).max() <= choice.error + 10 * rounding, choice.reason
