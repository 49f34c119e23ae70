"""A guard against a compiler that is wrong: jitted sums at odd sizes above 16,384 must be what NumPy says.

Some releases of JAX drop rows of a matrix product on CPU at exactly these sizes. The field below is checked at every
row: with N points on the sphere, e^{β⟨x,y⟩} is a power series whose terms are monomials of x times those of y, so all
rows follow from the moments of the cloud without any sum over pairs. A few hundred rows are summed pair by pair too.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from particleflow.kernels import Attention
from particleflow.measure import Measure
from particleflow.summation.local_mean import local_mean

# The faults that are looked for are made by optimisations: everything here is compiled as for users.
pytestmark = pytest.mark.usefixtures("every_optimization")
AS_FOR_USERS = {"xla_cpu_use_fusion_emitters": True} if jax.__version_info__ < (0, 10) else {}

BETA = 1.5
DEGREE = 20  # 1.5^21 / 21! ≈ 1e-16: the series is exact to rounding


def monomials(points: np.ndarray) -> np.ndarray:
    """All x^a y^b z^c / √(a! b! c!) β^{(a+b+c)/2} of degree up to DEGREE, one column each."""
    powers = [np.stack([c**p / math.sqrt(math.factorial(p)) for p in range(DEGREE + 1)]) for c in points.T]
    triples = [(a, b, c) for a in range(DEGREE + 1) for b in range(DEGREE + 1 - a) for c in range(DEGREE + 1 - a - b)]
    first, second, third = (list(index) for index in zip(*triples, strict=True))
    scale = BETA ** (np.add(np.add(first, second), third) / 2)
    return (powers[0][first] * powers[1][second] * powers[2][third]).T * scale


def field_from_series(points: np.ndarray) -> np.ndarray:
    """P_x Σ_j softmax_j(β⟨x, x_j⟩) x_j for every point x, from the moments of the cloud."""
    with_mass = np.concatenate([points, np.ones((len(points), 1))], axis=1)
    blocks = [slice(start, start + 2048) for start in range(0, len(points), 2048)]
    moments = sum(monomials(points[block]).T @ with_mass[block] for block in blocks)
    sums = np.concatenate([monomials(points[block]) @ moments for block in blocks])
    return projected(points, sums[:, :3] / sums[:, 3:])


def projected(points: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    return vectors - np.sum(points * vectors, axis=1, keepdims=True) * points


@partial(jax.jit, compiler_options=AS_FOR_USERS)
def attention_field(points):
    mean = local_mean(Attention(BETA), Measure.uniform(points), points)
    return mean - jnp.sum(points * mean, axis=1, keepdims=True) * points


@pytest.mark.slow
@pytest.mark.parametrize("count", [16385, pytest.param(32769, marks=pytest.mark.slow)])
def test_jitted_field_at_odd_sizes(count):
    rng = np.random.default_rng(count)
    points = rng.normal(size=(count, 3)) * np.array([1.0, 0.7, 0.4])
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    found = np.asarray(attention_field(points))
    np.testing.assert_allclose(found, field_from_series(points), atol=1e-12)
    rows = np.append(rng.choice(count, size=299, replace=False), count - 1)
    shares = np.exp(BETA * points[rows] @ points.T)
    expected = projected(points[rows], (shares @ points) / shares.sum(1, keepdims=True))
    np.testing.assert_allclose(found[rows], expected, atol=1e-13)


@pytest.mark.parametrize(("dtype", "count"), [(np.float64, 16385), (np.float32, 32769)])
def test_jitted_reduction_of_matrix_vector_products(dtype, count):
    rows = np.zeros((count, 3), dtype)
    rows[:, 0] = np.arange(count)
    matrix = np.eye(3, dtype=dtype)
    found = jax.jit(jax.vmap(lambda row: jnp.sum((matrix @ row) ** 2)), compiler_options=AS_FOR_USERS)(rows)
    np.testing.assert_array_equal(found, rows[:, 0] ** 2)
