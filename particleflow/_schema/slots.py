"""What a constructor's parameter takes, read from its annotation (or that of the field of the same name).

A field's jaxtyping shape says how many brackets a number comes in: "" is a number, one axis a list, two a matrix, and
"..." a number, a diagonal or a matrix. Lists and matrices may also be named or described (see `numbers`).
"""

import collections.abc
import inspect
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import PlainValidator, Strict, WithJsonSchema
from pydantic_core import PydanticCustomError

from particleflow._schema.numbers import is_described
from particleflow._schema.registry import Family

FAMILY_MARK = "x-family"
RANDOM = "random"
EXPECTED = {
    (0,): "a number",
    (1,): "a list of numbers",
    (0, 1): "a number or a list of numbers",
    (2,): "a matrix, as a list of equally long rows",
    (0, 1, 2): "a number, a list of numbers (a diagonal) or a matrix, as a list of equally long rows",
}


@dataclass(frozen=True)
class Slot:
    """One parameter: a flat value of a pydantic `type`, or tables of a `family` (`many` of them, or `sampled`).

    `axes` are the numbers of axes of the arrays it takes, if it takes arrays.
    """

    name: str
    type: Any
    required: bool
    default: Any = None
    optional: bool = False
    family: str | None = None
    many: bool = False
    sampled: bool = False
    is_path: bool = False
    is_code: bool = False
    axes: tuple[int, ...] | None = None


@cache
def slots_of(target: Any, families: tuple[Family, ...]) -> Mapping[str, Slot]:
    """The parameters of a class's constructor, by name."""
    if not inspect.isclass(target):
        return {}
    fields = {name: field.type for name, field in getattr(target, "__dataclass_fields__", {}).items()}
    signature = inspect.signature(target)
    return {
        name: _slot(name, parameter, fields.get(name, Any), families)
        for name, parameter in signature.parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }


def _slot(name: str, parameter: inspect.Parameter, field: Any, families: tuple[Family, ...]) -> Slot:
    annotation = parameter.annotation
    if annotation in (Any, inspect.Parameter.empty):
        annotation = field
    annotation, optional = _without_none(annotation)
    required = parameter.default is inspect.Parameter.empty
    default = None if required else parameter.default
    common = {"name": name, "required": required, "default": default, "optional": optional or default is None}
    family, many, sampled = _family(annotation, families)
    if family is not None:
        return Slot(type=Any, family=family, many=many, sampled=sampled, **common)
    if typing.get_origin(annotation) is collections.abc.Callable:
        return Slot(type=Annotated[str, Strict()], is_code=True, **common)
    if annotation is Path:
        return Slot(type=Annotated[str, Strict()], is_path=True, **common)
    axes = _axes(annotation)
    if axes is None:
        return Slot(type=_flat(annotation), **common)
    return Slot(type=Number, **common) if axes == (0,) else Slot(type=_array(axes), axes=axes, **common)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) not in (types.UnionType, typing.Union):
        return annotation, False
    members = typing.get_args(annotation)
    rest = [member for member in members if member is not type(None)]
    lists = [member for member in rest if typing.get_origin(member) in (list, tuple, collections.abc.Sequence)]
    chosen = lists[0] if len(rest) > 1 and lists else rest[0]
    return chosen, len(rest) < len(members)


def _family(annotation: Any, families: tuple[Family, ...]) -> tuple[str | None, bool, bool]:
    """The family a parameter takes, whether it takes many, and whether a measure is to be drawn from the table."""
    from particleflow.measure import Measure
    from particleflow.observables import Observable

    if annotation == Observable:
        return "observable", False, False
    if annotation is Measure:
        return "initial", False, True
    if typing.get_origin(annotation) in (tuple, list, collections.abc.Sequence):
        family, _, sampled = _family(typing.get_args(annotation)[0], families)
        return family, family is not None and not sampled, sampled
    if not inspect.isclass(annotation):
        return None, False, False
    for family in families:
        if family.base is not None and _is_subclass(annotation, family.base):
            return family.name, False, False
    return None, False, False


def _is_subclass(annotation: Any, base: Any) -> bool:
    try:
        return issubclass(annotation, base)
    except TypeError:  # jaxtyping's array types refuse to be asked
        return False


def _flat(annotation: Any) -> Any:
    if annotation in (int, bool, str):
        return Annotated[annotation, Strict()]
    return annotation if typing.get_origin(annotation) is Literal else list[Annotated[int, Strict()]]


def _axes(annotation: Any) -> tuple[int, ...] | None:
    """How many axes the arrays of a parameter may have; None where it takes no floating-point numbers."""
    origin = typing.get_origin(annotation)
    if annotation in (int, bool, str) or origin is Literal:
        return None
    if annotation is float:
        return (0,)
    if origin in (tuple, list, collections.abc.Sequence):
        return None if typing.get_args(annotation)[0] is int else (1,)
    shape = getattr(annotation, "dim_str", "...").split()
    return (0, 1, 2) if "..." in shape or len(shape) > 2 else (len(shape),)


def _checked(axes: tuple[int, ...], *, described: bool = False) -> PlainValidator:
    expected = EXPECTED[axes]
    if described:
        expected += ", the path of a .npy file, or a table such as { random = 'normal', shape = [3, 3] }"

    def check(value: Any) -> Any:
        if described and is_described(value):
            return value
        try:
            array = None if _has_other(value) else np.asarray(value, dtype=float)
        except (ValueError, TypeError, OverflowError):
            array = None
        if array is None or array.ndim not in axes or (array.ndim and 0 in array.shape):
            raise PydanticCustomError("numbers", "must be {expected}", {"expected": expected})
        return float(array) if array.ndim == 0 else array

    return PlainValidator(check)


def _has_other(value: Any, depth: int = 0) -> bool:
    """Whether there is anything but numbers in a (nested) list; true and false are no numbers."""
    if isinstance(value, list):
        return depth > 2 or any(_has_other(item, depth + 1) for item in value)
    return isinstance(value, bool) or not isinstance(value, int | float)


def _array(axes: tuple[int, ...]) -> Any:
    """The type of an array that may be spelled out, be in a file, or be random."""
    spelled = [_SCHEMAS[count] for count in axes]
    others = [{"type": "string", "pattern": r"\.npy$"}, family_schema(RANDOM)]
    return Annotated[Any, _checked(axes, described=True), WithJsonSchema({"anyOf": [*spelled, *others]})]


def family_schema(family: str, *, many: bool = False) -> dict[str, Any]:
    """A stand-in for the definition of a family, which `json_schema` replaces by a reference."""
    inner: dict[str, Any] = {FAMILY_MARK: family}
    return {"type": "array", "items": inner} if many else inner


_NUMBER: dict[str, Any] = {"type": "number"}
_VECTOR: dict[str, Any] = {"type": "array", "items": _NUMBER}
_SCHEMAS = (_NUMBER, _VECTOR, {"type": "array", "items": _VECTOR})
Number = Annotated[Any, _checked((0,)), WithJsonSchema(_NUMBER)]
Vector = Annotated[Any, _checked((1,)), WithJsonSchema(_VECTOR)]
NumberOrVector = Annotated[Any, _checked((0, 1)), WithJsonSchema({"anyOf": [_NUMBER, _VECTOR]})]
