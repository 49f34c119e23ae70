"""Trajectories for other programs: H5MD, GSD, extended XYZ, npz and NetCDF, written frame by frame.

Molecular viewers need three dimensions, so points of H5MD, GSD and XYZ are padded with zeros below three and projected
on the three principal components above. Every file is written under another name first and then renamed.
"""

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow._support.files import HDF5_FAILURES, hdf5_output, written
from particleflow.errors import ArgumentError, StoreError
from particleflow.trajectory.export.interop import numbers_of_particles
from particleflow.trajectory.status import Status
from particleflow.trajectory.store.file_access import trajectory_path
from particleflow.trajectory.store.file_layout import CONSTANTS, POSITION, WORDS, check_name, checked, to_json
from particleflow.trajectory.store.file_writer import TrajectoryWriter
from particleflow.trajectory.words import bare

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

KINDS = {"h5md": ".h5md", "gsd": ".gsd", "xyz": ".xyz", "npz": ".npz", "netcdf": ".nc"}
PROJECTIONS = ("auto", "pad", "pca")
_WINDOW_BYTES = 1 << 24  # points that are read and written at once
_PCA_FRAMES = 200  # from which principal axes are taken

Projection = Callable[[np.ndarray], np.ndarray]


def export(
    trajectory: "Trajectory",
    path: str | os.PathLike[str],
    kind: str | None = None,
    *,
    run: int | None = None,
    projection: str = "auto",
) -> Path:
    """Write a trajectory in another program's format and return the file's path.

    Frames are read and written a few megabytes at a time, and the file appears under its name only when it is whole.

    Parameters: `trajectory`; `path`, whose suffix says the format unless `kind` does ("h5md" for MDAnalysis, "gsd" and
    "xyz" for OVITO, "npz", "netcdf"); `run`, one run of an ensemble; `projection` to three dimensions where the format
    has no others: "pad" with zeros, "pca", or "auto" (pad below three, pca above).
    """
    target, kind = _target(path, kind)
    if trajectory.path is not None and target.exists() and target.samefile(trajectory.path):
        raise ArgumentError(f"{target} is the trajectory itself. Export to another file.")
    for name in trajectory.observables:
        check_name(name)
    trajectory = trajectory if run is None else trajectory.run(run)
    if kind in ("h5md", "gsd", "xyz") and trajectory.runs is not None:
        raise ArgumentError(f"{kind} holds one run, but this is an ensemble of {trajectory.runs}: choose one by `run`.")
    write = _writer(kind)
    project = () if kind in ("npz", "netcdf") else (to_three_dimensions(trajectory, projection),)
    with written(target, "Check the folder and the space on the disk.", HDF5_FAILURES) as partial:
        write(trajectory, partial, *project)
    return target


def _target(path: str | os.PathLike[str], kind: str | None) -> tuple[Path, str]:
    """The path with the suffix of its format, and the format; refused where neither is known or no folder is there."""
    target = Path(path)
    known = {suffix: name for name, suffix in KINDS.items()}
    if kind is None and target.suffix not in known:
        raise ArgumentError(f"The format must be one of {', '.join(KINDS)}, but {target.name!r} has another suffix.")
    kind = known[target.suffix] if kind is None else kind
    if kind not in KINDS:
        raise ArgumentError(f"Argument `kind` must be one of {', '.join(KINDS)}, but is {kind!r}.")
    if target.suffix != KINDS[kind]:
        target = target.with_name(target.name + KINDS[kind])
    if not target.parent.is_dir():
        raise StoreError(f"The folder {target.parent} does not exist. Create it, or choose another.")
    return target, kind


def _writer(kind: str) -> Callable[..., None]:
    """The function that writes a format; gsd and netcdf need packages of the extra `interop`, imported here."""
    if kind in ("gsd", "netcdf"):
        from particleflow.trajectory.export import interop

        return {"gsd": interop.write_gsd, "netcdf": interop.write_netcdf}[kind]
    return {"h5md": _write_h5md, "xyz": _write_xyz, "npz": _write_npz}[kind]


def to_three_dimensions(trajectory: "Trajectory", projection: str = "auto") -> Projection:
    """The map from points (..., d) to (..., 3).

    Padding appends zeros. PCA takes the eigenvectors w_1, w_2, w_3 of the largest eigenvalues of the covariance of all
    particles over (at most 200, evenly spaced) frames, x -> ((x - mean)·w_k)_k, with each w_k's largest entry positive.

    Parameters: `trajectory`; `projection`, "pad", "pca" or "auto" (pad up to three dimensions, PCA above).
    """
    if projection not in PROJECTIONS:
        raise ArgumentError(f"Argument `projection` must be one of {', '.join(PROJECTIONS)}, but is {projection!r}.")
    dimension = trajectory.dimension
    chosen = ("pad" if dimension <= 3 else "pca") if projection == "auto" else projection
    if chosen == "pad":
        if dimension > 3:
            raise ArgumentError(f"Points of dimension {dimension} cannot be padded to three; use projection='pca'.")
        return lambda points: np.pad(points, [(0, 0)] * (points.ndim - 1) + [(0, 3 - dimension)])
    mean, axes = _principal_axes(trajectory)
    return lambda points: (points - mean) @ axes


def _principal_axes(trajectory: "Trajectory") -> tuple[np.ndarray, np.ndarray]:
    """The mean (d,) and the three leading principal axes (d,3); missing ones are zero.

    First and second moments are summed frame by frame, in memory O(N d + d²), where a singular value decomposition
    (`analysis.shape`, which lies above this room) would hold all frames at once.
    """
    dimension = trajectory.dimension
    if len(trajectory) == 0:
        return np.zeros(dimension), np.eye(dimension, 3)
    chosen = np.unique(np.linspace(0, len(trajectory) - 1, min(len(trajectory), _PCA_FRAMES)).astype(int))
    frames = [np.asarray(trajectory.points[int(index)], dtype=np.float64) for index in chosen[:1]]
    origin = frames[0].mean(axis=0)  # moments are taken about a typical point, or far-off clouds would lose digits
    first, second, total = np.zeros(dimension), np.zeros((dimension, dimension)), 0
    for index in chosen:
        offset = np.asarray(trajectory.points[int(index)], dtype=np.float64) - origin
        first += offset.sum(axis=0)
        second += offset.T @ offset
        total += len(offset)
    mean = first / total
    _, vectors = np.linalg.eigh(second / total - np.outer(mean, mean))
    axes = np.zeros((dimension, 3))
    axes[:, : min(3, dimension)] = vectors[:, ::-1][:, :3]
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0)
    return origin + mean, axes * np.where(largest < 0, -1.0, 1.0)


def windows(trajectory: "Trajectory") -> list[slice]:
    """Slices of frames that take about 16 MB of points together, in order."""
    frame = max(1, trajectory.points.nbytes // max(1, len(trajectory)))
    rows = max(1, _WINDOW_BYTES // frame)
    return [slice(start, min(start + rows, len(trajectory))) for start in range(0, len(trajectory), rows)]


def _write_h5md(trajectory: "Trajectory", path: Path, project: Projection) -> None:
    """H5MD as MDAnalysis requires it: group `trajectory`, three dimensions, a box, units as variable-length text."""
    import h5py

    from particleflow._version import __version__

    with hdf5_output(path) as output, h5py.File(output, "w") as file:
        file.create_group("h5md").attrs["version"] = np.array([1, 1], dtype="<i4")
        file.create_group("h5md/author").attrs["name"] = str(trajectory.metadata.get("author", "unknown"))
        file.create_group("h5md/creator").attrs.update({"name": "particleflow", "version": __version__})
        box = file.create_group("particles/trajectory/box")
        box.attrs.update({"dimension": 3, "boundary": np.array([b"none"] * 3)})
        position = file.create_group(POSITION)
        position["step"], position["time"] = trajectory.steps, trajectory.times
        position["time"].attrs["unit"] = "ps"
        shape = (len(trajectory), trajectory.count, 3)
        value = position.create_dataset("value", shape=shape, dtype=trajectory.points.dtype)
        value.attrs["unit"] = "Angstrom"
        for window in windows(trajectory):
            value[window] = project(np.asarray(trajectory.points[window]))
            output.check()
        others = {f"particles/trajectory/{name}": series for name, series in trajectory.fields.items()}
        others |= {f"observables/{name}": series for name, series in trajectory.observables.items()}
        for place, series in others.items():
            group = file.create_group(place)
            group["step"], group["time"], group["value"] = position["step"], position["time"], np.asarray(series)
        parameters = file.create_group("parameters")
        checked(parameters, "particleflow", _json_bytes(trajectory))
        if trajectory.words is not None:
            checked(parameters, WORDS, trajectory.words)


def _write_xyz(trajectory: "Trajectory", path: Path, project: Projection) -> None:
    """Extended XYZ: per frame the count, a line of keys, and a line per particle; blanks in words become `_`.

    Fields of one number a particle, such as the masses of a density, are columns.
    """
    digits = 9 if trajectory.points.dtype == np.float32 else 17
    columns = [np.arange(trajectory.count)]
    properties = "species:S:1:pos:R:3:id:I:1"
    if trajectory.labels is not None:
        properties += ":label:I:1"
        columns.append(trajectory.labels)
    integers = np.stack(columns, axis=1)
    tails = [" ".join(map(str, row)) for row in integers.tolist()]
    if trajectory.words is not None:
        properties += ":word:S:1"
        tails = [f"{tail} {bare(word)}" for tail, word in zip(tails, trajectory.words.tolist(), strict=True)]
    fields = numbers_of_particles(trajectory)
    properties += "".join(f":{bare(name)}:R:1" for name in fields)
    pattern = " ".join(["X", *[f"%.{digits}g"] * 3, "%s", *[f"%.{digits}g"] * len(fields)]) + "\n"
    scalars = [name for name, series in trajectory.observables.items() if series.ndim == 1]
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for frame in trajectory:
            keys = "".join(f" {name}={float(frame.observables[name]):.17g}" for name in scalars)
            file.write(f"{trajectory.count}\nProperties={properties} Time={frame.time:.17g} Step={frame.step}{keys}")
            file.write(' pbc="F F F"\n')
            places = project(frame.points).tolist()
            numbers = (
                np.stack([frame.fields[name] for name in fields], axis=1).tolist() if fields else [()] * len(tails)
            )
            rows = zip(places, tails, numbers, strict=True)
            file.writelines(pattern % (*place, tail, *row) for place, tail, row in rows)


def _write_npz(trajectory: "Trajectory", path: Path) -> None:
    """NumPy's archive, which `numpy.load` opens without pickle.

    It holds times, steps, points, constants, `field.<name>`, `observable.<name>`, and the metadata as bytes of JSON.
    """
    arrays: dict[str, Any] = {"times": trajectory.times, "steps": trajectory.steps, "points": trajectory.points}
    for name in CONSTANTS:
        constant = getattr(trajectory, name)
        if constant is not None:
            arrays[name] = constant
    arrays |= {f"field.{name}": series for name, series in trajectory.fields.items()}
    arrays |= {f"observable.{name}": series for name, series in trajectory.observables.items()}
    arrays["metadata"] = _json_bytes(trajectory)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            _write_npy(
                archive,
                name,
                array,
                windows(trajectory) if name == "points" or name.startswith("field.") else [slice(None)],
            )


def _write_npy(archive: zipfile.ZipFile, name: str, array: Any, pieces: list[slice]) -> None:
    """Write one array of an archive a piece at a time, so that it is never whole in memory."""
    header = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False, "shape": tuple(array.shape)}
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array_header_2_0(file, header)
        for piece in pieces:
            file.write(np.ascontiguousarray(array[piece]).tobytes())


def save(
    trajectory: "Trajectory", path: str | os.PathLike[str], *, dtype: str | None = None, overwrite: bool = False
) -> None:
    """Write a trajectory in our own format, which `Trajectory.open` reads.

    Status, message and statistics are copied, except that a trajectory in memory, or one that is running or was killed,
    gets the status finished.

    Parameters: `trajectory`; `path`; `dtype` of the stored points; `overwrite` an existing file.
    """
    if trajectory.path is not None and trajectory_path(path).resolve() == Path(trajectory.path).resolve():
        raise ArgumentError(f"{path} is the trajectory itself. Save to another file.")
    kept = ("status", "message", "statistics", "updated")
    constants = {name: getattr(trajectory, name) for name in CONSTANTS}
    with TrajectoryWriter.create(
        path,
        count=trajectory.count,
        dimension=trajectory.dimension,
        runs=trajectory.runs,
        dtype=dtype or trajectory.points.dtype.name,
        observables={name: tuple(series.shape[1:]) for name, series in trajectory.observables.items()},
        fields={name: tuple(series.shape[trajectory.points.ndim - 1 :]) for name, series in trajectory.fields.items()},
        points=trajectory.points[0] if trajectory.is_fixed else None,
        provenance={name: value for name, value in trajectory.metadata.items() if name not in kept},
        expected_frames=len(trajectory) or None,
        overwrite=overwrite,
        **constants,
    ) as writer:
        for window in windows(trajectory):
            series, fields = (
                {name: np.asarray(values[window]) for name, values in each.items()}
                for each in (trajectory.observables, trajectory.fields)
            )
            points = None if trajectory.is_fixed else np.asarray(trajectory.points[window])
            writer.append(trajectory.times[window], trajectory.steps[window], points, series, fields)
        ended = (Status.STOPPED, Status.FAILED, Status.INTERRUPTED)
        status = trajectory.status if trajectory.status in ended else Status.FINISHED
        writer.set_status(status, trajectory.metadata.get("message"), trajectory.metadata.get("statistics"))


def _json_bytes(trajectory: "Trajectory") -> np.ndarray:
    """The metadata as UTF-8 bytes of JSON, which formats without long text can hold."""
    return np.frombuffer(to_json(trajectory.metadata).encode(), dtype=np.uint8)
