"""Options that several commands share, each with its help."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

Flag = Annotated[bool, Parameter(negative=())]
Scenario = Annotated[str, Parameter(help="A scenario file, or the name of a shipped scenario.")]
Run = Annotated[Path, Parameter(help="A run folder or its trajectory file.")]
Overrides = Annotated[
    list[str],
    Parameter(
        name="--set",
        negative=(),
        show_default=False,
        help="Change a value, such as --set drift.0.kernel.beta=4; may be repeated.",
    ),
]
Device = Annotated[str | None, Parameter(help="Where to compute: cpu, gpu, tpu, or one of several, as gpu:1.")]
Native = Annotated[
    Literal["on", "off"], Parameter(help="Whether sums may use code that is built for this processor, once.")
]
AllowCode = Annotated[bool, Parameter(negative=(), help='Let the scenario import code it names as "module:object".')]
Quiet = Annotated[bool, Parameter(negative=(), help="Say nothing but errors.")]
