"""Clouds that are read from files; nothing in a file is ever executed."""

import csv
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Array

from particleflow._support.arrays import default_dtype
from particleflow.dynamics.initial.base import AbstractInitial, Start, check_own_count
from particleflow.errors import ArgumentError
from particleflow.measure import Measure
from particleflow.trajectory.words import as_words, from_bytes

UTF8 = "utf-8-sig"  # some programs begin a text with a byte-order mark, which is no part of it
_KNOWN = ("points", "log_weights", "values", "positions", "labels", "words", "tokens", "picture", "image")
_WORD_COLUMNS = ("word", "words", "token", "tokens")
_FIELD = "field."  # prefix of the names of all other arrays that particles carry
_DAMAGE = (OSError, ValueError, IndexError, KeyError, EOFError, UnicodeDecodeError, MemoryError, csv.Error)


class FromFile(AbstractInitial):
    """The cloud in a file.

    `path`: .npy points (n, d); .npz with `points` and any of `log_weights`, `values`, `positions`, `labels`, `words`
    (or `tokens`), `field.<name>` for what else the geometry carries along (residual_norm), and `image`, [rows, columns]
    or [rows, columns, channels], where every point is an image, or begins with one (and `picture`, [rows, columns],
    where the points are the patches of one); .csv with one row a
    particle (a header line is skipped, but for a column that it calls `word` or `token`: its texts are the words); a
    run folder or its trajectory .h5, of which `frame` is taken: a run goes on where another ended.
    """

    counted: ClassVar[bool] = False
    path: Path
    frame: int

    def __init__(self, path: Path, frame: int = -1):
        self.path = Path(path)
        self.frame = frame

    def __check_init__(self):
        check_path(self.path, "path")

    def start(self, key: Array, count: int | None = None) -> Start:
        """The cloud as a measure, with the labels and words of the file if it has them."""
        fields = read_cloud(self.path, self.frame)
        words = fields.pop("words", None)
        points = fields["points"][:, None] if fields["points"].ndim == 1 else fields["points"]
        check_own_count(count, len(points))
        log_weights = fields.get("log_weights")
        if log_weights is None:
            log_weights = np.full(len(points), -np.log(max(len(points), 1)))
        labels = fields.get("labels")
        if labels is not None and labels.shape != (len(points),):
            raise ArgumentError(f"{self.path} has {len(points)} particles, but labels of shape {labels.shape}.")
        carried = {name.removeprefix(_FIELD): array for name, array in fields.items() if name.startswith(_FIELD)}
        measure = Measure(points, log_weights, fields.get("values"), fields.get("positions"), carried)
        if words is not None and words.shape != (len(points),):
            raise ArgumentError(f"{self.path} has {len(points)} particles, but words of shape {words.shape}.")
        return Start(
            measure, None if labels is None else labels.astype(np.int64), self._sides(fields, "picture", (2,)),
            as_words(words, len(points)), self._sides(fields, "image", (2, 3)),
        )  # fmt: skip

    def _sides(self, fields: dict[str, np.ndarray], name: str, lengths: tuple[int, ...]) -> tuple[int, ...] | None:
        """The sides of a picture in the file, None without one."""
        if name not in fields:
            return None
        sides = fields[name]
        if sides.ndim != 1 or sides.size not in lengths or not (sides == np.floor(sides)).all() or (sides < 1).any():
            wanted = " or ".join(str(length) for length in lengths)
            raise ArgumentError(
                f"{self.path} must hold {wanted} whole numbers as `{name}`, but holds {sides.tolist()}."
            )
        return tuple(int(side) for side in sides)


def check_path(path: Path, name: str) -> None:
    """Raise unless there is something at a path."""
    if "\0" in str(path):
        raise ArgumentError(f"Argument `{name}` must be a path, but holds a NUL character.")
    try:
        found = path.exists()
    except OSError as error:
        raise ArgumentError(f"Argument `{name}` is not a usable path: {error.strerror}.") from error
    if not found:
        raise ArgumentError(f"Argument `{name}` names {path}, but there is no such file.")


def read_cloud(path: Path, frame: int = -1) -> dict[str, np.ndarray]:
    """The arrays of a cloud by name, floating-point ones in the precision of this process, `words` as texts."""
    readers = {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_csv}
    try:
        read = readers.get(path.suffix.lower())
        fields = read(path) if read else _read_trajectory(path, frame)
    except _DAMAGE as error:
        raise ArgumentError(f"{path} cannot be read as a cloud of particles: {_first_line(error)}.") from error
    if "points" not in fields:
        raise ArgumentError(f"{path} must hold an array `points`, but holds {', '.join(sorted(fields)) or 'nothing'}.")
    texts = [fields.pop(name) for name in ("words", "tokens") if name in fields]
    arrays = {name: value if name == "labels" else _as_float(value, name, path) for name, value in fields.items()}
    if texts:
        arrays["words"] = _as_text(texts[0], path)
    return arrays


def _read_npy(path: Path) -> dict[str, np.ndarray]:
    return {"points": np.load(path, allow_pickle=False)}


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive if name in _KNOWN or name.startswith(_FIELD)}


def _read_csv(path: Path) -> dict[str, np.ndarray]:
    with path.open(encoding=UTF8, newline="") as file:
        first = file.readline()
        names = [name.strip("# \r\n").lower() for name in next(csv.reader([first]), [])]
        column = next((names.index(name) for name in _WORD_COLUMNS if name in names), None)
        if column is not None:
            rows = [row for row in csv.reader(file, strict=True) if row]
            words = [row.pop(column) for row in rows]
            return {"points": np.array(rows, dtype=float, ndmin=2), "words": np.array(words, dtype=str)}
    return {"points": np.loadtxt(path, delimiter=",", ndmin=2, skiprows=int(_is_header(first)), encoding=UTF8)}


def _read_trajectory(path: Path, frame: int) -> dict[str, np.ndarray]:
    from particleflow.trajectory.trajectory import Trajectory

    with Trajectory.open(path) as trajectory:
        if trajectory.runs is not None:
            raise ArgumentError(f"{path} is an ensemble of {trajectory.runs} runs; export one of them as .npz first.")
        if not -len(trajectory) <= frame < len(trajectory):
            raise ArgumentError(f"Argument `frame` is {frame}, but {path} has {len(trajectory)} frames.")
        moment = trajectory[frame]
        given = {name: getattr(trajectory, name) for name in ("log_weights", "positions", "labels", "values", "words")}
        cloud = {name: np.asarray(value) for name, value in given.items() if value is not None}
        carried = dict(moment.fields)
        if "masses" in carried:
            with np.errstate(divide="ignore"):
                cloud["log_weights"] = np.log(carried.pop("masses"))
        return {"points": moment.points, **cloud, **{_FIELD + name: array for name, array in carried.items()}}


def _as_float(array: np.ndarray, name: str, path: Path) -> np.ndarray:
    if array.dtype.kind not in "fiu":
        raise ArgumentError(f"{path} must hold numbers in `{name}`, but they are of type {array.dtype}.")
    return array.astype(default_dtype())


def _as_text(array: np.ndarray, path: Path) -> np.ndarray:
    if array.dtype.kind not in "US":
        raise ArgumentError(f"{path} must hold texts as words, but they are of type {array.dtype}.")
    return from_bytes(array) if array.dtype.kind == "S" else array


def _is_header(line: str) -> bool:
    """Whether a line names columns: no entry is a number. If one is, the line is data, and other entries are errors."""
    return not any(map(_is_number, line.split(",")))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200].rstrip(".")
