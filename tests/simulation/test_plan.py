"""What a plan decides before anything is compiled, and what a run records of its schedule."""

import os
import subprocess
import sys
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import particleflow as pf
from particleflow import drifts, kernels
from particleflow.simulation.plan import Stepping, make_plan
from particleflow.simulation.recording.provenance import describe, surroundings

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


@pytest.mark.slow
def test_the_device_of_a_run_is_the_one_it_computes_on():
    command = """
import jax, numpy as np, particleflow as pf
from particleflow.simulation.recording import recorder
asked = []
whole = recorder.surroundings
recorder.surroundings = lambda device: asked.append(device.id) or whole(device)
with jax.default_device(jax.devices()[1]):
    run = pf.simulate(pf.Flow(pf.drifts.Linear(-1.0)), np.ones((3, 2)), [0.0, 1.0], step=0.5)
run.metadata["device"]
print(asked)
"""
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    ended = subprocess.run([sys.executable, "-c", command], env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[1]"
    assert surroundings(SimpleNamespace(platform="cuda", device_kind="of one kind"))["device"] == "cuda (of one kind)"
