"""Writing TOML, changing a value deep inside a file by its dotted path, and reading a value from the command line.

A document is what `tomllib` returns, plain dictionaries and lists, and `--set`, sweeps and the values that a run stores
change it as such. When it is written it is compared with the text that it came from, and tomlkit, which keeps comments
and layout, changes the places that differ. tomlkit's own documents are not used otherwise: they take nine times as long
to parse, and their numbers and lists are of classes of its own.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from particleflow.errors import UserError

# Stands for "no value": an override of this value removes its key.
REMOVED = object()

_LONGEST_PATH = 100
_OPENING = "[{'\""  # the first characters of lists, tables and quoted texts
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def rewritten(text: str, document: dict[str, Any], remarks: Mapping[str, str] | None = None) -> str:
    """The text of a file, changed to say `document`; comments, order, layout and unchanged values stay as they are.

    New keys go to the end of their table, new tables to the end of the file. A file that cannot be changed in
    this way is written anew, without its comments. Parameters: `remarks`, comments for values in sections, by their
    dotted paths.
    """
    try:
        return _rewritten(text, document, remarks or {})
    except Exception:  # tomlkit raises many kinds of errors on unusual files
        return dumps(document)


def dumps(document: dict[str, Any]) -> str:
    """A document as TOML text: plain keys first, then tables and lists of tables; deeper tables stay inline."""
    try:
        return _rewritten("", document, {})
    except RecursionError as error:
        raise UserError("The scenario is nested too deeply to be written.") from error


def _rewritten(text: str, document: dict[str, Any], remarks: Mapping[str, str]) -> str:
    import tomlkit

    old = tomllib.loads(text)
    if _is_same(old, document):
        return text
    file = tomlkit.parse(text)
    _change(file, old, document, _section)
    for path, remark in remarks.items():
        _remark(file, parse_path(path), remark)
    changed = tomlkit.dumps(file)
    if not _is_same(tomllib.loads(changed), document):
        raise ValueError("the text that was written says something else")
    return changed


def _remark(file: Any, path: list[str | int], remark: str) -> None:
    """Write a comment after a value of a section; inside an inline table, where TOML allows none, do nothing."""
    from tomlkit.items import Table

    section = _value_at(file, path[:-1])
    if isinstance(section, Table):
        section[str(path[-1])].comment(remark)  # pyright: ignore[reportAttributeAccessIssue]


def _change(node: Any, old: Any, new: Any, item: Callable[[Any], Any]) -> None:
    """Change a table or a list of a file, whose value is `old`, to `new`.

    Parameters: `node`, the table or list of tomlkit; `item`, which makes an item of tomlkit from a new value.
    """
    if isinstance(new, dict):
        for name in old.keys() - new.keys():
            del node[name]
    for key, value in new.items() if isinstance(new, dict) else enumerate(new):
        there = isinstance(old, list) or key in old
        if there and _is_same(old[key], value):
            continue
        if there and _is_alike(old[key], value):
            _change(node[key], old[key], value, _inline)
        else:
            node[key] = item(value)


def _is_same(old: Any, new: Any) -> bool:
    """Whether two values have the same text in TOML: 1, 1.0 and true differ, NaN equals NaN."""
    if type(old) is not type(new):
        return False
    if isinstance(old, dict):
        return old.keys() == new.keys() and all(_is_same(value, new[name]) for name, value in old.items())
    if isinstance(old, list):
        return len(old) == len(new) and all(map(_is_same, old, new))
    return repr(old) == repr(new)


def _is_alike(old: Any, new: Any) -> bool:
    """Whether two values are tables, or lists of one length, so that one can be changed into the other by item."""
    lists = isinstance(old, list) and isinstance(new, list) and len(old) == len(new)
    return lists or (isinstance(old, dict) and isinstance(new, dict))


def _section(value: Any) -> Any:
    """A value at the top of a file: tables without a kind are sections, lists of tables are lists of sections."""
    import tomlkit

    if isinstance(value, dict) and "kind" not in value:
        return _table(value)
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        sections = tomlkit.aot()
        for each in value:
            sections.append(_table(each))
        return sections
    return _inline(value)


def _table(values: dict[str, Any]) -> Any:
    import tomlkit

    table = tomlkit.table()
    for name, value in values.items():
        table.append(name, _inline(value))
    return table


def _inline(value: Any) -> Any:
    import tomlkit

    return tomlkit.value(value_text(value))  # from text, because tomlkit takes a second to build a list of 2000 numbers


def value_text(value: Any) -> str:
    """A value as TOML text in one line; tables are inline tables."""
    import tomlkit

    if isinstance(value, dict):
        pairs = [f"{tomlkit.key(name).as_string()} = {value_text(inner)}" for name, inner in value.items()]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    return tomlkit.item(value).as_string()


def loads(text: str, name: str) -> dict[str, Any]:
    """TOML text as a document, with the file's name in the error."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also whole numbers of thousands of digits
        raise UserError(f"{name} is not valid TOML: {str(error)[:300] or 'it is nested too deeply'}") from error


def parse_override(text: str) -> tuple[list[str | int], Any]:
    """The path and the value of `path=value`.

    The value is TOML where it can be read as that, so that numbers, lists and tables stay what they are; anything else
    is a text without its quotes, unless it begins as a list, a table or a quoted text. Nothing after "=" gives
    `REMOVED`.
    """
    path, found, value = text.partition("=")
    if not found or not path.strip():
        raise UserError(f"--set takes path=value, such as drift.0.kernel.beta=4, but got {text!r}.")
    if not value.strip():
        return parse_path(path), REMOVED
    try:
        parsed = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError) as error:
        if value.strip()[0] in _OPENING:
            raise UserError(f"--set {path}: {value!r} is no TOML value: {str(error)[:100]}.") from error
        parsed = {"value": value.strip()}
    if list(parsed) != ["value"]:
        raise UserError(f"--set takes one value, but {text!r} holds several lines.")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UserError(f"--set takes text in UTF-8, but got {text!r}.")
    return parse_path(path), parsed["value"]


def plain(value: Any, path: str) -> Any:
    """A Python value as TOML has it: tables, lists, texts, numbers, truth values; arrays become lists of numbers."""
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy and JAX
        return plain(value.tolist(), path)
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(name): plain(inner, f"{path}.{name}") for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner, f"{path}.{place}") for place, inner in enumerate(value)]
    if isinstance(value, PurePath):
        return str(value)
    raise UserError(
        f"A scenario holds numbers, texts, truth values, lists and tables, but {path} is {type(value).__name__}."
    )


def parse_path(path: str) -> list[str | int]:
    """The parts of a dotted path; whole numbers are places in a list."""
    parts = [part.strip() for part in path.split(".")]
    if not all(parts) or len(parts) > _LONGEST_PATH:
        raise UserError(f"A path has names between its dots, such as drift.0.kernel.beta, but got {path[:200]!r}.")
    return [int(part) if part.isascii() and part.isdigit() and len(part) < 10 else part for part in parts]


def with_override(document: Any, text: str) -> Any:
    """A copy of a document with `path=value` applied; a text in place of a table with a kind names a new kind."""
    path, value = parse_override(text)
    if isinstance(value, str) and _has_kind(_value_at(document, path)):
        value = {"kind": value}
    return with_value(document, path, value)


def with_value(document: Any, path: list[str | int], value: Any) -> Any:
    """A copy of a document with one value changed, added or (if it is `REMOVED`) taken out; the rest is shared."""
    try:
        return _with_value(document, path, value)
    except _NoPlaceError as error:
        close = _close_path(document, path)
        hint = f" Did you mean {_dotted(close)}?" if close is not None else ""
        raise UserError(f"{_dotted(path)}: {error}{hint}") from error


class _NoPlaceError(Exception):
    """A path that leads to no place in a document."""


def _with_value(document: Any, path: list[str | int], value: Any) -> Any:
    """`with_value` without its hints; raises `_NoPlaceError`."""
    if not path:
        return value
    part, rest = path[0], path[1:]
    if isinstance(document, list):
        return _with_item(document, part, rest, value)
    if isinstance(document, str) and _WORD.fullmatch(document):  # a kind by its name alone gets a parameter
        document = {"kind": document}
    if not isinstance(document, dict):
        raise _NoPlaceError(f"there is nothing called {part!r} inside {str(document)[:60]!r}.")
    name = str(part)
    if isinstance(part, int) and _has_kind(document):
        raise _NoPlaceError(f"this is a single table, which has no place {part}.")
    if value is REMOVED and name not in document:
        raise _NoPlaceError(f"there is no {name!r} to remove.")
    if value is REMOVED and not rest:
        return {key: inner for key, inner in document.items() if key != name}
    return {**document, name: _with_value(document.get(name, {} if rest else None), rest, value)}


def _with_item(items: list[Any], place: str | int, rest: list[str | int], value: Any) -> list[Any]:
    """A copy of a list in which one item is changed along the `rest` of a path, or taken out."""
    if not isinstance(place, int) or place >= len(items):
        raise _NoPlaceError(f"a list of {len(items)} has no place {place!r}.")
    if value is REMOVED and not rest:
        return [item for index, item in enumerate(items) if index != place]
    return [_with_value(item, rest, value) if index == place else item for index, item in enumerate(items)]


def _close_path(document: Any, path: list[str | int]) -> list[str | int] | None:
    """The path that was probably meant: a 0 added where a list was not numbered, the number of a table left out."""
    node, meant = document, []
    for place, part in enumerate(path):
        if isinstance(node, list) and isinstance(part, str) and node:
            meant.append(0)
            node = node[0]
        elif isinstance(node, dict) and isinstance(part, int) and _has_kind(node):
            continue
        meant.append(part)
        node = _value_at(node, [part])
        if node is None and place < len(path) - 1:
            return None
    return meant if meant != path and _value_at(document, meant[:-1]) is not None else None


def _value_at(document: Any, path: list[str | int]) -> Any:
    """The value that a path leads to, None where there is none."""
    node = document
    for part in path:
        if isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
        elif isinstance(node, dict):
            node = node.get(str(part))
        else:
            return None
    return node


def _has_kind(value: Any) -> bool:
    """Whether a value is a table that names a constructor, rather than a section."""
    return isinstance(value, dict) and "kind" in value


def _dotted(path: list[str | int]) -> str:
    return ".".join(map(str, path))[:200]


def differences(first: Any, second: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two documents differ: the dotted path, and the value in each, `REMOVED` where there is none."""
    if isinstance(first, dict) and isinstance(second, dict):
        keys = list(dict.fromkeys([*first, *second]))
        pairs = {str(key): (first.get(key, REMOVED), second.get(key, REMOVED)) for key in keys}
    elif _is_list_of_tables(first) and _is_list_of_tables(second):
        longest = max(len(first), len(second))
        pairs = {
            str(place): tuple(each[place] if place < len(each) else REMOVED for each in (first, second))
            for place in range(longest)
        }
    else:
        if first is REMOVED or second is REMOVED or not _is_same(first, second):
            yield path, first, second
        return
    for name, (left, right) in pairs.items():
        yield from differences(left, right, f"{path}.{name}" if path else name)


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)
