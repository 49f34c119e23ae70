"""The scenario file as a whole: the keys that belong to no class, and the tables they hold."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, Strict, WithJsonSchema
from pydantic_core import PydanticCustomError

from particleflow._schema.calls import Spec
from particleflow._schema.numbers import LARGEST_SEED
from particleflow._schema.problems import Problems, joined
from particleflow._schema.registry import Registry
from particleflow._schema.slots import Number, Vector, family_schema
from particleflow._schema.tables import TableReader, validated
from particleflow.errors import UserError

_MOST_FRAMES = 1_000_000
_CHOSEN_FRAMES = 200
_CHOSEN_RTOL = {"float64": 1e-6, "float32": 1e-4}
_ATOL_SHARE = 0.01
_FORBID = ConfigDict(extra="forbid")
_StrictInt = Annotated[int, Strict()]
_StrictBool = Annotated[bool, Strict()]
_StrictStr = Annotated[str, Strict()]
_Positive = Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
_NotNegative = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]


def _tables(family: str, *, many: bool = False) -> Any:
    return Annotated[Any, WithJsonSchema(family_schema(family, many=many))]


def _check_particles(value: Any) -> Any:
    items = value if isinstance(value, list) else [value]
    if not items or any(isinstance(item, bool) or not isinstance(item, int) or item < 0 for item in items):
        raise PydanticCustomError("particles", "must be a number of particles or a list of their indices")
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
    single precision) and `atol` a hundredth of `rtol`; a run says that these were chosen.

    `spacing`, that of the instants; `solver`, by its name, such as "tsit5", "dopri8", "kvaerno5", "euler", "heun" or
    "map" (explicit layers), chosen if left out; `max_steps`, how many steps may lie in a window; `window`, how many
    frames are computed at a time, chosen if left out.
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
        """What was left open, as it is chosen: the number of frames, and tolerances that fit each other."""
        found: dict[str, Any] = {}
        if self.times is None and self.frames is None:
            found["frames"] = _CHOSEN_FRAMES
        if self.step is None and self.rtol is None:
            found["rtol"] = float(f"{self.atol / _ATOL_SHARE:.6g}") if self.atol else _CHOSEN_RTOL[precision]
        if self.step is None and self.atol is None:
            found["atol"] = float(f"{_ATOL_SHARE * (self.rtol or _CHOSEN_RTOL[precision]):.6g}")
        return found


class RecordTable(BaseModel):
    """What is kept: observables, the precision in the file, and which particles (their number, or their indices)."""

    model_config = _FORBID
    observables: Annotated[list[Any], WithJsonSchema(family_schema("observable", many=True))] = []
    storage: Literal["float32", "float64"] | None = None
    particles: _Particles | None = None


class OutputTable(BaseModel):
    """Which products of a run are made besides the trajectory."""

    model_config = _FORBID
    summary: _StrictBool = True
    figures: _StrictBool = True
    movie: _StrictBool = True
    page: _StrictBool = True


class ScenarioFile(BaseModel):
    """A scenario of particleflow: every table is a constructor call, `kind` names the class."""

    model_config = _FORBID
    title: _StrictStr = ""
    seed: Annotated[int, Strict(), Field(ge=0, lt=LARGEST_SEED)] = 0
    precision: Literal["float32", "float64"] = "float64"
    temperature: Number = 0.0
    common_temperature: Number = 0.0
    initial: _tables("initial")  # pyright: ignore[reportInvalidTypeForm]
    geometry: _tables("geometry") = None  # pyright: ignore[reportInvalidTypeForm]
    discretization: _tables("discretization") = None  # pyright: ignore[reportInvalidTypeForm]
    drift: _tables("drift", many=True)  # pyright: ignore[reportInvalidTypeForm]
    event: _tables("event") = None  # pyright: ignore[reportInvalidTypeForm]
    time: TimeTable
    record: RecordTable = RecordTable()
    output: OutputTable = OutputTable()
    sweep: dict[str, Any] | None = None


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
    sweep: dict[str, Any] | None
    chosen: dict[str, Any]

    @property
    def carries_density(self) -> bool:
        """Whether the measure is carried as a density, not by particles."""
        return self.discretization is not None and not self.discretization.made.atoms

    def flow_calls(self) -> list[Spec]:
        """The constructor calls that make the flow."""
        return [*self.drifts, *([] if self.geometry is None else [self.geometry])]

    def calls(self) -> list[Spec]:
        """All constructor calls at the top of the file."""
        optional = [call for call in (self.discretization, self.event) if call is not None]
        return [self.initial, *self.flow_calls(), *optional, *self.observables]


def read_document(raw: dict[str, Any], name: str, folder: Path, registry: Registry) -> Document:
    """Check a whole file; raises one error that holds everything that is wrong with it."""
    problems = Problems()
    file = validated(ScenarioFile, raw, "", problems)
    reader = TableReader(registry, folder, problems)
    single = {
        family: reader.read(family, raw[family], family)
        for family in ("initial", "geometry", "discretization", "event")
        if raw.get(family) is not None
    }
    drifts = _read_list(reader, "drift", raw.get("drift", []), "drift")
    record = raw.get("record")
    listed = record.get("observables", []) if isinstance(record, dict) else []
    observables = _read_list(reader, "observable", listed, "record.observables") if isinstance(listed, list) else []
    if file is not None:
        _check_numbers(file, problems)
    density = _is_density(single.get("discretization"))
    _check_count(single.get("initial"), density, problems)
    _check_time(raw, problems, density=density)
    _check_names(observables, problems)
    problems.raise_if_any(name)
    initial = single["initial"]
    assert file is not None
    assert initial is not None
    chosen = file.time.chosen(file.precision)
    return Document(
        title=file.title, seed=file.seed, precision=file.precision, temperature=file.temperature,
        common_temperature=file.common_temperature, initial=initial, geometry=single.get("geometry"),
        discretization=single.get("discretization"),
        drifts=tuple(drifts), event=single.get("event"), observables=tuple(observables),
        time=file.time.model_copy(update=chosen), record=file.record, output=file.output, sweep=file.sweep,
        chosen={joined("time", key): value for key, value in chosen.items()},
    )  # fmt: skip


def _read_list(reader: TableReader, family: str, raw: Any, path: str) -> list[Any]:
    """Tables of one family; a single table stands for a list of one."""
    if isinstance(raw, dict):
        raw = [raw]
    if not isinstance(raw, list):
        reader.problems.add(path, "must be a list of tables", raw)
        return []
    if not raw and family == "drift":
        reader.problems.add(path, "must hold at least one [[drift]] table")
    return [reader.read(family, item, joined(path, index)) for index, item in enumerate(raw)]


def _check_numbers(file: Any, problems: Problems) -> None:
    for name in ("temperature", "common_temperature"):
        if not 0 <= getattr(file, name) < float("inf"):
            problems.add(name, "must be zero or positive", getattr(file, name))


def _is_density(discretization: Spec | None) -> bool:
    """Whether a discretization carries a density, in which noise is diffusion and particles are not counted."""
    return discretization is not None and not discretization.made.atoms


def _check_count(initial: Spec | None, density: bool, problems: Problems) -> None:
    """Particles must be counted; a density may be what they would be drawn from."""
    if initial is not None and initial.target.counted and initial.count is None and not density:
        problems.add(joined(initial.path, "count"), "is missing")


def _check_time(raw: dict[str, Any], problems: Problems, *, density: bool) -> None:
    """What the keys of the time table ask of each other, as far as they are right by themselves."""
    table = raw.get("time")
    known = {name: table[name] for name in table if name in TimeTable.model_fields} if isinstance(table, dict) else None
    time = validated(TimeTable, known, "time", Problems())
    if time is not None:
        noisy = not density and any(raw.get(name, 0) != 0 for name in ("temperature", "common_temperature"))
        _check_saved(time, problems)
        _check_steps(time, noisy, problems)


def _check_saved(time: TimeTable, problems: Problems) -> None:
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
    if time.step is None:
        if noisy and time.rtol is None and time.atol is None:
            problems.add("time.step", "is missing; a flow with temperature needs a fixed `step`")
    else:
        for key in ("rtol", "atol"):
            if getattr(time, key) is not None:
                problems.add(joined("time", key), "must be left out when a fixed `step` is given", getattr(time, key))


def _check_names(observables: list[Any], problems: Problems) -> None:
    """Two observables of one name would overwrite each other."""
    from particleflow.observables import name_of

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
