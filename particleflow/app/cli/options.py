"""Options that several commands share, each with its help text, and the spelling of `--set a=1 b=2`."""

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from particleflow.errors import UserError

if TYPE_CHECKING:
    from particleflow.app.processes.joining import ProcessGroup

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
Devices = Annotated[
    int | None,
    Parameter(
        help="How many devices of this machine share the particles of a run, or the runs of a sweep; no stored number "
        "depends on how many. If left out, one of JAX's choice, whose last digits may differ."
    ),
]
Native = Annotated[
    Literal["on", "off"], Parameter(help="Whether sums may use native code, which is compiled once for this processor.")
]
AllowCode = Annotated[bool, Parameter(negative=(), help='Let the scenario import code it names as "module:object".')]
Quiet = Annotated[bool, Parameter(negative=(), help="Print errors only, no messages and no progress.")]


@dataclass(frozen=True)
class Processes:
    """The processes that make one run together: each has these options, or is started by srun or mpirun."""

    coordinator: Annotated[
        str | None,
        Parameter(help="HOST:PORT of the process with number 0, which all others can reach; the port must be free."),
    ] = None
    processes: Annotated[int | None, Parameter(help="How many processes make the run.")] = None
    process: Annotated[int | None, Parameter(help="The number of this one, from 0; number 0 writes the run.")] = None

    def found(self) -> "ProcessGroup | None":
        """The group of processes that this one belongs to; None where it is alone."""
        from particleflow.app.processes.joining import find_group

        group = find_group(self.coordinator, self.processes, self.process)
        return None if group is None or group.count == 1 else group


GroupOptions = Annotated[Processes, Parameter(name="*", group="One run by several processes")]

_SBATCH = {"partition": r"[\w.,-]+", "time": r"(\d+-)?\d+(:\d+){0,2}", "gres": r"[\w.,:-]+"}


@dataclass(frozen=True)
class Slurm:
    """Options of sbatch, and whether a job is submitted at all."""

    slurm: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Let a job array run the sweep, with one worker a task: 8, or as many as --workers says.",
        ),
    ] = False
    dry_run: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Print the job script and submit nothing.")
    ] = False
    partition: Annotated[str | None, Parameter(help="The partition, as for sbatch.")] = None
    time: Annotated[
        str | None,
        Parameter(help="The time limit of a task, as for sbatch; a task ends before it, and other tasks go on."),
    ] = None
    gres: Annotated[str | None, Parameter(help="Generic resources of a task, as for sbatch, such as gpu:1.")] = None
    array_limit: Annotated[int | None, Parameter(help="The most tasks that run at the same time.")] = None

    def sbatch_options(self, tasks: int) -> list[str] | None:
        """Options of sbatch for an array of so many tasks; None without --slurm, where the others are refused."""
        given = _sbatch_options(self)
        if self.array_limit is not None and self.array_limit < 1:
            raise UserError(f"Option --array-limit must be at least 1, but is {self.array_limit}.")
        limit = "" if self.array_limit is None else f"%{self.array_limit}"
        return [f"--array=0-{tasks - 1}{limit}", *given] if self.slurm else None


@dataclass(frozen=True)
class SlurmRun:
    """Options of sbatch for one run by several tasks."""

    slurm: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Let a job run it, with as many tasks as --tasks says.")
    ] = False
    dry_run: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Print the job script and submit nothing.")
    ] = False
    tasks: Annotated[int | None, Parameter(help="How many processes share the run, on any nodes.")] = None
    partition: Annotated[str | None, Parameter(help="The partition, as for sbatch.")] = None
    time: Annotated[
        str | None, Parameter(help="The time limit, as for sbatch; the run stops before it, and can be resumed.")
    ] = None
    gres: Annotated[str | None, Parameter(help="Generic resources of a node, as for sbatch, such as gpu:1.")] = None

    def sbatch_options(self) -> list[str] | None:
        """Options of sbatch for a job; None without --slurm, where the others are refused."""
        given = _sbatch_options(self)
        if self.slurm and (self.tasks is None or self.tasks < 1):
            raise UserError("Option --slurm needs --tasks, the number of processes that share the run, at least 1.")
        return [f"--ntasks={self.tasks}", *given] if self.slurm else None


def _sbatch_options(options: Slurm | SlurmRun) -> list[str]:
    """The options that are handed on to sbatch as they are, checked; refused without --slurm."""
    named = [
        field.name.replace("_", "-") for field in fields(options) if getattr(options, field.name) is not field.default
    ]
    if not options.slurm and named:
        raise UserError(f"Option --{named[0]} is for Slurm: add --slurm, or leave it out.")
    for name, pattern in _SBATCH.items():
        if (value := getattr(options, name)) is not None and not re.fullmatch(pattern, value, re.ASCII):
            raise UserError(f"Option --{name} must be written as for sbatch, but is {value!r}.")
    return [f"--{name}={value}" for name in _SBATCH if (value := getattr(options, name)) is not None]


def computing_options(device: str | None, native: str, devices: int | None, *, allow_code: bool) -> list[str]:
    """The options of other commands, such as `work`, that say where and how to compute."""
    chosen = [] if device is None else ["--device", device]
    chosen += [] if devices is None else ["--devices", str(devices)]
    return [*chosen, *(["--native", native] if native != "on" else []), *(["--allow-code"] if allow_code else [])]


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
