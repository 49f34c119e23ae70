"""Numbers of a scenario that are computed from others: against Python's own arithmetic, in runs and in sweeps."""

import math
from typing import Any

import jsonschema
import pytest
from scipy.integrate import solve_ivp

import particleflow as pf
from particleflow.app.cli import main
from particleflow.app.scenario.scenario import load
from particleflow.app.scenario.schema import find_kinds
from particleflow.app.scenario.schema.expressions import with_numbers
from particleflow.app.scenario.schema.json_schema import json_schema
from particleflow.app.scenario.schema.problems import Problems, ScenarioError
from particleflow.app.sweep.sweep_plan import plan_sweep

SCENARIO = """
initial = {{ kind = "uniform_sphere", dim = 3, count = {count} }}
geometry = {{ kind = "sphere" }}
{top}
[[drift]]
kind = "attend"
kernel = {{ kind = "attention", beta = {beta} }}
[time]
end = {end}
frames = 5
{rest}
"""


def beta_of(flow: Any) -> float:
    return float(flow.drift.kernel.beta)


def written(tmp_path, count="16", beta="1.0", end="2.0", rest="", top=""):
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO.format(count=count, beta=beta, end=end, rest=rest, top=top), encoding="utf-8")
    return path


def computed(text, **others):
    problems = Problems()
    found = with_numbers({"a": {"expression": text}, **others}, problems)["a"]
    problems.raise_if_any("it")
    return found


VALUES = {
    "2 * log(count)": 2 * math.log(12),
    "2 + 3 * 4 ^ 2 / 8 - 1": 2 + 3 * 4**2 / 8 - 1,
    "-2 ^ 2": -(2**2),
    "2 ^ 3 ^ 2": 2 ** (3**2),
    "2 ** -1": 0.5,
    "(1 + 2) * (3 - 4) / -5": (1 + 2) * (3 - 4) / -5,
    "10 - 4 - 3": 3,
    "16 / 4 / 2": 2,
    "max(1, dim, min(9, 2.5e1)) + abs(-.5) - max(2)": 7.5,
    "sqrt(2) * sin(pi / 4) + cos(0) - tanh(e)": 2 - math.tanh(math.e),
    "time.end + drift.0.kernel.beta": 5.5,
    "round(2.6) + floor(2.6) + ceil(2.2) + exp(0)": 9,
}
FILE = {
    "initial": {"count": 12, "dim": 3}, "time": {"end": 1.5}, "drift": [{"kernel": {"beta": 4}}], "title": "no number",
    "flag": True, "loop": {"expression": "other + 1"}, "other": {"expression": "loop"},
}  # fmt: skip


@pytest.mark.parametrize("text", VALUES)
def test_values_are_those_of_python(text):
    found = computed(text, initial=FILE["initial"], time=FILE["time"], drift=FILE["drift"])
    assert found == pytest.approx(VALUES[text], rel=1e-15)
    assert isinstance(found, int) == float(VALUES[text]).is_integer()


WRONG = {
    "": "cannot be read at 'the end'",
    "1 +": "cannot be read at 'the end'",
    "1 2": "cannot be read at '2'",
    "(1": "closing bracket",
    "count(2)": "no function",
    "coumt": "did you mean 'count'",
    "title": "no number of the file",
    "flag": "no number of the file",
    "initial": "no number of the file",
    "__import__('os')": "cannot be read",
    "count.__class__": "no number of the file",
    "log(-1)": "no value",
    "(-8) ^ 0.5": "no value: a root of -8",
    "1 / 0": "no value",
    "10 ^ 10 ^ 10": "no value",
    "1e308 * 10": "has the value inf",
    "log(1, 2)": "log 2 arguments",
    "loop": "depends on itself",
    "1" * 301: "at most 300",
    "(" * 299: "nested too deeply",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_a_sentence(text):
    others = {name: value for name, value in FILE.items() if text == "loop" or name not in ("loop", "other")}
    with pytest.raises(ScenarioError, match=r"\ba = ") as error:
        computed(text, **others)
    assert WRONG[text] in str(error.value)


def test_a_long_chain_is_computed_once_each():
    """Each names the one before it twice: without a memory, 2²⁰ would be computed."""
    chain = {f"x{place}": {"expression": f"x{place - 1} + x{place - 1}"} for place in range(1, 20)}
    assert computed("x19", x0=1, **chain) == 2**19


def test_a_run_is_that_of_the_numbers_and_keeps_its_text(tmp_path):
    path = written(tmp_path, count='{ expression = "2 ^ 4" }', beta='{ expression = "2 * log(count)" }')
    scenario = load(path, ['time.end={ expression = "4 / drift.0.kernel.beta" }'])
    setup = scenario.build()
    assert setup.start.count == 16
    assert beta_of(setup.flow) == 2 * math.log(16)
    assert setup.times[-1] == 4 / (2 * math.log(16))
    assert 'beta = { expression = "2 * log(count)" }' in scenario.text
    plain = load(path, values={"initial.count": 64}).build()
    assert beta_of(plain.flow) == 2 * math.log(64)


def test_numbers_of_ones_own_are_named_and_swept(tmp_path):
    rest = '[record]\nobservables = ["energy"]\n[sweep]\n"numbers.gamma" = [0.5, 2.0]\n"initial.count" = [4, 8]\n'
    path = written(tmp_path, beta='{ expression = "gamma * log(count)" }', rest=rest, top="numbers = { gamma = 1.0 }")
    assert beta_of(load(path).build().flow) == math.log(16)
    plan = plan_sweep(load(path))
    for values in plan.runs:
        wanted = values["numbers.gamma"] * math.log(values["initial.count"])
        assert beta_of(plan.builder.setup(values).flow) == pytest.approx(wanted, rel=1e-15)
    for wrong in ('{ "a b" = 1.0 }', '{ gamma = "x" }', "3"):
        with pytest.raises(ScenarioError, match="numbers"):
            load(written(tmp_path, top=f"numbers = {wrong}"))


def test_a_sweep_computes_it_for_every_run(tmp_path):
    rest = '[record]\nobservables = ["energy"]\n[sweep]\n"initial.count" = [4, 8, 16]\nseed = { count = 2 }\n'
    plan = plan_sweep(load(written(tmp_path, beta='{ expression = "log(count)" }', rest=rest)))
    setups = [plan.builder.setup(values) for values in plan.runs]
    assert sorted(beta_of(each.flow) for each in setups) == pytest.approx(
        sorted([math.log(count) for count in (4, 8, 16)] * 2)
    )
    assert [each.start.count for each in setups] == [values["initial.count"] for values in plan.runs]


@pytest.mark.slow
def test_long_contexts_follow_the_closed_equation(tmp_path):
    """ρ' = 2 (1 − p) (1 − ρ) (1 + (n − 1) ρ) / (n − 1), p = 1/(1 + (n − 1) n^(−γ (1 − ρ))) the share of oneself."""
    gammas, counts = [0.5, 1.0, 1.5], [8, 64]
    swept = pf.sweep(
        "long_contexts", {"numbers.gamma": gammas, "initial.count": counts}, output=tmp_path / "sweep", progress=False
    )
    table = swept.to_pandas().set_index(["numbers.gamma", "initial.count"])["mean_similarity"]
    for gamma in gammas:
        for count in counts:

            def slope(time, rho, gamma=gamma, count=count):
                own = 1 / (1 + (count - 1) * count ** (-gamma * (1 - rho)))
                return 2 * (1 - own) * (1 - rho) * (1 + (count - 1) * rho) / (count - 1)

            expected = solve_ivp(slope, (0.0, 6.0), [0.0], "DOP853", rtol=1e-11, atol=1e-13).y[0, -1]
            assert abs(table[gamma, count] - expected) < 1e-6


def test_the_schema_allows_it_wherever_there_is_a_number():
    def scenario(beta):
        kernel = {"kind": "attention", "beta": beta}
        initial = {"kind": "uniform_sphere", "dim": 3, "count": {"expression": "2 ^ 4"}}
        return {
            "initial": initial,
            "drift": [{"kind": "attend", "kernel": kernel}],
            "time": {"end": {"expression": "1"}},
        }

    validator = jsonschema.Draft202012Validator(json_schema())
    validator.validate(scenario({"expression": "2 * log(count)"}))
    assert not validator.is_valid(scenario({"expression": 2}))
    assert not validator.is_valid(scenario({"expression": "2", "more": 1}))
    assert not validator.is_valid(scenario("2"))


def test_the_grammar_is_described_and_its_example_is_a_scenario(tmp_path, capsys):
    assert main(["describe", "expression"]) == 0
    said = capsys.readouterr().out
    assert all(word in said for word in ("drift.0.kernel.beta", "[numbers]", "pi and e", "tanh", "max and min"))
    assert main(["kinds", "table"]) == 0
    assert "expression" in capsys.readouterr().out
    (kind,) = find_kinds("expression")
    beside = 'initial = { kind = "uniform_sphere", dim = 3, count = 7 }\ngeometry = "sphere"\n[time]\nend = 1.0\n'
    path = tmp_path / "example.toml"
    path.write_text(beside + kind.example, encoding="utf-8")
    assert beta_of(load(path).build().flow) == 2 * math.log(7)
