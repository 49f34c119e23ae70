"""An array that stays in the file until a part of it is indexed."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from particleflow.trajectory.store.file_reader import StoredRun


class LazyArray:
    """The frames of one stored dataset, indexed like a NumPy array and read on demand.

    Only what the index selects is read, as long as it is made of integers and slices; other indices read whole frames
    first. `np.asarray` reads everything.

    Parameters: the open `stored` file; the `column`; the `frames` this array shows; `run`, one run of an ensemble.
    """

    def __init__(self, stored: StoredRun, column: str, frames: range, run: int | None = None) -> None:
        """Take shape and type from the layout; nothing is read."""
        self._stored, self._column, self._frames, self._run = stored, column, frames, run
        shape = stored.layout.shape_of(column)
        self.shape: tuple[int, ...] = (len(frames), *(shape if run is None else shape[1:]))
        self.dtype = stored.layout.dtype_of(column).newbyteorder("=")

    @property
    def ndim(self) -> int:
        """The number of axes, as of a NumPy array."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of entries of all frames together."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """The number of bytes that `np.asarray` would take."""
        return self.size * self.dtype.itemsize

    def select(self, frames: slice) -> "LazyArray":
        """The same array with fewer frames, still in the file."""
        return LazyArray(self._stored, self._column, self._frames[frames], self._run)

    def of_run(self, run: int) -> "LazyArray":
        """The same array of one run of the ensemble, still in the file."""
        return LazyArray(self._stored, self._column, self._frames, run)

    def __len__(self) -> int:
        return len(self._frames)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("An array in a file cannot become a NumPy array without a copy.")
        return np.asarray(self._read(self._frames, ()), dtype=dtype)

    def __getitem__(self, key: Any) -> Any:
        first, rest = self._split(key)
        if isinstance(first, (int, np.integer)):
            return self._read(self._frames[first : first + 1] if first != -1 else self._frames[-1:], rest, first)
        if isinstance(first, slice):
            return self._read(self._frames[first], rest)
        chosen = np.asarray(first)
        if chosen.size and chosen.dtype.kind in "fc":  # a list without an entry is one of floats, too
            raise IndexError(f"frames are chosen by whole numbers, slices or truth values, not by {chosen.dtype}")
        if chosen.dtype == bool or chosen.ndim != 1 or not all(_is_basic(index) for index in rest):
            return np.asarray(self)[key]
        frames = [self._frames[int(index)] for index in chosen]
        parts = [self._read(range(frame, frame + 1), rest) for frame in frames]
        return np.concatenate(parts) if parts else self._read(range(0), rest)

    def _split(self, key: Any) -> tuple[Any, tuple[Any, ...]]:
        """The index of the frame axis, and the indices of the others without an ellipsis."""
        key = key if isinstance(key, tuple) else (key,)
        where = [place for place, index in enumerate(key) if index is Ellipsis]
        if where:
            missing = self.ndim - sum(index is not None for index in key) + 1
            key = (*key[: where[0]], *[slice(None)] * missing, *key[where[0] + 1 :])
        first = key[0] if key else slice(None)
        if isinstance(first, (int, np.integer)) and not -len(self) <= first < len(self):
            raise IndexError(f"frame {first} is out of range: there are {len(self)} frames")
        return first, tuple(key[1:])

    def _read(self, frames: range, rest: tuple[Any, ...], single: Any = None) -> Any:
        """Read frames in file order, reverse them for a negative step, and apply indices that HDF5 cannot in memory."""
        backward = frames.step < 0
        ordered = frames[::-1] if backward else frames
        simple = all(_is_basic(index) for index in rest)
        inner = rest if simple else ()
        inner = inner if self._run is None else (self._run, *inner)
        if len(ordered):
            values = self._stored.read(self._column, slice(ordered.start, ordered.stop, ordered.step), inner)
        else:
            values = self._stored.read(self._column, slice(0, 0), inner)
        values = np.asarray(values[::-1] if backward else values, dtype=self.dtype)
        if not simple:
            return values[(0 if single is not None else slice(None), *rest)]
        return values[0] if single is not None else values

    def __repr__(self) -> str:
        return f"LazyArray(shape={self.shape}, dtype={self.dtype}, file={str(self._stored.path)!r})"


def _is_basic(index: Any) -> bool:
    """Whether HDF5 can apply the index itself."""
    if isinstance(index, slice):
        return index.step is None or index.step > 0
    return isinstance(index, (int, np.integer)) and not isinstance(index, bool) and bool(index >= 0)
