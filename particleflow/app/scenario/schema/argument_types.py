"""The pydantic type of a constructor's parameter, from its annotation (or that of the field of the same name).

    beta: Float[Array, ""]                 a number
    points: Float[Array, "n d"]            a matrix, as a list of equally long rows
    query: Float[Array, "..."]             a number, a diagonal or a matrix
    kernel: AbstractKernel                 a table of the family "kernel", the call of another constructor
    data: Measure                          a table of the family "initial", from which a measure is drawn
    function: Callable                     code, as "module:object"

A field's jaxtyping shape gives the nesting of its numbers: "" is a number, one axis a list, two a matrix, and "..." any
of them. Lists and matrices may also be in a file or be random (see `numbers`). Each type checks a value of the file,
converts it to the constructor's argument, and describes in the JSON Schema and in words what can be written.

Types of tables, paths, code and files need the folder of the scenario and its registry: they are in the `context` of
pydantic's validation, a `tables.TableReader`.
"""

import collections.abc
import inspect
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, PlainValidator, Strict, ValidationInfo, WithJsonSchema
from pydantic.fields import FieldInfo

from particleflow.app.scenario.schema.numbers import is_described, is_file, random_numbers, read_numbers
from particleflow.app.scenario.schema.problems import problem, table_model
from particleflow.app.scenario.schema.registry import families
from particleflow.errors import UserError

if TYPE_CHECKING:
    from particleflow.app.scenario.schema.tables import TableReader

FAMILY_MARK = "x-family"
RANDOM = "random"
_LISTS = (list, tuple, collections.abc.Sequence)
_EXPECTED = {
    (0,): "a number",
    (1,): "a list of numbers",
    (0, 1): "a number or a list of numbers",
    (2,): "a matrix, as a list of equally long rows",
    (0, 1, 2): "a number, a list of numbers (a diagonal) or a matrix, as a list of equally long rows",
}
_DESCRIBED = ", the path of a .npy file, or a table such as { random = 'normal', shape = [3, 3] }"
_FLAT = {int: "a whole number", bool: "true or false", str: "a text", float: "a number"}


@dataclass(frozen=True)
class Expected:
    """What a type takes, in words; part of its annotation."""

    text: str


def fields_of(target: Any) -> dict[str, tuple[Any, Any]]:
    """The parameters of a class's constructor as fields of a pydantic model: name → type and default (or `...`).

    An observable that is a function has none.
    """
    if not inspect.isclass(target):
        return {}
    declared = {name: field.type for name, field in getattr(target, "__dataclass_fields__", {}).items()}
    found = {}
    for name, parameter in inspect.signature(target).parameters.items():
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            annotation = parameter.annotation
            if annotation in (Any, parameter.empty):
                annotation = declared.get(name, Any)
            found[name] = _field(annotation, parameter.default)
    return found


def _field(annotation: Any, default: Any) -> tuple[Any, Any]:
    """The type and default of a field; a parameter whose default is None takes None, too, unless it is a table."""
    annotation, takes_none = _without_none(annotation)
    kind = _table_type(annotation)
    if kind is None:
        kind = type_of(annotation)
        kind = kind | None if takes_none or default is None else kind
    return kind, ... if default is inspect.Parameter.empty else default


def type_of(annotation: Any) -> Any:
    """The pydantic type for an annotation of numbers, texts, paths or code that is no union with None."""
    if collections.abc.Callable in (annotation, typing.get_origin(annotation)):
        return CODE
    if annotation is Path:
        return PATH
    axes = _axes(annotation)
    if axes is None:
        return _flat(annotation)
    return Number if axes == (0,) else _array(axes)


def words_of(field: FieldInfo) -> str:
    """What a field of a model takes, in words."""
    said = next((each.text for each in field.metadata if isinstance(each, Expected)), None)
    return said or _words_of(field.annotation)


def _words_of(annotation: Any) -> str:
    """What a type takes, in words; of one that also takes None, the rest."""
    members = [each for each in typing.get_args(annotation) if each is not type(None)]
    if said := next((each.text for each in members if isinstance(each, Expected)), None):
        return said
    if typing.get_origin(annotation) is Literal:
        return " or ".join(f'"{choice}"' for choice in members)
    if annotation in _FLAT:
        return _FLAT[annotation]
    if table_model(annotation) is not None:
        return "a table"
    if typing.get_origin(annotation) in (list, dict):
        return "a list" if typing.get_origin(annotation) is list else "a table"
    # Annotated[type, …] and type | None say what their first member says.
    return _words_of(members[0]) if members else "a number"


def family_schema(family: str, *, many: bool = False) -> dict[str, Any]:
    """A stand-in for the definition of a family, which `json_schema` replaces by a reference."""
    inner: dict[str, Any] = {FAMILY_MARK: family}
    return {"type": "array", "items": inner} if many else inner


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """The member of a union that is read (a list before others), and whether None is one of them."""
    if typing.get_origin(annotation) not in (types.UnionType, typing.Union):
        return annotation, False
    members = typing.get_args(annotation)
    rest = [member for member in members if member is not type(None)]
    lists = [member for member in rest if typing.get_origin(member) in _LISTS]
    chosen = lists[0] if len(rest) > 1 and lists else rest[0]
    return chosen, len(rest) < len(members)


def _table_type(annotation: Any) -> Any:
    """The type of a table, or of a list of tables, for an annotation that names the base of a family; else None."""
    from particleflow.measure import Measure
    from particleflow.simulation.observables import Observable

    if typing.get_origin(annotation) in _LISTS:
        member = _table_type(typing.get_args(annotation)[0])
        return None if member is None else _list_of(member)
    if annotation is Measure:
        return _table("initial", drawn=True)
    if annotation == Observable:
        return _table("observable")
    for family in families() if inspect.isclass(annotation) else ():
        if family.base is not None and _is_below(annotation, family.base):
            return _table(family.name)
    return None


def _table(family: str, *, drawn: bool = False) -> Any:
    """The type of a table of a family; if `drawn`, of the cloud that a measure is drawn from."""

    def read(raw: Any, info: ValidationInfo) -> Any:
        return _reader(info).read_measure(raw) if drawn else _reader(info).read(family, raw)

    return Annotated[Any, PlainValidator(read), WithJsonSchema(family_schema(family)), Expected(f"a table ({family})")]


def _list_of(table: Any) -> Any:
    """The type of a list of tables; what is no list is refused in words that name the family."""
    words = _words_of(table).replace("a table", "a list of tables")

    def check(raw: Any) -> Any:
        if not isinstance(raw, list):
            raise problem(f"must be {words}")
        return raw

    return Annotated[list[table], BeforeValidator(check), Expected(words)]


def _is_below(annotation: Any, base: Any) -> bool:
    """Whether an annotation is a class that descends from a base."""
    try:
        return issubclass(annotation, base)
    except TypeError:  # jaxtyping's array types allow no `issubclass`
        return False


def _flat(annotation: Any) -> Any:
    """The type of a whole number, a truth value, a text, a choice among texts, or a list of whole numbers or of texts.

    All are strict: "3" and 3.0 are no whole numbers, 1 is not true.
    """
    if annotation in (int, bool, str):
        return Annotated[annotation, Strict()]
    if typing.get_origin(annotation) is Literal:
        return annotation
    if typing.get_args(annotation)[0] is str:
        return Annotated[list[Annotated[str, Strict()]], Expected("a list of texts")]
    return list[Annotated[int, Strict()]]


def _axes(annotation: Any) -> tuple[int, ...] | None:
    """How many axes the arrays of a parameter may have; None where it takes no floating-point numbers."""
    origin = typing.get_origin(annotation)
    if annotation in (int, bool, str) or origin is Literal:
        return None
    if annotation is float:
        return (0,)
    if origin in _LISTS:
        return None if typing.get_args(annotation)[0] in (int, str) else (1,)
    shape = getattr(annotation, "dim_str", "...").split()
    return (0, 1, 2) if "..." in shape or len(shape) > 2 else (len(shape),)


def _spelled_out(axes: tuple[int, ...], expected: str) -> Any:
    """A check of numbers in brackets: a float, or an array with one of the numbers of `axes`."""

    def check(value: Any) -> Any:
        try:
            array = None if _has_other(value) else np.asarray(value, dtype=float)
        except (ValueError, TypeError, OverflowError):
            array = None
        if array is None or array.ndim not in axes or (array.ndim and 0 in array.shape):
            raise problem(f"must be {expected}")
        return float(array) if array.ndim == 0 else array

    return check


def _has_other(value: Any, depth: int = 0) -> bool:
    """Whether there is anything but numbers in a (nested) list; true and false are no numbers."""
    if isinstance(value, list):
        return depth > 2 or any(_has_other(item, depth + 1) for item in value)
    return isinstance(value, bool) or not isinstance(value, int | float)


def _array(axes: tuple[int, ...]) -> Any:
    """The type of an array that may be spelled out, be in a file, or be random."""
    expected = _EXPECTED[axes]
    spelled_out = _spelled_out(axes, expected + _DESCRIBED)

    def read(value: Any, info: ValidationInfo) -> Any:
        if not is_described(value):
            return spelled_out(value)
        if not is_file(value):
            return random_numbers(value, axes)
        try:
            return read_numbers(_reader(info).folder / value, axes, expected)
        except UserError as error:
            raise problem(str(error)) from error

    others = [{"type": "string", "pattern": r"\.npy$"}, family_schema(RANDOM)]
    schema = {"anyOf": [*(_SCHEMAS[count] for count in axes), *others]}
    return Annotated[Any, PlainValidator(read), WithJsonSchema(schema), Expected(expected)]


def _reader(info: ValidationInfo) -> "TableReader":
    """The `TableReader` that `tables` passes to every model as its context."""
    assert info.context is not None
    return info.context


def _path(value: Any, info: ValidationInfo) -> Path:
    """A path, which is relative to the folder of the scenario."""
    if not isinstance(value, str):
        raise problem("must be a text in quotes")
    return _reader(info).folder / Path(value)


def _code(value: Any, info: ValidationInfo) -> Any:
    """The object that "module:object" names, imported if the user allows it."""
    if not isinstance(value, str):
        raise problem("must be a text in quotes")
    try:
        return _reader(info).registry.code(value)
    except UserError as error:
        raise problem(str(error)) from error


def _in_brackets(*axes: int) -> PlainValidator:
    """The check of numbers that cannot be in a file or random."""
    return PlainValidator(_spelled_out(axes, _EXPECTED[axes]))


_TEXT: dict[str, Any] = {"type": "string"}
PATH = Annotated[Any, PlainValidator(_path), WithJsonSchema(_TEXT), Expected("the path of a file")]
CODE = Annotated[Any, PlainValidator(_code), WithJsonSchema(_TEXT), Expected('code, as "module:object"')]
_NUMBER: dict[str, Any] = {"type": "number"}
_VECTOR: dict[str, Any] = {"type": "array", "items": _NUMBER}
_SCHEMAS = (_NUMBER, _VECTOR, {"type": "array", "items": _VECTOR})
Number = Annotated[Any, _in_brackets(0), WithJsonSchema(_NUMBER), Expected("a number")]
Vector = Annotated[Any, _in_brackets(1), WithJsonSchema(_VECTOR), Expected("a list of numbers")]
NumberOrVector = Annotated[Any, _in_brackets(0, 1), WithJsonSchema({"anyOf": [_NUMBER, _VECTOR]})]
