"""Figures and movie drawn by processes of their own, while this process makes the other products of a run.

Each process is a new one ("spawn"), never a copy of this one: a copy would inherit threads of JAX that do not run in
it. It loads what it draws with while this process still looks for clusters, takes the clusters through a pipe, opens
the trajectory itself, and answers with its progress and in the end with None or with what went wrong.

A spawned process imports the main module of its parent once more, which is safe for the command line but not for a
script without `if __name__ == "__main__"`. So only the command line starts such processes; from Python all is drawn in
the process that asks for it.
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


_LOOK = 0.2  # seconds between two looks at whether the command was interrupted
_READY = "ready"
_FILM = ".movie"  # the folder, among the unfinished figures, of a movie that is not finished


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class NotStartedError(Exception):
    """The process ended before it could take its task: nothing is lost, and the product can be drawn here."""


class DrawingProcesses:
    """The figures of the trajectory in `path`, on their way to `folder`, which appears when they are all there.

    The process starts at once, and draws as soon as `begin` hands it the clusters. With `movie`, the path of one,
    another process draws that; wait for it before the figures.
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

    def begin(self, track: "ClusterTrack | None", counts: Any = None) -> None:
        """Let them draw, with these clusters, and these counts (T,) of them in the movie."""
        labels = None
        if track is not None:  # the labels of a large run are a file, and are not sent through a pipe
            labels, track = str(self._labels), replace(track, labels=_save(self._labels, track.labels))
        figures = {"folder": str(self._partial.absolute()), "track": track, "labels": labels}
        self._workers["figures"].begin((str(self._path), figures))
        if self._movie is not None:
            film = {"path": str((self._partial / _FILM / self._movie.name).absolute()), "counts": counts}
            self._workers["movie"].begin((str(self._path), film))

    def finish(self, progress: Progress | None = None) -> None:
        """Wait for the figures, and put them into their place; raises what went wrong.

        Parameters: `progress` is told how many figures there are, and of how many.
        """
        self._workers["figures"].finish(progress, {str(self._partial.absolute()): str(self._folder)})
        self._resources.close()

    def finish_movie(self, progress: Progress | None = None) -> None:
        """Wait for the movie, and put it into its place; raises what went wrong.

        Parameters: `progress` is told how many frames there are, and of how many.
        """
        assert self._movie is not None
        unfinished = self._partial / _FILM
        try:
            self._workers["movie"].finish(progress, {str(unfinished.absolute()): str(self._movie.parent)})
            files.replace(unfinished / self._movie.name, self._movie)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def stop(self) -> None:
        """End the processes if they still run, and take back what is not finished; after `finish` this does nothing."""
        for worker in self._workers.values():
            worker.stop()
        stopped = StoreError("The figures were not finished.")
        self._resources.__exit__(StoreError, stopped, None)


class _Worker:
    """A process that draws one product, seen from here."""

    def __init__(self, product: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._product, self._started = product, False
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, product), name=f"draws {product}", daemon=True)
        with _without_interrupts():
            self._process.start()
        theirs.close()

    def begin(self, task: tuple[str, dict[str, Any]]) -> None:
        """Hand the task over; of a process that has ended by then, `finish` says why."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._pipe.send(task)

    def finish(self, progress: Progress | None, names: dict[str, str]) -> None:
        """Wait until the product is there; raises what went wrong, or that the process never came so far as to begin.

        Parameters: `names` are what hidden folders are called in an error.
        """
        while (message := self._next()) is not None:
            if isinstance(message, str):
                for hidden, name in names.items():
                    message = message.replace(hidden, name)
                raise StoreError(message)
            if progress is not None:
                progress(*message)

    def _next(self) -> Any:
        """What the process says next."""
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
    """A process started here never sees Ctrl-C: this one does, and stops it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _save(path: Path, labels: np.ndarray) -> np.ndarray:
    """Save labels, and return none in their place."""
    try:
        np.save(path, labels)
    except OSError as error:
        why = f"{files.reason_of(error)}. {files.advice_for(error)}".rstrip()
        raise StoreError(f"Cannot write {path}: {why}") from error
    return np.empty((0, 0), labels.dtype)


def _work(pipe: Connection, product: str) -> None:
    """What a drawing process does: load what it draws with, take its task, and draw."""
    sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    _warm_up()
    try:
        pipe.send(_READY)
        path, task = pipe.recv()
    except (EOFError, OSError):  # the command has ended, or wants nothing any longer
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


def _figures(trajectory: Any, progress: Progress, folder: str, track: Any, labels: str | None) -> None:
    from particleflow.view.plots.figure_set import figures

    if labels is not None:
        track = replace(track, labels=np.load(labels, mmap_mode="r", allow_pickle=False))
    figures(trajectory, folder, analysis=track, progress=progress)


def _film(trajectory: Any, progress: Progress, path: str, counts: Any) -> None:
    from particleflow.view.movie.movie import animate

    Path(path).parent.mkdir()
    animate(trajectory, path, counts=counts, colors=trajectory.labels, progress=progress)


def _warm_up() -> None:
    """Draw a figure that is thrown away: half a second of loading, fonts and formulas is over when the task comes."""
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
