"""The products of a run: summary, figures, movie and page, each made once and whole, or noted with what went wrong."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow._files import written_folder
from particleflow.errors import ParticleflowError, UserError
from particleflow.folder_contents import FILES, PAGE_FILE, PRODUCTS, SUMMARY_FILE, kept_threshold

if TYPE_CHECKING:
    from particleflow.trajectory import Trajectory

FARTHEST = 1e150  # where squared distances still are numbers

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
            others_follow = name == "figures" and due[-1] != name
            drawing = _drawn_beside(folder, trajectory, analysis, beside) if others_follow else None
            if drawing is not None:
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
