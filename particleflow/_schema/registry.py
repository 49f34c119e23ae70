"""Which kinds there are in each family: the classes of the package, installed plugins, and named code."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from particleflow._names import snake_case
from particleflow.errors import UserError

PLUGIN_GROUP = "particleflow.plugins"
_TRANSFORMERS = "particleflow.transformer.kinds"


@dataclass(frozen=True)
class Family:
    """One sort of table: its name, the class that all of its kinds descend from, and the modules that they are in."""

    name: str
    base: Any
    modules: tuple[str, ...]


class Registry:
    """The kinds of every family; `allow_code` lets a file name code of its own as "module:object"."""

    def __init__(self, *, allow_code: bool = False):
        self.allow_code = allow_code
        self.families = _families()
        self._kinds = {family.name: dict(_own_kinds(family)) for family in self.families}

    def kinds(self, family: str) -> dict[str, Any]:
        """Kind → class (or function, for observables)."""
        return self._kinds[family]

    def find(self, family: str, kind: str) -> Any:
        """The class of a kind, or None; refused code raises with what to do about it."""
        known = self._kinds[family]
        if kind not in known:
            found = self._named_code(kind) if ":" in kind else _plugin(kind)
            if found is None or not self._fits(family, found):
                return None
            known[kind] = found
        return known[kind]

    def load_plugins(self) -> None:
        """Take in all installed plugins, as the JSON Schema wants."""
        for entry in _plugins():
            found = entry.load()
            for family in self.families:
                if self._fits(family.name, found):
                    self._kinds[family.name].setdefault(entry.name, found)

    def code(self, reference: str) -> Any:
        """The object behind "module:object", if code is allowed."""
        return self._named_code(reference)

    def _named_code(self, reference: str) -> Any:
        if not self.allow_code:
            raise UserError("names code, which runs when it is imported; pass --allow-code if you trust this file")
        module, _, name = reference.partition(":")
        try:
            found: Any = import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except Exception as error:  # the user's own code may raise anything
            raise UserError(f"cannot be imported: {type(error).__name__}: {str(error)[:200]}") from error
        return found

    def _fits(self, family: str, found: Any) -> bool:
        base = next(each.base for each in self.families if each.name == family)
        if base is None:
            return callable(found)
        return inspect.isclass(found) and issubclass(found, base) and not inspect.isabstract(found)


@cache
def _families() -> tuple[Family, ...]:
    from particleflow.discretization import AbstractDiscretization
    from particleflow.drifts import AbstractDrift, AbstractSchedule
    from particleflow.events import AbstractEvent
    from particleflow.geometry import AbstractGeometry
    from particleflow.initial import AbstractInitial
    from particleflow.kernels import AbstractKernel
    from particleflow.kernels.positional import AbstractEncoding
    from particleflow.summation.base import AbstractSummation

    return (
        Family("kernel", AbstractKernel, ("particleflow.kernels",)),
        Family("encoding", AbstractEncoding, ("particleflow.kernels",)),
        Family("drift", AbstractDrift, ("particleflow.drifts", _TRANSFORMERS)),
        Family("schedule", AbstractSchedule, ("particleflow.drifts",)),
        Family("geometry", AbstractGeometry, ("particleflow.geometry",)),
        Family("discretization", AbstractDiscretization, ("particleflow.discretization",)),
        Family("initial", AbstractInitial, ("particleflow.initial", _TRANSFORMERS)),
        Family("summation", AbstractSummation, ("particleflow.summation",)),
        Family("event", AbstractEvent, ("particleflow.events",)),
        Family("observable", None, ("particleflow.observables",)),
    )


@cache
def _own_kinds(family: Family) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module in family.modules:
        found |= _kinds_in(family, import_module(module))
    return found


def _kinds_in(family: Family, module: Any) -> dict[str, Any]:
    members = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    if family.base is None:
        return _observables(module.__name__, members)
    return {
        snake_case(name): value
        for name, value in members.items()
        if inspect.isclass(value) and issubclass(value, family.base) and not inspect.isabstract(value)
    }


def _observables(module: str, members: dict[str, Callable]) -> dict[str, Any]:
    """Functions of the present under their own names, and classes of such functions in snake case."""
    own = {name: value for name, value in members.items() if getattr(value, "__module__", "").startswith(f"{module}.")}
    functions = {
        name: value
        for name, value in own.items()
        if inspect.isfunction(value) and [*inspect.signature(value).parameters] == ["present"]
    }
    classes = {snake_case(name): value for name, value in own.items() if inspect.isclass(value)}
    return functions | classes


def _plugins() -> Any:
    from importlib.metadata import entry_points

    return entry_points(group=PLUGIN_GROUP)


def _plugin(kind: str) -> Any:
    for entry in _plugins():
        if entry.name == kind:
            return entry.load()
    return None
