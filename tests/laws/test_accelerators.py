"""Without an accelerator at hand: what is computed for one is translated for it, or refused in a sentence."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lowering
import particleflow as pf
from particleflow import kernels, scenario, summation
from particleflow._support import default_device
from particleflow.errors import ArgumentError
from particleflow.simulation.plan import checks
from particleflow.summation.native import build
from particleflow.summation.prepared import prepare
from particleflow.summation.spectral import convolution_form
from particleflow.summation.spectral.nonuniform_fft import translated
from shares import minilm_is_there

TOGETHER = 9  # scenarios of one process
NAMES = list(scenario.shipped())
LIMITS = summation.Limits(1e-6, 2**20)
SPECTRAL_HERE = translated("cuda")  # false for the wheels that registries have


def in_a_process(*arguments: str) -> Any:
    """What the helper prints, in a process that takes itself for one on an accelerator."""
    command = [sys.executable, str(Path(lowering.__file__)), *arguments]
    environment = os.environ | lowering.SWITCHES
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("first", range(0, len(NAMES), TOGETHER))
def test_every_shipped_scenario_is_translated(first, precision):
    """The program of its first window, for CUDA and TPU, with no call back to the host."""
    names = [each for each in NAMES[first : first + TOGETHER] if minilm_is_there(each)]
    found = in_a_process(precision, *names)
    assert found == {name: {platform: [] for platform in lowering.PLATFORMS} for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_every_summation_is_translated_or_refused(precision):
    found = in_a_process(precision, "--sums")
    refused = {name for name, outcome in found.items() if "refused" in outcome}
    assert refused == (set() if SPECTRAL_HERE else {"Spectral"})
    assert len(found) == len(refused) + sum(set(each) == set(lowering.PLATFORMS) for each in found.values())
    assert not any(calls for name, each in found.items() if name not in refused for calls in each.values())


@pytest.fixture
def elsewhere(monkeypatch):
    """The platform that the process takes itself to compute on."""

    def pretend(platform: str) -> None:
        for module in (default_device, convolution_form, build, checks):
            monkeypatch.setattr(module, "computing_platform", lambda: platform)

    return pretend


@pytest.mark.skipif(SPECTRAL_HERE, reason="the installed jax_finufft has transforms for CUDA")
def test_a_sum_without_a_translation_is_refused(elsewhere):
    points = np.random.default_rng(0).normal(size=(20, 1))
    asked: Any = (kernels.Gaussian(0.5), pf.Measure.uniform(points), points)
    assert np.isfinite(list(summation.Spectral(1e-6).cost_bounds(prepare(*asked), LIMITS))).all()
    elsewhere("cuda")
    assert list(summation.Spectral(1e-6).cost_bounds(prepare(*asked), LIMITS)) == [np.inf]
    assert summation.Spectral(1e-6).promise(prepare(*asked), LIMITS) is None
    with pytest.raises(ArgumentError, match="no non-uniform Fourier transforms for cuda"):
        next(summation.Spectral(1e-6).choices(*asked))
    assert build.library().reason == "it is for processors, and JAX computes on cuda"


@pytest.mark.slow
@pytest.mark.skipif(SPECTRAL_HERE, reason="the installed jax_finufft has transforms for CUDA")
def test_what_cannot_be_translated_is_never_chosen(elsewhere):
    """Of 8,000 points on a line the sum is spectral here, and another one there."""
    points = np.random.default_rng(0).normal(size=(8_000, 1))
    measure, kernel, auto = pf.Measure.uniform(points), kernels.Gaussian(0.5), summation.Auto(tolerance=1e-6)
    assert isinstance(auto.select(kernel, measure, points).summation, summation.Spectral)
    elsewhere("cuda")
    assert not isinstance(auto.select(kernel, measure, points).summation, summation.Spectral | summation.Native)


def test_double_precision_is_announced_on_a_tpu(elsewhere):
    checks.check_precision(np.float64)  # here it is native
    elsewhere("tpu")
    checks.check_precision(np.float32)
    with pytest.warns(UserWarning, match="A TPU emulates double precision"):
        checks.check_precision(np.float64)
