"""A run and its folder: scenario, trajectory, summary, figures, movie and page.

    outputs/<scenario>/<run>/{scenario.toml, trajectory.h5, summary.json, figures/, movie.mp4, viewer.html}

The folder is all that `resume` needs: clouds that were read from files lie in `inputs/`, and `scenario.toml` says so.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow import _toml
from particleflow._files import write_text, written
from particleflow.errors import ParticleflowError, RunError, UserError
from particleflow.status import Status

if TYPE_CHECKING:
    from particleflow.scenario import Scenario
    from particleflow.trajectory import Trajectory

SCENARIO_FILE = "scenario.toml"
TRAJECTORY_FILE = "trajectory.h5"
MANIFEST_FILE = "manifest.json"
FILES = {
    "summary": ("summary.json",),
    "figures": ("figures",),
    "movie": ("movie.mp4", "movie.gif"),
    "page": ("viewer.html",),
}
PRODUCTS = tuple(FILES)

Progress = Callable[[Any], None]
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
    """Make the folder of a new run: `output` itself, or the next number under outputs/<scenario>; never one in use."""
    try:
        if output is not None:
            folder = Path(output)
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise UserError(f"{folder} is in use. Choose another --output; a run is never overwritten.")
            folder.mkdir(parents=True, exist_ok=True)
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
        raise UserError(f"The folder for the run cannot be made: {error}.") from error


def freeze(scenario: "Scenario", folder: Path) -> str:
    """Write the scenario into its run folder together with every cloud it reads from a file; returns the text."""
    raw, changed = dict(scenario.raw), False
    if isinstance(raw.get("drift"), dict):
        raw["drift"] = [raw["drift"]]
    document = scenario.document
    roots = (document.initial, document.geometry, document.event, *document.drifts, *document.observables)
    for spec in [inner for root in roots if root is not None for inner in root.inner() if inner.reads_files]:
        raw, changed = _with_frozen(raw, spec, folder), True
    text = scenario.text
    if changed:
        text = "# Clouds that the original read from files are in inputs/.\n" + _toml.dumps(raw)
    write_text(folder / SCENARIO_FILE, text)
    return text


def _with_frozen(raw: dict[str, Any], spec: Any, folder: Path) -> dict[str, Any]:
    """A cloud from a file becomes a file of the run; the paths of anything else become absolute."""
    if hasattr(spec.target, "counted"):
        name = f"inputs/{spec.path.replace('.', '_')}.npz"
        (folder / "inputs").mkdir(exist_ok=True)
        _save_cloud(folder / name, spec.made)
        table = {"kind": "from_file", "path": name, "retract": spec.retract}
        return _toml.with_value(raw, _toml.parse_path(spec.path), table)
    for name, value in spec.arguments.items():
        if isinstance(value, Path):
            raw = _toml.with_value(raw, _toml.parse_path(f"{spec.path}.{name}"), str(value.resolve()))
    return raw


def _save_cloud(path: Path, initial: Any) -> None:
    import jax

    start = initial.start(jax.random.key(0))
    measure = start.measure
    fields = {name: getattr(measure, name) for name in ("points", "log_weights", "values", "positions")}
    arrays = {name: np.asarray(value) for name, value in fields.items() if value is not None}
    if start.labels is not None:
        arrays["labels"] = start.labels
    with written(path) as partial:
        np.savez(partial, **arrays)  # pyright: ignore[reportArgumentType]


def run_scenario(
    scenario: "Scenario", folder: Path, *, resume: bool = False, progress: Progress | None = None
) -> "Trajectory":
    """Simulate a scenario into its folder, from the start or from the last checkpoint, and return the trajectory.

    A run that has come to its end is not touched again.
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
    provenance = {
        "title": scenario.title,
        "name": scenario.name,
        "scenario": text,
        "seed": scenario.document.seed,
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
        raise RunError(f"The run in {folder} failed: {type(error).__name__}: {str(error)[:300]}") from error


def discard_if_empty(folder: Path) -> None:
    """Take back the folder of a run that never began."""
    known = {SCENARIO_FILE, "inputs"}
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
    analysis = _Analysis(trajectory)
    for name in PRODUCTS:
        there = [file for file in FILES[name] if (folder / file).exists()]
        if there or not wanted.get(name, True):
            if there:
                outcome.products[name] = there[0]
            continue
        say(name, 0, 0)
        try:
            outcome.products[name] = makers[name](folder, trajectory, analysis, say)
        except Exception as error:  # a picture that cannot be drawn must not cost the run
            outcome.failures[name] = f"{type(error).__name__}: {str(error)[:300]}"


class _Analysis:
    """The clusters of a run, found when they are first asked for and then shared by all products."""

    def __init__(self, trajectory: "Trajectory"):
        self._trajectory = trajectory
        self._track: Any = None

    @property
    def track(self) -> Any:
        """The cluster track of the (first) run, or None where it cannot be had."""
        from particleflow.analysis import track_clusters

        if self._track is None:
            single = self._trajectory if self._trajectory.runs is None else self._trajectory.run(0)
            self._track = track_clusters(single)
        return self._track


def _summary(folder: Path, trajectory: "Trajectory", analysis: _Analysis, say: Report) -> str:
    from particleflow.analysis import write_summary

    write_summary(trajectory, folder / "summary.json", progress=lambda done, total: say("summary", done, total))
    return "summary.json"


def _figures(folder: Path, trajectory: "Trajectory", analysis: _Analysis, say: Report) -> str:
    import matplotlib as mpl

    mpl.use("Agg")
    from particleflow import view

    partial = folder / ".figures.partial"  # so that a folder of figures is always a complete one
    shutil.rmtree(partial, ignore_errors=True)
    view.figures(trajectory, partial, analysis=analysis.track)
    partial.rename(folder / "figures")
    return "figures"


def _movie(folder: Path, trajectory: "Trajectory", analysis: _Analysis, say: Report) -> str:
    import matplotlib as mpl

    mpl.use("Agg")
    from particleflow import view

    name = "movie.mp4" if find_spec("imageio_ffmpeg") else "movie.gif"
    view.animate(
        trajectory, folder / name, counts=analysis.track.counts, colors=trajectory.labels,
        progress=lambda done, total: say("movie", done, total),
    )  # fmt: skip
    return name


def _page(folder: Path, trajectory: "Trajectory", analysis: _Analysis, say: Report) -> str:
    from particleflow.view.page import write_page

    write_page(trajectory, folder / "viewer.html", analysis=analysis.track)
    return "viewer.html"


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
            raise UserError(f"There is no run at {str(path)[:200]}.")
    except OSError as error:
        raise UserError(f"{str(path)[:100]!r} cannot be opened: {error.strerror}.") from error
    return path if path.is_dir() else path.parent


def open_run(run: str | Path) -> "Trajectory":
    """The trajectory of a run that is given by its folder or by its trajectory file."""
    from particleflow.trajectory import Trajectory

    folder = folder_of(run)
    path = Path(run)
    if path.is_dir() and not (folder / TRAJECTORY_FILE).is_file():
        raise UserError(f"{folder} has no {TRAJECTORY_FILE}; give a run folder or a trajectory file.")
    return Trajectory.open(path)
