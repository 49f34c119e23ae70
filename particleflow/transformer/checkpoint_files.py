"""Read and check the files of a checkpoint: config.json and model.safetensors.

Nothing in these files is executed. A safetensors file is the length of a header (8 bytes, little-endian), the header,
JSON that names every tensor with its type, shape and bytes, and the numbers. All of it is checked against the size of
the file and against the tensors that the network needs before memory is allocated.
"""

import json
import math
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from particleflow._support.files import reason_of
from particleflow.errors import ArgumentError

_MOST_CONFIGURATION = 2**20  # bytes of a config.json
_MOST_HEADER = 100_000_000  # bytes of a header, the limit of the format itself
_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_FLOATING = ("F64", "F32", "F16", "BF16")


def needed(package: str) -> Any:
    """Import a package of the extra `transformer`, or raise with the command that installs it."""
    if find_spec(package) is None:
        raise ArgumentError(
            f"Trained transformers need the package {package}, which is not installed: "
            "pip install 'particleflow[transformer]'."
        )
    from importlib import import_module

    return import_module(package)


def plain_file(path: Path, most: float = math.inf) -> int:
    """The size in bytes of a regular file, refused if it is missing or larger than `most`."""
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
    """The JSON object in a file of at most `most` bytes."""
    plain_file(path, most)
    try:
        return _json_object(path.read_bytes(), str(path))
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read: {reason_of(error)}.") from error


class Tensors:
    """The tensors of a safetensors file by name; names, types and shapes are checked before numbers are read.

    Parameters: the `path` of the file. `entries` maps names to (type, shape).
    """

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
        """The first of some prefixes with which the file has a tensor of a name."""
        found = next((prefix for prefix in candidates if prefix + name in self.entries), None)
        if found is None:
            raise ArgumentError(f"{self.path} has no tensor {candidates[-1]}{name}.")
        return found

    def check(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raise unless the named tensors exist, have the given shapes and hold floating-point numbers."""
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
        """Check and read the named tensors, converted to `dtype`; numbers that are not finite are refused."""
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
    """The type and shape of a tensor, checked against the number of its bytes and the size of the file."""
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
    """Whether a JSON value is a list of integers ≥ 0."""
    return isinstance(value, list) and all(
        isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in value
    )


def _json_object(text: bytes, where: str) -> dict[str, Any]:
    """Parse UTF-8 text as one JSON object without repeated names; `where` names the text in messages."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a name is given twice")
        for name, value in pairs:  # lone surrogates, which JSON can spell, cannot be encoded or printed
            (name + value if isinstance(value, str) else name).encode("utf-8")
        return found

    try:
        found = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{where} is no JSON: {str(error)[:200]}.") from error
    if not isinstance(found, dict):
        raise ArgumentError(f"{where} must be a JSON object, but is {type(found).__name__}.")
    return found
