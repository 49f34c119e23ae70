"""The command `list`: the scenarios that come with particleflow, by theme; JAX is not imported."""

import textwrap
from itertools import groupby
from typing import Any

from particleflow._support.text import printable
from particleflow.app.cli.console import result, result_json
from particleflow.app.cli.options import Flag

_COLUMNS = 110


def list_(*, json: Flag = False) -> int:
    """List the scenarios that come with particleflow, by theme, each with what to look for in it.

    Parameters
    ----------
    json
        Print name, title, theme, first comment and path of each as JSON.
    """
    from particleflow.app.scenario.scenario import describe, shipped

    found = sorted((describe(path) for path in shipped().values()), key=lambda each: each["theme"])
    if json:
        result_json(found)
        return 0
    width = max((len(each["name"]) for each in found), default=0)
    for theme, scenarios in groupby(found, key=lambda each: each["theme"]):
        result(theme or "Others")
        for each in scenarios:
            result("\n".join(_lines(each, width)))
    return 0


def _lines(scenario: dict[str, Any], width: int) -> list[str]:
    """Name and title of a scenario in one line, and below it the sentence of what to look for."""
    mark = " (sweep)" if scenario["sweep"] else ""
    indent = " " * (width + 4)
    sentence = textwrap.wrap(printable(scenario["look for"]), _COLUMNS, initial_indent=indent, subsequent_indent=indent)
    return [f"  {scenario['name']:<{width}}  {printable(scenario['title'])}{mark}", *sentence]
