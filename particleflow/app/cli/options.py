"""Options that several commands share, each with its help text, and the spelling of `--set a=1 b=2`."""

import re
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

# An assignment is a dotted path, an equals sign, and anything: drift.0.kernel.beta=4
_SET = "--set"
_ASSIGNMENT = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*=", re.ASCII)

# A switch that is off unless it is named: it has no --no-… form.
Flag = Annotated[bool, Parameter(negative=())]
Scenario = Annotated[str, Parameter(help="A scenario file, or the name of a shipped scenario.")]
Run = Annotated[Path, Parameter(help="A run folder or its trajectory file.")]
Threshold = Annotated[
    float | Literal["auto"] | None,
    Parameter(
        help="The distance up to which particles are one cluster. If left out: the one in the run's summary, else that "
        "of its event, else one chosen for its geometry; auto ignores the one in the summary."
    ),
]
Overrides = Annotated[
    list[str],
    Parameter(
        name=_SET,
        negative=(),
        show_default=False,
        help="Change values of the scenario, such as --set drift.0.kernel.beta=4 time.end=9. A kind may be given by "
        "its name (geometry=sphere); a key without a value (time.rtol=) is removed.",
    ),
]
Theme = Literal["light", "dark", "print", "user"]
ThemeOption = Annotated[
    Theme,
    Parameter(
        help="The colours and fonts: print is for papers, without title and small print; user is the matplotlib style "
        "of your own matplotlibrc."
    ),
]
Format = Annotated[Literal["png", "svg", "pdf"], Parameter(help="The format of the files; SVG and PDF keep text.")]
Only = Annotated[
    list[str],
    Parameter(
        negative=(),
        show_default=False,
        help="A figure to draw, by its name; may be repeated. All that suit the run with --only all; if left out, the "
        "three to five that show what the run is about.",
    ),
]
Size = Annotated[
    tuple[float, float] | None,
    Parameter(negative=(), help="Width and height in inches; that of each figure's own if left out."),
]
Dpi = Annotated[
    float | None, Parameter(help="Pixels an inch; if left out so many that a picture is 1,600 pixels wide.")
]
Device = Annotated[str | None, Parameter(help="Where to compute: cpu, gpu, tpu, or one of several, as in gpu:1.")]
Native = Annotated[
    Literal["on", "off"], Parameter(help="Whether sums may use native code, which is compiled once for this processor.")
]
AllowCode = Annotated[bool, Parameter(negative=(), help='Let the scenario import code it names as "module:object".')]
Quiet = Annotated[bool, Parameter(negative=(), help="Print errors only, no messages and no progress.")]


def with_every_flag(tokens: list[str]) -> list[str]:
    """Command line tokens in which every assignment has a --set of its own: --set a=1 b=2 is --set a=1 --set b=2.

    What follows and is no assignment, such as the name of a scenario, is left as it is, and so is all after "--".
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
