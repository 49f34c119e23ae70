"""Text for people: sizes, and words from files that may hold anything."""

from typing import Any


def readable_size(size: float) -> str:
    """A number of bytes in the unit that suits it."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def plural(count: int, noun: str) -> str:
    """A count with its noun: 1 frame, 2 frames."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def printable(value: Any) -> str:
    """Text from a file for a terminal: one line, no control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in str(value))[:300]
