"""What sums are said to cost, which `Auto(tolerance=…)` chooses by: bounds hold, precision counts, nothing is timed."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from particleflow import kernels as k
from particleflow.measure import Measure
from particleflow.summation import Auto, Features, NearFar, Spectral
from particleflow.summation.base import Limits
from particleflow.summation.native.build import library
from particleflow.summation.native.native import Native
from particleflow.summation.prepared import prepare
from shares import by_default

needs_native = pytest.mark.skipif(library().path is None, reason="needs the native library")


def sphere(count: int, precision: Any = np.float64) -> jnp.ndarray:
    points = np.random.default_rng(4).normal(size=(count, 3))
    return jnp.asarray((points / np.linalg.norm(points, axis=1, keepdims=True)).astype(precision))


def cost(kernel: Any, measure: Measure) -> float:
    return Native().cost_of_known(prepare(kernel, measure, measure))


@needs_native
def test_single_precision_is_cheaper_where_scores_spread_over_less_than_12():
    """Over twice β, the largest square of a distance over 2 w², or the range of log-weights, whatever they are for."""
    points, single = Measure.uniform(sphere(500)), Measure.uniform(sphere(500, np.float32))
    uneven = Measure(single.points, jnp.where(jnp.arange(500) < 9, 2.0, 0.0).astype(jnp.float32))
    for narrow, wide in ((k.Attention(5.9), k.Attention(6.1)), (k.Gaussian(0.42), k.Gaussian(0.39))):
        assert cost(narrow, points) == cost(wide, points) == cost(wide, single)
        assert cost(narrow, single) < 0.6 * cost(narrow, points)
        assert cost(narrow, uneven) == cost(wide, uneven)
    assert cost(k.Attention(4.9), uneven) < 0.6 * cost(k.Attention(6.1), uneven)


@needs_native
def test_curves_that_take_longer_cost_more():
    points = Measure.uniform(sphere(500))
    costs = [cost(kernel, points) for kernel in (k.Attention(1.0), k.Gaussian(1.0), k.Laplace(1.0), k.Cauchy(1.0))]
    assert costs == sorted(costs)
    assert len(set(costs)) == 4


SPECTRAL, NEAR, FEATURES = "transforms", "near pairs", "landmarks"
CASES = {
    SPECTRAL: (Spectral(), k.Attention(4.0)),
    NEAR: (NearFar(), k.Attention(400.0)),
    FEATURES: (Features(), k.Attention(1.0)),
}


@needs_native
@pytest.mark.parametrize("name", by_default([NEAR, SPECTRAL, FEATURES], [NEAR]))
@pytest.mark.parametrize("tolerance", by_default([1e-6, 1e-3], [1e-6]))
def test_bounds_of_costs_come_closer_and_are_below_the_promise(name, tolerance):
    how, kernel = CASES[name]
    measure = Measure.uniform(sphere(20_000))
    prepared, limits = prepare(kernel, measure, measure), Limits(tolerance, 0)
    bounds, promise = list(how.cost_bounds(prepared, limits)), how.promise(prepared, limits)
    assert promise is not None
    assert bounds == sorted(bounds)
    assert bounds[-1] <= promise.cost < cost(kernel, measure)


@pytest.mark.slow
@needs_native
def test_the_same_points_are_summed_the_same_way_again():
    """Costs are functions of the points alone, so a resumed run chooses as the run that was stopped."""
    measure = Measure.uniform(sphere(20_000, np.float32))
    for tolerance in (1e-3, 1e-5):
        first, again = (Auto(tolerance=tolerance).select(k.Attention(3.0), measure, measure) for _ in range(2))
        assert first == again
