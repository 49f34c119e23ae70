"""A run and its folder: scenario, trajectory, summary, figures, movie and page.

    outputs/<scenario>/<run>/{scenario.toml, trajectory.h5, summary.json, figures/, movie.mp4, viewer.html}

The folder is all that `resume` needs: clouds and matrices that were read from files lie in `inputs/`, and
`scenario.toml`, which else is the user's file with its comments, names them there.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow import _toml
from particleflow._files import own_folder, reason_of, write_text, written, written_folder
from particleflow.errors import ParticleflowError, RunError, UserError
from particleflow.folder_contents import (
    FILES,
    INPUTS_FOLDER,
    MANIFEST_FILE,
    PAGE_FILE,
    PRODUCTS,
    SCENARIO_FILE,
    SUMMARY_FILE,
    TRAJECTORY_FILE,
    kept_threshold,
)
from particleflow.status import Status
from particleflow.user_code import blamed

if TYPE_CHECKING:
    from particleflow._schema import Spec
    from particleflow.initial.base import Start
    from particleflow.plan import Cost
    from particleflow.scenario import Drawing, Scenario
    from particleflow.trajectory import Trajectory

FARTHEST = 1e150  # where squared distances still are numbers

Progress = bool | Callable[[Any], None]
Report = Callable[[str, int, int], None]


@dataclass
class Outcome:
    """What a run left: its folder, how it ended, the products made, and the reasons for those that failed."""

    folder: Path
    status: str
    message: str | None = None
    frames: int = 0
    products: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def new_folder(stem: str, output: str | Path | None, root: str | Path = "outputs") -> Path:
    """Make the folder of a new run: `output` itself, or the next number under outputs/<scenario>; never one in use.

    A scenario file, still empty, tells other processes that it is.
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


def freeze(scenario: "Scenario", folder: Path, *, swept: bool = False) -> str:
    """Write the scenario into its run folder together with everything it reads from files; returns the text.

    What its sweep reads from files belongs to it if it is `swept`. Values that were left open are written down as they
    were chosen, unless they are for every run of a sweep to choose.
    """
    from particleflow.scenario import Drawing

    draw, raw = Drawing(scenario.document), scenario.raw
    for call in scenario.document.calls():
        for path, value in _frozen(call, draw, folder):
            raw = _toml.with_value(raw, _place(raw, path), value)
    if swept:
        raw = {**raw, "sweep": _with_frozen_sweep(raw["sweep"], scenario.folder, folder)}
    chosen = {} if swept and _sweeps_steps(raw["sweep"]) else scenario.document.chosen
    for path, value in chosen.items():
        raw = _toml.with_value(raw, _toml.parse_path(path), value)
    text = _toml.rewritten(scenario.source, raw, dict.fromkeys(chosen, "chosen"))
    write_text(folder / SCENARIO_FILE, text)
    return text


def _sweeps_steps(sweep: dict[str, Any]) -> bool:
    """Whether the runs of a sweep may differ in what is chosen for them."""
    return any(key.split(".")[0] in ("time", "precision", "temperature", "common_temperature") for key in sweep)


def _frozen(call: "Spec", draw: "Drawing", folder: Path) -> Iterator[tuple[str, Any]]:
    """The values of a scenario that change when what a call reads becomes part of the run, by their paths.

    A cloud from files and arrays from files become files of the run; paths of anything else become absolute.
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
    """A [sweep] table whose arrays from files are files of the run; what is no array is left for the runs to refuse."""
    from particleflow._schema.numbers import is_file

    lists = {key: values for key, values in sweep.items() if isinstance(values, list)}
    names: dict[str, str] = {}
    for path in dict.fromkeys(value for values in lists.values() for value in values if is_file(value)):
        with contextlib.suppress(OSError, ValueError, EOFError):
            array = np.load(home / path, allow_pickle=False)
            names[path] = _input(folder, f"sweep.{len(names)}.npy", array)

    def frozen(value: Any) -> Any:
        return names.get(value, value) if is_file(value) else value

    return sweep | {key: [frozen(value) for value in values] for key, values in lists.items()}


def _place(raw: dict[str, Any], path: str) -> list[str | int]:
    """Where a path leads in a file, which may hold its only drift as a table instead of a list of one."""
    parts = _toml.parse_path(path)
    return [parts[0], *parts[2:]] if parts[0] == "drift" and isinstance(raw["drift"], dict) else parts


def _cloud_arrays(start: "Start") -> dict[str, np.ndarray]:
    measure = start.measure
    fields = {name: getattr(measure, name) for name in ("points", "log_weights", "values", "positions")}
    fields["labels"] = start.labels
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


def run_scenario(
    scenario: "Scenario",
    folder: Path,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    announce: Callable[["Cost"], None] | None = None,
) -> "Trajectory":
    """Simulate a scenario into its folder, from the start or from the last checkpoint, and return the trajectory.

    A run that has come to its end is not touched again. `announce` is told what the run will cost before it begins.
    """
    from particleflow.simulation import simulate
    from particleflow.trajectory import Trajectory

    path = folder / TRAJECTORY_FILE
    if resume and path.exists():
        trajectory = Trajectory.open(path)
        if trajectory.status in (Status.FINISHED, Status.STOPPED):
            return trajectory
        trajectory.close()
    text = scenario.text if resume else freeze(scenario, folder)
    setup = scenario.build(check=False)
    if announce is not None:
        announce(setup.cost())
    provenance = {
        "title": scenario.title,
        "name": scenario.name,
        "scenario": text,
        "seed": scenario.document.seed,
        **setup.facts,
        "chosen": scenario.document.chosen,
    }
    try:
        return simulate(
            setup.flow, setup.start, setup.times, store=path, resume=resume and path.exists(), labels=setup.labels,
            provenance=provenance, progress=progress, **setup.arguments, **setup.storing,
        )  # fmt: skip
    except ParticleflowError:
        raise
    except Exception as error:
        scenario.build()  # says what does not fit together, if that is the reason
        said = blamed(error) or f"{type(error).__name__}: {str(error)[:300]}"
        raise RunError(f"The run in {folder} failed: {said}") from error


def discard_if_empty(folder: Path) -> None:
    """Take back the folder of a run that never began."""
    known = {SCENARIO_FILE, INPUTS_FOLDER}
    if folder.is_dir() and all(each.name in known for each in folder.iterdir()):
        shutil.rmtree(folder)


def make_products(
    folder: Path, trajectory: "Trajectory", wanted: dict[str, bool], outcome: Outcome, report: Report | None = None
) -> None:
    """Make the products that are wanted and not there yet; one that fails is noted and the others go on."""
    if len(trajectory) == 0:
        return
    say = report or (lambda *_: None)
    makers = {"summary": _summary, "figures": _figures, "movie": _movie, "page": _page}
    analysis, due = _Analysis(trajectory, kept_threshold(folder)), []
    for name in PRODUCTS:
        there = [file for file in FILES[name] if (folder / file).exists()]
        if there:
            outcome.products[name] = there[0]
        elif wanted.get(name, True):
            due.append(name)
    with contextlib.ExitStack() as beside:
        finish: list[tuple[str, Callable[[], str]]] = []
        for name in due:
            say(name, 0, 0)
            if (
                name == "figures"
                and due[-1] != name
                and (drawing := _drawn_beside(folder, trajectory, analysis, beside))
            ):
                finish.append((name, drawing))
            else:
                _make(name, outcome, lambda name=name: makers[name](folder, trajectory, analysis, say))
        for name, make in finish:
            say(name, 0, 0)
            _make(name, outcome, make)


def _make(name: str, outcome: Outcome, maker: Callable[[], str]) -> None:
    """Make a product, or note why it failed: a picture that cannot be drawn must not cost the run."""
    try:
        outcome.products[name] = maker()
    except Exception as error:
        kind = "" if isinstance(error, ParticleflowError) else f"{type(error).__name__}: "
        outcome.failures[name] = f"{kind}{str(error)[:300]}"


def _drawn_beside(
    folder: Path, trajectory: "Trajectory", analysis: "_Analysis", until: contextlib.ExitStack
) -> Callable[[], str] | None:
    """Begin to draw the figures in a process of their own; what waits for them, or None where they are drawn here.

    A process that is still at it when `until` ends is stopped.
    """
    from particleflow.view.beside import FiguresBeside, cores

    if cores() < 2 or trajectory.path is None:
        return None
    try:
        process = FiguresBeside(Path(trajectory.path), folder / "figures", analysis.track)
    except Exception:  # drawing them here says what is wrong
        return None
    until.callback(process.stop)

    def wait() -> str:
        process.finish()
        return "figures"

    return wait


class _Analysis:
    """The clusters of a run, found when they are first asked for and then shared by all products."""

    def __init__(self, trajectory: "Trajectory", threshold: float | None):
        self._trajectory, self._threshold = trajectory, threshold
        self._track: Any = None

    @property
    def track(self) -> Any:
        """The cluster track of the (first) run."""
        if self._track is None:
            self._track = track(self._trajectory, self._threshold)
        return self._track


def track(trajectory: "Trajectory", threshold: float | None = None) -> Any:
    """The clusters of the (first) run through time, linked at a distance that the analysis chooses if left out."""
    from particleflow.analysis import track_clusters
    from particleflow.analysis.frames import first_run

    check_extent(trajectory)
    return track_clusters(first_run(trajectory), threshold)


def check_extent(trajectory: "Trajectory") -> None:
    """Refuse points so far out that their distances are no numbers: nothing could be said of them, or be drawn."""
    from particleflow.store.formats import windows

    for window in windows(trajectory):
        points = np.abs(np.asarray(trajectory.points[window]))
        farthest = float(np.max(points, initial=0.0, where=np.isfinite(points)))
        if farthest > FARTHEST:
            raise UserError(
                f"The points of {trajectory.path or 'the run'} reach {farthest:.3g} by time "
                f"{float(trajectory.times[window][-1]):.4g}, too far to measure distances (above {FARTHEST:g}). "
                "Run the scenario in smaller units or to an earlier time; `particleflow export` gives out the points."
            )


def _summary(folder: Path, trajectory: "Trajectory", analysis: _Analysis, say: Report) -> str:
    from particleflow.analysis import write_summary

    check_extent(trajectory)
    write_summary(trajectory, folder / SUMMARY_FILE, progress=lambda done, total: say("summary", done, total))
    return SUMMARY_FILE


def _figures(folder: Path, trajectory: "Trajectory", analysis: _Analysis, say: Report) -> str:
    from particleflow import view

    with written_folder(folder / "figures") as partial:  # a folder of figures is always a complete one
        view.figures(trajectory, partial, analysis=analysis.track)
    return "figures"


def _movie(folder: Path, trajectory: "Trajectory", analysis: _Analysis, say: Report) -> str:
    from particleflow import view

    name = "movie.mp4" if find_spec("imageio_ffmpeg") else "movie.gif"
    view.animate(
        trajectory, folder / name, counts=analysis.track.counts, colors=trajectory.labels,
        progress=lambda done, total: say("movie", done, total),
    )  # fmt: skip
    return name


def _page(folder: Path, trajectory: "Trajectory", analysis: _Analysis, say: Report) -> str:
    from particleflow import view

    view.page(trajectory, folder / PAGE_FILE, analysis=analysis.track)
    return PAGE_FILE


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
    """What to do about a run of a sweep that has no folder of its own."""
    if path.name.isdecimal() and (path.parent / MANIFEST_FILE).is_file():
        return f" `particleflow replay {path.parent} {path.name}` makes this run of the sweep one."
    return ""


def open_run(run: str | Path) -> "Trajectory":
    """The trajectory of a run that is given by its folder or by its trajectory file."""
    from particleflow.trajectory import Trajectory

    folder = folder_of(run)
    path = Path(run)
    if path.is_dir() and not (folder / TRAJECTORY_FILE).is_file():
        hint = f" It holds a sweep: {folder / '0'} is its first run." if (folder / MANIFEST_FILE).is_file() else ""
        raise UserError(f"{folder} has no {TRAJECTORY_FILE}; give a run folder or a trajectory file.{hint}")
    return Trajectory.open(path)
