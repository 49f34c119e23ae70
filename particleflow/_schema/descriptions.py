"""What can be written in a scenario, in words: every kind with its docstring and its parameters.

Nothing is declared here. Kinds come from the registry, parameters from the constructors' signatures, and what they mean
from the docstrings: of each parameter the clause that names it.
"""

import inspect
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import WithJsonSchema

from particleflow._schema.document import ScenarioFile
from particleflow._schema.problems import shown, suggestion
from particleflow._schema.registry import Registry
from particleflow._schema.slots import EXPECTED, Slot, slots_of
from particleflow._schema.tables import model_of
from particleflow._toml import value_text
from particleflow.errors import UserError

TABLE = "table"
_FLAT = {int: "a whole number", bool: "true or false", str: "a text", float: "a number"}
_CLAUSE = re.compile(r";\s|\.\s|\.$|\n\s*\n")


@dataclass(frozen=True)
class Parameter:
    """One key of a table: what it takes, what it means, and its default where it may be left out."""

    name: str
    expected: str
    required: bool
    default: Any
    meaning: str

    @property
    def default_text(self) -> str | None:
        """The default as it would be written in a file; None where there is none."""
        if self.required or self.default is None:
            return None
        try:
            return value_text(self.default)
        except (ValueError, TypeError):  # an array, or an object that no file can name
            return shown(self.default)


@dataclass(frozen=True)
class Kind:
    """One kind of table (or one of the tables that have no kind): its family, its docstring and its parameters."""

    family: str
    name: str
    docstring: str
    parameters: tuple[Parameter, ...]

    @property
    def sentence(self) -> str:
        """The first sentence of the docstring in one line."""
        first = " ".join(self.docstring.split("\n\n")[0].split())
        return re.split(r"(?<=[.;])\s", first)[0].rstrip(".;")

    @property
    def example(self) -> str:
        """The table with the parameters that must be given."""
        needed = [each.name for each in self.parameters if each.required]
        if self.family == TABLE:
            return "\n".join([f"[{self.name}]", *(f"{name} = …" for name in needed)])
        kind = f'kind = "{self.name}"'
        return f"{{ {', '.join([kind, *(f'{name} = …' for name in needed)])} }}"

    def to_dict(self) -> dict[str, Any]:
        """Return the kind for JSON."""
        parameters = [{**vars(each), "default": each.default_text} for each in self.parameters]
        return {"family": self.family, "kind": self.name, "description": self.docstring, "parameters": parameters}


def all_kinds(family: str | None = None) -> list[Kind]:
    """Every kind of one family, or of all of them, in the order of the families; installed plugins are among them."""
    registry = Registry()
    registry.load_plugins()
    names = [each.name for each in registry.families]
    if family is not None and family not in (*names, TABLE):
        wish = family.removesuffix("s") if family.removesuffix("s") in (*names, TABLE) else family
        if wish == family:
            raise UserError(f"There is no family {family[:80]!r}: {suggestion(family, [*names, TABLE])}")
        family = wish
    found = [
        _kind(registry, name, kind, target) for name in names for kind, target in sorted(registry.kinds(name).items())
    ]
    return [kind for kind in (*found, *_tables()) if family in (None, kind.family)]


def find_kinds(name: str) -> list[Kind]:
    """The kinds of a name, which may be in several families; "kernel.gaussian" is that of one."""
    family, _, kind = name.rpartition(".")
    known = all_kinds(family or None)
    found = [each for each in known if each.name == kind]
    if not found:
        hint = suggestion(kind, {each.name for each in known})
        raise UserError(f"There is no kind {name[:80]!r}: {hint} `particleflow kinds` lists all.")
    return found


def _kind(registry: Registry, family: str, kind: str, target: Any) -> Kind:
    slots = slots_of(target, registry.families)
    docstring = _docstring(target)
    own = [_parameter(slot, target, docstring) for slot in slots.values()]
    return Kind(family, kind, docstring, (*own, *_common(family, target, kind, slots)))


def _docstring(target: Any) -> str:
    """The docstring of a class or a function of its own; that of a class it descends from says nothing about it."""
    return inspect.cleandoc(vars(target).get("__doc__") or target.__doc__ or "")


def _parameter(slot: Slot, target: Any, docstring: str) -> Parameter:
    constructor = inspect.cleandoc(vars(target).get("__init__", target).__doc__ or "")
    meaning = _meaning(slot.name, docstring) or _meaning(slot.name, constructor)
    return Parameter(slot.name, _expected(slot), slot.required, slot.default, meaning)


def _common(family: str, target: Any, kind: str, slots: Mapping[str, Slot]) -> Iterator[Parameter]:
    """The keys that a table has beside the parameters of its constructor."""
    model = model_of(family, target, kind, tuple(slots.values()))
    for name, field in model.model_fields.items():
        if name != "kind" and name not in slots:
            expected = _annotated(field.annotation)
            yield Parameter(name, expected, field.is_required(), field.get_default(), field.description or "")


def _tables() -> Iterator[Kind]:
    """The tables of a file that are no constructor calls."""
    for name, field in ScenarioFile.model_fields.items():
        model = field.annotation
        if not inspect.isclass(model):
            continue
        fields = getattr(model, "model_fields", None)
        if fields is not None:
            docstring = inspect.cleandoc(model.__doc__ or "")
            parameters = [
                Parameter(key, _annotated(each.annotation), False, each.get_default(), _meaning(key, docstring))
                for key, each in fields.items()
            ]
            yield Kind(TABLE, name, docstring, tuple(parameters))


def _expected(slot: Slot) -> str:
    """What a parameter takes, in words."""
    if slot.family is not None:
        return f"a list of tables ({slot.family})" if slot.many else f"a table ({slot.family})"
    if slot.is_path:
        return "the path of a file"
    if slot.is_code:
        return 'code, as "module:object"'
    if slot.axes is not None:
        return EXPECTED[slot.axes]
    return _annotated(slot.type)


def _annotated(annotation: Any) -> str:
    """A flat type in words."""
    members = [each for each in typing.get_args(annotation) if each is not type(None)]
    if typing.get_origin(annotation) is Literal:
        return " or ".join(f'"{choice}"' for choice in members)
    if annotation in _FLAT:
        return _FLAT[annotation]
    if typing.get_origin(annotation) is list:
        return "a list"
    if typing.get_origin(annotation) is dict:
        return "a table"
    for schema in (each.json_schema or {} for each in members if isinstance(each, WithJsonSchema)):
        return "a list of numbers" if schema.get("type") == "array" else "a number"
    # Annotated[type, …] and type | None say what their first member says; Any, which is checked by us, is a number.
    return _annotated(members[0]) if members else "a number"


def _meaning(name: str, docstring: str) -> str:
    """The clause of a docstring that names a parameter, in quotes of code rather than in a formula."""
    clauses = [" ".join(clause.split()) for clause in _CLAUSE.split(docstring)]
    clauses = [clause.removeprefix("Parameters: ") for clause in clauses]
    begins = re.compile(rf"(`{name}`|{name}:)[:,]?\s*")
    own = [(clause, begins.sub("", clause, count=1)) for clause in clauses if begins.match(clause)]
    begun = [clause if "`" in rest else rest for clause, rest in own]  # one that names others too stays whole
    quoted = [clause for clause in clauses if f"`{name}`" in clause and not begins.match(clause)]
    plain = [clause for clause in clauses if re.search(rf"(?<![A-Za-z_`]){name}(?![A-Za-z_`])", clause)]
    return next((clause for clause in (*begun, *quoted, *plain) if clause), "")
