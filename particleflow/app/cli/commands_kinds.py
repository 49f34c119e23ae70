"""The commands kinds and describe: what can be written in a scenario, from the classes themselves."""

import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from particleflow._support.text import printable
from particleflow.app.cli.console import fitted, result, result_json
from particleflow.app.cli.options import Flag

if TYPE_CHECKING:
    from particleflow.app.scenario.schema import Kind

_COLUMNS = 110


def kinds(
    family: Annotated[
        str | None, Parameter(help="One family, such as kernel, drift or solver; all if left out.")
    ] = None,
    /,
    *,
    json: Flag = False,
) -> int:
    """List every kind of kernel, drift, geometry, …, and every solver, that a scenario can name, in one line each.

    Parameters
    ----------
    json
        Print kinds, descriptions and parameters as JSON.
    """
    from particleflow.app.cli.device import prepare
    from particleflow.app.scenario.schema import all_kinds

    prepare()
    found = all_kinds(family)
    if json:
        result_json([each.to_dict() for each in found])
        return 0
    width = max((len(each.name) for each in found), default=0)
    for name, members in groupby(found, key=lambda each: each.family):
        result(name)
        for each in members:
            result(printable(f"  {each.name:<{width}}  {fitted(each.sentence, _COLUMNS - width)}"))
    return 0


def describe(
    kind: Annotated[
        str, Parameter(help="A kind, such as attend, or kernel.gaussian; or a table, such as time; or expression.")
    ],
    /,
    *,
    json: Flag = False,
) -> int:
    """Show one kind: what it computes, how it is written, and its parameters with their defaults.

    Parameters
    ----------
    json
        Print it as JSON.
    """
    from particleflow.app.cli.device import prepare
    from particleflow.app.scenario.schema import find_kinds

    prepare()
    found = find_kinds(kind)
    if json:
        result_json([each.to_dict() for each in found])
        return 0
    result("\n\n".join(map(_described, found)))
    return 0


def _described(kind: "Kind") -> str:
    """A kind as text: its docstring, how it is written, and each parameter with its type, default and meaning."""
    lines = [f"{kind.family} {kind.name}", "", *kind.docstring.splitlines(), "", *kind.example.splitlines()]
    if kind.parameters:
        lines += ["", "Parameters"]
    width = max((len(each.name) for each in kind.parameters), default=0)
    for each in kind.parameters:
        default = "must be given" if each.required else f"default {each.default_text or 'none'}"
        lines += _wrapped(f"  {each.name:<{width}}  ", f"{each.expected}; {default}")
        if each.meaning:
            lines += _wrapped(" " * (width + 4), each.meaning)
    return printable("\n".join(lines))


def _wrapped(head: str, text: str) -> list[str]:
    """A text behind a head in lines of one width, all but the first indented by the length of the head."""
    return textwrap.wrap(text, _COLUMNS, initial_indent=head, subsequent_indent=" " * len(head))
