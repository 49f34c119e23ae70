"""Everything that is wrong with a scenario, collected before anything is said."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from particleflow.errors import UserError

_LONGEST_VALUE = 60
_MOST_PROBLEMS = 50


class ScenarioError(UserError):
    """A scenario that cannot be used, with all its problems."""

    def __init__(self, message: str, problems: "tuple[Problem, ...]" = ()):
        super().__init__(message)
        self.problems = problems


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: at which key, with which value (if it has one), and what was expected."""

    path: str
    message: str
    value: Any = field(default=None)
    has_value: bool = False

    def __str__(self) -> str:
        value = f" = {shown(self.value)}" if self.has_value else ""
        return f"{printable(self.path) or 'the file'}{value}: {self.message}"


class Problems:
    """A list of problems that can be added to."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, path: str, message: str, *value: Any) -> None:
        """Note a problem; the value, if there is one to show, comes last."""
        self.found.append(Problem(path, message, value[0] if value else None, bool(value)))

    def raise_if_any(self, name: str) -> None:
        """Raise one error with all problems of the file `name`."""
        if not self.found:
            return
        count = "1 problem" if len(self.found) == 1 else f"{len(self.found)} problems"
        lines = [f"  {problem}" for problem in self.found[:_MOST_PROBLEMS]]
        if len(self.found) > _MOST_PROBLEMS:
            lines.append(f"  … and {len(self.found) - _MOST_PROBLEMS} more")
        raise ScenarioError("\n".join([f"{printable(name)}: {count}", *lines]), tuple(self.found))


def joined(path: str, *parts: str | int) -> str:
    """A dotted path, as `--set` takes it."""
    return ".".join([*([path] if path else []), *map(str, parts)])


def suggestion(wrong: Any, known: Iterable[str]) -> str:
    """What may have been meant, and what there is."""
    names = sorted(known)
    close = difflib.get_close_matches(str(wrong)[:80], names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"there is: {', '.join(names)}" if names else "there is none"


def shown(value: Any) -> str:
    """A value of the file for a message: one short line of printable characters."""
    try:
        text = repr(str(value) if isinstance(value, PurePath) else value)
    except (ValueError, RecursionError):  # a whole number of thousands of digits, or a very deep list
        text = f"({type(value).__name__})"
    text = printable(text)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def printable(text: Any) -> str:
    """Text from a file for a terminal: no control characters, not too long."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text)[:500])
