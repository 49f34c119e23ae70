"""Checking the tables of a file: each is the call of a constructor, named by its `kind`.

A table is checked in three steps: its kind is looked up in the registry, its keys are validated by a pydantic model
made from the constructor's parameters, and the constructor is called once, for what only it can check. Tables inside a
table are read by the types of its fields, so that pydantic collects what is wrong at all depths, with paths.

The choice of the model by `kind` is that of a discriminated union of pydantic. It is made here because the members of a
union must be there before the first table is read: that would make the models of all 138 kinds (0.4 s) for every file,
and leave out plugins and named code, which are imported when a file names them.
"""

import inspect
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, Strict, WithJsonSchema, create_model

from particleflow._support.text import suggestion
from particleflow.app.scenario.schema.argument_types import NumberOrVector, fields_of
from particleflow.app.scenario.schema.calls import Drawn, Spec, parts
from particleflow.app.scenario.schema.problems import (
    MISSING,
    Problems,
    checked,
    problem,
    problem_at,
    shown,
)
from particleflow.app.scenario.schema.registry import Registry
from particleflow.errors import ParticleflowError, UserError

_DEEPEST = 24  # tables inside tables
_COUNT = "how many particles are drawn; left out, a discretization that carries densities begins with the density"
_RETRACT = "whether points, or a density on a normalised set, are brought onto the geometry"
_FIELDS = "what the geometry carries along, such as the residual norm of pre-norm: one number, or one a particle"


class TableReader:
    """Reads tables as constructor calls; raises a `ValidationError` that holds everything that is wrong with one.

    Parameters: `registry`, of the kinds that there are; `folder`, which relative paths begin at.
    """

    def __init__(self, registry: Registry, folder: Path):
        self.registry, self.folder = registry, folder
        self._depth = 0

    def read(self, family: str, raw: Any) -> Spec:
        """The constructor call of a table of a family; a text is a kind without parameters."""
        if isinstance(raw, str):
            raw = {"kind": raw}
        target = self._target(family, raw)
        model = model_of(family, target, raw["kind"])
        self._depth += 1
        try:
            table = checked(model, raw, self)
        finally:
            self._depth -= 1
        values = {name: getattr(table, name) for name in model.model_fields if name in table.model_fields_set}
        kind = values.pop("kind")
        beside = {name: values.pop(name) for name in _common_fields(family, target) if name in values}
        return self._made(Spec(kind, target, values, **beside), raw)

    def read_measure(self, raw: Any) -> Drawn:
        """The measure that is drawn from a table of the family "initial", whose points must be counted."""
        spec = self.read("initial", raw)
        if spec.target.counted and spec.count is None:
            raise problem_at("count", "is missing")
        return Drawn(spec)

    def _target(self, family: str, raw: Any) -> Any:
        """The class of a table's kind; what is no table, or names no kind, is refused with the nearest name."""
        if not isinstance(raw, dict):
            raise problem(f"must be a table with a `kind` ({family})")
        if self._depth > _DEEPEST:
            raise problem(f"is nested more than {_DEEPEST} levels deep", MISSING)
        if "kind" not in raw:
            raise problem_at("kind", f"is missing; {suggestion('', self.registry.kinds(family), _lister(family))}")
        kind = raw["kind"]
        if not isinstance(kind, str):
            raise problem_at("kind", "must be a text in quotes", kind)
        try:
            target = self.registry.find(family, kind)
        except UserError as error:
            raise problem_at("kind", str(error), kind) from error
        if target is None:
            hint = suggestion(kind, self.registry.kinds(family), _lister(family))
            raise problem_at("kind", f"is no known {family}; {hint}", kind)
        return target

    def _made(self, spec: Spec, raw: dict[str, Any]) -> Spec:
        """Call the constructor once, so that what only it can check is reported together with everything else."""
        try:
            spec.make()
        except ParticleflowError as error:
            message = str(error)
            named = next((name for name in spec.arguments if f"`{name}`" in message), None)
            if named is None:
                raise problem(message, MISSING) from error
            is_table = isinstance(spec.arguments[named], list) or parts(spec.arguments[named])
            raise problem_at(named, message, *(() if is_table else (raw[named],))) from error
        except Exception as error:  # a constructor, perhaps the user's, met a value it was not written for
            raise problem(f"cannot be made: {type(error).__name__}: {shown(str(error))}", MISSING) from error
        return spec


def _lister(family: str) -> str:
    """The command that lists the kinds of a family."""
    return f"`particleflow kinds {family}`"


def validated(model: type[BaseModel], raw: Any, path: str, problems: Problems) -> Any:
    """A table that is no constructor call as its model, or None after adding its errors to `problems` under `path`."""
    return problems.collected(path, raw, lambda: checked(model, raw))


@cache
def model_of(family: str, target: Any, kind: str) -> type[BaseModel]:
    """The pydantic model of a table: `kind`, the parameters of the constructor, and the keys that its family adds."""
    return create_model(
        f"{family}_{kind}",
        __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=True, protected_namespaces=()),
        __doc__=inspect.getdoc(target) or "",
        kind=(Annotated[str, Strict(), WithJsonSchema({"const": kind})], ...),
        **fields_of(target),
        **_common_fields(family, target),
    )


def _common_fields(family: str, target: Any) -> dict[str, Any]:
    """The keys of a table beside the parameters of its constructor: those of an initial cloud."""
    if family != "initial":
        return {}
    count = {"count": (Annotated[int, Strict(), Field(ge=1, description=_COUNT)], None)} if target.counted else {}
    return count | {
        "retract": (Annotated[bool, Strict(), Field(description=_RETRACT)], True),
        "fields": (Annotated[dict[Annotated[str, Strict()], NumberOrVector], Field(description=_FIELDS)], {}),
    }
