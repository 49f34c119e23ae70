"""Readable text: sizes, counts, names of kinds, suggestions for wrong names, and text from untrusted files."""

import difflib
from collections.abc import Iterable
from typing import Any

_NEAR = 0.65  # share of common letters from which on a wrong name suggests another
_FEW_LETTERS = 120  # of a list of names in a message


def readable_size(size: float) -> str:
    """A number of bytes with a unit: 12 bytes, 3.4 kB, 5.67 MB."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if float(f"{size:.3g}") < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} PB"


def plural(count: int, noun: str) -> str:
    """A count with its noun: 1 frame, 2 frames, 1,200 frames."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def nearest_name(wrong: Any, known: Iterable[str]) -> str | None:
    """The known name that a wrong one was probably meant to be; None where none is near."""
    close = difflib.get_close_matches(str(wrong)[:80], sorted(known), n=1, cutoff=_NEAR)
    return close[0] if close else None


def suggestion(wrong: Any, known: Iterable[str], lister: str | None = None) -> str:
    """The nearest known name as a question; where none is near all of them if they are few, else where they are listed.

    Parameters: the `wrong` name; those that are `known`; the `lister`, such as "`particleflow kinds`", a command that
    lists them; without one they are listed here, however many.
    """
    names = sorted(known)
    close = nearest_name(wrong, names)
    if close is not None:
        return f"did you mean {close!r}?"
    listed = ", ".join(names)
    if lister is not None and len(listed) > _FEW_LETTERS:
        return f"{lister} lists all {len(names)}"
    return f"there is: {listed}" if names else "there is none"


def printable(text: Any) -> str:
    """Text without control characters, which a terminal would obey, other than ends of lines."""
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in str(text))


def one_line(value: Any, longest: int = 300) -> str:
    """Text from a file for a terminal in one line: no control characters, and at most so many letters."""
    return printable(str(value)[:longest]).replace("\n", " ")


def kind_of(cls: type) -> str:
    """The kind of a class in scenarios and in stored runs: its own `kind` where it has one, else its snake-case name.

    A class has a `kind` of its own where its name is longer than that in scenarios: `GaussianClosure` is the
    discretization "gaussian".
    """
    return vars(cls).get("kind") or snake_case(cls.__name__)


def snake_case(name: str) -> str:
    """A class name in snake case: AbcDef becomes abc_def."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


def duration(seconds: float) -> str:
    """A time in seconds, minutes or hours: "85 s", "12 min", "3.4 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
