"""A run that asks for the energy alone records its logarithm too, wherever the energy is not known to stay finite."""

import json

import numpy as np
import pytest
from scipy.special import logsumexp

import flows_oracles as oracle
import particleflow as pf
from particleflow import drifts, kernels, observables
from particleflow.app.cli.closing_lines import overflow_line
from particleflow.app.cli.main import main
from particleflow.simulation.plan import Stepping, make_plan

START = oracle.random_sphere(5, 12, 3)
TIMES = [0.0, 0.01, 0.02]


def flow_of(kernel, geometry=None):
    return pf.Flow(pf.Attend(kernel), geometry=geometry or pf.Sphere())


def rising():
    attention = pf.Attend(kernels.Attention(beta=1.0))
    return pf.Flow(drifts.Varying(attention, drifts.Ramp(1.0, 900.0, 0.02), "kernel.beta"), geometry=pf.Sphere())


TURNED = np.diag([3.0, 1.0, 1.0])
CASES = {
    "small beta": (lambda: flow_of(kernels.Attention(beta=9.0)), np.float64, False),
    "large beta": (lambda: flow_of(kernels.Attention(beta=800.0)), np.float64, True),
    "single precision": (lambda: flow_of(kernels.Attention(beta=100.0)), np.float32, True),
    "large sphere": (lambda: flow_of(kernels.Attention(beta=9.0), pf.Sphere(10.0)), np.float64, True),
    "rising beta": (rising, np.float64, True),
    "matrices": (lambda: flow_of(kernels.Attention(beta=9.0, query=TURNED)), np.float64, True),
    "no sphere": (lambda: flow_of(kernels.Attention(beta=9.0), pf.Euclidean()), np.float64, True),
    "distances": (lambda: flow_of(kernels.Gaussian(0.01), pf.Euclidean()), np.float64, False),
    "one of two runs": (
        lambda: [flow_of(kernels.Attention(beta=beta)) for beta in (1.0, 800.0)], np.float64, True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_logarithm_is_recorded_where_the_energy_may_overflow(case):
    make, dtype, beside = CASES[case]
    start = START.astype(dtype) * (10.0 if case == "large sphere" else 1.0)

    def names(*observe):
        plan = make_plan(make(), start, TIMES, Stepping(step=0.01), observe=observe)
        return [observables.name_of(each) for each in plan.observe]

    both = ["energy", "log_energy"]
    assert names(observables.energy, observables.speed) == [*(both if beside else both[:1]), "speed"]
    assert names(observables.log_energy, observables.energy) == both[::-1]
    assert names(observables.speed) == ["speed"]


@pytest.mark.slow
def test_the_recorded_logarithm_is_that_of_log_sum_exp_and_a_resumed_run_has_the_same_bits(tmp_path):
    flow, times = flow_of(kernels.Attention(beta=800.0)), np.linspace(0.0, 0.4, 9)
    options = {"rtol": 1e-6, "atol": 1e-8, "observe": [observables.energy], "window": 3}
    whole = pf.simulate(flow, START, times, **options, store=tmp_path / "whole.h5")
    points = np.asarray(whole.points)
    expected = logsumexp(800.0 * np.einsum("tni,tmi->tnm", points, points), axis=(1, 2)) - np.log(1600 * 144)
    np.testing.assert_allclose(whole.observables["log_energy"], expected, atol=1e-8)
    assert np.isinf(whole.observables["energy"]).all()

    def stop(frames):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pf.simulate(flow, START, times, **options, store=tmp_path / "part.h5", progress=stop)
    part = pf.simulate(flow, START, times, **options, store=tmp_path / "part.h5", resume=True)
    assert len(part) == len(whole)
    np.testing.assert_array_equal(part.observables["log_energy"], whole.observables["log_energy"])
    np.testing.assert_array_equal(part.points, whole.points)
    first, last = expected[[0, -1]]
    said = f"energy overflows in 9 of 9 frames; log energy {first:.6g} → {last:.6g} is drawn instead"
    assert overflow_line(whole) == said


@pytest.mark.slow
def test_a_scenario_whose_energy_overflows_has_a_curve_a_summary_and_a_closing_line(tmp_path, capsys):
    folder = tmp_path / "run"
    changes = ["drift.0.kernel.beta=800", "initial.count=24", "time.frames=8", "time.end=1"]
    asked = ["run", "metastable_sphere", "--set", *changes, 'record.observables=["energy"]', "--output", str(folder)]
    assert main([*asked, "--no-movie", "--no-page"]) == 0
    assert "energy overflows in 8 of 8 frames; log energy 7" in capsys.readouterr().err
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["energy"] is None
    assert 780 < summary["log_energy"]["first"] <= summary["log_energy"]["last"] < 800
    assert all(780 < row["log_energy"] < 800 for row in summary["plateaus"]["listed"])
