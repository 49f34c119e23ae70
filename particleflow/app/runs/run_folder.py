"""A run and its folder: scenario and trajectory, with the products beside them.

    outputs/<scenario>/<run>/{scenario.toml, trajectory.h5, summary.json, figures/, movie.mp4, viewer.html}

The folder is all that `resume` needs: `scenario.toml` is the user's file with its comments; clouds and matrices that
were read from files are copied to `inputs/`, where its paths then lead.
"""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from particleflow._support import toml
from particleflow._support.files import reason_of, write_text
from particleflow.app.runs.folder_contents import INPUTS_FOLDER, MANIFEST_FILE, SCENARIO_FILE, TRAJECTORY_FILE
from particleflow.app.runs.run_inputs import with_inputs, with_swept_inputs
from particleflow.errors import UserError

if TYPE_CHECKING:
    from particleflow.app.scenario.scenario import Drawing, Scenario
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

    If it is `swept`, files that its [sweep] table names are copied, too. Values that were left open are written as they
    were chosen, unless each run of a sweep chooses its own. `drawing` has drawn the clouds, if they are built.
    """
    sweep = scenario.raw["sweep"] if swept else {}
    raw = with_inputs(scenario, folder, drawing, swept=tuple(sweep))
    lists = {key: values for key, values in sweep.items() if isinstance(values, list)}
    for key, values in lists.items():
        raw = toml.with_value(raw, ["sweep", key], with_swept_inputs(scenario, folder, key, values))
    chosen = {} if _sweeps_steps(sweep) else scenario.document.chosen
    for path, value in chosen.items():
        raw = toml.with_value(raw, toml.parse_path(path), value)
    text = toml.rewritten(scenario.source, raw, dict.fromkeys(chosen, "chosen"))
    write_text(folder / SCENARIO_FILE, text)
    return text


def _sweeps_steps(sweep: dict[str, Any]) -> bool:
    """Whether the runs of a sweep may differ in what is chosen for them."""
    return any(key.split(".")[0] in ("time", "precision", "temperature", "common_temperature") for key in sweep)


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
