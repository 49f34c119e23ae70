"""What a checkpoint's files must be before anything is made of them.

Nothing in these files is executed. A safetensors file begins with the length of a header, then the header, JSON that
names every tensor with its type, shape and place; numbers follow. All of it is checked against the size of the file and
against what the network needs before any memory is taken.
"""

import json
import math
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from particleflow._files import reason_of
from particleflow.errors import ArgumentError

_MOST_CONFIGURATION = 2**20  # bytes of a config.json
_MOST_HEADER = 100_000_000  # bytes of a header, the limit of the format itself
_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_FLOATING = ("F64", "F32", "F16", "BF16")


def needed(package: str) -> Any:
    """A package of the extra `transformer`, or a sentence that says how to get it."""
    if find_spec(package) is None:
        raise ArgumentError(
            f"Trained transformers need the package {package}, which is not installed: "
            "pip install 'particleflow[transformer]'."
        )
    from importlib import import_module

    return import_module(package)


def plain_file(path: Path, most: float = math.inf) -> int:
    """The size of a file that exists and is not larger than `most` bytes."""
    try:
        size = path.stat().st_size if path.is_file() else None
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read: {reason_of(error)}.") from error
    if size is None:
        raise ArgumentError(f"{path} is needed, but is no file.")
    if size > most:
        raise ArgumentError(f"{path} has {size} bytes, but at most {most:.0f} are read of such a file.")
    return size


def read_json(path: Path, most: float = _MOST_CONFIGURATION) -> dict[str, Any]:
    """A JSON object from a file of moderate size."""
    plain_file(path, most)
    try:
        return _json_object(path.read_bytes(), str(path))
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read: {reason_of(error)}.") from error


class Tensors:
    """The tensors of a safetensors file, by name: looked at without reading their numbers, then read one by one."""

    def __init__(self, path: Path):
        self.path = path
        needed("safetensors")
        size = plain_file(path)
        try:
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                if size < 8 or length > min(size - 8, _MOST_HEADER):
                    raise ArgumentError(
                        f"{path} is no whole safetensors file: its header would have {length} bytes, "
                        f"but the file has {size}."
                    )
                header = _json_object(file.read(length), f"The header of {path}")
        except OSError as error:
            raise ArgumentError(f"{path} cannot be read: {reason_of(error)}.") from error
        header.pop("__metadata__", None)
        self.entries = {name: _entry(path, name, about, size - 8 - length) for name, about in header.items()}

    def prefix(self, candidates: tuple[str, ...], name: str) -> str:
        """The first of some prefixes with which a tensor of this name is there."""
        found = next((prefix for prefix in candidates if prefix + name in self.entries), None)
        if found is None:
            raise ArgumentError(f"{self.path} has no tensor {candidates[-1]}{name}.")
        return found

    def check(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raise unless tensors of these names hold floating-point numbers in these shapes."""
        for name, shape in shapes.items():
            if name not in self.entries:
                raise ArgumentError(f"{self.path} has no tensor {name}, which must have shape {shape}.")
            kind, found = self.entries[name]
            if found != shape:
                raise ArgumentError(
                    f"The tensor {name} of {self.path} must have shape {shape} by config.json, but has {found}."
                )
            if kind not in _FLOATING:
                raise ArgumentError(
                    f"The tensor {name} of {self.path} must hold floating-point numbers, but is {kind}."
                )

    def read(self, shapes: Mapping[str, tuple[int, ...]], dtype: Any) -> dict[str, np.ndarray]:
        """The numbers of checked tensors in one precision."""
        from safetensors import SafetensorError, safe_open

        self.check(shapes)
        found = {}
        try:
            with safe_open(self.path, framework="numpy") as file:
                for name in shapes:
                    found[name] = np.asarray(file.get_tensor(name)).astype(dtype)
        except (SafetensorError, OSError, ValueError) as error:
            raise ArgumentError(f"{self.path} cannot be read: {str(error)[:200]}.") from error
        for name, numbers in found.items():
            if not np.isfinite(numbers).all():
                raise ArgumentError(f"The tensor {name} of {self.path} holds numbers that are not finite.")
        return found


def _entry(path: Path, name: str, about: Any, available: int) -> tuple[str, tuple[int, ...]]:
    """The type and shape of a tensor whose place in the file is as large as they say."""
    where = f"The tensor {name[:200]} of {path}"
    if not isinstance(about, dict) or not {"dtype", "shape", "data_offsets"} <= about.keys():
        raise ArgumentError(f"{where} has no type, shape and place in the header.")
    kind, shape, place = about["dtype"], about["shape"], about["data_offsets"]
    if not isinstance(kind, str) or kind not in _BYTES:
        raise ArgumentError(f"{where} is of the type {str(kind)[:40]!r}, which is not known.")
    if not (_whole_numbers(shape) and len(shape) <= 8):
        raise ArgumentError(f"{where} has no shape of a few whole numbers.")
    if not (_whole_numbers(place) and len(place) == 2 and place[0] <= place[1] <= available):
        raise ArgumentError(f"{where} should be at bytes {str(place)[:80]}, but the file holds {available}: cut off?")
    if math.prod(shape) * _BYTES[kind] != place[1] - place[0]:
        raise ArgumentError(
            f"{where} has the shape {shape} of {kind}, which does not fill its {place[1] - place[0]} bytes."
        )
    return kind, tuple(shape)


def _whole_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in value
    )


def _json_object(text: bytes, where: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a name is given twice")
        for name, value in pairs:  # halves of characters, which JSON can spell, are no text: nobody could print them
            (name + value if isinstance(value, str) else name).encode("utf-8")
        return found

    try:
        found = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{where} is no JSON: {str(error)[:200]}.") from error
    if not isinstance(found, dict):
        raise ArgumentError(f"{where} must be a JSON object, but is {type(found).__name__}.")
    return found
