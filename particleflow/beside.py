"""Figures and movie drawn by processes of their own, beside whatever else is made of a run, where there is a core.

The process is a new one, never a copy of this one: a copy would inherit threads of JAX that do not run in it. It loads
what it draws with while we still look for clusters, takes them from us (the peaks of a density it finds itself), and
opens the trajectory by itself. For the movie it makes a copy of itself, which need not load everything again. Each
answers with a line for every picture ("3 10", the third of ten), and at last with "done" or with what went wrong.
"""

import gc
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow._files import advice_for, reason_of, replace, written_folder
from particleflow.errors import ParticleflowError, StoreError

if TYPE_CHECKING:
    from particleflow.analysis.tracking import ClusterTrack

Progress = Callable[[int, int], None]

_LOOK = 0.2  # seconds between two looks at how far it is
_COUNT = re.compile(r"\d+ \d+")
_DONE = "done"
_FILM = ".movie"  # a folder for a movie that is not finished
_DRAW = "from particleflow.beside import draw; draw()"
_LATER = 2  # niceness of the movie: with its encoder it keeps two cores busy by itself, figures keep only one


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def movies_too() -> bool:
    """Whether the process can make a copy of itself for the movie; other systems' libraries do not survive that."""
    return sys.platform == "linux"


class DrawnBeside:
    """The figures of the trajectory in `path`, on their way to `folder`, which appears when they are all there.

    The process starts at once, and draws as soon as `begin` tells it of the clusters. With `movie`, the path of one, it
    draws that too; wait for it before the figures.
    """

    def __init__(self, path: Path, folder: Path, movie: Path | None = None) -> None:
        self._resources = ExitStack()
        try:
            partial = Path(self._resources.enter_context(written_folder(folder)))
            self._folder, self._movie, self._unfinished = folder, movie, partial / _FILM
            self._answers = [self._resources.enter_context(tempfile.TemporaryFile()) for _ in range(2)]  # noqa: SIM115
            self._labels = Path(self._resources.enter_context(tempfile.TemporaryDirectory())) / "labels.npy"
            film = self._unfinished / movie.name if movie is not None else None
            self._paths = ["" if each is None else str(each.absolute()) for each in (path, partial, self._labels, film)]
            known = os.pathsep.join(entry for entry in sys.path if entry)
            # one thread: the other cores have work, and small products take longer on several
            settings = {"PYTHONPATH": known, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _DRAW],
                stdin=subprocess.PIPE,
                stdout=self._answers[0],
                stderr=subprocess.DEVNULL,
                pass_fds=() if movie is None else (self._answers[1].fileno(),),
                env={**os.environ, **settings},
                start_new_session=True,  # Ctrl-C is for us, who then stop it
            )
        except BaseException:
            self._resources.__exit__(*sys.exc_info())
            raise

    def begin(self, track: "ClusterTrack | None", counts: Any = None) -> None:
        """Let it draw, with these clusters, and these counts (T,) of them in the movie."""
        arrays: dict[str, Any] = {} if track is None else track.arrays()
        try:
            np.save(self._labels, arrays.pop("labels", ()))  # a file of its own need not be in memory as a whole
        except OSError as error:
            why = f"{reason_of(error)}. {advice_for(error)}".rstrip()
            raise StoreError(f"Cannot write {self._labels}: {why}") from error
        if counts is not None:
            arrays["movie_counts"] = counts
        task = io.BytesIO()
        np.savez(task, paths=np.array(self._paths), answers=[each.fileno() for each in self._answers], **arrays)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError), self._process.stdin as pipe:  # one that has ended says why in `finish`
            pipe.write(task.getbuffer())

    def finish(self, progress: Progress | None = None) -> None:
        """Wait for the figures, and put them into their place; raises what went wrong.

        Parameters: `progress` is told how many figures there are, and of how many.
        """
        self._wait(self._answers[0], "figures", progress, {self._paths[1]: self._folder})
        self._resources.close()

    def finish_movie(self, progress: Progress | None = None) -> None:
        """Wait for the movie, and put it into its place; raises what went wrong.

        Parameters: `progress` is told how many frames there are, and of how many.
        """
        assert self._movie is not None
        try:
            self._wait(self._answers[1], "movie", progress, {str(self._unfinished.absolute()): self._movie.parent})
            replace(self._unfinished / self._movie.name, self._movie)
        finally:
            shutil.rmtree(self._unfinished, ignore_errors=True)

    def _wait(self, answer: Any, what: str, progress: Progress | None, names: dict[str, Path]) -> None:
        """Wait until an answer is complete; what the process has said when it ends is all that it says.

        Parameters: `names` are what hidden folders are called in an error.
        """
        said, reached = "", ""
        while said in ("", reached):
            code = self._process.poll()
            lines = _lines(answer)
            said, before = lines[-1] if lines else "", reached
            reached = next((line for line in reversed(lines) if _COUNT.fullmatch(line)), "")
            if progress is not None and reached != before:
                progress(*map(int, reached.split()))
            if said in ("", reached) and code is not None:
                raise StoreError(f"The process that draws the {what} ended with exit code {code}.")
            if said in ("", reached):
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(_LOOK)
        if said != _DONE:
            raise StoreError(reduce(lambda text, hidden: text.replace(hidden, str(names[hidden])), names, said))

    def stop(self) -> None:
        """End the processes if they still run, and take back what is not finished; after `finish` this does nothing."""
        if self._process.poll() is None:
            if movies_too():
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)  # its copy as well
            self._process.kill()
            self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        stopped = StoreError("The figures were not finished.")
        self._resources.__exit__(StoreError, stopped, None)


def _lines(answer: Any) -> list[str]:
    """The whole lines of an answer; read from its place, for the process goes on writing where it is."""
    size = os.fstat(answer.fileno()).st_size
    return os.pread(answer.fileno(), size, 0).decode("utf-8", "replace").split("\n")[:-1]


def draw() -> None:
    """What that process does: draw the figures of its task, and the movie in a copy of itself."""
    gc.set_threshold(100_000, 20, 20)  # a figure is thousands of small objects: looking for cycles takes a twentieth
    _without_documentation()
    from particleflow.analysis.tracking import ClusterTrack
    from particleflow.view.drawing.collection import figures

    _warm_up()
    given = io.BytesIO(sys.stdin.buffer.read())
    if not given.getbuffer():  # whoever started us has gone, or wants nothing any longer
        sys.exit(1)
    with np.load(given, allow_pickle=False) as task:
        path, folder, shared, film = task["paths"].tolist()
        answer = int(task["answers"][1])
        counts = task.get("movie_counts")
        track = None
        if "counts" in task:
            labels = np.load(shared, mmap_mode="r", allow_pickle=False)
            track = ClusterTrack.from_arrays({**task, "labels": labels})
    movie = os.fork() if film else None
    if movie == 0:
        os.nice(_LATER)
        os._exit(_answer(answer, path, lambda trajectory, tell: _film(trajectory, film, counts, tell)))
    code = _answer(1, path, lambda trajectory, tell: figures(trajectory, folder, analysis=track, progress=tell))
    if movie is not None:
        os.waitpid(movie, 0)
    sys.exit(code)


def _film(trajectory: Any, path: str, counts: Any, tell: Progress) -> None:
    from particleflow.view.animation.movie import animate

    Path(path).parent.mkdir()
    animate(trajectory, path, counts=counts, colors=trajectory.labels, progress=tell)


def _answer(descriptor: int, path: str, make: Callable[[Any, Progress], Any]) -> int:
    """Make something of the trajectory in `path`, and say how it goes; returns the exit code."""
    from particleflow.trajectory import Trajectory

    def say(line: str) -> None:
        os.write(descriptor, f"{line}\n".encode())

    try:
        with Trajectory.open(path) as trajectory:
            make(trajectory, lambda done, total: say(f"{done} {total}"))
    except Exception as error:
        kind = "" if isinstance(error, ParticleflowError) else f"{type(error).__name__}: "
        say(" ".join(f"{kind}{str(error)[:300]}".split()) or type(error).__name__)
        return 1
    say(_DONE)
    return 0


def _without_documentation() -> None:
    """Load matplotlib without its pages on every class of artist, half of its time: nobody reads them here."""
    with suppress(ImportError, AttributeError):  # private: where it is gone, they are written
        artist: Any = import_module("matplotlib.artist").Artist
        assert artist._update_set_signature_and_docstring
        artist._update_set_signature_and_docstring = classmethod(lambda cls: None)


def _warm_up() -> None:
    """Draw a figure that nobody sees: half a second of loading, fonts and formulas is over when the task comes."""
    from scipy import sparse, spatial  # noqa: F401

    from particleflow.view import style
    from particleflow.view.drawing.base import SQUARE, new_axes

    with style.use("light"):
        axes = new_axes(None, SQUARE)
        axes.set_title(r"$10^{-1}$, $\beta$")
        axes.figure.canvas.draw()
