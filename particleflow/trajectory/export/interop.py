"""Exports that need packages of the extra `interop`: xarray, NetCDF through h5netcdf, and GSD."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow._support.files import hdf5_output
from particleflow.errors import ArgumentError
from particleflow.trajectory.store.file_layout import CONSTANTS, FIELD, WORDS, FileLayout, axis_names, to_json
from particleflow.trajectory.words import bare

if TYPE_CHECKING:
    import xarray

    from particleflow.trajectory.export.formats import Projection
    from particleflow.trajectory.trajectory import Trajectory

_LARGEST_SINGLE = float(np.finfo(np.float32).max) / 2.01  # the edge of the box is twice as long


def _need(module: str) -> Any:
    """Import a package of the extra `interop`, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ArgumentError(
            f"This needs {package}, which is not installed: pip install 'particleflow[interop]'."
        ) from error


def _series(trajectory: "Trajectory") -> dict[str, Any]:
    """The points (as `points`), fields and observables by name; refused where two variables would have one name."""
    found: dict[str, Any] = {"points": trajectory.points}
    others = {"time", "step", *_axes(trajectory)["points"], *_constants(trajectory)}
    for kind, given in (("field", trajectory.fields), ("observable", trajectory.observables)):
        for name, values in given.items():
            if name in found or name in others:
                raise ArgumentError(
                    f"The {kind} {name!r} has the name of another variable of the dataset, and one would be lost. "
                    "Rename it, or export to npz or h5md, which keep them apart."
                )
            found[name] = values
    return found


def _axes(trajectory: "Trajectory") -> dict[str, list[str]]:
    """The names of the axes of the points (as `points`), of every field and every observable, after the time axis.

    Axes other than run and particle get the field's or observable's name in front, so that no two of them clash.
    """
    shapes = {name: tuple(series.shape[1:]) for name, series in trajectory.observables.items()}
    leading = trajectory.points.ndim - 1
    fields = {name: tuple(series.shape[leading:]) for name, series in trajectory.fields.items()}
    layout = FileLayout(trajectory.count, trajectory.dimension, trajectory.runs, "float64", shapes, fields)
    names = {"points": axis_names(layout, "position")}
    for name, column in [*((each, FIELD + each) for each in fields), *((each, each) for each in shapes)]:
        own = axis_names(layout, column)
        names[name] = [axis if axis in ("run", "particle") else f"{name}_{axis}" for axis in own]
    return names


def _constants(trajectory: "Trajectory") -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """What a particle keeps over the whole run, with the names of its axes."""
    given = {name: getattr(trajectory, name) for name in CONSTANTS if name != "values"}
    return {name: (("run", "particle")[-array.ndim :], array) for name, array in given.items() if array is not None}


def to_xarray(trajectory: "Trajectory") -> "xarray.Dataset":
    """Return a dataset whose variables are read from the file when they are used.

    Axes are time, run, particle and coordinate; step and the particles' constants are variables, the metadata JSON.
    """
    xarray = _need("xarray")
    axes = _axes(trajectory)
    variables = {}
    for name, values in _series(trajectory).items():
        lazy = values if isinstance(values, np.ndarray) else _lazily(values)
        variables[name] = xarray.Variable(("time", *axes[name]), lazy)
    variables["step"] = xarray.Variable("time", trajectory.steps)
    variables |= {name: xarray.Variable(own, array) for name, (own, array) in _constants(trajectory).items()}
    attributes = {"metadata": to_json(trajectory.metadata), "title": str(trajectory.metadata.get("title", ""))}
    return xarray.Dataset(variables, coords={"time": trajectory.times}, attrs=attributes)


def _lazily(values: Any) -> Any:
    """Wrap an array in a file so that xarray postpones reading it.

    This is xarray's documented way for backends: `BackendArray` receives basic indices only, of which `LazyArray` reads
    exactly the selected part.
    """
    backends, indexing = _need("xarray.backends"), _need("xarray.core.indexing")

    class Stored(backends.BackendArray):
        """An array in a file as a backend of xarray."""

        shape, dtype = values.shape, values.dtype

        def __getitem__(self, key: Any) -> Any:
            return indexing.explicit_indexing_adapter(
                key, self.shape, indexing.IndexingSupport.BASIC, lambda basic: values[basic]
            )

    return indexing.LazilyIndexedArray(Stored())


def write_netcdf(trajectory: "Trajectory", path: Path) -> None:
    """NetCDF 4: the same variables as `to_xarray`, written window by window."""
    from h5py import string_dtype

    from particleflow.trajectory.export.formats import windows

    h5netcdf = _need("h5netcdf")
    series, axes = _series(trajectory), _axes(trajectory)
    sizes = {"time": len(trajectory), "particle": trajectory.count}
    for name, names in axes.items():
        sizes |= dict(zip(names, series[name].shape[1:], strict=True))
    with hdf5_output(path) as output, h5netcdf.File(output, "w") as file:
        file.dimensions = sizes
        file.attrs["metadata"] = to_json(trajectory.metadata)
        file.create_variable("time", ("time",), data=trajectory.times)
        file.create_variable("step", ("time",), data=trajectory.steps)
        for name, (names, array) in _constants(trajectory).items():
            variable = file.create_variable(name, names, dtype=string_dtype() if name == WORDS else array.dtype)
            variable[...] = array.astype(object) if name == WORDS else array
        for name, names in axes.items():
            variable = file.create_variable(name, ("time", *names), dtype=series[name].dtype)
            for window in windows(trajectory):
                variable[window] = np.asarray(series[name][window])
                output.check()


def write_gsd(trajectory: "Trajectory", path: Path, project: "Projection") -> None:
    """GSD in the HOOMD schema: single-precision positions in a box that holds them all; time and observables as log.

    The types of particles are their words (in ASCII, which is all that types can hold), else their labels; beside
    words, labels are a log of every particle, and so are fields of one number a particle, such as the masses of a
    density, which are the particles' masses as well.
    """
    hoomd = _need("gsd.hoomd")
    extent = max((_reach(project(frame.points)) for frame in trajectory), default=0.0)
    if extent > _LARGEST_SINGLE:
        raise ArgumentError(
            f"GSD holds single precision, here up to {_LARGEST_SINGLE:.2g}, but the points reach {extent:.3g}. "
            "Export to npz, h5md or netcdf, which keep them."
        )
    edge = 2.0 * (extent or 1.0) * 1.001
    names, type_ids = _types(trajectory)
    fields = numbers_of_particles(trajectory)
    with hoomd.open(str(path), mode="w") as file:
        for frame in trajectory:
            snapshot = hoomd.Frame()
            snapshot.configuration.step = frame.step
            snapshot.configuration.box = [edge, edge, edge, 0, 0, 0]
            snapshot.configuration.dimensions = 3
            snapshot.particles.N = trajectory.count
            snapshot.particles.types = names
            snapshot.particles.typeid = type_ids.astype(np.uint32)
            snapshot.particles.position = project(frame.points).astype(np.float32)
            snapshot.log["particleflow/time"] = np.array([frame.time])
            if trajectory.words is not None and trajectory.labels is not None:
                snapshot.log["particles/particleflow/label"] = trajectory.labels
            for name in fields:
                snapshot.log[f"particles/particleflow/{bare(name)}"] = np.asarray(frame.fields[name])
            if "masses" in fields:
                snapshot.particles.mass = np.asarray(frame.fields["masses"], np.float32)
            for name, value in frame.observables.items():
                snapshot.log[f"particleflow/{name}"] = np.atleast_1d(value)
            file.append(snapshot)


def numbers_of_particles(trajectory: "Trajectory") -> list[str]:
    """The names of the fields that hold one number for every particle, such as the masses of a density."""
    return [name for name, series in trajectory.fields.items() if series.shape == (len(trajectory), trajectory.count)]


def _reach(points: np.ndarray) -> float:
    """The largest of all finite coordinates in absolute value, 0 if there is none."""
    return float(np.max(np.abs(points), initial=0.0, where=np.isfinite(points)))


def _types(trajectory: "Trajectory") -> tuple[list[str], np.ndarray]:
    """The names of the types of particles, and every particle's type."""
    if trajectory.words is not None:
        names, types = np.unique(trajectory.words, return_inverse=True)
        return [bare(name).encode("ascii", "backslashreplace").decode() for name in names.tolist()], types
    labels = np.zeros(trajectory.count, dtype=int) if trajectory.labels is None else trajectory.labels
    kinds, types = np.unique(labels, return_inverse=True)
    return [f"label {kind}" for kind in kinds], types
