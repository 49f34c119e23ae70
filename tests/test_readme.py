"""What the README says: its scenario and commands run, and the numbers that it states about runs are computed again."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import particleflow as pf
from particleflow.app.cli import main
from particleflow.app.scenario.scenario import load, shipped
from particleflow.app.sweep.sweep_plan import plan_sweep

PROJECT = Path(pf.__file__).parents[1]
TEXT = (PROJECT / "README.md").read_text(encoding="utf-8")
NUMBERS = {"Fifteen": 15, "five": 5, "two": 2}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def stated(pattern: str) -> tuple[str, ...]:
    """What stands in the README in the groups of a pattern, line breaks read as spaces."""
    found = re.search(pattern, " ".join(TEXT.split()))
    assert found is not None, f"the README does not say {pattern!r} any more"
    return found.groups()


def test_the_scenario_is_one_and_has_as_many_lines_as_stated(tmp_path):
    (scenario,) = blocks("toml")
    (tmp_path / "readme.toml").write_text(scenario, encoding="utf-8")
    assert main(["check", str(tmp_path / "readme.toml"), "--quiet"]) == 0
    lines = [line for line in scenario.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert len(lines) == NUMBERS[stated(r"(\w+) lines of TOML")[0]]


def test_the_sweep_has_as_many_runs_as_stated():
    (runs,) = stated(r"sweep scenarios/phase_diagram\.toml # ([\d,]+) runs")
    assert len(plan_sweep(load(shipped()["phase_diagram"])).runs) == int(runs.replace(",", ""))


@pytest.mark.slow
def test_the_scenario_of_the_picture_has_the_clusters_of_its_caption(tmp_path):
    path = shipped()["metastable_sphere"]
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    tokens, beta, before, merging, time = stated(
        r"(\d+) tokens on the sphere at β = (\d+): (\w+) clusters, (\w+) of which meet at t = ([\d.]+)"
    )
    assert table["initial"]["count"] == int(tokens)
    assert table["drift"][0]["kernel"]["beta"] == int(beta)
    no_products: Any = dict.fromkeys(("summary", "figures", "movie", "page"), False)
    run = pf.run(path, output=tmp_path / "run", progress=False, **no_products)
    counts = pf.analysis.track_clusters(run).counts
    last = max(index for index in range(1, len(counts)) if counts[index] < counts[index - 1])
    assert counts[last - 1] == NUMBERS[before]
    assert counts[last - 1] - counts[-1] == NUMBERS[merging] - 1
    assert run.times[last - 1] < float(time) + 0.05
    assert run.times[last] > float(time) - 0.05


@pytest.mark.slow
def test_the_commands_run(tmp_path):
    """All lines of shell but those that make an environment, in order; RUN is the folder of the first."""
    (tmp_path / "scenarios").symlink_to(PROJECT / "scenarios")
    (tmp_path / "outputs").mkdir()
    run = None
    for line in "".join(blocks("sh")).splitlines():
        command, *_ = line.split("#")
        if command.startswith("python3 -m venv"):
            continue
        words = [str(run) if word == "RUN" else word for word in command.split()[1:]]
        done = subprocess.run(
            [sys.executable, "-m", "particleflow", *words],
            cwd=tmp_path,
            env=os.environ | {"MPLBACKEND": "Agg"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stderr[-2000:]}"
        run = run or tmp_path / done.stdout.strip().splitlines()[-1]
    assert run is not None
    assert (run / "viewer.html").exists()
