"""Figures and movie drawn by processes of their own, while this process makes the other products of a run.

Each process is a new one ("spawn"), never a fork of this one, in which the threads of JAX would not run. It imports
matplotlib while this process still looks for clusters, receives the clusters through a pipe, opens the trajectory
itself, and sends back its progress and in the end None or an error message.

A spawned process imports the main module of its parent once more, which is safe for the command line but not for a
script without `if __name__ == "__main__"`. So only the command line starts such processes; from Python everything is
drawn in the calling process.
"""

import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow._support import files, signals
from particleflow._support.progress import Progress
from particleflow.errors import ParticleflowError, StoreError

if TYPE_CHECKING:
    from particleflow.analysis.clusters.tracking import ClusterTrack


_LOOK = 0.2  # seconds between two checks whether the command was interrupted
_READY = "ready"
_FILM = ".movie"  # the folder, among the unfinished figures, of a movie that is not finished


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class NotStartedError(Exception):
    """The process ended before it received its task, so that the product can still be drawn in this process."""


class DrawingProcesses:
    """Processes that draw the figures of the trajectory in `path` into `folder`, which appears when all are there.

    The process starts at once, and draws as soon as `begin` sends it the clusters. With `movie`, the path of one,
    another process draws that; call `finish_movie` before `finish`.
    """

    def __init__(self, path: Path, folder: Path, movie: Path | None = None) -> None:
        self._path, self._folder, self._movie = path.absolute(), folder, movie
        self._workers: dict[str, _Worker] = {}
        self._resources = ExitStack()
        try:
            self._partial = Path(self._resources.enter_context(files.written_folder(folder)))
            self._labels = Path(self._resources.enter_context(tempfile.TemporaryDirectory())) / "labels.npy"
            for product in ("figures",) if movie is None else ("figures", "movie"):
                self._workers[product] = _Worker(product)
        except BaseException:
            self.stop()
            raise

    def begin(self, track: "ClusterTrack | None", counts: Any = None, only: Any = None) -> None:
        """Start drawing with the clusters of `track`, and with cluster `counts` (T,) in the movie.

        Parameters: `only`, which figures, as `view.figures` takes it.
        """
        labels = None
        if track is not None:  # the labels of a large run are a file, and are not sent through a pipe
            labels, track = str(self._labels), replace(track, labels=_save(self._labels, track.labels))
        figures = {"folder": str(self._partial.absolute()), "track": track, "labels": labels, "only": only}
        self._workers["figures"].begin((str(self._path), figures))
        if self._movie is not None:
            distance = None if track is None else track.threshold.value
            film = {"path": str((self._partial / _FILM / self._movie.name).absolute()), "counts": counts}
            film |= {"threshold": distance}
            self._workers["movie"].begin((str(self._path), film))

    def finish(self, progress: Progress | None = None) -> None:
        """Wait for the figures, and move them into their folder; raises an error of the drawing process.

        Parameters: `progress(done, total)` counts the figures.
        """
        self._workers["figures"].finish(progress, {str(self._partial.absolute()): str(self._folder)})
        self._resources.close()

    def finish_movie(self, progress: Progress | None = None) -> None:
        """Wait for the movie, and move it to its path; raises an error of the drawing process.

        Parameters: `progress(done, total)` counts the frames.
        """
        assert self._movie is not None
        unfinished = self._partial / _FILM
        try:
            self._workers["movie"].finish(progress, {str(unfinished.absolute()): str(self._movie.parent)})
            files.replace(unfinished / self._movie.name, self._movie)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def stop(self) -> None:
        """Kill processes that still run, and remove unfinished files; products that are finished stay."""
        for worker in self._workers.values():
            worker.stop()
        stopped = StoreError("The figures were not finished.")
        self._resources.__exit__(StoreError, stopped, None)


class _Worker:
    """The handle of a process that draws one product."""

    def __init__(self, product: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._product, self._started = product, False
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, product), name=f"draws {product}", daemon=True)
        with _without_interrupts():
            self._process.start()
        theirs.close()

    def begin(self, task: tuple[str, dict[str, Any]]) -> None:
        """Send the task; if the process has ended by then, `finish` raises the reason."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._pipe.send(task)

    def finish(self, progress: Progress | None, names: dict[str, str]) -> None:
        """Wait for the product; raises the error of the process, or `NotStartedError` if it never began.

        Parameters: `names`, hidden folder → the name that replaces it in an error message.
        """
        while (message := self._next()) is not None:
            if isinstance(message, str):
                for hidden, name in names.items():
                    message = message.replace(hidden, name)
                raise StoreError(message)
            if progress is not None:
                progress(*message)

    def _next(self) -> Any:
        """The next message of the process, apart from that it is ready."""
        try:
            while not self._pipe.poll(_LOOK):
                if signals.asked():
                    raise KeyboardInterrupt
            message = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            if not self._started:
                raise NotStartedError from None
            code = self._process.exitcode
            raise StoreError(f"The process that draws the {self._product} ended with exit code {code}.") from None
        if message != _READY:
            return message
        self._started = True
        return self._next()

    def stop(self) -> None:
        """End the process if it still runs."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block SIGINT while a process is started, which inherits the mask: only the parent gets Ctrl-C, and stops it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _save(path: Path, labels: np.ndarray) -> np.ndarray:
    """Save labels to a file, and return an empty array in their place."""
    try:
        np.save(path, labels)
    except OSError as error:
        why = f"{files.reason_of(error)}. {files.advice_for(error)}".rstrip()
        raise StoreError(f"Cannot write {path}: {why}") from error
    return np.empty((0, 0), labels.dtype)


def _work(pipe: Connection, product: str) -> None:
    """The main function of a drawing process: import matplotlib, receive the task, and draw."""
    sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    _warm_up()
    try:
        pipe.send(_READY)
        path, task = pipe.recv()
    except (EOFError, OSError):  # the command has ended or closed the pipe
        return
    make = {"figures": _figures, "movie": _film}[product]
    from particleflow.trajectory.trajectory import Trajectory

    try:
        with Trajectory.open(path) as trajectory:
            make(trajectory, lambda done, total: pipe.send((done, total)), **task)
        pipe.send(None)
    except BrokenPipeError:
        return
    except Exception as error:
        kind = "" if isinstance(error, ParticleflowError) else f"{type(error).__name__}: "
        pipe.send(" ".join(f"{kind}{str(error)[:300]}".split()) or type(error).__name__)


def _figures(trajectory: Any, progress: Progress, folder: str, track: Any, labels: str | None, only: Any) -> None:
    from particleflow.view.plots.figure_set import figures

    if labels is not None:
        track = replace(track, labels=np.load(labels, mmap_mode="r", allow_pickle=False))
    figures(trajectory, folder, only=only, analysis=track, progress=progress)


def _film(trajectory: Any, progress: Progress, path: str, counts: Any, threshold: float | None) -> None:
    from particleflow.view.movie.movie import animate

    Path(path).parent.mkdir()
    animate(trajectory, path, counts=counts, colors=trajectory.labels, threshold=threshold, progress=progress)


def _warm_up() -> None:
    """Draw a figure that is thrown away, so that half a second of imports and fonts is over before the task comes."""
    import matplotlib as mpl

    mpl.use("Agg")
    from scipy import sparse, spatial  # noqa: F401

    from particleflow.view import style
    from particleflow.view.plots.base import SQUARE, new_axes
    from particleflow.view.plots.figure_set import figures  # noqa: F401

    with style.use("light"):
        axes = new_axes(None, SQUARE)
        axes.set_title(r"$10^{-1}$, $\beta$")
        axes.figure.canvas.draw()
