"""Options that several commands share, each with its help."""

import re
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

_SET = "--set"
_ASSIGNMENT = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*=", re.ASCII)

Flag = Annotated[bool, Parameter(negative=())]
Scenario = Annotated[str, Parameter(help="A scenario file, or the name of a shipped scenario.")]
Run = Annotated[Path, Parameter(help="A run folder or its trajectory file.")]
Threshold = Annotated[
    float | Literal["auto"] | None,
    Parameter(
        help="The distance up to which particles belong together; the one kept by `analyze` if left out, else that of "
        "the run's event, else one that fits the geometry; auto passes over the kept one."
    ),
]
Overrides = Annotated[
    list[str],
    Parameter(
        name=_SET,
        negative=(),
        show_default=False,
        help="Change values, such as --set drift.0.kernel.beta=4 time.end=9; a kind by its name, as in "
        "geometry=sphere; without a value (time.rtol=) the key is removed.",
    ),
]
Device = Annotated[str | None, Parameter(help="Where to compute: cpu, gpu, tpu, or one of several, as gpu:1.")]
Native = Annotated[
    Literal["on", "off"], Parameter(help="Whether sums may use code that is built for this processor, once.")
]
AllowCode = Annotated[bool, Parameter(negative=(), help='Let the scenario import code it names as "module:object".')]
Quiet = Annotated[bool, Parameter(negative=(), help="Say nothing but errors.")]


def with_every_flag(tokens: list[str]) -> list[str]:
    """Command line tokens in which every assignment has a --set of its own: --set a=1 b=2 is --set a=1 --set b=2.

    What follows and assigns nothing, such as the name of a scenario, is left as it is.
    """
    spread: list[str] = []
    setting = False
    for index, token in enumerate(tokens):
        if token == "--":
            return spread + tokens[index:]
        if setting and _ASSIGNMENT.match(token) and spread[-1] != _SET:
            spread.append(_SET)
        elif spread and spread[-1] != _SET:
            setting = False
        setting = setting or token == _SET or token.startswith(f"{_SET}=")
        spread.append(token)
    return spread
