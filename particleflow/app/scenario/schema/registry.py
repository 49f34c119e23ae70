"""Which kinds there are in each family of tables: the classes of the package, installed plugins, and named code.

A family is one sort of table, such as `kernel`; a kind is one class of it, such as `attention` for `Attention`. Nothing
is listed by hand: the kinds of a family are the public classes of its rooms that descend from its base class.

A kind can be one of three things:

    a class of particleflow     found in the rooms of its family
    an installed plugin         an entry point of the group "particleflow.plugins", named for its kind
    code beside the scenario    "module:object", imported only where the user has allowed it

The last is the one import by name in the package, because the name is the user's.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from particleflow._support.text import kind_of
from particleflow.app.scenario.schema.problems import shown
from particleflow.errors import UserError, subclass_hint

PLUGIN_GROUP = "particleflow.plugins"


@dataclass(frozen=True)
class Family:
    """One sort of table.

    Parameters: `name`, as in "kernel"; `base`, the class that all kinds descend from, None for observables, which are
    functions; `rooms`, the modules whose public names are searched; `heavy_room`, a function that imports one more,
    which is searched last.
    """

    name: str
    base: Any
    rooms: tuple[ModuleType, ...]
    heavy_room: Callable[[], ModuleType] | None = None

    def accepts(self, found: Any) -> bool:
        """Whether an object, of a plugin or of the user's, can be a kind of this family."""
        if self.base is None:
            return callable(found)
        return inspect.isclass(found) and issubclass(found, self.base) and not _is_abstract(found)

    def kinds_by_room(self) -> Iterator[dict[str, Any]]:
        """The kinds of one room after the other; a room is imported when its turn comes."""
        for room in self.rooms:
            yield _kinds_in(self, room)
        if self.heavy_room is not None:
            yield _kinds_in(self, self.heavy_room())


class Registry:
    """The kinds of every family; `allow_code` lets a file name code of its own as "module:object"."""

    def __init__(self, *, allow_code: bool = False):
        self.allow_code = allow_code
        self.families = families()
        self._found: dict[tuple[str, str], Any] = {}  # plugins and named code, by family and kind

    def kinds(self, family: str) -> dict[str, Any]:
        """Every known kind of a family with its class (or function, for observables)."""
        known = {kind: target for kinds in self._family(family).kinds_by_room() for kind, target in kinds.items()}
        return known | {kind: target for (own, kind), target in self._found.items() if own == family}

    def find(self, family: str, kind: str) -> Any:
        """The class of a kind, or None; refused code raises with what to do about it."""
        for known in self._family(family).kinds_by_room():
            if kind in known:
                return known[kind]
        if (family, kind) not in self._found:
            found = self.code(kind) if ":" in kind else _plugin(kind)
            if found is None:
                return None
            if not self._family(family).accepts(found):
                hint = subclass_hint(self._family(family).base) or " It is a function of the present."
                raise UserError(f"names {shown(found)}, which is no {family}.{hint}")
            self._found[family, kind] = found
        return self._found[family, kind]

    def load_plugins(self) -> None:
        """Import all installed plugins, so that `kinds` lists them."""
        for entry in _plugins():
            found = entry.load()
            for family in self.families:
                if family.accepts(found) and entry.name not in self.kinds(family.name):
                    self._found[family.name, entry.name] = found

    def code(self, reference: str) -> Any:
        """The object behind "module:object", if code is allowed."""
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

    def _family(self, name: str) -> Family:
        return next(each for each in self.families if each.name == name)


def _is_abstract(found: type) -> bool:
    """Whether a class is abstract; one that only lacks fields (`equinox.AbstractVar`) is recognised by its name."""
    return inspect.isabstract(found) or found.__name__.startswith("Abstract")


@cache
def families() -> tuple[Family, ...]:
    """All families, in the order in which `particleflow kinds` lists them."""
    from particleflow import discretization, kernels, summation
    from particleflow.dynamics import drifts, geometry, initial
    from particleflow.kernels.positional import AbstractEncoding
    from particleflow.simulation import events, observables

    return (
        Family("kernel", kernels.AbstractKernel, (kernels,)),
        Family("encoding", AbstractEncoding, (kernels,)),
        Family("drift", drifts.AbstractDrift, (drifts,), _transformers),
        Family("schedule", drifts.AbstractSchedule, (drifts,)),
        Family("geometry", geometry.AbstractGeometry, (geometry,)),
        Family("discretization", discretization.AbstractDiscretization, (discretization,)),
        Family("initial", initial.AbstractInitial, (initial,), _transformers),
        Family("summation", summation.AbstractSummation, (summation,)),
        Family("event", events.AbstractEvent, (events,)),
        Family("observable", None, (observables,)),
    )


def _transformers() -> ModuleType:
    from particleflow.transformer import scenario_kinds

    return scenario_kinds


@cache
def _kinds_in(family: Family, room: Any) -> dict[str, Any]:
    members = {name: getattr(room, name) for name in dir(room) if not name.startswith("_")}
    if family.base is None:
        return _observables(room.__name__, members)
    return {kind_of(value): value for value in members.values() if family.accepts(value)}


def _observables(room: str, members: dict[str, Any]) -> dict[str, Any]:
    """Functions of the present under their own names, and classes of such functions in snake case."""
    own = {name: value for name, value in members.items() if getattr(value, "__module__", "").startswith(f"{room}.")}
    functions = {
        name: value
        for name, value in own.items()
        if inspect.isfunction(value) and [*inspect.signature(value).parameters] == ["present"]
    }
    classes = {kind_of(value): value for value in own.values() if inspect.isclass(value)}
    return functions | classes


def _plugins() -> Any:
    from importlib.metadata import entry_points

    return entry_points(group=PLUGIN_GROUP)


def _plugin(kind: str) -> Any:
    for entry in _plugins():
        if entry.name == kind:
            return entry.load()
    return None
