"""What `simulate` chooses where tolerances are left out, and the title that it keeps with a run."""

from typing import Any

import numpy as np
import pytest

import particleflow as pf
from particleflow.app.scenario.schema.document import TimeTable
from shares import by_default

DECAY = pf.Flow(pf.drifts.Linear(-1.0))
START, TIMES = np.array([[1.0, -2.0], [0.5, 3.0]]), np.linspace(0.0, 2.0, 5)
LEFT_OUT: dict[str, tuple[dict[str, Any], str, tuple[float, float]]] = {
    "both": ({}, "float64", (1e-6, 1e-8)),
    "both, single": ({}, "float32", (1e-4, 1e-6)),
    "atol": ({"rtol": 1e-3}, "float64", (1e-3, 1e-5)),
    "rtol": ({"atol": 1e-9}, "float64", (1e-7, 1e-9)),
    "none": ({"rtol": 1e-5, "atol": 0.0}, "float64", (1e-5, 0.0)),
}


@pytest.mark.parametrize("name", by_default(list(LEFT_OUT), ["both", "atol"]))
def test_tolerances_that_are_left_out_are_those_of_a_scenario_file(name):
    given, precision, expected = LEFT_OUT[name]
    run = pf.simulate(DECAY, START.astype(precision), TIMES, **given)
    in_file = TimeTable(end=2.0, **given)
    chosen = in_file.chosen(precision)
    assert tuple(chosen.get(key, given.get(key)) for key in ("rtol", "atol")) == expected
    np.testing.assert_allclose([run.metadata["rtol"], run.metadata["atol"]], expected, rtol=1e-6)
    said = run.metadata["statistics"].get("chosen tolerances", "")
    assert ["rtol" in said, "atol" in said] == [key not in given for key in ("rtol", "atol")]
    exact = START[None] * np.exp(-TIMES)[:, None, None]
    np.testing.assert_allclose(np.asarray(run.points), exact, rtol=0, atol=30 * max(expected))


@pytest.mark.slow
def test_fixed_steps_and_maps_have_no_tolerances():
    """Euler's x ← (1 − h) x, as steps in time and as a map."""
    for solver in ("euler", "map"):
        run = pf.simulate(DECAY, START, TIMES, step=0.5, solver=solver)
        np.testing.assert_allclose(np.asarray(run.points), START * 0.5 ** np.arange(5)[:, None, None], rtol=1e-12)
        assert "chosen tolerances" not in run.metadata["statistics"]


@pytest.mark.slow
def test_a_state_is_evolved_without_tolerances():
    found = pf.evolve(DECAY, START, 2.0)
    np.testing.assert_allclose(np.asarray(found.points), START * np.exp(-2.0), atol=1e-6)


def test_a_title_is_kept_in_memory_and_in_a_file(tmp_path):
    for store in (None, tmp_path / "run.h5"):
        run = pf.simulate(DECAY, START, TIMES, step=0.5, title="Decay", store=store)
        assert run.metadata["title"] == "Decay"
    assert "title" not in pf.simulate(DECAY, START, TIMES, step=0.5).metadata
