"""What a plan decides before anything is compiled, and what a run records of its schedule."""

import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from particleflow import drifts, kernels
from particleflow.simulation.plan import Stepping, make_plan
from particleflow.simulation.recording.provenance import describe

START = np.eye(3)


@pytest.mark.parametrize(
    ("times", "solver"),
    [([0.0, 2e4], "kvaerno5"), ([2e4, 2e4 + 1], "tsit5"), ([-2e4, 0.0], "kvaerno5"), ([-2e4, -2e4 + 1], "tsit5")],
)
def test_a_run_is_long_by_its_duration(times, solver):
    plan = make_plan(pf.Flow(drifts.Linear(-1.0)), START, times, Stepping(1e-6, 1e-8))
    assert plan.choices["solver"] == solver


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_schedule_is_that_before_a_jump_up_to_the_jump(dtype):
    """Layers of β = 1 and 4, each for a time of 1.5."""
    layers = drifts.Layers([pf.Attend(kernels.Attention(beta=beta)) for beta in (1.0, 4.0)], duration=1.5)
    plan = make_plan(pf.Flow(layers, pf.Sphere()), START.astype(dtype), jnp.array([0.0, 3.0]), Stepping(1e-4, 1e-5))
    schedule = describe(plan)["schedule"]
    times, values = np.asarray(schedule["times"]), np.asarray(schedule["values"])
    np.testing.assert_array_equal(values, np.where(times < 1.5, 1.0, 4.0))
    assert 1.5 in times
    assert (np.abs(times - 1.5) < 1e-4).sum() >= 2
