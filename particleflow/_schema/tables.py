"""Checking the tables of a file: each is the call of a constructor, named by its `kind`."""

import inspect
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError, WithJsonSchema, create_model

from particleflow._schema.calls import Drawn, Spec, parts
from particleflow._schema.numbers import FileNumbers, RandomNumbers, RandomTable, is_described, read_numbers
from particleflow._schema.problems import Problems, joined, shown, suggestion
from particleflow._schema.registry import Registry
from particleflow._schema.slots import EXPECTED, NumberOrVector, Slot, family_schema, slots_of
from particleflow.errors import ParticleflowError, UserError

_DEEPEST = 24
_COUNT = "how many particles are drawn; left out, a discretization that carries densities begins with the density"
_RETRACT = "whether points, or a density on a normalised set, are brought onto the geometry"
_FIELDS = "what the geometry carries along, such as the residual norm of pre-norm: one number, or one a particle"
_WORDS = {
    "missing": "is missing",
    "int_type": "must be a whole number",
    "string_type": "must be a text in quotes",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "float_type": "must be a number",
    "int_from_float": "must be a whole number",
    "finite_number": "must be finite",
}


class TableReader:
    """Checks tables one by one and notes all problems; relative paths are relative to `folder`."""

    def __init__(self, registry: Registry, folder: Path, problems: Problems):
        self.registry, self.folder, self.problems = registry, folder, problems

    def read(self, family: str, raw: Any, path: str, depth: int = 0) -> Spec | None:
        """The call that a table stands for, or None when something is wrong with it."""
        if isinstance(raw, str):  # a kind by its name alone
            raw = {"kind": raw}
        target = self._target(family, raw, path, depth)
        if target is None:
            return None
        slots = slots_of(target, self.registry.families)
        before = len(self.problems.found)
        values = self._flat_values(family, target, slots, raw, path)
        arguments = {}
        for name, slot in slots.items():
            if slot.family is not None and name in raw:
                arguments[name] = self._nested(slot, raw[name], joined(path, name), depth)
            elif slot.axes is not None and is_described(raw.get(name)):
                arguments[name] = self._described(slot, raw[name], joined(path, name))
            elif name in values:
                arguments[name] = self._value(slot, values[name], joined(path, name))
        if len(self.problems.found) > before:
            return None
        spec = Spec(path, raw["kind"], target, arguments, values.get("count"), values.get("retract", True))
        spec.fields = values.get("fields", {})
        return self._make(spec)

    def _target(self, family: str, raw: Any, path: str, depth: int) -> Any:
        if not isinstance(raw, dict):
            self.problems.add(path, f"must be a table with a `kind` ({family})", raw)
        elif depth > _DEEPEST:
            self.problems.add(path, f"is nested more than {_DEEPEST} levels deep")
        elif "kind" not in raw:
            self.problems.add(joined(path, "kind"), f"is missing; {suggestion('', self.registry.kinds(family))}")
        elif not isinstance(raw["kind"], str):
            self.problems.add(joined(path, "kind"), "must be a text in quotes", raw["kind"])
        else:
            return self._find(family, raw["kind"], joined(path, "kind") if len(raw) > 1 or path else path)
        return None

    def _find(self, family: str, kind: str, path: str) -> Any:
        try:
            target = self.registry.find(family, kind)
        except UserError as error:
            self.problems.add(path, str(error), kind)
            return None
        if target is None:
            self.problems.add(path, f"is no known {family}; {suggestion(kind, self.registry.kinds(family))}", kind)
        return target

    def _flat_values(
        self, family: str, target: Any, slots: Mapping[str, Slot], raw: dict[str, Any], path: str
    ) -> dict[str, Any]:
        model = model_of(family, target, raw["kind"], tuple(slots.values()))
        checked = validated(model, raw, path, self.problems)
        return {} if checked is None else {name: getattr(checked, name) for name in checked.model_fields_set}

    def _nested(self, slot: Slot, raw: Any, path: str, depth: int) -> Any:
        assert slot.family is not None
        if not slot.many:
            spec = self.read(slot.family, raw, path, depth + 1)
            if slot.sampled and spec is not None and spec.target.counted and spec.count is None:
                self.problems.add(joined(path, "count"), "is missing")
            return Drawn(spec) if slot.sampled and spec is not None else spec
        if not isinstance(raw, list):
            self.problems.add(path, f"must be a list of tables ({slot.family})", raw)
            return None
        return [self.read(slot.family, item, joined(path, index), depth + 1) for index, item in enumerate(raw)]

    def _value(self, slot: Slot, value: Any, path: str) -> Any:
        if value is None:
            return None
        if slot.is_path:
            return self.folder / Path(value)
        if slot.is_code:
            try:
                return self.registry.code(value)
            except UserError as error:
                self.problems.add(path, str(error), value)
        return value

    def _described(self, slot: Slot, raw: Any, path: str) -> FileNumbers | RandomNumbers | None:
        """An array that is in a file or random."""
        assert slot.axes is not None
        if isinstance(raw, str):
            try:
                return read_numbers(self.folder / raw, slot.axes, EXPECTED[slot.axes])
            except UserError as error:
                self.problems.add(path, str(error), raw)
                return None
        table = validated(RandomTable, raw, path, self.problems)
        if table is None:
            return None
        complaint = table.complaint(slot.axes)
        if complaint is not None:
            self.problems.add(joined(path, "shape"), complaint, table.shape)
            return None
        return RandomNumbers(path, table)

    def _make(self, spec: Spec) -> Spec | None:
        """Call the constructor once, so that what only it can check is reported together with everything else."""
        try:
            spec.make()
        except ParticleflowError as error:
            self.problems.add(*_located(spec, str(error)))
            return None
        except Exception as error:  # a constructor, perhaps the user's, met a value it was not written for
            self.problems.add(spec.path, f"cannot be made: {type(error).__name__}: {shown(str(error))}")
            return None
        return spec


def _located(spec: Spec, message: str) -> tuple[Any, ...]:
    """The path of the argument that a constructor's message names, with its value."""
    for name, value in spec.arguments.items():
        if f"`{name}`" in message:
            shown_value = () if isinstance(value, list) or parts(value) else (value,)
            return joined(spec.path, name), message, *shown_value
    return spec.path, message


@cache
def model_of(family: str, target: Any, kind: str, slots: tuple[Slot, ...]) -> type[BaseModel]:
    """The pydantic model of a table; tables inside it are checked by themselves and are anything here."""
    fields: dict[str, Any] = {"kind": (Annotated[str, Strict(), WithJsonSchema({"const": kind})], ...)}
    for slot in slots:
        fields[slot.name] = (_field_type(slot), ... if slot.required else slot.default)
    if family == "initial":
        if target.counted:
            # a density has no count; who must have one is asked for it where that is known
            fields["count"] = (Annotated[int, Strict(), Field(ge=1, description=_COUNT)], None)
        fields["retract"] = (Annotated[bool, Strict(), Field(description=_RETRACT)], True)
        fields["fields"] = (Annotated[dict[Annotated[str, Strict()], NumberOrVector], Field(description=_FIELDS)], {})
    docstring = inspect.getdoc(target) or ""
    return create_model(
        f"{family}_{kind}",
        __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=True, protected_namespaces=()),
        __doc__=docstring,
        **fields,
    )


def _field_type(slot: Slot) -> Any:
    if slot.family is None:
        return slot.type | None if slot.optional else slot.type
    return Annotated[Any, WithJsonSchema(family_schema(slot.family, many=slot.many))]


def validated(model: type[BaseModel], raw: Any, path: str, problems: Problems) -> Any:
    """A table as its model, or None with every problem noted."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            _note(each, model, path, problems)
    except RecursionError:
        problems.add(path, "is nested too deeply")
    return None


def _note(error: Any, model: type[BaseModel], path: str, problems: Problems) -> None:
    place = joined(path, *error["loc"])
    if error["type"] == "extra_forbidden":
        inner = _model_at(model, error["loc"][:-1])
        problems.add(place, f"is no known key; {suggestion(error['loc'][-1], inner.model_fields)}", error["input"])
        return
    message = str(_WORDS.get(error["type"]) or error["msg"][:1].lower() + error["msg"][1:])
    if error["type"] == "missing":
        problems.add(place, message)
    else:
        problems.add(place, message.replace("input should", "must"), error["input"])


def _model_at(model: type[BaseModel], location: tuple[str | int, ...]) -> type[BaseModel]:
    for part in location:
        annotation = model.model_fields[part].annotation if isinstance(part, str) else model
        model = annotation if inspect.isclass(annotation) and issubclass(annotation, BaseModel) else model
    return model
