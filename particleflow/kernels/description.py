"""Kernels in words and numbers that a file can hold: nested dicts of what JSON can write, nothing else.

A stored run holds them, so that a reader with NumPy alone can tell what was computed: {"kind": "attention", "form":
"inner", "beta": 4.0, "query": 1.0, "key": 1.0}. They are made from the fields, so no kernel has to write its own. They
are not meant for building the kernel again, which is what the stored scenario is for.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import equinox as eqx
import numpy as np

from particleflow._support.arrays import is_concrete
from particleflow._support.text import kind_of
from particleflow.kernels.base import AbstractKernel

# A table of more entries does not belong in metadata; it is named, not written out.
_MOST_ENTRIES = 4096
# The answer for what cannot be described; None is a description of its own.
_OMITTED = object()


def described(module: eqx.Module) -> dict[str, Any]:
    """What a kernel, or a module inside one, is, for stored metadata: `kind`, all fields, and a kernel's `form`.

    Arrays become numbers and nested lists, kernels inside are described in turn. Fields that are too large for
    metadata, or have no numbers (functions, arrays inside `jit`), are named under `omitted`.
    """
    found = {field.name: _described(getattr(module, field.name)) for field in fields(module)}
    omitted = sorted(name for name, value in found.items() if value is _OMITTED)
    known = {name: value for name, value in found.items() if value is not _OMITTED}
    # The kind comes last, so that a field of that name cannot hide it.
    described_kind = {"kind": kind_of(type(module))}
    form = {"form": module.form} if isinstance(module, AbstractKernel) else {}
    return known | ({"omitted": omitted} if omitted else {}) | described_kind | form


def described_numbers(value: Any) -> Any:
    """An array as numbers and lists of them; None without one, or where it is too large or not known yet."""
    found = None if value is None else _described(value)
    return None if found is _OMITTED else found


def _described(value: Any) -> Any:
    """A field as numbers, text, lists and dicts, or `_OMITTED`; inside `jit` an array has no numbers yet."""
    if eqx.is_array_like(value) and not isinstance(value, bool | int):
        small = is_concrete(value) and np.size(value) <= _MOST_ENTRIES
        return _numbers(np.asarray(value).tolist()) if small else _OMITTED
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, tuple | list):
        return [None if item is _OMITTED else item for item in map(_described, value)]
    if isinstance(value, eqx.Module) and not isinstance(value, Callable):
        return described(value)
    return _OMITTED


def _numbers(value: Any) -> Any:
    """Numbers that JSON can write: infinities (a table of a discrete kernel may hold them) and NaN become text."""
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return value if np.isfinite(value) else str(value)
