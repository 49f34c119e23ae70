"""The scenario file as a whole: the keys that belong to no class, and the checks between tables.

`ScenarioFile` declares the keys at the top of a file and the tables [time], [record], [output] and [sweep]; tables with
a `kind` are read by `tables`. `Document` is the result: every value checked, every call made once, and values that the
file left open chosen. The checks between keys, such as that noise needs a fixed `step`, are the functions at the end;
they run even where other keys are wrong, so that a user sees everything at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, Strict, WithJsonSchema

from particleflow._support.text import suggestion
from particleflow.app.scenario.schema.argument_types import Vector, family_schema
from particleflow.app.scenario.schema.calls import Spec
from particleflow.app.scenario.schema.expressions import with_numbers
from particleflow.app.scenario.schema.numbers import LARGEST_SEED
from particleflow.app.scenario.schema.problems import Problems, joined, problem, shown
from particleflow.app.scenario.schema.registry import Registry
from particleflow.app.scenario.schema.sweep_table import SweepTable
from particleflow.app.scenario.schema.tables import TableReader, validated
from particleflow.errors import UserError

_MOST_FRAMES = 1_000_000
_CHOSEN_FRAMES = 200
_FORBID = ConfigDict(extra="forbid")
_StrictInt = Annotated[int, Strict()]
_StrictBool = Annotated[bool, Strict()]
_StrictStr = Annotated[str, Strict()]
_Positive = Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
_Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
_Name = Annotated[str, Strict(), Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_NotNegative = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]


def _tables(family: str, *, many: bool = False) -> Any:
    return Annotated[Any, WithJsonSchema(family_schema(family, many=many))]


def _check_particles(value: Any) -> Any:
    items = value if isinstance(value, list) else [value]
    if not items or any(isinstance(item, bool) or not isinstance(item, int) or item < 0 for item in items):
        raise problem("must be a number of particles or a list of their indices")
    return value


_Particles = Annotated[
    Any,
    PlainValidator(_check_particles),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}),
]


class TimeTable(BaseModel):
    """When frames are saved and how time is stepped.

    `frames` instants from 0 to `end`, evenly spaced, or evenly in the logarithm from `first` on; or `times` themselves.
    Steps are adaptive with `rtol` and `atol`, or fixed with `step`. Left out, `frames` is 200, `rtol` 1e-6 (1e-4 in
    single precision) and `atol` a hundredth of `rtol`; a run reports that these were chosen.

    `spacing`, that of the instants; `solver`, by its name, such as "tsit5", "dopri8", "kvaerno5", "euler", "heun" or
    "map" (explicit layers), chosen if left out, and all listed by `particleflow kinds solver`; `max_steps`, how many
    steps may lie in a window; `window`, how many frames are computed at a time, with a step that ends at the last of
    them; chosen if left out, and then frames of large clouds cost no steps.
    """

    model_config = _FORBID
    end: _Positive | None = None
    frames: Annotated[int, Strict(), Field(ge=2, le=_MOST_FRAMES)] | None = None
    spacing: Literal["linear", "log"] = "linear"
    first: _Positive | None = None
    times: Vector | None = None
    rtol: _NotNegative | None = None
    atol: _NotNegative | None = None
    step: _Positive | None = None
    solver: _StrictStr | None = None
    max_steps: Annotated[int, Strict(), Field(ge=1, le=2**31 - 1)] = 200_000
    window: Annotated[int, Strict(), Field(ge=1, le=_MOST_FRAMES)] | None = None

    def chosen(self, precision: str) -> dict[str, Any]:
        """The values for keys that were left out: the number of frames, and the tolerances that `simulate` chooses.

        With a fixed step there are no tolerances.
        """
        from particleflow.simulation.plan.stepping_method import chosen_tolerances

        found: dict[str, Any] = {}
        if self.times is None and self.frames is None:
            found["frames"] = _CHOSEN_FRAMES
        if self.step is None:
            found |= chosen_tolerances(self.rtol, self.atol, precision)
        return found


class RecordTable(BaseModel):
    """What is kept: observables, the precision in the file, and which particles (their number, or their indices)."""

    model_config = _FORBID
    observables: Annotated[list[Any], WithJsonSchema(family_schema("observable", many=True))] = []
    storage: Literal["float32", "float64"] | None = None
    particles: _Particles | None = None


def _check_figures(value: Any) -> Any:
    from particleflow.view.plots.figure_set import ALL, FIGURES, OBSERVABLE

    names = value if isinstance(value, list) else []
    if not isinstance(value, bool) and value != ALL and not names:
        raise problem(f"must be true, false, {ALL!r} or a list of figures' names")
    for name in names:
        if not isinstance(name, str) or not (name in FIGURES or name.startswith(OBSERVABLE)):
            hint = suggestion(name, FIGURES, "`pf.view.figure_names(run)`")
            raise problem(f"holds {shown(name)}, which is no figure's name; {hint}")
    return value


_Figures = Annotated[
    Any,
    PlainValidator(_check_figures),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"const": "all"}, {"type": "array", "items": {"type": "string"}}]}),
]


class OutputTable(BaseModel):
    """Which products of a run are made besides the trajectory; `figures` also takes "all" or a list of their names."""

    model_config = _FORBID
    summary: _StrictBool = True
    figures: _Figures = True
    movie: _StrictBool = True
    page: _StrictBool = True


class ScenarioFile(BaseModel):
    """A scenario of particleflow: every table is a constructor call, `kind` names the class.

    `numbers` are numbers of the user's own, for expressions to name and sweeps to vary.
    """

    # Tables with a kind are `Any` here, and checked by `tables`; their schema is a reference to their family.

    model_config = _FORBID
    title: _StrictStr = ""
    seed: Annotated[int, Strict(), Field(ge=0, lt=LARGEST_SEED)] = 0
    precision: Literal["float32", "float64"] = "float64"
    temperature: _NotNegative = 0.0
    common_temperature: _NotNegative = 0.0
    numbers: dict[_Name, _Number] = {}
    initial: _tables("initial")  # pyright: ignore[reportInvalidTypeForm]
    geometry: _tables("geometry") = None  # pyright: ignore[reportInvalidTypeForm]
    discretization: _tables("discretization") = None  # pyright: ignore[reportInvalidTypeForm]
    drift: _tables("drift", many=True)  # pyright: ignore[reportInvalidTypeForm]
    event: _tables("event") = None  # pyright: ignore[reportInvalidTypeForm]
    time: TimeTable
    record: RecordTable = RecordTable()
    output: OutputTable = OutputTable()
    sweep: SweepTable | None = None


@dataclass(frozen=True)
class Document:
    """A checked scenario file; `chosen` are the values that it left open, by their paths."""

    title: str
    seed: int
    precision: Literal["float32", "float64"]
    temperature: float
    common_temperature: float
    initial: Spec
    geometry: Spec | None
    discretization: Spec | None
    drifts: tuple[Spec, ...]
    event: Spec | None
    observables: tuple[Spec, ...]
    time: TimeTable
    record: RecordTable
    output: OutputTable
    sweep: SweepTable | None
    chosen: dict[str, Any]

    @property
    def carries_density(self) -> bool:
        """Whether the measure is carried as a density, not by particles."""
        return _is_density(self.discretization)

    def flow_calls(self) -> list[Spec]:
        """The constructor calls that make the flow."""
        return [*self.drifts, *([] if self.geometry is None else [self.geometry])]

    def calls(self) -> list[Spec]:
        """All constructor calls at the top of the file."""
        optional = [call for call in (self.discretization, self.event) if call is not None]
        return [self.initial, *self.flow_calls(), *optional, *self.observables]


def read_document(raw: dict[str, Any], name: str, folder: Path, registry: Registry) -> Document:
    """Check a whole file; raises one error that holds everything that is wrong with it.

    Parameters: `raw`, the parsed file; its `name`; the `folder` that its paths are relative to; the kinds of a
    `registry`.
    """
    problems = Problems()
    raw = with_numbers(raw, problems)
    file = validated(ScenarioFile, raw, "", problems)
    calls = _read_calls(raw, TableReader(registry, folder), problems)
    density = _is_density(calls["discretization"])
    _check_count(calls["initial"], density, problems)
    _check_time(raw, problems, density=density)
    _check_names(calls["observables"], problems)
    problems.raise_if_any(name)
    assert file is not None
    chosen = file.time.chosen(file.precision)
    return Document(
        title=file.title, seed=file.seed, precision=file.precision, temperature=float(file.temperature),
        common_temperature=float(file.common_temperature), **calls, time=file.time.model_copy(update=chosen),
        record=file.record, output=file.output, sweep=file.sweep,
        chosen={joined("time", key): value for key, value in chosen.items()},
    )  # fmt: skip


def _read_calls(raw: dict[str, Any], reader: TableReader, problems: Problems) -> dict[str, Any]:
    """The constructor calls at the top of a file, by their names in `Document`; None for what is left out or wrong.

    Every table is checked by itself, so that what is wrong with one hides nothing of another.
    """

    def read(family: str, table: Any, path: str) -> Spec | None:
        spec: Spec | None = problems.collected(path, table, lambda: reader.read(family, table))
        if spec is not None:
            spec.locate(path)
        return spec

    def read_all(family: str, tables: list[Any], path: str) -> tuple[Spec | None, ...]:
        return tuple(read(family, table, joined(path, place)) for place, table in enumerate(tables))

    alone = ("initial", "geometry", "discretization", "event")
    drifts = raw.get("drift", [])
    if isinstance(drifts, dict):
        drifts = [drifts]  # a single [drift] table
    if not isinstance(drifts, list):
        problems.add("drift", "must be a list of tables", drifts)
    elif not drifts:
        problems.add("drift", "must hold at least one [[drift]] table")
    record = raw.get("record")
    observables = record.get("observables", []) if isinstance(record, dict) else []
    return {
        **{family: None if raw.get(family) is None else read(family, raw[family], family) for family in alone},
        "drifts": read_all("drift", drifts if isinstance(drifts, list) else [], "drift"),
        "observables": read_all(
            "observable", observables if isinstance(observables, list) else [], "record.observables"
        ),
    }


def _is_density(discretization: Spec | None) -> bool:
    """Whether a discretization carries a density, in which noise is diffusion and particles are not counted."""
    from particleflow.discretization.discretization_capabilities import CarriesDensity

    return discretization is not None and isinstance(discretization.made, CarriesDensity)


def _check_count(initial: Spec | None, density: bool, problems: Problems) -> None:
    """Particles that are drawn need a `count`; a discretization of densities can begin with the density itself."""
    if initial is not None and initial.target.counted and initial.count is None and not density:
        problems.add(joined(initial.path, "count"), "is missing")


def _check_time(raw: dict[str, Any], problems: Problems, *, density: bool) -> None:
    """The keys of the time table must fit each other; checked among those that are right by themselves."""
    table = raw.get("time")
    known = {name: table[name] for name in table if name in TimeTable.model_fields} if isinstance(table, dict) else None
    time = validated(TimeTable, known, "time", Problems())
    if time is not None:
        noisy = not density and any(raw.get(name, 0) != 0 for name in ("temperature", "common_temperature"))
        _check_saved(time, problems)
        _check_steps(time, noisy, problems)


def _check_saved(time: TimeTable, problems: Problems) -> None:
    """Saved times are given either by `times`, or by `end` with `frames`, `spacing` and `first`."""
    if time.times is None:
        if time.end is None:
            problems.add("time.end", "is missing; give `end`, or `times`")
        if time.spacing == "log" and time.first is None:
            problems.add("time.first", "is missing; with spacing = 'log' it is the first saved time after 0")
        if time.spacing == "linear" and time.first is not None:
            problems.add("time.first", "goes with spacing = 'log' only", time.first)
        if time.first is not None and time.end is not None and time.first >= time.end:
            problems.add("time.first", f"must be below `end` ({time.end:g})", time.first)
    else:
        for key in ("end", "frames", "first"):
            if getattr(time, key) is not None:
                problems.add(joined("time", key), "must be left out when `times` are given", getattr(time, key))


def _check_steps(time: TimeTable, noisy: bool, problems: Problems) -> None:
    """Steps are adaptive, with tolerances, or fixed, with `step`; paths of noise need fixed ones."""
    if time.step is None:
        if noisy and time.rtol is None and time.atol is None:
            problems.add("time.step", "is missing; a flow with temperature needs a fixed `step`")
    else:
        for key in ("rtol", "atol"):
            if getattr(time, key) is not None:
                problems.add(joined("time", key), "must be left out when a fixed `step` is given", getattr(time, key))


def _check_names(observables: Sequence[Any], problems: Problems) -> None:
    """Observables have different names: one of two with the same name would be overwritten in the file."""
    from particleflow.simulation.observables import name_of

    seen: dict[str, str] = {}
    for index, spec in enumerate(observables):
        if spec is None:
            continue
        path = f"record.observables.{index}"
        try:
            name = name_of(spec.made)
        except UserError as error:
            problems.add(path, str(error), spec.kind)
            continue
        if name in seen:
            advice = "; give one of them another `name`" if spec.arguments else ""
            problems.add(path, f"is listed twice: {seen[name]} has the same name, and one would be lost{advice}", name)
        seen.setdefault(name, path)
