"""Sums within a tolerance, by real methods, with everything else that a run can have: the exact run, within tolerance.

3,000 tokens, so that approximations are cheaper than the exact sum. What cannot be chosen anew is exact, and says so.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from particleflow.summation import Auto

COUNT, TOLERANCE = 3000, 1e-5
SETTINGS = {"rtol": 1e-5, "atol": 1e-7, "window": 2}
TIMES = np.linspace(0.0, 0.2, 5)
CIRCLE = np.asarray(pf.initial.UniformSphere(dim=2).sample(jax.random.key(0), COUNT))


class Ring(pf.geometry.AbstractSphere):
    """A circle of radius 2, written by somebody else."""

    def retract(self, state):
        return 2 * state / jnp.linalg.norm(state, axis=1, keepdims=True)

    def normalise(self, vectors):
        return self.retract(vectors)

    def observe(self, state, time=0.0):
        return self.retract(state)

    def tangent(self, state, velocity, time=0.0):
        norms = jnp.linalg.norm(state, axis=1, keepdims=True)
        unit = state / norms
        return 0.5 * norms * (velocity - jnp.sum(unit * velocity, axis=1, keepdims=True) * unit)

    def residual(self, state):
        return {}

    def restore(self, points, fields):
        return points

    def facts(self, dimension):
        return pf.geometry.Facts("sphere", 2.0)


def summed(tolerance: float | None, **others: Any) -> pf.Attend:
    return pf.Attend(pf.kernels.Attention(9.0), summation=Auto(tolerance=tolerance), **others)


def ran(drift: Any, start: Any = CIRCLE, geometry: Any = None, **others: Any) -> Any:
    return pf.simulate(pf.Flow(drift, geometry=geometry or pf.Sphere()), start, TIMES, **SETTINGS, **others)


def said(run: Any) -> str:
    return run.metadata["statistics"]["chosen summation"]


WEIGHTED = pf.Measure.weighted(CIRCLE, np.random.default_rng(1).uniform(size=COUNT) ** 4)
RINGS: dict[str, tuple[Any, Any, float]] = {
    "weights": (WEIGHTED, pf.Sphere(), TOLERANCE),
    "a circle of one's own": (2 * CIRCLE, Ring(), TOLERANCE),
    "layer norm": (np.asarray(jax.random.normal(jax.random.key(1), (COUNT, 3))), pf.LayerNorm(), TOLERANCE),
    "single precision": (CIRCLE.astype(np.float32), pf.Sphere(), 1e-3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RINGS)
def test_weights_own_geometries_and_single_precision(name):
    start, geometry, tolerance = RINGS[name]
    if name == "layer norm":
        start = pf.geometry.retracted(geometry, start)
    approximate, exact = (ran(summed(each), start, geometry) for each in (tolerance, None))
    assert said(approximate).startswith(("Spectral", "Features"))
    assert said(exact).startswith("Native")
    assert approximate.points.dtype == exact.points.dtype
    assert 0 < np.max(np.abs(np.asarray(approximate.points[-1]) - np.asarray(exact.points[-1]))) < tolerance


@pytest.mark.slow
def test_sinkhorn_attention():
    """Its loop multiplies the errors of sums: they are asked for an eighth, and the run stays within the whole."""
    start = CIRCLE[:1500]
    approximate, exact = (ran(summed(each, normalization="sinkhorn"), start) for each in (1e-4, None))
    assert not said(approximate).startswith("Native")
    assert "within the tolerance 1.25e-05" in said(approximate)
    assert np.max(np.abs(np.asarray(approximate.points[-1]) - np.asarray(exact.points[-1]))) < 1e-4


@pytest.mark.slow
def test_a_run_that_is_interrupted_goes_on_bit_for_bit(tmp_path):
    whole = ran(summed(TOLERANCE), store=tmp_path / "whole.h5")

    def stop(_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ran(summed(TOLERANCE), store=tmp_path / "cut.h5", progress=stop)
    again = ran(summed(TOLERANCE), store=tmp_path / "cut.h5", resume=True)
    assert said(again) == said(whole)
    assert said(whole).startswith("Spectral")
    np.testing.assert_array_equal(again.points[:], whole.points[:])


@pytest.mark.slow
def test_layers_are_summed_exactly_and_the_card_says_so():
    """One summation serves all layers of a stack, whatever the points are by then."""
    start = CIRCLE[:40]
    runs = [ran(pf.drifts.Layers([summed(each), summed(each, value=2.0)]), start) for each in (TOLERANCE, None)]
    np.testing.assert_array_equal(runs[0].points, runs[1].points)
    assert said(runs[0]).endswith("layers are summed exactly")


@pytest.mark.slow
def test_a_drift_beside_layers_is_looked_at_by_itself():
    """The sum of a stack and of attention with another β: the sample is that of the attention, and is kept."""
    other = pf.Attend(pf.kernels.Attention(4.0), summation=Auto(tolerance=TOLERANCE))
    runs = [ran(pf.drifts.Layers([summed(each), summed(each)]) + drift) for each, drift in
            ((TOLERANCE, other), (None, pf.Attend(pf.kernels.Attention(4.0))))]  # fmt: skip
    assert said(runs[0]).startswith("Spectral")
    assert np.max(np.abs(np.asarray(runs[0].points[-1]) - np.asarray(runs[1].points[-1]))) < TOLERANCE
