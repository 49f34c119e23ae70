"""A run and its folder: scenario and trajectory, with the products beside them.

    outputs/<scenario>/<run>/{scenario.toml, trajectory.h5, summary.json, figures/, movie.mp4, viewer.html}

The folder is all that `resume` needs: `scenario.toml` is the user's file with its comments; clouds and matrices that
were read from files are copied to `inputs/`, where its paths then lead.
"""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow._support import toml
from particleflow._support.files import own_folder, reason_of, write_text, written
from particleflow.app.runs.folder_contents import INPUTS_FOLDER, MANIFEST_FILE, SCENARIO_FILE, TRAJECTORY_FILE
from particleflow.errors import UserError

if TYPE_CHECKING:
    from particleflow.app.scenario.scenario import Drawing, Scenario
    from particleflow.app.scenario.schema import Spec
    from particleflow.dynamics.initial.base import Start
    from particleflow.trajectory.trajectory import Trajectory


def new_folder(stem: str, output: str | Path | None, root: str | Path = "outputs") -> Path:
    """Make the folder of a new run: `output` itself, or the next number under outputs/<scenario>; never one in use.

    An empty scenario file in it tells other processes that the folder is taken.
    """
    try:
        if output is not None:
            folder = Path(output)
            used = UserError(f"{folder} is in use. Choose another --output; a run is never overwritten.")
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise used
            folder.mkdir(parents=True, exist_ok=True)
            try:
                (folder / SCENARIO_FILE).touch(exist_ok=False)
            except FileExistsError:  # another process took this folder meanwhile
                raise used from None
            return folder
        parent = Path(root) / stem
        parent.mkdir(parents=True, exist_ok=True)
        number = 1 + max((int(each.name) for each in parent.iterdir() if each.name.isdecimal()), default=0)
        while True:
            folder = parent / f"{number:03d}"
            try:
                folder.mkdir()
            except FileExistsError:  # another process took this number meanwhile
                number += 1
                continue
            return folder
    except (OSError, ValueError) as error:
        place = getattr(error, "filename", None) or output or Path(root) / stem
        raise UserError(f"The folder for the run cannot be made: {place}: {reason_of(error)}.") from error


def freeze(scenario: "Scenario", folder: Path, drawing: "Drawing | None" = None, *, swept: bool = False) -> str:
    """Write the scenario into its run folder together with everything it reads from files; returns the text.

    If it is `swept`, arrays in files that its [sweep] table lists are copied, too. Values that were left open are
    written as they were chosen, unless each run of a sweep chooses its own. `drawing` has drawn the clouds, if they are
    built.
    """
    from particleflow.app.scenario.scenario import Drawing

    draw, raw = drawing or Drawing(scenario.document), scenario.raw
    for call in scenario.document.calls():
        for path, value in _frozen(call, draw, folder):
            raw = toml.with_value(raw, _place(raw, path), value)
    if swept:
        raw = {**raw, "sweep": _with_frozen_sweep(raw["sweep"], scenario.folder, folder)}
    chosen = {} if swept and _sweeps_steps(raw["sweep"]) else scenario.document.chosen
    for path, value in chosen.items():
        raw = toml.with_value(raw, toml.parse_path(path), value)
    text = toml.rewritten(scenario.source, raw, dict.fromkeys(chosen, "chosen"))
    write_text(folder / SCENARIO_FILE, text)
    return text


def _sweeps_steps(sweep: dict[str, Any]) -> bool:
    """Whether the runs of a sweep may differ in what is chosen for them."""
    return any(key.split(".")[0] in ("time", "precision", "temperature", "common_temperature") for key in sweep)


def _frozen(call: "Spec", draw: "Drawing", folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield (path in the scenario, new value) for each file that a constructor call reads, after copying it.

    Clouds and arrays from files are copied to the inputs of the run; paths of anything else become absolute.
    """
    paths = call.paths()
    if paths and hasattr(call.target, "counted"):
        name = _input(folder, f"{call.path}.npz", _cloud_arrays(draw.start(call)))
        carried = {field: np.asarray(value).tolist() for field, value in call.fields.items()}
        table = {"kind": "from_file", "path": name, "retract": call.retract}
        yield call.path, {**table, "fields": carried} if carried else table
        return
    for name, path in paths.items():
        yield f"{call.path}.{name}", str(path.resolve())
    for name, numbers in call.files().items():
        yield f"{call.path}.{name}", _input(folder, f"{call.path}.{name}.npy", numbers.values)
    for inner in call.inner():
        yield from _frozen(inner, draw, folder)


def _with_frozen_sweep(sweep: dict[str, Any], home: Path, folder: Path) -> dict[str, Any]:
    """A [sweep] table in which .npy files in lists of values are replaced by copies among the inputs of the run.

    A file that cannot be read as an array is left as it is, and the run that uses it reports it. Files named inside of
    swept tables are not copied.
    """
    from particleflow.app.scenario.schema.numbers import is_file

    lists = {key: values for key, values in sweep.items() if isinstance(values, list)}
    names: dict[str, str] = {}
    for path in dict.fromkeys(value for values in lists.values() for value in values if is_file(value)):
        with contextlib.suppress(OSError, ValueError, EOFError):
            array = np.load(home / path, allow_pickle=False)
            names[path] = _input(folder, f"sweep.{len(names)}.npy", array)

    def frozen(value: Any) -> Any:
        return names.get(value, value) if is_file(value) else value

    return sweep | {key: [frozen(value) for value in values] for key, values in lists.items()}


def sweeps_files(sweep: dict[str, Any]) -> bool:
    """Whether a [sweep] table lists .npy files as values."""
    from particleflow.app.scenario.schema.numbers import is_file

    return any(is_file(value) for values in sweep.values() if isinstance(values, list) for value in values)


def _place(raw: dict[str, Any], path: str) -> list[str | int]:
    """The keys of a path in a file, whose only drift may be a table, [drift], instead of a list of one."""
    parts = toml.parse_path(path)
    return [parts[0], *parts[2:]] if parts[0] == "drift" and isinstance(raw["drift"], dict) else parts


def _cloud_arrays(start: "Start") -> dict[str, np.ndarray]:
    """The arrays of a cloud by the names that `from_file` reads."""
    measure = start.measure
    fields = {name: getattr(measure, name) for name in ("points", "log_weights", "values", "positions")}
    fields |= {"labels": start.labels, "words": start.words}
    fields |= {f"field.{name}": array for name, array in measure.fields.items()}
    return {name: np.asarray(value) for name, value in fields.items() if value is not None}


def _input(folder: Path, name: str, content: Any) -> str:
    """Save an array, or arrays by name, among the inputs of a run, and return the path from its folder."""
    with written(own_folder(folder / INPUTS_FOLDER) / name) as partial:
        if isinstance(content, dict):
            np.savez(partial, **content)
        else:
            np.save(partial, content)
    return f"{INPUTS_FOLDER}/{name}"


def discard_if_empty(folder: Path) -> None:
    """Remove the folder of a run that never began, one that holds nothing but its scenario and inputs."""
    known = {SCENARIO_FILE, INPUTS_FOLDER}
    if folder.is_dir() and all(each.name in known for each in folder.iterdir()):
        shutil.rmtree(folder)


def scenario_file(folder: Path) -> Path:
    """The scenario in a run folder."""
    file = folder / SCENARIO_FILE
    if not file.is_file():
        raise UserError(f"{folder} has no {SCENARIO_FILE}, so there is nothing to resume.")
    return file


def folder_of(run: str | Path) -> Path:
    """The folder of a run that is given by its folder or by its trajectory file."""
    if "\0" in str(run):
        raise UserError("The name of a run must not hold a NUL character.")
    path = Path(run)
    try:
        if not path.exists():
            raise UserError(f"There is no run at {str(path)[:200]}.{_replay_hint(path)}")
    except OSError as error:
        raise UserError(f"{str(path)[:100]!r} cannot be opened: {error.strerror}.") from error
    return path if path.is_dir() else path.parent


def _replay_hint(path: Path) -> str:
    """A hint for a run of a sweep that has no folder of its own: the command that makes it one."""
    if path.name.isdecimal() and (path.parent / MANIFEST_FILE).is_file():
        return f" `particleflow replay {path.parent} {path.name}` makes this run of the sweep one."
    return ""


def open_run(run: str | Path) -> "Trajectory":
    """The trajectory of a run that is given by its folder or by its trajectory file."""
    from particleflow.trajectory.trajectory import Trajectory

    folder = folder_of(run)
    path = Path(run)
    if path.is_dir() and not (folder / TRAJECTORY_FILE).is_file():
        hint = f" It holds a sweep: {folder / '0'} is its first run." if (folder / MANIFEST_FILE).is_file() else ""
        raise UserError(f"{folder} has no {TRAJECTORY_FILE}; give a run folder or a trajectory file.{hint}")
    return Trajectory.open(path)
