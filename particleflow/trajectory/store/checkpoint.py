"""Checkpoints: all that is needed to resume a run, in one file that is either whole or not there.

A checkpoint is an npz archive without pickled objects. It is written under another name, brought to disk and renamed,
and carries a SHA-256 over its contents; the newest two are kept, so that a torn newest one still leaves the one before.
"""

import hashlib
import io
import json
import os
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from particleflow._support.files import write_bytes
from particleflow.errors import ArgumentError, StoreError
from particleflow.trajectory.store.file_layout import to_json

_FILE = re.compile(r"checkpoint-(\d{8})\.npz")
_INFO, _DIGEST = "__info__", "__sha256__"
_KEPT = 2


@dataclass(frozen=True)
class Checkpoint:
    """The arrays and plain values of a checkpoint, its `path`, and why newer ones were `skipped`."""

    arrays: dict[str, np.ndarray]
    info: dict[str, Any]
    path: Path
    skipped: tuple[str, ...] = field(default=())


def checkpoint_folder(path: Path) -> Path:
    """Where the checkpoints of a trajectory file lie: beside it, under its whole name with `.checkpoints`."""
    return path.with_name(path.name + ".checkpoints")


def save_checkpoint(folder: str | os.PathLike[str], arrays: Mapping[str, Any], info: Mapping[str, Any]) -> Path:
    """Write the next checkpoint of a run and drop all but the newest two.

    The new one is on the disk before an old one goes, so that a crash at any moment leaves one that is whole.

    Parameters: `folder`, the run folder; `arrays`, numbers by name; `info`, plain values (time, frames, scenario hash).
    """
    folder = Path(folder)
    existing = _files(folder)
    number = max(existing, default=-1) + 1
    path = folder / f"checkpoint-{number:08d}.npz"
    write_archive(path, arrays, info, advice="The one before is kept. Free some space and resume the run.")
    for old in sorted(existing)[: -(_KEPT - 1)]:
        existing[old].unlink(missing_ok=True)
    return path


def write_archive(path: Path, arrays: Mapping[str, Any], info: Mapping[str, Any], advice: str = "") -> None:
    """Write arrays and plain values as one npz file with a SHA-256 inside, whole or not at all.

    Parameters: `path`; `arrays`, numbers by name; `info`, plain values; `advice` where it cannot be written.
    """
    content = {name: _numbers(name, value) for name, value in arrays.items()}
    content[_INFO] = np.frombuffer(to_json(dict(info)).encode(), dtype=np.uint8)
    content[_DIGEST] = np.frombuffer(_digest(content), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **content)
    write_bytes(path, buffer.getbuffer(), advice)


def load_checkpoint(
    folder: str | os.PathLike[str], unusable: Callable[[dict[str, Any]], str | None] = lambda info: None
) -> Checkpoint:
    """Read the newest checkpoint of a run that is whole and usable.

    Parameters: `folder`, the run folder; `unusable`, a function of a checkpoint's plain values that returns the reason
    why it cannot be used, or None.
    """
    skipped = []
    files = _files(Path(folder))
    for number in sorted(files, reverse=True):
        try:
            arrays, info = read_archive(files[number])
        except Exception as error:  # a damaged archive fails in a dozen ways, and all mean the same here
            skipped.append(f"{files[number]} is damaged ({error or type(error).__name__})")
            continue
        if reason := unusable(info):
            skipped.append(f"{files[number]} {reason}")
            continue
        return Checkpoint(arrays, info, files[number], tuple(skipped))
    reason = "; ".join(skipped) or "it has none"
    raise StoreError(f"The run {folder} has no usable checkpoint: {reason}. Run the scenario again from the start.")


def _numbers(name: str, value: Any) -> np.ndarray:
    """The array as it is stored; objects, which would need pickle, and names that are taken are refused."""
    array = np.asarray(value)
    if array.dtype.kind not in "biufc" or name in (_INFO, _DIGEST) or not name or "/" in name or "\0" in name:
        raise ArgumentError(
            f"The checkpoint array {name!r} cannot be stored: expected numbers under a plain name, found type"
            f" {array.dtype}."
        )
    return array


def read_archive(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and plain values of a file by `write_archive`; raises anything where it is damaged.

    The archive is not compressed, so members that state more bytes than the file has are refused before they are read.
    """
    content = path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as members:
        if sum(each.file_size for each in members.infolist()) > len(content):
            raise ValueError("its arrays are longer than the file")
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    digest = arrays.pop(_DIGEST).tobytes()
    if digest != _digest(arrays):
        raise ValueError("its SHA-256 does not match")
    info = json.loads(arrays.pop(_INFO).tobytes())
    return arrays, dict(info)


def _digest(content: Mapping[str, np.ndarray]) -> bytes:
    """SHA-256 over names, types, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(content):
        array = content[name]
        digest.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


def _files(folder: Path) -> dict[int, Path]:
    """The checkpoints in a folder by their numbers."""
    if not folder.is_dir():
        raise StoreError(f"There is no run folder at {folder}.")
    matches = ((_FILE.fullmatch(path.name), path) for path in folder.iterdir() if path.is_file())
    return {int(match[1]): path for match, path in matches if match}
