"""Where everything lies in a trajectory file (H5MD 1.1), and how the file is laid out before the first frame.

    /h5md                                    @version, author, creator
    /particles/trajectory/box                @dimension, @boundary
    /particles/trajectory/position/          value (T,N,d) or (T,R,N,d), time (T,), step (T,), and the axes;
                                             points that never move are one dataset (N,d) or (R,N,d) of that name
    /particles/trajectory/<field>/           value (T,[R,]N,...): mass, residual_norm, ...; time and step as hard links
    /observables/<name>/                     value (T,...), time and step as hard links
    /particleflow/                           ours: provenance, scenario, committed, status, checksums, constants

Everything that grows or matters is chunked with a fletcher32 checksum, and no string is of variable length, because
HDF5 keeps those in a heap without a checksum: the words of particles are UTF-8, each as long as the longest of them.
`checksums` holds one CRC-32 per frame and dataset: it tells which frame of a damaged block is bad, and which frames of
a half-written block are good.
"""

import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import prod
from typing import Any

import numpy as np

from particleflow._version import __version__
from particleflow.errors import ArgumentError, StoreError
from particleflow.trajectory.status import Status
from particleflow.trajectory.words import to_bytes

# An h5py file, group or dataset: h5py's own annotations do not say which of them a path leads to.
Node = Any

FORMAT_VERSION = 2  # 2: fields beside the positions, positions that never move, constants of every run
FILE_NAME = "trajectory.h5"
LIBRARY_VERSION = ("v110", "v110")  # the oldest format with SWMR; "latest" would shut out older readers
# Pages keep every index block within one page of the disk: a kill inside a write then cannot tear it.
CREATION = {"libver": LIBRARY_VERSION, "fs_strategy": "page", "fs_page_size": 4096}
PARTICLES = "/particles/trajectory"
POSITION = f"{PARTICLES}/position"
OURS = "/particleflow"
WORDS = "words"
CONSTANTS = ("log_weights", "positions", "labels", "particles", "values", WORDS)
STATUSES = (Status.RUNNING, Status.FINISHED, Status.STOPPED, Status.FAILED, Status.INTERRUPTED)
FIELD = "particles/"  # the columns of fields begin with this, which no observable can
_H5MD_NAMES = {"masses": "mass"}
_RESERVED = ("time", "step", "position", "checksums")
_TAKEN = ("position", "points", "box", "species", "id", "time", "step", "value")

_CHUNK_BYTES = 1 << 19  # half a megabyte: between 0.25 and 1 MB streaming costs least
_SMALL_CHUNK_BYTES = 4088  # with its checksum a block of a scalar series then fits into one page of the disk
_MOST_FRAMES_PER_CHUNK = 256
_STATUS_BYTES = 1 << 14
_NAME = re.compile(r"[^\W\d][\w.+-]{0,99}")


@dataclass(frozen=True)
class FileLayout:
    """The shapes and types that stay the same over a whole file.

    Parameters: the number of particles `count`, their `dimension`, the number of `runs` (None for a single run), the
    `dtype` of the stored points and fields, for every observable its shape within one frame, for every field its shape
    within one particle, and whether the points move at all.
    """

    count: int
    dimension: int
    runs: int | None = None
    dtype: str = "float64"
    observables: dict[str, tuple[int, ...]] = field(default_factory=dict)
    fields: dict[str, tuple[int, ...]] = field(default_factory=dict)
    moving: bool = True

    def __post_init__(self) -> None:
        for name, size in (("count", self.count), ("dimension", self.dimension), ("runs", self.runs or 1)):
            if size < 1:
                raise ArgumentError(f"Argument `{name}` must be at least 1, but is {size}.")
        if self.dtype not in ("float32", "float64"):
            raise ArgumentError(f"Argument `dtype` must be 'float32' or 'float64', but is {self.dtype!r}.")
        for name in (*self.observables, *self.fields):
            check_name(name)
        if any(_H5MD_NAMES.get(name, name) in _TAKEN for name in self.fields):
            raise ArgumentError(f"Fields must not be called {', '.join(_TAKEN)}, but are {', '.join(self.fields)}.")
        groups: dict[str, str] = {}
        for name in self.fields:
            other = groups.setdefault(_H5MD_NAMES.get(name, name), name)
            if other != name:
                raise ArgumentError(
                    f"The fields {other!r} and {name!r} have one place in the file, as H5MD calls them "
                    f"{_H5MD_NAMES.get(name, name)!r}. Rename one of them."
                )
        if not self.moving and not self.fields:
            raise ArgumentError("Nothing changes in time: the points do not move, and there is no other field.")

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """The shape of the points of one frame: (N, d) or (R, N, d)."""
        return (*self._by_particle, self.dimension)

    @property
    def _by_particle(self) -> tuple[int, ...]:
        """The leading axes of everything that particles have: (N,) or (R, N)."""
        return (self.count,) if self.runs is None else (self.runs, self.count)

    @property
    def columns(self) -> tuple[str, ...]:
        """The datasets that grow, in the order of the checksum columns."""
        fields = (FIELD + name for name in self.fields)
        return ("time", "step", *(("position",) if self.moving else ()), *fields, *self.observables)

    def shape_of(self, column: str) -> tuple[int, ...]:
        """The shape of one frame of a growing dataset."""
        if column in ("time", "step"):
            return ()
        if column.startswith(FIELD):
            return (*self._by_particle, *self.fields[column.removeprefix(FIELD)])
        return self.frame_shape if column == "position" else self.observables[column]

    def dtype_of(self, column: str) -> np.dtype:
        """The stored number type of a growing dataset, little-endian on every machine."""
        if column == "position" or column.startswith(FIELD):
            return np.dtype("<f4" if self.dtype == "float32" else "<f8")
        return np.dtype("<i8" if column == "step" else "<f8")

    def stored(self, column: str, given: Any) -> np.ndarray:
        """Return the numbers of a window as the file holds them.

        A finite number must not become infinite there, as float64 beyond 3.4e38 would in a file of float32.
        """
        found, dtype = np.atleast_1d(np.asarray(given)), self.dtype_of(column)
        with np.errstate(over="ignore"):
            values = found.astype(dtype, copy=False)
        lost = np.isfinite(found) & ~np.isfinite(values) if dtype.itemsize < found.dtype.itemsize else np.zeros(1, bool)
        if lost.any():
            raise StoreError(
                f"The window's `{column}` reaches {np.max(np.abs(found[lost])):.3g}, which a file in {dtype.name} "
                'cannot hold. All frames before this window are kept; store the run with storage = "float64".'
            )
        return values

    def path_of(self, column: str) -> str:
        """The place of a growing dataset in the file."""
        return path_of(column, self.columns)


def check_name(name: str) -> str:
    """Return an observable's name, or refuse one that could leave its place in a file, an archive or a terminal."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or ".." in name or name in _RESERVED:
        raise ArgumentError(
            f"The observable name {name!r} cannot be stored: expected a letter or `_`, then letters, digits and any of"
            f" `_ . + -` (at most 100, no `..`), and none of {', '.join(_RESERVED)}. Rename the observable."
        )
    return name


def path_of(column: str, columns: Iterable[str] = ("position",)) -> str:
    """The path of a growing dataset in a file of these columns; time and step lie in the first moving one's group."""
    if column in ("time", "step"):
        moving = next((name for name in columns if name == "position" or name.startswith(FIELD)), "position")
        return path_of(moving).removesuffix("value") + column
    if column == "checksums":
        return f"{OURS}/checksums"
    if column.startswith(FIELD):
        name = column.removeprefix(FIELD)
        return f"{PARTICLES}/{_H5MD_NAMES.get(name, name)}/value"
    return f"{POSITION}/value" if column == "position" else f"/observables/{column}/value"


def chunk_shape(shape: tuple[int, ...], itemsize: int, expected_frames: int | None = None) -> tuple[int, ...]:
    """Return the shape of one block: many small frames together, or a piece of one frame larger than the target.

    Blocks of about half a megabyte stream fastest; those of a series of single numbers fit into one page of the disk.

    Parameters: `shape` of one frame; `itemsize` in bytes; `expected_frames`, which keeps blocks of short runs small.
    """
    frame_bytes = prod(shape) * itemsize
    target = _SMALL_CHUNK_BYTES if frame_bytes <= 64 else _CHUNK_BYTES
    if frame_bytes <= target:
        most = max(1, target // max(frame_bytes, 1))
        most = most if frame_bytes <= 64 else min(most, _MOST_FRAMES_PER_CHUNK)
        return (max(1, min(most, expected_frames or most)), *shape)
    pieces, room = [], target // itemsize
    for size in reversed(shape):
        pieces.append(max(1, min(size, room)))
        room //= pieces[-1]
    return (1, *reversed(pieces))


def checksum(frame: np.ndarray) -> int:
    """The CRC-32 of one frame's bytes, as they are stored."""
    return zlib.crc32(np.ascontiguousarray(frame).data)


def build(
    file: Node,
    layout: FileLayout,
    provenance: dict[str, Any],
    constants: dict[str, np.ndarray],
    expected_frames: int | None = None,
) -> None:
    """Write the whole skeleton: SWMR allows no new group, dataset or attribute once it is switched on.

    Points that never move are among the `constants`, under the name position. Parameters: an empty `file`; its
    `layout`; `provenance`, plain values; `constants`, arrays by name; `expected_frames`, which keeps the blocks of a
    short run small.
    """
    _build_header(file, layout, provenance)
    box = file.create_group(f"{PARTICLES}/box")
    box.attrs["dimension"] = layout.dimension
    box.attrs["boundary"] = np.array([b"none"] * layout.dimension)
    for column in layout.columns:
        shape, dtype = layout.shape_of(column), layout.dtype_of(column)
        group = _growing(file, layout.path_of(column), shape, dtype, expected_frames).parent
        for shared in ("time", "step"):
            if column not in ("time", "step") and shared not in group:
                group[shared] = file[layout.path_of(shared)]
    _attach_axes(file, layout)
    ours = file.require_group(OURS)
    checksums = _growing(file, path_of("checksums"), (len(layout.columns),), np.dtype("<u4"), expected_frames)
    checksums.attrs["columns"] = np.array([column.encode() for column in layout.columns])
    for name, data in constants.items():
        checked(*((ours, name) if name != "position" else (file, POSITION)), data)
    for name, shape, dtype in (("committed", (2,), "<i8"), ("status", (2, _STATUS_BYTES), "u1")):
        ours.create_dataset(name, data=np.zeros(shape, dtype))
    write_committed(file, 0)


def _build_header(file: Node, layout: FileLayout, provenance: dict[str, Any]) -> None:
    """Write what identifies the file: H5MD's header, the format's version, provenance and scenario."""
    header = file.create_group("h5md")
    header.attrs["version"] = np.array([1, 1], dtype="<i4")
    author = str(provenance.get("author", "unknown"))
    for group, values in (("author", {"name": author}), ("creator", {"name": "particleflow", "version": __version__})):
        attributes = header.create_group(group).attrs
        for key, value in values.items():
            attributes[key] = np.bytes_(value.encode()[:1000] or b"unknown")
    ours = file.create_group(OURS)
    ours.attrs["format_version"] = FORMAT_VERSION
    description = {"created": datetime.now(UTC).isoformat(), **provenance}
    scenario = description.pop("scenario", None)
    if isinstance(scenario, str):
        checked(ours, "scenario", _text(scenario))
    elif scenario is not None:
        description["scenario"] = scenario
    checked(ours, "provenance", _text(to_json(description)))


def _growing(file: Node, path: str, shape: tuple[int, ...], dtype: np.dtype, expected_frames: int | None) -> Node:
    """Create a dataset without frames that grows along its first axis, in checksummed blocks."""
    chunks = chunk_shape(shape, dtype.itemsize, expected_frames)
    return file.create_dataset(
        path,
        shape=(0, *shape),
        maxshape=(None, *shape),
        chunks=chunks,
        dtype=dtype,
        fletcher32=True,
        rdcc_nbytes=4 * _CHUNK_BYTES,
    )


def checked(group: Node, name: str, data: np.ndarray) -> Node:
    """Store a fixed array under a fletcher32 checksum; texts become UTF-8 of one length."""
    data = np.atleast_1d(data)
    if data.dtype.kind == "U":
        import h5py

        content = to_bytes(data)
        data = content.astype(h5py.string_dtype("utf-8", content.dtype.itemsize))
    chunks = (max(1, min(len(data), _CHUNK_BYTES // data.dtype.itemsize)), *data.shape[1:])
    return group.create_dataset(name, data=data, chunks=chunks, fletcher32=True)


def _attach_axes(file: Node, layout: FileLayout) -> None:
    """Name every axis by a dimension scale in the dataset's own group, where netCDF readers look for it."""
    time = file[layout.path_of("time")]
    time.make_scale("time")
    for column in layout.columns[1:]:
        dataset = file[layout.path_of(column)]
        dataset.dims[0].attach_scale(time)
        for axis, (name, size) in enumerate(zip(axis_names(layout, column), layout.shape_of(column), strict=True), 1):
            group = dataset.parent
            if name not in group:
                checked(group, name, np.arange(size)).make_scale(name)
            dataset.dims[axis].attach_scale(group[name])


def axis_names(layout: FileLayout, column: str) -> list[str]:
    """The names of a frame's axes: run, particle, coordinate for points; run, axis_1, ... for observables."""
    shape = layout.shape_of(column)
    if column == "position":
        return ["run", "particle", "coordinate"][-len(shape) :]
    if column.startswith(FIELD):
        leading = ["particle"] if layout.runs is None else ["run", "particle"]
        return leading + [f"axis_{axis}" for axis in range(1, len(shape) - len(leading) + 1)]
    names = [f"axis_{axis}" for axis in range(1, len(shape) + 1)]
    if layout.runs is not None and shape[:1] == (layout.runs,):
        names[0] = "run"
    return names


def write_committed(file: Node, frames: int) -> None:
    """Write the number of acknowledged frames beside its complement, so that a damaged number shows."""
    file[f"{OURS}/committed"][...] = np.array([frames, ~frames], dtype="<i8")


def read_committed(file: Node) -> int | None:
    """The number of acknowledged frames, or None if the record is damaged."""
    frames, complement = (int(value) for value in file[f"{OURS}/committed"][...])
    return frames if frames == ~complement and frames >= 0 else None


def write_status(file: Node, record: dict[str, Any], sequence: int) -> None:
    """Write a status into the slot that does not hold the newest one; the older one stays valid until this one is.

    A slot is CRC-32 (4 bytes), sequence number (8), JSON text padded with zeros.
    """
    text = to_json(record).encode()
    if len(text) > _STATUS_BYTES - 12:
        text = to_json({**record, "message": str(record.get("message"))[:2000], "statistics": None}).encode()
    body = sequence.to_bytes(8, "little") + text.ljust(_STATUS_BYTES - 12, b"\0")
    slot = zlib.crc32(body).to_bytes(4, "little") + body
    file[f"{OURS}/status"][sequence % 2] = np.frombuffer(slot, dtype=np.uint8)


def read_status(file: Node) -> tuple[dict[str, Any], int, bool]:
    """Return the newest valid status, its sequence number, and whether the other slot is sound or was never used."""
    best: tuple[dict[str, Any], int] = ({}, 0)
    sound = True
    for slot in np.asarray(file[f"{OURS}/status"]):
        content = slot.tobytes()
        sequence = int.from_bytes(content[4:12], "little")
        if zlib.crc32(content[4:]) != int.from_bytes(content[:4], "little"):
            sound = sound and not any(content)
        elif sequence > best[1]:
            best = (dict(json.loads(content[12:].rstrip(b"\0"))), sequence)
    return best[0], best[1], sound


def to_json(value: Any) -> str:
    """Return JSON text of plain values, NumPy numbers and arrays; anything else becomes its text."""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """Convert what JSON cannot hold: NumPy arrays and numbers to lists and numbers, all else to its text."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else str(value)


def _text(text: str) -> np.ndarray:
    """UTF-8 bytes of a text; one blank for an empty one, since a chunked dataset must not be empty."""
    return np.frombuffer(text.encode("utf-8", "replace") or b" ", dtype=np.uint8)
