"""Descriptions of everything that can be written in a scenario: every kind with its docstring and its parameters.

Nothing is declared here. Kinds come from the registry, parameters from the constructors' signatures, and their meaning
from the docstrings: the clause that names the parameter.
"""

import inspect
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from particleflow._support.text import suggestion
from particleflow._support.toml import value_text
from particleflow.app.scenario.schema import expressions
from particleflow.app.scenario.schema.argument_types import words_of
from particleflow.app.scenario.schema.document import ScenarioFile
from particleflow.app.scenario.schema.problems import shown, table_model
from particleflow.app.scenario.schema.registry import Registry
from particleflow.app.scenario.schema.tables import model_of
from particleflow.errors import UserError

SOLVER, TABLE = "solver", "table"
_IN_NAMES = string.ascii_letters + "_`"


@dataclass(frozen=True)
class KindParameter:
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
    parameters: tuple[KindParameter, ...]
    shown_as: str | None = None  # how it is written, where that does not follow from its parameters

    @property
    def sentence(self) -> str:
        """The first sentence of the docstring in one line."""
        return next(iter(clauses_of(self.docstring)), "")

    @property
    def example(self) -> str:
        """The table with the parameters that must be given."""
        if self.shown_as is not None:
            return self.shown_as
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
    if family is not None and family not in (*names, SOLVER, TABLE):
        wish = family.removesuffix("s") if family.removesuffix("s") in (*names, SOLVER, TABLE) else family
        if wish == family:
            raise UserError(f"There is no family {family[:80]!r}: {suggestion(family, [*names, SOLVER, TABLE])}")
        family = wish
    found = [_kind(name, kind, target) for name in names for kind, target in sorted(registry.kinds(name).items())]
    return [kind for kind in (*found, *_solvers(), *_tables()) if family in (None, kind.family)]


def find_kinds(name: str) -> list[Kind]:
    """The kinds of a name, which may be in several families; "kernel.gaussian" is that of one."""
    family, _, kind = name.rpartition(".")
    known = all_kinds(family or None)
    found = [each for each in known if each.name == kind]
    if not found:
        hint = suggestion(kind, {each.name for each in known}, f"`particleflow kinds{f' {family}' * bool(family)}`")
        raise UserError(f"There is no kind {name[:80]!r}: {hint}")
    return found


def _kind(family: str, kind: str, target: Any) -> Kind:
    """A kind with the keys of its table: the parameters of the constructor, then those that its family adds."""
    docstring = _docstring(target)
    constructor = inspect.cleandoc(vars(target).get("__init__", target).__doc__ or "")
    fields = {name: field for name, field in model_of(family, target, kind).model_fields.items() if name != "kind"}
    return Kind(family, kind, docstring, tuple(_parameters(fields, docstring, constructor)))


def _parameters(fields: Mapping[str, FieldInfo], *docstrings: str) -> Iterator[KindParameter]:
    """Yield the keys of a table; the meaning of each is its description, or a clause of the first docstring with it."""
    for name, field in fields.items():
        said = (field.description or "", *(meaning_of(name, docstring) for docstring in docstrings))
        default = None if field.is_required() else field.get_default()
        yield KindParameter(name, words_of(field), field.is_required(), default, next(filter(None, said), ""))


def _docstring(target: Any) -> str:
    """The docstring of a class or a function of its own; that of a class it descends from says nothing about it."""
    return inspect.cleandoc(vars(target).get("__doc__") or target.__doc__ or "")


def _solvers() -> Iterator[Kind]:
    """The solvers, which the key `solver` of [time] names."""
    from particleflow.simulation.stepping import solver_facts

    for each in solver_facts():
        yield Kind(SOLVER, each.name, each.sentence(), (), f'[time]\nsolver = "{each.name}"')


def _tables() -> Iterator[Kind]:
    """The tables of a file that are no constructor calls, and the one that stands for a number."""
    for name, field in ScenarioFile.model_fields.items():
        model = table_model(field.annotation)
        if model is not None:
            docstring = inspect.cleandoc(model.__doc__ or "")
            yield Kind(TABLE, name, docstring, tuple(_parameters(model.model_fields, docstring)))
    text = KindParameter(
        expressions.KEY, f"a text of at most {expressions.LONGEST} characters", True, None, "what is computed"
    )
    yield Kind(TABLE, expressions.KEY, expressions.grammar(), (text,), expressions.EXAMPLE)


def meaning_of(name: str, docstring: str) -> str:
    """The clause of a docstring that explains a parameter.

    That is the first one that begins with its name (in backticks, or before a colon), without the name unless it
    names other parameters, too; else the first one that has the name in backticks; else the first with the word.
    """
    heads = (f"`{name}`", f"{name}:")
    begun, others = [], []
    for clause in clauses_of(docstring):
        head = next((each for each in heads if clause.startswith(each)), None)
        rest = "" if head is None else clause.removeprefix(head).lstrip(" ,:")
        begun += [clause if "`" in rest else rest] if rest else []
        others += [clause] if head is None else []
    quoted = [clause for clause in others if heads[0] in clause]
    plain = [clause for clause in others if name in _words(clause)]
    return next(iter((*begun, *quoted, *plain)), "")


def clauses_of(docstring: str) -> list[str]:
    """The clauses of a docstring, each in one line: what full stops, semicolons and empty lines end."""
    found = []
    for paragraph in docstring.split("\n\n"):
        line = " ".join(paragraph.split())
        found += [each.removeprefix("Parameters: ") for each in line.replace("; ", ". ").removesuffix(".").split(". ")]
    return [clause for clause in found if clause]


def _words(clause: str) -> set[str]:
    """The names in a clause: what stands between spaces, digits, brackets and signs."""
    return set("".join(letter if letter in _IN_NAMES else " " for letter in clause).split())
