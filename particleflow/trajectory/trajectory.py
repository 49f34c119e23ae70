"""A trajectory: particles over time, in memory or in a file, as a Python sequence of frames.

Everything after the simulation (analysis, pictures, export) takes a `Trajectory`, whether its numbers are in memory or
in a file. JAX is never imported here, and h5py only when a file is opened.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np

from particleflow._support.text import one_line, readable_size
from particleflow.errors import ArgumentError, ShapeError
from particleflow.trajectory import notebook_card
from particleflow.trajectory.facts import RunFacts
from particleflow.trajectory.frame import Constants, Frame, as_per_particle, interpolated, weights_of
from particleflow.trajectory.run_record import RunRecord
from particleflow.trajectory.status import Status
from particleflow.trajectory.words import as_words, named

if TYPE_CHECKING:
    import xarray

    from particleflow.trajectory.store.file_reader import StoredRun
    from particleflow.trajectory.store.lazy_array import LazyArray

    type_of_array = np.ndarray | LazyArray


class Trajectory:
    """Particles over time: `len`, index, slice and iterate over frames; made by `from_arrays` or `open`.

    Attributes: `times` (T,), `steps` (T,), `points` (T,N,d) or, for an ensemble, (T,R,N,d), `observables` name ->
    (T,...) or (T,R,...), `fields` name -> (T,N,...) or (T,R,N,...): what else every particle has in every frame
    (masses, residual norms); `metadata`, plain values that describe the run, and `facts`, the same parsed and typed.
    """

    _is_whole = False  # whether this is all that its file holds, as opened

    def __init__(
        self,
        times: np.ndarray,
        steps: np.ndarray,
        points: "type_of_array",
        observables: Mapping[str, "type_of_array"],
        particles: Constants,
        record: RunRecord,
        stored: "StoredRun | None" = None,
        fields: Mapping[str, "type_of_array"] | None = None,
    ) -> None:
        """Store arrays unchecked; `from_arrays` checks them, `open` reads them from a file."""
        self.times, self.steps, self.points = times, steps, points
        self.observables: Mapping[str, "type_of_array"] = MappingProxyType(dict(observables))
        self.fields: Mapping[str, "type_of_array"] = MappingProxyType(dict(fields or {}))
        self._record = record
        self._particles, self._stored = particles, stored

    @classmethod
    def from_arrays(
        cls,
        times: Any,
        points: Any,
        *,
        steps: Any = None,
        observables: Mapping[str, Any] | None = None,
        fields: Mapping[str, Any] | None = None,
        log_weights: Any = None,
        positions: Any = None,
        values: Any = None,
        labels: Any = None,
        words: Any = None,
        metadata: Mapping[str, Any] | Callable[[], dict[str, Any]] | None = None,
    ) -> Self:
        """Make a trajectory in memory.

        Parameters: `times` (T,); `points` (T,N,d) or (T,R,N,d); `steps` (T,), 0, 1, 2, ... if left out; `observables`
        name -> (T,...), which for an ensemble are of each run where the second axis has length R; `fields` name ->
        (T,N,...) or (T,R,N,...); per-particle `log_weights`, `positions` (token index or time) and `words`, (N,) or
        (R,N), `values` that they carry, (N,...) or (R,N,...), integer `labels` (N,); `metadata`, or a function that
        returns them, called at their first use.
        """
        times, points = np.asarray(times, dtype=np.float64), np.asarray(points)
        if times.ndim != 1 or points.ndim not in (3, 4) or len(points) != len(times):
            raise ShapeError(
                "A trajectory needs times of shape (T,) and points of shape (T, N, d) or (T, R, N, d),"
                f" but they have {times.shape} and {points.shape}."
            )
        steps = np.arange(len(times)) if steps is None else np.asarray(steps, dtype=np.int64)
        series = {name: np.asarray(array) for name, array in (observables or {}).items()}
        for name, array in (("steps", steps), *series.items()):
            if array.shape[:1] != times.shape:
                raise ShapeError(f"`{name}` needs one entry per frame ({len(times)}), but has shape {array.shape}.")
        by_particle = {name: np.asarray(array) for name, array in (fields or {}).items()}
        for name, array in by_particle.items():
            if array.shape[: points.ndim - 1] != points.shape[:-1]:
                raise ShapeError(
                    f"The field `{name}` needs one entry per frame and particle {points.shape[:-1]}, but has shape "
                    f"{array.shape}."
                )
        particles = Constants(
            log_weights=as_per_particle("log_weights", log_weights, np.float64, points.shape),
            positions=as_per_particle("positions", positions, np.float64, points.shape),
            labels=as_per_particle("labels", labels, np.int64, points.shape),
            values=as_per_particle("values", values, np.float64, points.shape),
            words=as_words(words, points.shape[-2], points.shape[1] if points.ndim == 4 else None),
        )
        record = RunRecord(metadata if callable(metadata) else dict(metadata or {}))
        return cls(times, steps, points, series, particles, record, None, by_particle)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open a stored run, finished, running or killed; frames are read when they are used.

        Parameters: `path`, a run folder or its `trajectory.h5`.
        """
        from particleflow.trajectory.store.file_reader import StoredRun

        opened = cls(*_contents(StoredRun(path)))
        opened._is_whole = True
        return opened

    @property
    def count(self) -> int:
        """The number N of particles, or of cells of a density."""
        return self.points.shape[-2]

    @property
    def dimension(self) -> int:
        """The dimension d of the space."""
        return self.points.shape[-1]

    @property
    def runs(self) -> int | None:
        """The number of runs R of an ensemble, None for a single run."""
        return self.points.shape[1] if self.points.ndim == 4 else None

    @property
    def log_weights(self) -> np.ndarray | None:
        """The logarithms of the particles' weights, (N,) or (R,N) where runs differ, None if all are equal."""
        return self._particles.log_weights

    @property
    def weights(self) -> np.ndarray:
        """The particles' weights, (N,) or (R,N), which sum to one: w_i = exp(l_i) / sum_j exp(l_j), or 1/N."""
        if self.log_weights is None:
            return np.full(self.count, 1.0 / self.count)
        return weights_of(self.log_weights)

    @property
    def masses(self) -> "type_of_array":
        """The mass of every particle in every frame, (T,N) or (T,R,N): the field of that name, or the weights."""
        if "masses" in self.fields:
            return self.fields["masses"]
        return np.broadcast_to(self.weights, self.points.shape[:-1])

    @property
    def is_fixed(self) -> bool:
        """Whether all frames share one array of points, as those of a density; false for fewer than two frames."""
        return isinstance(self.points, np.ndarray) and self.points.strides[0] == 0 and len(self) > 1

    @property
    def positions(self) -> np.ndarray | None:
        """The particles' own positions (token index or time), (N,) or (R,N), None if they have none."""
        return self._particles.positions

    @property
    def values(self) -> np.ndarray | None:
        """The values z_i whose local mean is taken, (N,...) or (R,N,...), None if they are the points themselves."""
        return self._particles.values

    @property
    def labels(self) -> np.ndarray | None:
        """The particles' integer labels (N,), None if they have none."""
        return self._particles.labels

    @property
    def words(self) -> np.ndarray | None:
        """The words of the particles, texts (N,) or (R,N), None if they have none."""
        return self._particles.words

    @property
    def particles(self) -> np.ndarray | None:
        """The indices of the stored particles (N,) if only some of the simulated ones were stored."""
        return self._particles.particles

    @property
    def metadata(self) -> dict[str, Any]:
        """Title, geometry, scenario, seed, statistics, ... as far as known; shared by slices."""
        return self._record.metadata

    @property
    def facts(self) -> RunFacts:
        """The metadata parsed into typed values at the first use and shared by slices; see `RunFacts`."""
        return self._record.facts(self.dimension)

    @property
    def status(self) -> str:
        """The run's status: running, finished, stopped by event, failed, interrupted, killed, or in memory."""
        if self._stored is not None:
            return self._stored.status
        return str(self.metadata.get("status", Status.IN_MEMORY))

    @property
    def path(self) -> str | None:
        """The file behind this trajectory, None if it is in memory."""
        return None if self._stored is None else str(self._stored.path)

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[Frame]:
        return (self[index] for index in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> Frame: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> "Frame | Self":
        if isinstance(index, slice):
            series, fields = (
                {name: _frames(values, index) for name, values in each.items()}
                for each in (self.observables, self.fields)
            )
            times, steps, points = self.times[index], self.steps[index], _frames(self.points, index)
            return type(self)(times, steps, points, series, self._particles, self._record, self._stored, fields)
        if not -len(self) <= index < len(self):
            raise IndexError(f"frame {index} is out of range: the trajectory has {len(self)} frames")
        series, fields = (
            {name: np.asarray(values[index]) for name, values in each.items()}
            for each in (self.observables, self.fields)
        )
        time, step, points = float(self.times[index]), int(self.steps[index]), np.asarray(self.points[index])
        return Frame(time, step, points, series, fields, self.log_weights)

    def at(self, time: float, *, interpolate: bool = False) -> Frame:
        """Return the saved frame nearest to a time, the earlier one of two equally near; or one in between.

        Parameters: `time`, from the first saved time to the last; `interpolate` mixes the two frames around it, (1 − f)
        before + f after, in every number: points, fields and observables. Between two frames of a curved space points
        are thus on the chord, off the surface by O(h²) for frames a distance h apart.
        """
        if not len(self) or not self.times[0] <= time <= self.times[-1]:
            reach = f"from {self.times[0]:g} to {self.times[-1]:g}" if len(self) else "which has no frames"
            raise ArgumentError(f"Argument `time` must lie in the trajectory, {reach}, but is {time}.")
        after = int(np.searchsorted(self.times, time))
        before = after if self.times[after] == time else after - 1
        if before == after:
            return self[after]
        fraction = (time - self.times[before]) / (self.times[after] - self.times[before])
        if interpolate:
            return interpolated(self[before], self[after], float(time), float(fraction))
        return self[before if fraction <= 0.5 else after]

    def run(self, run: int) -> Self:
        """One run of an ensemble as a trajectory of its own, still in the file if it was.

        Parameters: `run`, from 0 to R - 1.
        """
        if self.runs is None or not 0 <= run < self.runs:
            found = "a single run" if self.runs is None else f"runs 0 to {self.runs - 1}"
            raise ArgumentError(f"Argument `run` is {run}, but this trajectory holds {found}.")
        series = {
            name: _run(values, run) if values.shape[1:2] == (self.runs,) else values
            for name, values in self.observables.items()
        }
        fields = {name: _run(values, run) for name, values in self.fields.items()}
        own = {
            name: array[run]
            for name in ("log_weights", "positions", "values", "words")
            if (array := getattr(self._particles, name)) is not None and array.shape[:2] == (self.runs, self.count)
        }
        mine = replace(self._particles, **own)
        points, record = _run(self.points, run), self._record.of_run(run)
        return type(self)(self.times, self.steps, points, series, mine, record, self._stored, fields)

    def refresh(self) -> int:
        """Take in the frames that a running simulation has added since, and return the number of frames.

        Slices and runs taken before keep the frames they had, and cannot be refreshed themselves.
        """
        if self._stored is not None and not self._is_whole:
            raise ArgumentError(
                "A slice or one run of a trajectory cannot be refreshed. Refresh the trajectory that `open` gave, and "
                "take the slice or the run again."
            )
        if self._stored is not None:
            self._stored.refresh()
            fresh = type(self)(*_contents(self._stored))
            self.__dict__.update(fresh.__dict__)
        return len(self)

    def damaged_frames(self) -> dict[str, list[int]]:
        """Check every frame in the file against its checksums: dataset -> damaged frames, empty if all is well."""
        return {} if self._stored is None else self._stored.damaged_frames()

    def save(self, path: str | os.PathLike[str], *, dtype: str | None = None, overwrite: bool = False) -> None:
        """Write the trajectory to a file that `open` reads.

        Parameters: `path`; `dtype`, 'float32' or 'float64' (that of the points if left out); `overwrite` a file there.
        """
        from particleflow.trajectory.export.formats import save

        save(self, path, dtype=dtype, overwrite=overwrite)

    def to_xarray(self) -> "xarray.Dataset":
        """The trajectory as an `xarray.Dataset` over time, run, particle and coordinate; files stay lazy."""
        from particleflow.trajectory.export.interop import to_xarray

        return to_xarray(self)

    def close(self) -> None:
        """Close the file, if there is one; slices and runs taken from it cannot be read afterwards."""
        if self._stored is not None:
            self._stored.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else repr(self.path)
        shape, dtype = tuple(self.points.shape), self.points.dtype
        return f"Trajectory(points={shape}, dtype={dtype}, status={self.status!r}, {where})"

    def __str__(self) -> str:
        """An aligned card: title, sizes, observables, file, status and the solver's statistics."""
        rows: dict[str, Any] = {
            "frames": _frames_line(self),
            "cells" if "masses" in self.fields else "particles": f"{self.count} in dimension {self.dimension}",
        }
        if self.words is not None:
            rows["words"] = named(self.words.ravel().tolist(), 8)
        if "geometry" in self.metadata:
            rows["geometry"] = self.metadata["geometry"]
        if self.runs is not None:
            rows["runs"] = self.runs
        rows["observables"] = ", ".join(self.observables) or "none"
        if self.fields:
            rows["fields"] = ", ".join(self.fields)
        if isinstance(chosen := self.metadata.get("chosen"), dict) and chosen:
            rows["chosen"] = ", ".join(f"{name} = {value}" for name, value in chosen.items())
        rows["points"] = f"{self.points.dtype}, {readable_size(self.points.nbytes)}"
        rows["file"] = self.path or "none (in memory)"
        rows["status"] = self.status + (f": {self.metadata['message']}" if self.metadata.get("message") else "")
        rows.update({name: value for name, value in self._statistics().items() if value is not None})
        title = one_line(self.metadata.get("title") or "Trajectory")
        width = max(len(name) for name in rows)
        return "\n".join([title, *(f"  {name:<{width}}  {one_line(value)}" for name, value in rows.items())])

    def _repr_html_(self) -> str | None:
        """The card that a notebook shows, None where no renderer is registered (the notebook then shows the text)."""
        return notebook_card.render(self)

    def _statistics(self) -> dict[str, Any]:
        """The solver's statistics by name; empty if none are stored."""
        statistics = self.metadata.get("statistics")
        return {one_line(name): value for name, value in statistics.items()} if isinstance(statistics, dict) else {}


def _contents(stored: "StoredRun") -> tuple[Any, ...]:
    """The arguments of `Trajectory`, in the order of its constructor, read from an open file."""
    from particleflow.trajectory.store.file_layout import FIELD
    from particleflow.trajectory.store.lazy_array import LazyArray

    frames = range(stored.frames)
    series = {name: LazyArray(stored, name, frames) for name in stored.layout.observables}
    fields = {name: LazyArray(stored, FIELD + name, frames) for name in stored.layout.fields}
    record = {name: value for name, value in stored.record.items() if value is not None}
    metadata = {**stored.provenance, **record, "status": stored.status}
    constants = dict(stored.constants)
    fixed = constants.pop("position", None)
    points: Any = LazyArray(stored, "position", frames) if fixed is None else None
    if fixed is not None:
        points = np.broadcast_to(fixed, (len(frames), *fixed.shape))
    particles, record = replace(Constants(), **constants), RunRecord(metadata)
    return stored.times, stored.steps, points, series, particles, record, stored, fields


def _frames(values: Any, index: slice) -> Any:
    """Select frames of an array; an array in a file stays lazy."""
    return values[index] if isinstance(values, np.ndarray) else values.select(index)


def _run(values: Any, run: int) -> Any:
    """Select one run of an ensemble's array; an array in a file stays lazy."""
    return values[:, run] if isinstance(values, np.ndarray) else values.of_run(run)


def _frames_line(trajectory: Trajectory) -> str:
    """How many frames there are, and their first and last time and step."""
    if len(trajectory) == 0:
        return "0"
    times, steps = trajectory.times, trajectory.steps
    return f"{len(trajectory)}, t = {times[0]:g} to {times[-1]:g}, step {steps[0]} to {steps[-1]}"
