"""Writing TOML, changing a value deep inside a file by its dotted path, and reading a value from the command line."""

import math
import re
import tomllib
from typing import Any

from particleflow.errors import UserError

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def dumps(document: dict[str, Any]) -> str:
    """A document as TOML text: plain keys first, then tables, then lists of tables; deeper tables stay inline."""
    plain = {key: value for key, value in document.items() if not _is_section(value)}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    for key, value in document.items():
        if key in plain:
            continue
        for table in value if isinstance(value, list) else [value]:
            lines.append(f"[[{_key(key)}]]" if isinstance(value, list) else f"[{_key(key)}]")
            lines += [f"{_key(inner)} = {_value(item)}" for inner, item in table.items()]
    return "\n".join(lines) + "\n"


def _is_section(value: Any) -> bool:
    if isinstance(value, dict):
        return "kind" not in value
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else ("nan" if math.isnan(value) else f"{value:+}")
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + " }"
    return value.isoformat()  # the only other values of TOML are dates and times


def _text(text: str) -> str:
    quoted = "".join(f"\\u{ord(c):04x}" if ord(c) < 32 or ord(c) == 127 else c for c in _escaped(text))
    return f'"{quoted}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def loads(text: str, name: str) -> dict[str, Any]:
    """TOML text as a document, with the file's name in the error."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also whole numbers of thousands of digits
        raise UserError(f"{name} is not valid TOML: {str(error)[:300] or 'it is nested too deeply'}") from error


def parse_override(text: str) -> tuple[list[str | int], Any]:
    """The path and the value of `path=value`; the value is TOML, and a single bare word is a text."""
    path, found, value = text.partition("=")
    if not found or not path.strip():
        raise UserError(f"--set takes path=value, such as drift.0.kernel.beta=4, but got {text!r}.")
    try:
        parsed = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError) as error:
        if not _WORD.fullmatch(value.strip()):
            raise UserError(f"--set {path}: {value!r} is no TOML value; a text needs quotes.") from error
        parsed = {"value": value.strip()}
    if list(parsed) != ["value"]:
        raise UserError(f"--set takes one value, but {text!r} holds several lines.")
    return parse_path(path), parsed["value"]


def parse_path(path: str) -> list[str | int]:
    """The parts of a dotted path; whole numbers are places in a list."""
    parts = [part.strip() for part in path.split(".")]
    if not all(parts):
        raise UserError(f"A path has names between its dots, such as drift.0.kernel.beta, but got {path!r}.")
    return [int(part) if part.isascii() and part.isdigit() and len(part) < 10 else part for part in parts]


def with_value(document: Any, path: list[str | int], value: Any) -> Any:
    """A copy of a document with one value changed or added; the rest is shared."""
    if not path:
        return value
    part, rest = path[0], path[1:]
    if isinstance(document, list):
        if not isinstance(part, int) or part >= len(document):
            raise UserError(f"A list of {len(document)} has no place {part!r}.")
        return [with_value(item, rest, value) if index == part else item for index, item in enumerate(document)]
    if not isinstance(document, dict):
        raise UserError(f"There is nothing called {part!r} inside {str(document)[:60]!r}.")
    name = str(part)
    if rest and name not in document:
        return {**document, name: with_value({}, rest, value)}
    return {**document, name: with_value(document.get(name), rest, value)}
