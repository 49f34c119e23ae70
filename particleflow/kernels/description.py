"""Kernels in words and numbers that a file can hold: nested dicts of what JSON knows, nothing else.

Whoever reads a stored run, with NumPy alone, learns from them what was computed: {"kind": "attention", "form": "inner",
"beta": 4.0, "query": 1.0, "key": 1.0}. They are made from the fields, so no kernel has to write its own. They are not
meant for building the kernel again, which is what the stored scenario is for.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import equinox as eqx
import numpy as np

from particleflow._arrays import is_concrete
from particleflow._names import snake_case

# A table of more entries does not belong into metadata; it is named, not written out.
_LARGEST_ARRAY = 4096
# The answer for what cannot be described; None is a description of its own.
_OMITTED = object()


def described(module: eqx.Module) -> dict[str, Any]:
    """`kind`, the class in snake case, and every field; those without numbers are listed under `omitted`."""
    found = {field.name: _described(getattr(module, field.name)) for field in fields(module)}
    omitted = sorted(name for name, value in found.items() if value is _OMITTED)
    known = {name: value for name, value in found.items() if value is not _OMITTED}
    # The kind comes last, so that a field of that name cannot hide it.
    return known | ({"omitted": omitted} if omitted else {}) | {"kind": snake_case(type(module).__name__)}


def described_numbers(value: Any) -> Any:
    """An array as numbers and lists of them; None without one, or where it is too large or not known yet."""
    found = None if value is None else _described(value)
    return None if found is _OMITTED else found


def _described(value: Any) -> Any:
    """A field as numbers, text, lists and dicts, or `_OMITTED`; inside `jit` an array has no numbers yet."""
    if eqx.is_array_like(value) and not isinstance(value, bool | int):
        small = is_concrete(value) and np.size(value) <= _LARGEST_ARRAY
        return _numbers(np.asarray(value).tolist()) if small else _OMITTED
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, tuple | list):
        return [None if item is _OMITTED else item for item in map(_described, value)]
    if isinstance(value, eqx.Module) and not isinstance(value, Callable):
        described_by_itself = getattr(value, "description", None)
        return described_by_itself() if described_by_itself is not None else described(value)
    return _OMITTED


def _numbers(value: Any) -> Any:
    """Numbers that JSON can write: infinities (a table of a discrete kernel may hold them) and NaN become text."""
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return value if np.isfinite(value) else str(value)
