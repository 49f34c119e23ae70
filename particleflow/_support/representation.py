"""How the mathematical objects print themselves: as the call that makes them, numbers visible, defaults left out.

    Flow(drift=Attend(kernel=Attention(beta=9.0), summation=Auto()), geometry=Sphere(radius=1.0))

Arrays are shown by precision and shape, and so are numbers that are traced.
"""

import inspect
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import equinox as eqx
import jax
import numpy as np

from particleflow._support.arrays import is_concrete

_WIDTH = 100
_INDENT = "  "


def shown(value: Any, indent: str = "") -> str:
    """An object as text; what does not fit on a line is broken into one line a part, each indented by `indent`."""
    if isinstance(value, eqx.Module):
        return _bracketed(f"{type(value).__name__}(", _fields(value, indent + _INDENT), ")", indent)
    if isinstance(value, Mapping):
        parts = [f"{key!r}: {shown(inner, indent + _INDENT)}" for key, inner in value.items()]
        return _bracketed("{", parts, "}", indent)
    if isinstance(value, list) or type(value) is tuple:
        parts = [shown(inner, indent + _INDENT) for inner in value]
        if isinstance(value, tuple):
            return _bracketed("(", parts, ",)" if len(parts) == 1 else ")", indent)
        return _bracketed("[", parts, "]", indent)
    if _is_number(value):
        return str(np.asarray(value))
    return eqx.tree_pformat(value)


def _is_number(value: Any) -> bool:
    """Whether a value is one number that is known now: no array, no random key, not traced, not deleted."""
    if not isinstance(value, jax.Array | np.ndarray | np.generic) or np.ndim(value) or not is_concrete(value):
        return False
    deleted = getattr(value, "is_deleted", None)
    plain = isinstance(value.dtype, np.dtype) and value.dtype.kind in "fiub"
    return plain and not (deleted is not None and deleted())


def _fields(module: eqx.Module, indent: str) -> list[str]:
    """The fields of a module as `name=value`, without those that have the default of the constructor.

    The first field is always shown if it is a number, as in Attention(beta=1.0): it tells objects of a class apart.
    """
    assumed = inspect.signature(type(module).__init__).parameters
    parts = []
    for place, field in enumerate(fields(module)):
        if not field.repr or (field.name not in vars(module) and not hasattr(module, field.name)):
            continue  # not set yet: an error inside a constructor prints the object
        value = getattr(module, field.name)
        text = shown(value, indent)
        default = assumed[field.name].default if field.name in assumed else inspect.Parameter.empty
        is_assumed = default is not inspect.Parameter.empty and text in (shown(default), "{}")
        if not is_assumed or (place == 0 and _is_number(value)):
            parts.append(f"{field.name}={text}")
    return parts


def _bracketed(begin: str, parts: list[str], end: str, indent: str) -> str:
    line = begin + ", ".join(parts) + end
    if len(indent) + len(line) <= _WIDTH and "\n" not in line:
        return line
    inner = indent + _INDENT
    return begin + "".join(f"\n{inner}{part}," for part in parts) + f"\n{indent}{end.lstrip(',')}"
