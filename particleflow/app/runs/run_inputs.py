"""Copies of the files that a scenario reads, among the inputs of its run, so that the run needs nothing else.

A cloud is copied as it is drawn, an array as it is read; paths of anything else become absolute. In a sweep, a cloud
that has swept keys keeps its kind with those keys, and its files are copied as they are. Only a run that such a cloud
begins from stays where it is: it may be large, and is never overwritten.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow._support import toml
from particleflow._support.files import own_folder, written
from particleflow.app.runs.folder_contents import INPUTS_FOLDER
from particleflow.errors import UserError

if TYPE_CHECKING:
    from particleflow.app.scenario.scenario import Drawing, Scenario
    from particleflow.app.scenario.schema import Spec

_RUN_ENDING = ".h5"

Place = list[str | int]
Copy = Callable[[Path, str], Any]  # copies to the inputs in a folder, under a name; returns the new value


def with_inputs(
    scenario: "Scenario", folder: Path, drawing: "Drawing | None" = None, swept: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The table of a scenario that reads copies among the inputs of the run in `folder`.

    Parameters: `drawing`, if it has drawn the clouds; the keys that are `swept` over.
    """
    raw = scenario.raw
    for place, name, copy in _inputs(scenario, drawing, swept):
        raw = toml.with_value(raw, place, copy(folder, name))
    return raw


def with_swept_inputs(scenario: "Scenario", folder: Path, key: str, values: list[Any]) -> list[Any]:
    """The values of a swept key, with copies in place of all files that they name.

    A value that is wrong, or whose files cannot be read, is left as it is, and the run that uses it reports it.
    """
    frozen = list(values)
    for number, value in enumerate(values):
        with suppress(UserError):
            if isinstance(value, str | list | dict):  # no other names a file; equal values stay equal
                frozen[number] = _with_copies(scenario, folder, key, value, values.index(value))
    return frozen


def _with_copies(scenario: "Scenario", folder: Path, key: str, value: Any, number: int) -> Any:
    """A value of a swept key, with copies in place of all files that it names; `number` is in their names."""
    changed, start = scenario.with_values({key: value}), toml.parse_path(key)
    for place, _, copy in _inputs(changed, None, (*scenario.raw["sweep"],)):
        if place[: len(start)] == start:
            rest = place[len(start) :]
            name = ".".join(map(str, ["sweep", *start, number, *rest]))
            value = toml.with_value(value, rest, copy(folder, name))
    return value


def _inputs(
    scenario: "Scenario", drawing: "Drawing | None", swept: tuple[str, ...]
) -> Iterator[tuple[Place, str, Copy]]:
    """Yield the place and the dotted path of everything that a scenario reads from files, and how it is copied."""
    from particleflow.app.scenario.scenario import Drawing

    draw, raw = drawing or Drawing(scenario.document), scenario.raw
    keys = [toml.parse_path(key) for key in swept]
    for call in scenario.document.calls():
        for path, copy in _inputs_of(call, draw, lambda path: _is_swept(_place(raw, path), keys)):
            yield _place(raw, path), path, copy


def _inputs_of(call: "Spec", draw: "Drawing", is_swept: Callable[[str], bool]) -> Iterator[tuple[str, Copy]]:
    """Yield the dotted path of everything that a constructor call reads from files, and how it is copied."""
    paths, is_cloud = call.paths(), hasattr(call.target, "counted")
    if paths and is_cloud and not is_swept(call.path):
        yield call.path, partial(_copy_cloud, call, draw)
        return
    for name, path in paths.items():
        yield f"{call.path}.{name}", partial(_copy_file if is_cloud else _absolute, path)
    for name, numbers in call.files().items():
        yield f"{call.path}.{name}", partial(_copy_array, numbers.values)
    for inner in call.inner():
        yield from _inputs_of(inner, draw, is_swept)


def _is_swept(place: Place, keys: list[Place]) -> bool:
    """Whether a swept key lies inside the table at a place."""
    return any(len(key) > len(place) and key[: len(place)] == place for key in keys)


def _place(raw: dict[str, Any], path: str) -> Place:
    """The keys of a path in a file, whose only drift may be a table, [drift], instead of a list of one."""
    parts = toml.parse_path(path)
    return [parts[0], *parts[2:]] if parts[0] == "drift" and isinstance(raw["drift"], dict) else parts


def _copy_cloud(call: "Spec", draw: "Drawing", folder: Path, name: str) -> dict[str, Any]:
    """Save a cloud as it is drawn, and return the table that reads it."""
    start = draw.start(call)
    measure = start.measure
    arrays = {each: getattr(measure, each) for each in ("points", "log_weights", "values", "positions")}
    arrays |= {"labels": start.labels, "words": start.words, "picture": start.picture, "image": start.image}
    arrays |= {f"field.{each}": array for each, array in measure.fields.items()}
    plain: dict[str, Any] = {each: np.asarray(array) for each, array in arrays.items() if array is not None}
    path = _saved(folder, f"{name}.npz", lambda file: np.savez(file, **plain))
    carried = {field: np.asarray(value).tolist() for field, value in call.fields.items()}
    table = {"kind": "from_file", "path": path, "retract": call.retract}
    return {**table, "fields": carried} if carried else table


def _copy_array(array: np.ndarray, folder: Path, name: str) -> str:
    """Save an array, and return its path."""
    return _saved(folder, f"{name}.npy", lambda file: np.save(file, array))


def _copy_file(source: Path, folder: Path, name: str) -> str:
    """Copy a file of a cloud as it is, and return its path; that of a run is the run itself."""
    if source.is_dir() or source.suffix.lower() == _RUN_ENDING:
        return _absolute(source, folder, name)
    return _saved(folder, f"{name}{source.suffix}", lambda file: shutil.copyfile(source, file))


def _absolute(source: Path, folder: Path, name: str) -> str:
    """The absolute path of what is not copied."""
    return str(source.resolve())


def _saved(folder: Path, name: str, save: Callable[[Path], Any]) -> str:
    """Write a file among the inputs of a run, and return its path from the folder of the run."""
    with written(own_folder(folder / INPUTS_FOLDER) / name) as file:
        save(file)
    return f"{INPUTS_FOLDER}/{name}"
