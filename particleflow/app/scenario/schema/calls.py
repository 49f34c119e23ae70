"""Checked constructor calls: the parsed tables of a file, before and after the scenario's seed is known."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from particleflow.app.scenario.schema.numbers import FileNumbers, RandomNumbers
from particleflow.app.scenario.schema.problems import joined


@dataclass
class Spec:
    """A checked constructor call: the class of a `kind`, its arguments (other calls among them), and a first object.

    `made` was built without the measures and the random numbers that the scenario's seed decides; where there are any
    (`draws`), `build` draws them. `count`, `retract` and `fields` are keys of initial clouds beside their parameters.
    `path` is the place of the table in the file, such as "drift.0.kernel", set by `locate` once the file is read.
    """

    kind: str
    target: Any
    arguments: dict[str, Any]
    count: int | None = None
    retract: bool = True
    fields: dict[str, Any] = field(default_factory=dict)
    path: str = ""
    made: Any = None
    draws: bool = False

    def make(self) -> None:
        """Call the constructor a first time."""
        self.draws = any(part.draws for value in self.arguments.values() for part in parts(value))
        self.made = self._called(lambda part: part.first()) if inspect.isclass(self.target) else self.target

    def locate(self, path: str) -> None:
        """Set the paths in the file of a call and all calls inside it; their random keys depend on them."""
        self.path = path
        for name, value in self.arguments.items():
            for place, part in enumerate(parts(value)):
                part.locate(joined(path, name, place) if isinstance(value, list) else joined(path, name))

    def first(self) -> Any:
        """The object of the first call, `made`."""
        return self.made

    def build(self, draw: Any) -> Any:
        """The object, with measures drawn by `draw.measure(spec)` and random numbers by `draw.seed`."""
        return self._called(lambda part: part.build(draw)) if self.draws else self.made

    def inner(self) -> list["Spec"]:
        """The calls among the arguments, those of clouds that are to be drawn included."""
        found = [part for value in self.arguments.values() for part in parts(value)]
        found = [part.spec if isinstance(part, Drawn) else part for part in found]
        return [part for part in found if isinstance(part, Spec)]

    def nested(self) -> Iterator["Spec"]:
        """Yield the call and all calls inside it, at all depths."""
        yield self
        for part in self.inner():
            yield from part.nested()

    def has_random_numbers(self) -> bool:
        """Whether an argument is an array that the scenario's seed draws."""
        return any(
            isinstance(part, RandomNumbers) and part.draws for value in self.arguments.values() for part in parts(value)
        )

    def paths(self) -> dict[str, Path]:
        """The arguments that are paths."""
        return {name: value for name, value in self.arguments.items() if isinstance(value, Path)}

    def files(self) -> dict[str, FileNumbers]:
        """The arguments that were read from files."""
        return {name: value for name, value in self.arguments.items() if isinstance(value, FileNumbers)}

    def _called(self, make: Callable[[Any], Any]) -> Any:
        return self.target(**{name: _with_parts(value, make) for name, value in self.arguments.items()})


@dataclass(frozen=True)
class Drawn:
    """An argument that is a measure, to be drawn from an initial cloud."""

    spec: Spec
    draws = True

    def locate(self, path: str) -> None:
        """Set the path of the cloud in the file."""
        self.spec.locate(path)

    def first(self) -> None:
        """Return None: the first object is made without the measure."""

    def build(self, draw: Any) -> Any:
        """The measure that `draw` gives for the cloud."""
        return draw.measure(self.spec)


_Part = Spec | Drawn | RandomNumbers | FileNumbers


def parts(value: Any) -> list[Any]:
    """The calls, draws and arrays in an argument that must be made before it is passed to a constructor."""
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, _Part)]


def _with_parts(value: Any, make: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [_with_parts(item, make) for item in value]
    return make(value) if isinstance(value, _Part) else value
