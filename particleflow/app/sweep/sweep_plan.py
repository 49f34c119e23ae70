"""The plan of a sweep: its [sweep] table, checked once with the scenario, as the values of every run."""

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.app.scenario.schema.problems import Problems
from particleflow.app.scenario.schema.sweep_table import MOST_RUNS, SweepTable, SweptRange, SweptSeeds
from particleflow.app.scenario.schema.tables import validated
from particleflow.app.sweep.member_builder import MemberBuilder
from particleflow.app.sweep.results import is_number

if TYPE_CHECKING:
    from particleflow.app.scenario.scenario import Scenario


@dataclass(frozen=True)
class SweepPlan:
    """A sweep, read and checked once: its scenario, its settings, its keys in order, and the values of every run.

    `builder` builds the runs, sharing documents, flows and starts among them.
    """

    scenario: "Scenario"
    table: SweepTable
    keys: tuple[str, ...]
    runs: tuple[dict[str, Any], ...]
    builder: MemberBuilder = field(repr=False, compare=False)


def plan_sweep(scenario: "Scenario") -> SweepPlan:
    """Read and check the [sweep] table of a scenario, and the first and the last value of every key in the scenario."""
    problems = Problems()
    table = scenario.document.sweep or SweepTable()
    swept = table.swept
    _check_settings(table, problems)
    problems.raise_if_any(scenario.name)
    choices = {name: _values(name, raw, scenario.document.seed, table, problems) for name, raw in swept.items()}
    problems.raise_if_any(scenario.name)
    runs = _combined(choices, table, scenario.document.seed, problems)
    problems.raise_if_any(scenario.name)
    builder = MemberBuilder(scenario)
    _check_values(builder, choices, problems)
    _check_phase(scenario, table, choices, problems)
    problems.raise_if_any(scenario.name)
    return SweepPlan(scenario, table, tuple(swept), tuple(runs), builder)


def _check_settings(table: SweepTable, problems: Problems) -> None:
    """Check that the settings fit each other, and that there is a key to sweep."""
    if not table.swept:
        problems.add("sweep", "must name at least one key to sweep, such as seed = { count = 4 }")
    if table.mode == "random" and table.count is None:
        problems.add("sweep.count", "is missing; with mode = 'random' it is the number of runs")
    if table.mode != "random" and table.count is not None:
        problems.add("sweep.count", "goes with mode = 'random' only", table.count)


def _values(name: str, raw: Any, seed: int, table: SweepTable, problems: Problems) -> Any:
    """A list of values, or for a random sweep a range to draw from."""
    path = f'sweep."{name}"'
    if isinstance(raw, list) and raw:
        return raw
    if not isinstance(raw, dict):
        problems.add(path, "must be a list of values, or a table with start, stop and count", raw)
        return []
    if name == "seed" and set(raw) == {"count"}:
        seeds = validated(SweptSeeds, raw, path, problems)
        return [] if seeds is None else list(range(seed, seed + seeds.count))
    spread = validated(SweptRange, raw, path, problems)
    if spread is None:
        return []
    if spread.spacing == "log" and not (spread.start > 0 and spread.stop > 0):
        problems.add(path, "must have a positive start and stop with spacing = 'log'", raw)
        return []
    if table.mode == "random":
        return spread
    space = np.geomspace if spread.spacing == "log" else np.linspace
    # Rounded to 12 digits, so that a step of 0.1 gives 0.3 and not 0.30000000000000004.
    return [float(f"{value:.12g}") for value in space(spread.start, spread.stop, spread.count)]


def _combined(choices: dict[str, Any], table: SweepTable, seed: int, problems: Problems) -> list[dict[str, Any]]:
    """The values of every run: drawn, one after the other, or all combinations, the last key changing fastest."""
    if table.mode == "random":
        return _random(choices, table.count or 0, seed)
    sizes = {name: len(values) for name, values in choices.items()}
    if table.mode == "zip":
        if len(set(sizes.values())) > 1:
            problems.add("sweep", "must give every key equally many values with mode = 'zip'", sizes)
            return []
        return [dict(zip(choices, row, strict=True)) for row in zip(*choices.values(), strict=True)]
    if math.prod(sizes.values()) > MOST_RUNS:
        problems.add("sweep", f"asks for {math.prod(sizes.values())} runs, more than {MOST_RUNS}")
        return []
    return [dict(zip(choices, row, strict=True)) for row in itertools.product(*choices.values())]


def _random(choices: dict[str, Any], count: int, seed: int) -> list[dict[str, Any]]:
    """Values drawn evenly, from lists or from ranges (in the logarithm where they are spaced so), by the seed."""
    generator = np.random.default_rng(seed)

    def drawn(values: Any) -> Any:
        if isinstance(values, list):
            return values[int(generator.integers(len(values)))]
        share = float(generator.uniform())
        if values.spacing == "log":
            return values.start * (values.stop / values.start) ** share
        return values.start + share * (values.stop - values.start)

    return [{name: drawn(values) for name, values in choices.items()} for _ in range(count)]


def _check_values(builder: MemberBuilder, choices: dict[str, Any], problems: Problems) -> None:
    """Check the scenario with the first and the last value of every key, so that a wrong one shows before any run.

    Of seeds, one that is no integer is checked, or else the smallest and the largest.
    """
    from particleflow.errors import UserError

    for name, values in choices.items():
        ends = [values[0], values[-1]] if isinstance(values, list) else [values.start, values.stop]
        if name == "seed" and isinstance(values, list):
            odd = [value for value in values if type(value) is not int]
            ends = [odd[0], odd[0]] if odd else [min(values), max(values)]
        for value in ends[: 1 if ends[0] == ends[1] else 2]:
            try:
                builder.check({name: value})
            except UserError as error:
                inner = getattr(error, "problems", ())
                problems.add(f'sweep."{name}"', inner[0].message if inner else str(error), value)
                break


def _check_phase(scenario: "Scenario", table: SweepTable, choices: dict[str, Any], problems: Problems) -> None:
    """Check that a phase diagram is over two keys that are swept over numbers, or time, and of a recorded number."""
    from particleflow.simulation.observables import name_of

    phase = table.phase
    if phase is None:
        return
    for axis, key in (("x", phase.x), ("y", phase.y)):
        values = choices.get(key, [])
        if key not in (*choices, "time"):
            problems.add(f"sweep.phase.{axis}", f"must be a swept key or 'time', one of {', '.join(choices)}", key)
        elif isinstance(values, list) and not all(map(is_number, values)):
            advice = "without `phase` the sweep is drawn over them by name"
            problems.add(f"sweep.phase.{axis}", f"must be a key all of whose values are numbers; {advice}", key)
    if phase.x == phase.y:
        problems.add("sweep.phase.y", "must be another key than x", phase.y)
    recorded = [name_of(spec.made) for spec in scenario.document.observables]
    if "time" in (phase.x, phase.y):
        known, needed = recorded, "recorded in every frame to be drawn over time"
    else:
        known, needed = [*recorded, "clusters"], "recorded"
    if phase.value not in known:
        found = f": one of {', '.join(known)}" if known else ", in record.observables"
        problems.add("sweep.phase.value", f"must be {needed}{found}", phase.value)
