"""The products of a run: summary, figures, movie and page, each made once and whole, or reported as failed."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from particleflow._support.files import refuse_link, written_folder
from particleflow._support.own_process import is_command_line
from particleflow._support.progress import Progress
from particleflow.analysis.density.cells import is_density
from particleflow.app.runs.extent import check_extent
from particleflow.app.runs.folder_contents import (
    PAGE_FILE,
    PRODUCTS,
    SUMMARY_FILE,
    kept_threshold,
    older_files,
    products_in,
)
from particleflow.errors import ParticleflowError
from particleflow.view.made_of import made_of

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

Report = Callable[[str, int, int], None]  # (name of the product, done, total)
Maker = Callable[[Path, "Trajectory", "_Analysis", Progress], str]


@dataclass
class Outcome:
    """What a run left: its folder, how it ended, the products made, and the reasons for those that failed."""

    folder: Path
    status: str
    message: str | None = None
    frames: int = 0
    products: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def make_products(
    folder: Path, trajectory: "Trajectory", wanted: dict[str, Any], outcome: Outcome, report: Report | None = None
) -> None:
    """Make the products that are wanted and not there yet, and again those that are older than the run.

    Parameters: `wanted`, whether each product is, true if left out; for figures also "all" or a list of their names.
    One that fails is noted, and the others are still made. For the command line other processes draw figures and movie
    meanwhile, if they are not there yet; from Python no process is started.
    """
    if len(trajectory) == 0:
        return
    say = report or (lambda *_: None)
    makers: dict[str, Maker] = {"summary": _summary, "figures": _figures, "movie": _movie, "page": _page}
    analysis, due = _Analysis(trajectory, kept_threshold(folder), say, _only(wanted)), []
    there, old = products_in(folder), older_files(folder, len(trajectory))
    for name in PRODUCTS:
        if name in old:
            due.append(name)
        elif name in there:
            outcome.products[name] = there[name]
        elif wanted.get(name, True) is not False:
            due.append(name)
    with contextlib.ExitStack() as until:
        elsewhere = is_command_line() and "figures" in due and len(due) > 1 and not old
        waited = _drawn_elsewhere(folder, trajectory, analysis, due, until) if elsewhere else {}
        for name in [*(name for name in due if name not in waited), *waited]:  # other processes are awaited last
            maker = waited.get(name) or makers[name]
            _make(name, outcome, partial(maker, folder, trajectory, analysis, partial(say, name)))


def _only(wanted: dict[str, Any]) -> str | list[str] | None:
    """Which figures are wanted, as `view.figures` takes it: "all", a list of names, or None for those that lead."""
    figures = wanted.get("figures", True)
    return None if isinstance(figures, bool) else figures


def _make(name: str, outcome: Outcome, maker: Callable[[], str]) -> None:
    """Make a product, or note why it failed: a picture that cannot be drawn must not cost the run."""
    try:
        outcome.products[name] = maker()
    except Exception as error:
        kind = "" if isinstance(error, ParticleflowError) else f"{type(error).__name__}: "
        outcome.failures[name] = f"{kind}{str(error)[:300]}"


def _drawn_elsewhere(
    folder: Path, trajectory: "Trajectory", analysis: "_Analysis", due: list[str], until: contextlib.ExitStack
) -> dict[str, Maker]:
    """Let other processes draw the figures and the movie; returns functions that wait for them, by product.

    The processes are stopped if they still run when `until` ends. The result is empty where everything is to be drawn
    in this process.
    """
    from particleflow.app.runs.drawing_process import DrawingProcesses, NotStartedError, cores

    if cores() < 2 or trajectory.path is None:
        return {}
    movie = folder / _movie_name() if "movie" in due else None
    try:
        drawing = DrawingProcesses(Path(trajectory.path), folder / "figures", movie)
    except Exception:  # drawing in this process then reports the reason
        return {}
    until.callback(drawing.stop)
    failure: Exception | None = None
    try:
        drawing.begin(*_found(trajectory, analysis, movie is not None), analysis.only)
    except Exception as error:
        failure = error

    def wait(finish: Callable[[Progress], None], product: str, make: Maker) -> Maker:
        def waited(folder: Path, trajectory: "Trajectory", analysis: "_Analysis", progress: Progress) -> str:
            if failure is not None:
                raise failure
            progress(0, 0)
            try:
                finish(progress)
            except NotStartedError:
                return make(folder, trajectory, analysis, progress)
            return product

        return waited

    figures = {"figures": wait(drawing.finish, "figures", _figures)}
    return figures if movie is None else {"movie": wait(drawing.finish_movie, movie.name, _movie), **figures}


def _found(trajectory: "Trajectory", analysis: "_Analysis", movie: bool) -> tuple[Any, Any]:
    """The task of the drawing processes: the clusters, and the counts that a movie shows.

    They find the peaks of a density themselves, which takes no longer than sending them.
    """
    clusters = None if is_density(trajectory) else analysis.track
    return clusters, _movie_counts(trajectory, analysis) if movie else None


class _Analysis:
    """The clusters of a run, or its peaks, computed when they are first needed and then shared by all products.

    `only` says which figures are wanted.
    """

    def __init__(self, trajectory: "Trajectory", threshold: float | None, say: Report, only: Any = None):
        self._trajectory, self._threshold, self._say, self.only = trajectory, threshold, say, only
        self._track: Any = None

    @property
    def track(self) -> Any:
        """The clusters of the (first) run through time; of a density its peaks."""
        if self._track is None:
            name = "peaks" if is_density(self._trajectory) else "clusters"
            self._say(name, 0, 0)
            self._track = track(self._trajectory, self._threshold, partial(self._say, name))
        return self._track


def track(trajectory: "Trajectory", threshold: float | None = None, progress: Progress | None = None) -> Any:
    """The clusters or peaks of a run that is small enough to be analysed; parameters as for `found_structure`."""
    from particleflow.view.findings import found_structure

    check_extent(trajectory)
    return found_structure(trajectory, threshold, progress)


def _summary(folder: Path, trajectory: "Trajectory", analysis: _Analysis, progress: Progress) -> str:
    """Write the summary, with the clusters or peaks that all products share."""
    from particleflow.analysis import write_summary

    known = analysis.track
    progress(0, 0)
    write_summary(trajectory, folder / SUMMARY_FILE, track=known, progress=progress)
    return SUMMARY_FILE


def _figures(folder: Path, trajectory: "Trajectory", analysis: _Analysis, progress: Progress) -> str:
    """Draw the figures that are wanted into a folder that appears when all of them are there.

    In a folder that is there, figures that are older than the run are drawn again in the same formats, and those that
    are wanted with them; those that do not suit it any more are removed. What else is in the folder stays, copies under
    other names among it.
    """
    from particleflow import view
    from particleflow.view.plots.figure_set import FORMATS

    clusters, target = analysis.track, folder / "figures"
    progress(0, 0)
    if not target.exists():
        with written_folder(target) as unfinished:  # a folder of figures is always a complete one
            view.figures(trajectory, unfinished, only=analysis.only, analysis=clusters, progress=progress)
        return "figures"
    refuse_link(target)
    old = older_files(folder, len(trajectory)).get("figures", ())
    there = [name for name in view.figure_names(trajectory, clusters) if name in {path.stem for path in old}]
    for format in sorted({path.suffix.removeprefix(".") for path in old} & set(FORMATS)):
        drawn = view.figures(
            trajectory, target, only=analysis.only, analysis=clusters, format=format, progress=progress
        )
        others = [name for name in there if name not in {path.stem for path in drawn}]
        view.figures(trajectory, target, only=others, analysis=clusters, format=format)
    for path in older_files(folder, len(trajectory)).get("figures", ()):
        path.unlink()
    return "figures"


def _movie(folder: Path, trajectory: "Trajectory", analysis: _Analysis, progress: Progress) -> str:
    """Draw the movie, with the number of clusters or peaks beside the particles."""
    from particleflow import view

    old = older_files(folder, len(trajectory)).get("movie", ())
    names, counts = [path.name for path in old] or [_movie_name()], _movie_counts(trajectory, analysis)
    progress(0, 0)
    distance = made_of(trajectory, getattr(analysis.track, "threshold", None)).threshold
    for name in names:
        view.animate(
            trajectory, folder / name, counts=counts, colors=trajectory.labels, threshold=distance, progress=progress
        )
    return names[0]


def _movie_name() -> str:
    """An MP4 where there is an encoder, else a GIF."""
    return "movie.mp4" if find_spec("imageio_ffmpeg") else "movie.gif"


def _movie_counts(trajectory: "Trajectory", analysis: _Analysis) -> Any:
    """The numbers of clusters or peaks that the movie shows beside the particles, if they mean something."""
    from particleflow.view.findings import pick, worth_showing

    return pick(worth_showing(trajectory, analysis.track), "counts")


def _page(folder: Path, trajectory: "Trajectory", analysis: _Analysis, progress: Progress) -> str:
    """Write the interactive page."""
    from particleflow import view
    from particleflow.view.findings import worth_showing

    clusters = worth_showing(trajectory, analysis.track) or False
    progress(0, 0)
    view.page(trajectory, folder / PAGE_FILE, analysis=clusters, progress=progress)
    return PAGE_FILE
