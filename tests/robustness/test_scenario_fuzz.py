"""Whatever a scenario file says, `check` ends with exit code 0 or 2 and a message, never with a traceback."""

import random
import tomllib

import pytest

from particleflow.app.cli import main
from particleflow.app.scenario.scenario import shipped
from scenario_mutations import mutated_text

MOST = 1000
# Their flows are quickly made, where they are accepted.
QUICK = (
    "alibi", "causal", "density_line", "kuramoto", "linear_attention", "mean_shift", "moons", "rings", "sqrt_scaled",
    "two_heads",
)  # fmt: skip


def check_mutations(each: int, folder, capsys, names=()) -> dict[int, float]:
    """The share of every exit code; draws belong to a scenario and a number, whatever other scenarios there are."""
    documents = {name: tomllib.loads(shipped()[name].read_text(encoding="utf-8")) for name in names or shipped()}
    for document in documents.values():  # a million particles take seconds to check
        if document["initial"].get("count", 0) > MOST:
            document["initial"]["count"] = MOST
    codes, path = {0: 0, 2: 0}, folder / "mutation.toml"
    draws = [f"{name} {number}" for name in documents for number in range(each)]
    for draw in draws:
        path.write_text(mutated_text(documents[draw.split()[0]], random.Random(draw)), encoding="utf-8")
        code = main(["check", str(path)])
        errors = capsys.readouterr().err
        assert code in codes, f"mutation {draw}: exit code {code}\n{errors}"
        assert "Traceback" not in errors
        assert code == 0 or errors.startswith("Error: "), f"mutation {draw}: {errors}"
        codes[code] += 1
    return {code: count / len(draws) for code, count in codes.items()}


@pytest.mark.slow
def test_two_mutations_of_some_scenarios_are_refused_or_accepted(tmp_path, capsys):
    codes = check_mutations(2, tmp_path, capsys, QUICK)
    assert codes[2] > 0.75  # the mutations do reach the checks
    assert codes[0] > 0.05  # and not everything is refused


@pytest.mark.slow
def test_two_thousand_mutations_are_refused_or_accepted(tmp_path, capsys):
    codes = check_mutations(44, tmp_path, capsys)
    assert 0.06 < codes[0] < 0.12
