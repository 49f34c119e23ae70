"""An error of the user's own code is named as such: which file, which line, what was raised."""

import json

import pytest

from particleflow._support.user_code import blamed
from particleflow.app.cli import main

MODULE = """
import jax.numpy as jnp
import particleflow as pf


class Push(pf.drifts.AbstractDrift):
    strength: float = 1.0

    def __call__(self, time, queries, measure):
        return checked(self.strength) * queries.points


def checked(strength):
    raise KeyError("no such strength")
"""
SCENARIO = """
# What to look for.
initial = { kind = "uniform_sphere", dim = 3, count = 4 }
[[drift]]
kind = "NAME:Push"
[time]
end = 1.0
frames = 3
step = 0.5
solver = "map"
[sweep]
"drift.0.strength" = [0.1, 0.2]
"""


@pytest.fixture
def scenario(tmp_path, monkeypatch, request):
    """A scenario beside a module of the user's, whose name no other test has imported."""
    monkeypatch.chdir(tmp_path)
    name = f"module_of_{request.node.name}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / "mine.toml").write_text(SCENARIO.replace("NAME", name))
    return tmp_path / "mine.toml"


def named(said: str) -> bool:
    return ".py, line 14, in checked) raised KeyError: 'no such strength'" in said and "fault" not in said


def test_the_runs_of_a_sweep_fail_by_the_code_of_the_user(scenario, capsys):
    folder = scenario.parent / "out"
    assert main(["sweep", str(scenario), "--output", str(folder), "--allow-code", "--quiet"]) == 1
    said = capsys.readouterr().err
    assert named(said)
    assert "Traceback" not in said
    runs = json.loads((folder / "manifest.json").read_text())["runs"]
    assert [run["state"] for run in runs] == ["failed", "failed"]
    assert all(named(run["message"]) for run in runs)


def test_a_run_fails_by_the_code_of_the_user(scenario, capsys):
    assert main(["run", str(scenario), "--output", str(scenario.parent / "out"), "--allow-code", "--quiet"]) == 2
    assert named(capsys.readouterr().err)


def test_errors_of_others_are_not_blamed_on_the_user():
    def fail():
        json.loads("{")

    with pytest.raises(ValueError, match="property name") as caught:
        fail()
    assert "test_user_errors.py" in (blamed(caught.value) or "")  # it was this file that asked
    inside = caught.tb.tb_next.tb_next if caught.tb.tb_next else None  # as if particleflow had
    assert blamed(caught.value.with_traceback(inside)) is None


OWN = """
import particleflow as pf


def pull(t, x, mu):
    return -x


class Wrong:
    pass
"""


def with_drift(drift: str) -> str:
    return SCENARIO.split("[[drift]]")[0] + f"drift = [{drift}]\n" + SCENARIO.split('Push"\n')[1].split("[sweep]")[0]


@pytest.mark.parametrize(
    ("drift", "code", "said"),
    [
        ('{ kind = "function_drift", function = "NAME:pull" }', 0, "is fine"),
        (
            '"NAME:pull"',
            2,
            "which is no drift. One of your own is a subclass of AbstractDrift, or drifts.FunctionDrift",
        ),
        ('{ kind = "attend", kernel = "NAME:Wrong" }', 2, "which is no kernel. One of your own is a subclass of"),
    ],
)
def test_a_function_is_named_in_a_scenario_and_what_is_no_drift_is_told_what_to_be(
    drift, code, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    name = f"own_module_{abs(hash(drift))}"
    (tmp_path / f"{name}.py").write_text(OWN)
    (tmp_path / "own.toml").write_text(with_drift(drift.replace("NAME", name)))
    assert main(["check", "own.toml", "--allow-code"]) == code
    assert said in capsys.readouterr().err
    assert main(["check", "own.toml"]) == 2
    assert "--allow-code" in capsys.readouterr().err
