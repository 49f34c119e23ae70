"""Numbers that a scenario does not spell out: a file beside it, or a random matrix.

query = "q.npy"                                                         an array of numbers, relative to the scenario
query = { random = "normal", shape = [3, 3], scale = 0.5, seed = 7 }    drawn by NumPy's default generator

Random entries are N(0, scale²) ("normal"), uniform in [−scale, scale] ("uniform"), or those of scale times a matrix of
the Haar measure, with orthonormal rows or columns, whichever are fewer ("orthogonal"). They come from
`numpy.random.default_rng(seed)`; without a `seed` from `default_rng([seed of the scenario, crc32 of the key's path])`,
so that every key has numbers of its own and every seed draws new ones.
"""

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, Strict

from particleflow._support.files import reason_of
from particleflow._support.text import one_line
from particleflow.app.scenario.schema.problems import checked, problem_at
from particleflow.errors import UserError

LARGEST_SEED = 2**62
_MOST_NUMBERS = 2**24
_ENDING = ".npy"


class RandomTable(BaseModel):
    """A random matrix (or vector): how its entries are drawn, its shape, their scale, and a seed of its own."""

    model_config = ConfigDict(extra="forbid")
    random: Literal["normal", "orthogonal", "uniform"]
    shape: list[Annotated[int, Strict(), Field(ge=1, le=_MOST_NUMBERS)]]
    scale: Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)] = 1.0
    seed: Annotated[int, Strict(), Field(ge=0, lt=LARGEST_SEED)] | None = None

    def complaint(self, axes: tuple[int, ...]) -> str | None:
        """What is wrong with the shape if the array must have one of these numbers of axes; None if nothing."""
        allowed = [axis for axis in axes if axis == 2] if self.random == "orthogonal" else [*axes]
        if len(self.shape) not in allowed:
            wanted = " or ".join(map(str, allowed))
            return f"must hold {wanted} numbers here" if wanted else "cannot be that of an orthogonal matrix here"
        if np.prod(self.shape, dtype=float) > _MOST_NUMBERS:
            return f"asks for more than {_MOST_NUMBERS} numbers"
        return None


@dataclass
class RandomNumbers:
    """An argument that is drawn: by a seed of its own, or by that of the scenario and the argument's `path`."""

    table: RandomTable
    path: str = ""

    @property
    def draws(self) -> bool:
        """Whether the scenario's seed decides."""
        return self.table.seed is None

    def locate(self, path: str) -> None:
        """Set the path of the numbers in the file, which their seed depends on."""
        self.path = path

    def first(self) -> np.ndarray:
        """An example, for constructors to check."""
        return self._drawn(0)

    def build(self, draw: Any) -> np.ndarray:
        """The numbers for the seed `draw.seed`."""
        return self._drawn(draw.seed)

    def _drawn(self, seed: int) -> np.ndarray:
        table = self.table
        own = [seed, zlib.crc32(self.path.encode())] if table.seed is None else table.seed
        generator = np.random.default_rng(own)
        if table.random == "uniform":
            return generator.uniform(-table.scale, table.scale, table.shape)
        normal = generator.standard_normal(table.shape)
        return table.scale * (_orthogonal(normal) if table.random == "orthogonal" else normal)


@dataclass(frozen=True)
class FileNumbers:
    """An argument that was read from a file."""

    values: np.ndarray

    draws = False

    def locate(self, path: str) -> None:
        """Do nothing: numbers in a file do not depend on the key that names it."""

    def first(self) -> np.ndarray:
        """The numbers, for constructors to check."""
        return self.values

    def build(self, draw: Any) -> np.ndarray:
        """The numbers, whatever the seed."""
        return self.values


def is_described(raw: Any) -> bool:
    """Whether a value of a file names or describes an array instead of spelling it out."""
    return is_file(raw) or (isinstance(raw, dict) and "random" in raw)


def is_file(raw: Any) -> bool:
    """Whether a value of a file is the path of an array."""
    return isinstance(raw, str) and raw.endswith(_ENDING)


def random_numbers(raw: dict[str, Any], axes: tuple[int, ...]) -> RandomNumbers:
    """The random array that a table describes, which must have one of the numbers of `axes`."""
    table = checked(RandomTable, raw)
    complaint = table.complaint(axes)
    if complaint is not None:
        raise problem_at("shape", complaint, table.shape)
    return RandomNumbers(table)


def read_numbers(path: Path, axes: tuple[int, ...], expected: str) -> FileNumbers:
    """The array in a .npy file, which must have one of the numbers of `axes`; nothing in the file is ever executed."""
    name = one_line(path, 500)
    try:
        if not path.is_file():
            raise UserError(f"names {name}, but there is no such file")
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError) as error:
        raise UserError(f"cannot be read as numbers: {reason_of(error)[:200]} ({name})") from error
    if array.dtype.kind not in "fiu":
        raise UserError(f"must hold numbers, but those of {name} are of type {array.dtype}")
    if array.ndim not in axes or 0 in array.shape:
        raise UserError(f"must hold {expected}, but {name} has shape {array.shape}")
    if np.isnan(array).any():  # infinities are left to the constructors, some of which take −∞
        raise UserError(f"must hold numbers, but {name} holds NaN at index {np.argwhere(np.isnan(array))[0].tolist()}")
    return FileNumbers(array.astype(float))


def _orthogonal(normal: np.ndarray) -> np.ndarray:
    """Q of A = QR with a positive diagonal of R, which for a normal matrix A has the Haar measure."""
    if normal.shape[0] < normal.shape[1]:
        return _orthogonal(normal.T).T
    q, r = np.linalg.qr(normal)
    return q * np.where(np.diag(r) < 0, -1.0, 1.0)
