"""Whatever a scenario file says, `check` ends with exit code 0 or 2 and a message, never with a traceback."""

import random
import tomllib

import pytest
from scenario_mutations import mutated_text

from particleflow.cli import main
from particleflow.scenario import shipped

MOST = 1000


def check_mutations(first: int, count: int, folder, capsys) -> dict[int, int]:
    documents = [tomllib.loads(path.read_text(encoding="utf-8")) for path in shipped().values()]
    for document in documents:  # a million particles take seconds to check
        if document["initial"].get("count", 0) > MOST:
            document["initial"]["count"] = MOST
    codes = {0: 0, 2: 0}
    for number in range(first, first + count):
        chance = random.Random(number)
        path = folder / "mutation.toml"
        path.write_text(mutated_text(chance.choice(documents), chance), encoding="utf-8")
        code = main(["check", str(path)])
        errors = capsys.readouterr().err
        assert code in codes, f"mutation {number}: exit code {code}\n{errors}"
        assert "Traceback" not in errors
        assert code == 0 or errors.startswith("Error: "), f"mutation {number}: {errors}"
        codes[code] += 1
    return codes


def test_eighty_mutations_are_refused_or_accepted(tmp_path, capsys):
    codes = check_mutations(0, 80, tmp_path, capsys)
    assert codes[2] > 30  # the mutations do reach the checks
    assert codes[0] > 1  # and not everything is refused


@pytest.mark.slow
def test_two_thousand_mutations_are_refused_or_accepted(tmp_path, capsys):
    codes = check_mutations(0, 2000, tmp_path, capsys)
    assert codes[0] + codes[2] == 2000
