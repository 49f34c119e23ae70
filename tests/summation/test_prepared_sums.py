"""A sum is prepared once: its kernel is taken apart once and the native library is looked for once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from particleflow import kernels as k
from particleflow.summation import Auto, Dense, Native, prepared
from particleflow.summation.kernel_parts import KernelParts
from particleflow.summation.local_mean import local_covariance, local_mean, resampled_local_mean

POINTS = np.random.default_rng(3).normal(size=(9, 3))
MEASURE = pf.Measure.uniform(POINTS)
CASES = {
    "local mean": lambda: local_mean(k.Gaussian(0.5) * k.Attention(1.0), MEASURE, MEASURE),
    "drift": lambda: pf.Attend(k.Attention(2.0))(jnp.zeros(()), MEASURE.sites, MEASURE),
    "native": lambda: local_mean(k.Gaussian(0.5), MEASURE, MEASURE, summation=Native()),
    "tolerance": lambda: local_mean(k.Gaussian(0.5), MEASURE, MEASURE, summation=Auto(tolerance=1e-6)),
    "unknown to native code": lambda: local_mean(k.Sigmoid(1.0), MEASURE, MEASURE),
}


@pytest.fixture
def counted(monkeypatch) -> dict[str, int]:
    """How often sums were prepared, kernels taken apart, and the library looked for."""
    counts = {"prepared": 0, "parts": 0, "library": 0}
    parts_of, library = KernelParts.of, prepared.library

    def count_parts(kernel: k.AbstractKernel, dimension: int) -> KernelParts | None:
        counts["parts"] += 1
        return parts_of(kernel, dimension)

    def count_library() -> object:
        counts["library"] += 1
        return library()

    class Counted(prepared.PreparedSum):
        def __init__(self, *fields: Any):
            counts["prepared"] += 1
            super().__init__(*fields)

    monkeypatch.setattr(KernelParts, "of", staticmethod(count_parts))
    monkeypatch.setattr(prepared, "library", count_library)
    monkeypatch.setattr(prepared, "PreparedSum", Counted)
    return counts


@pytest.mark.parametrize("name", CASES)
def test_an_evaluation_outside_of_jit_prepares_its_sum_once(name, counted):
    CASES[name]()
    assert counted["prepared"] == 1
    assert counted["parts"] <= 1
    assert counted["library"] <= 1
    # Also where the choice for these shapes is known already.
    CASES[name]()
    assert counted["prepared"] == 2
    assert counted["parts"] <= 2
    assert counted["library"] <= 2


def test_a_compiled_evaluation_prepares_nothing(counted):
    mean = jax.jit(lambda measure: local_mean(k.Gaussian(0.5), measure, measure))
    mean(MEASURE)
    assert counted == {"prepared": 1, "parts": 1, "library": 1}
    mean(MEASURE.with_points(MEASURE.points + 1))
    assert counted["prepared"] == 1


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(2.0 * k.Gaussian(0.5), id="scaled", marks=pytest.mark.slow),
        pytest.param(k.Gaussian(0.5) + k.Gaussian(1.0), id="sum"),
    ],
)
@pytest.mark.slow
def test_queries_that_take_turns_choose_a_sum_of_weighted_kernels(kernel):
    """Inside the loop over queries the numbers of the kernel are still known."""
    found = local_covariance(kernel, MEASURE, POINTS[:2])
    expected = jax.jit(local_covariance)(kernel, MEASURE, POINTS[:2], summation=Dense())
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    assert resampled_local_mean(jax.random.key(0), kernel, MEASURE, POINTS[:2], draws=2).shape == (2, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tolerance", "most"),
    [pytest.param(1e-6, 4 + 2, id="tolerance"), pytest.param(None, 1, id="exact")],
)
def test_a_window_chooses_its_sum_once(tolerance, most, counted):
    """Four windows of a program that is compiled already; the plan announces what will sum, and what it costs."""
    flow = pf.Flow(pf.Attend(k.Attention(2.0), summation=Auto(tolerance=tolerance)), geometry=pf.Sphere())
    start = POINTS / np.linalg.norm(POINTS, axis=1, keepdims=True)
    for _ in range(2):
        counted.update(prepared=0, parts=0)
        pf.simulate(flow, start, np.linspace(0, 1, 9), rtol=1e-4, atol=1e-6, window=2)
    assert counted["prepared"] <= most
    assert counted["parts"] == 0
