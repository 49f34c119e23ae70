"""On the way from a file to its pictures every object is made once: scenario, start, plan, cost, sweep plan."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from jax.core import Tracer

import particleflow as pf
from particleflow.app.cli import main
from particleflow.app.scenario.scenario import Scenario
from particleflow.dynamics.initial import UniformSphere
from particleflow.simulation.plan import Plan, cost

SMALL = """
title = "Small"
initial = { kind = "uniform_sphere", dim = 3, count = 6 }
geometry = { kind = "sphere" }
[[drift]]
kind = "attend"
kernel = { kind = "attention", beta = 2.0 }
[time]
end = 0.2
frames = 3
step = 0.1
solver = "map"
[output]
summary = false
figures = false
movie = false
page = false
[sweep]
"drift.0.kernel.beta" = [1.0, 2.0]
seed = [1, 2]
"""


@pytest.fixture
def made(monkeypatch) -> Counter[str]:
    """How often each of these is called, or an object of each class made, while a test runs."""
    found: Counter[str] = Counter()

    def count(owner: Any, name: str, label: str) -> None:
        whole = getattr(owner, name)

        def counted(*given: Any, **options: Any) -> Any:
            # A key that is traced draws nothing: it shows whether the start depends on the seed.
            found[label] += not any(isinstance(each, Tracer) for each in given)
            return whole(*given, **options)

        monkeypatch.setattr(owner, name, counted)

    count(Scenario, "build", "scenarios built")
    count(UniformSphere, "start", "starts drawn")
    count(Plan, "__init__", "plans")
    count(cost.Cost, "__new__", "costs")
    return found


ONCE = {"scenarios built": 1, "starts drawn": 1, "plans": 1, "costs": 1}


@pytest.fixture
def path(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL, encoding="utf-8")
    return tmp_path / "small.toml"


def test_a_run_makes_each_once(path, made):
    assert main(["run", str(path), "--output", "here", "--quiet"]) == 0
    assert made == ONCE
    made.clear()
    pf.run(path, output="there").close()
    assert made == ONCE


def test_a_run_that_goes_on_makes_each_once(path, made):
    def stop(frames: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pf.run(path, output="here", progress=stop)
    made.clear()
    assert main(["resume", "here", "--quiet"]) == 0
    assert made == ONCE
    made.clear()
    assert main(["resume", "here", "--quiet"]) == 0  # has come to its end
    assert not made


@pytest.mark.slow
def test_a_sweep_is_read_once(path, made, monkeypatch):
    """Of four runs, two seeds for two β: two documents beside the scenario's own, two starts, one plan for the cost."""
    from particleflow.app.scenario import schema
    from particleflow.app.sweep import sweep_plan

    calls: Counter[str] = Counter()
    for owner, name in ((sweep_plan, "SweepPlan"), (schema, "read_document")):
        whole = getattr(owner, name)
        monkeypatch.setattr(
            owner,
            name,
            lambda *given, _whole=whole, _name=name, **rest: calls.update([_name]) or _whole(*given, **rest),
        )
    assert main(["sweep", str(path), "--output", "out", "--quiet"]) == 0
    assert calls["SweepPlan"] == 1
    assert calls["read_document"] == 1 + 2 + 2  # the file, the two β, and the two seeds, which are no part of these
    assert (made["starts drawn"], made["plans"], made["costs"]) == (2, 2, 1)  # one plan of the first run, one of all
    made.clear()
    assert main(["replay", "out", "3", "--quiet"]) == 0
    assert made == ONCE
