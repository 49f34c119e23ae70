"""What a run will cost is told before it begins, and one that cannot fit into memory is refused."""

import json
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import particleflow as pf
from particleflow import kernels, observables, scenario
from particleflow.app.cli import main
from particleflow.errors import ArgumentError
from particleflow.simulation.plan import Stepping, check_memory, cost, cost_of, make_plan
from particleflow.summation import Blockwise
from shares import by_default

ADAPTIVE = Stepping(rtol=1e-6, atol=1e-8)


def plan_of(flow, points, frames=11, stepping=ADAPTIVE, **options):
    return make_plan(flow, points, np.linspace(0, 1, frames), stepping, **options)


def attention(**options):
    return pf.Flow(pf.Attend(kernels.Attention(1.0), **options))


def cloud(*shape):
    return np.random.default_rng(0).normal(size=shape)


def test_pairs_fields_and_bytes_are_counted():
    data = pf.Measure.uniform(cloud(7, 3))
    flow = pf.Flow([pf.Attend(kernels.Attention(1.0)), pf.MeanShift(kernels.Gaussian(1.0), data=data)])
    found = cost_of(plan_of(flow, cloud(20, 3), stepping=Stepping(step=0.01, solver="heun")))
    assert found.pairs == 20 * 20 + 20 * 7
    assert found.fields == 200  # two a step
    assert found.file_bytes == 11 * 20 * 3 * 8
    assert cost_of(plan_of(flow, cloud(20, 3))).fields is None
    ensemble = cost_of(plan_of(attention(), cloud(5, 20, 3)))
    assert (ensemble.pairs, ensemble.file_bytes) == (5 * 400, 5 * 11 * 20 * 3 * 8)


class Counted(pf.drifts.AbstractDrift):
    """−x/2, which counts how often the compiled program evaluates it."""

    calls: list[int] = eqx.field(static=True, default_factory=list)

    def __call__(self, t, queries, mu):
        def noted(velocity):
            self.calls.append(1)
            return velocity

        velocity = -0.5 * queries.points
        return jax.pure_callback(noted, jax.typeof(velocity), velocity, vmap_method="sequential")


SOLVERS = ("euler", "heun", "midpoint", "ralston", "bosh3", "tsit5", "dopri5", "dopri8", "map")


@pytest.mark.parametrize("solver", by_default(SOLVERS, ["bosh3"]))
def test_the_fields_of_fixed_steps_are_those_that_a_run_takes(solver):
    """100 steps in one window, where methods that hand their last stage on to the next step take one field more.

    Three more steps, in two windows of their own, compare the first step with two halves; those of a map are exact.
    """
    counted, times, stepping = Counted(), [0.0, 1.0], Stepping(step=0.01, solver=solver)
    flow = pf.Flow(counted)
    announced: Any = cost_of(make_plan(flow, cloud(2, 2), times, stepping, window=2)).fields
    run = pf.simulate(flow, cloud(2, 2), times, step=0.01, solver=solver, window=2)
    handed_on = solver in ("bosh3", "tsit5", "dopri5", "dopri8")
    checks = 0 if solver == "map" else 3 * announced // 100 + 2 * handed_on
    assert len(counted.calls) == announced + handed_on + checks
    assert run.metadata["statistics"]["field evaluations"] == announced


def test_the_fields_of_implicit_steps_are_not_known_before():
    found = cost_of(plan_of(attention(), cloud(20, 3), stepping=Stepping(step=0.01, solver="kvaerno3")))
    assert found.fields is None
    assert "for every 1,000 fields" in found.lines()[0]


@pytest.mark.slow
def test_the_file_of_a_scenario_holds_what_is_recorded():
    loaded = scenario.load("million_tokens", values={"initial.count": 400})
    assert loaded.build().cost().file_bytes == 61 * 400 * 2 * 4
    fewer = loaded.with_values({"record.particles": 50, "record.storage": "float64"})
    assert fewer.build().cost().file_bytes == 61 * 50 * 2 * 8


def test_sinkhorn_and_sums_of_xla_take_longer():
    plain, slow, sinkhorn = (
        cost_of(plan_of(attention(**options), cloud(20, 3))).field_seconds
        for options in ({}, {"summation": Blockwise()}, {"normalization": "sinkhorn"})
    )
    assert sinkhorn > 10 * plain
    assert slow > plain or "no native sum" in cost_of(plan_of(attention(), cloud(20, 3))).summation


def test_what_holds_all_pairs_is_seen(monkeypatch):
    """Quantiles of similarity sort all pairs."""
    quantiles = observables.SimilarityQuantiles()
    plan = plan_of(attention(), cloud(500, 3), observe=[quantiles])
    assert cost_of(plan).memory_bytes < 1e6
    monkeypatch.setattr(cost, "_SMALL", 1000)
    assert cost_of(plan).memory_bytes >= 500 * 499 / 2 * 8
    plain = plan_of(attention(), cloud(500, 3))
    assert cost_of(plain).memory_bytes < 1e6


def test_what_does_not_fit_is_refused_with_its_numbers(monkeypatch):
    found = cost_of(plan_of(attention(), cloud(20, 3)))
    check_memory(found)
    with pytest.raises(ArgumentError, match=r"at least 3 PB of memory, but this machine has \d"):
        check_memory(found._replace(memory_bytes=3 * 10**15))
    monkeypatch.setattr(cost, "memory_of_machine", lambda: None)
    check_memory(found._replace(memory_bytes=3 * 10**15))


def test_absurd_runs_are_warned_of():
    found = cost_of(plan_of(attention(), cloud(20, 3)))
    assert found.warnings() == []
    absurd = found._replace(pairs=4 * 10**12, field_seconds=3000.0, file_bytes=10**12)
    assert "50 min each" in absurd.warnings()[0]
    assert "1 TB" in absurd.warnings()[1]


def test_check_tells_the_cost(capsys):
    assert main(["check", "kuramoto"]) == 0
    said = capsys.readouterr().err
    assert "pairs" in said
    assert "solver" in said
    assert "memory" in said
    assert main(["check", "kuramoto", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["cost"]["pairs"] == facts["particles"] ** 2
    assert facts["warnings"] == []
