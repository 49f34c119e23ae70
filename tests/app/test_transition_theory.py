"""Theory beside a run that goes through a transition and back: its branch solves the equation of stationary states."""

import numpy as np
import pytest
from scipy.special import iv

from particleflow.app.runs.transition_theory import transition_of
from particleflow.app.scenario.scenario import load

SMALL = """
initial = { kind = "uniform_circle", count = 8 }
geometry = { kind = "sphere" }
temperature = %s
[[drift]]
kind = "varying"
parameter = "value"
schedule = { kind = "steps", duration = 1.0, values = %s }
drift = { kind = "attend", kernel = { kind = "attention", beta = %s }, normalization = "none" }
[time]
end = 3.0
frames = 4
step = 0.1
"""


def transition(tmp_path, temperature=0.5, values="[0.1, 0.25, 0.12]", beta=4.0):
    (tmp_path / "loop.toml").write_text(SMALL % (temperature, values, beta))
    return transition_of(load(tmp_path / "loop.toml").build().plan)


def stationary_order(strength: float, temperature: float, beta: float) -> float:
    """R of the cluster: f ∝ exp((κ/(βT)) ∫ e^{β cos(θ − φ)} f(φ) dφ), iterated from a narrow density."""
    angles = np.linspace(-np.pi, np.pi, 128, endpoint=False)
    kernel = np.exp(beta * np.cos(angles[:, None] - angles))
    density = np.exp(4 * np.cos(angles))
    for _ in range(2500):
        density /= density.sum()
        density = np.exp(strength / (beta * temperature) * kernel @ density)
    density /= density.sum()
    return float(density @ np.cos(angles))


@pytest.mark.slow
def test_the_branch_of_a_loop_solves_the_equation_of_stationary_states(tmp_path):
    temperature, beta = 0.5, 4.0
    found = transition(tmp_path)["transition"]
    assert found["limit"] == pytest.approx(temperature * beta / iv(1, beta), rel=1e-9)
    stable = np.flatnonzero(found["stable"])[2::3]
    assert stable.size > 2
    for place in stable:
        expected = stationary_order(found["values"][place], temperature, beta)
        assert found["orders"][place] == pytest.approx(expected, abs=1e-6)
    assert found["folds"][0] < found["equal"][0] < found["limit"]


@pytest.mark.parametrize(
    "others", [{"temperature": 0.0}, {"values": "[0.1, 0.2, 0.3]"}, {"values": "[-0.1, 0.25, 0.12]"}], ids=str
)
def test_other_runs_have_no_transition(tmp_path, others):
    assert transition(tmp_path, **others) == {}
