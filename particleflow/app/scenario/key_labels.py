"""Keys and values of a scenario in a few letters, as they stand at axes and in legends: "β = 4" for a kernel's beta."""

from typing import Any

from particleflow._support import toml

_SYMBOLS = {"beta": "β"}


def key_label(key: str) -> str:
    """A dotted key as a label: its last part, as a symbol where it has one."""
    name = key.rsplit(".", 1)[-1]
    return _SYMBOLS.get(name, name.replace("_", " "))


def value_label(key: str, value: Any) -> str:
    """A key with its value, as in "β = 4"; a kind is its name alone, and so is a table with one."""
    value = value["kind"] if isinstance(value, dict) and "kind" in value else value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    text = f"{value:g}" if is_number else value if isinstance(value, str) else toml.value_text(value)
    return text if key.rsplit(".", 1)[-1] == "kind" else f"{key_label(key)} = {text}"
