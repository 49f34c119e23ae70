"""Figures drawn by a process of their own, beside whatever else is made of a run, where there is a core for it.

The process is a new one, never a copy of this one: a copy would inherit threads of JAX that do not run in it. It loads
what it draws with while we still look for clusters. Then it opens the trajectory by itself, takes the clusters from us
(the peaks of a density it finds itself), and answers with a line for every figure ("3 10", the third of ten), and with
what went wrong as the last one, if anything did.
"""

import gc
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow._files import written_folder
from particleflow.errors import ParticleflowError, StoreError

if TYPE_CHECKING:
    from particleflow.analysis.tracking import ClusterTrack

_LOOK = 0.2  # seconds between two looks at how far it is
_COUNT = re.compile(r"\d+ \d+")
_DRAW = "from particleflow.beside import draw; draw()"


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class FiguresBeside:
    """The figures of the trajectory in `path`, on their way to `folder`, which appears when they are all there.

    The process starts at once, and draws as soon as `begin` tells it of the clusters.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        self._resources = ExitStack()
        try:
            partial = self._resources.enter_context(written_folder(folder))
            self._answer = self._resources.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
            self._labels = Path(self._resources.enter_context(tempfile.TemporaryDirectory())) / "labels.npy"
            self._paths = [str(each.absolute()) for each in (path, Path(partial), self._labels)]
            known = os.pathsep.join(entry for entry in sys.path if entry)
            # one thread: the other cores have work, and small products take longer on several
            settings = {"PYTHONPATH": known, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _DRAW],
                stdin=subprocess.PIPE,
                stdout=self._answer,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **settings},
                start_new_session=True,  # Ctrl-C is for us, who then stop it
            )
        except BaseException:
            self._resources.__exit__(*sys.exc_info())
            raise

    def begin(self, track: "ClusterTrack | None") -> None:
        """Let it draw, with these clusters."""
        arrays: dict[str, Any] = {} if track is None else track.arrays()
        np.save(self._labels, arrays.pop("labels", ()))  # by itself: a file of its own need not be in memory as a whole
        task = io.BytesIO()
        np.savez(task, paths=np.array(self._paths), **arrays)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError), self._process.stdin as pipe:  # one that has ended says why in `finish`
            pipe.write(task.getbuffer())

    def finish(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Wait for the figures, and put them into their place; raises what went wrong.

        Parameters: `progress` is told how many figures there are, and of how many.
        """
        code, said = None, ""
        while code is None:
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(_LOOK)
            before, said = said, self._last_line()
            if progress is not None and said != before and _COUNT.fullmatch(said):
                progress(*map(int, said.split()))
        if code != 0:
            reason = "" if _COUNT.fullmatch(said) else said
            raise StoreError(reason or f"The process that draws the figures ended with exit code {code}.")
        self._resources.close()

    def _last_line(self) -> str:
        """The last whole line of the answer; read from its place, for the process goes on writing where it is."""
        size = os.fstat(self._answer.fileno()).st_size
        lines = os.pread(self._answer.fileno(), size, 0).decode("utf-8", "replace").split("\n")
        return lines[-2] if len(lines) > 1 else ""

    def stop(self) -> None:
        """End the process if it still runs, and take back what it has drawn; after `finish` this does nothing."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        stopped = StoreError("The figures were not finished.")
        self._resources.__exit__(StoreError, stopped, None)


def draw() -> None:
    """What that process does: draw the figures of its task."""
    gc.set_threshold(100_000, 20, 20)  # a figure is thousands of small objects: looking for cycles takes a twentieth
    from particleflow.analysis.tracking import ClusterTrack
    from particleflow.trajectory import Trajectory
    from particleflow.view.drawing.collection import figures

    _warm_up()
    given = io.BytesIO(sys.stdin.buffer.read())
    if not given.getbuffer():  # whoever started us has gone, or wants nothing any longer
        sys.exit(1)
    with np.load(given, allow_pickle=False) as task:
        path, folder, shared = task["paths"].tolist()
        track = None
        if "counts" in task:
            labels = np.load(shared, mmap_mode="r", allow_pickle=False)
            track = ClusterTrack.from_arrays({**task, "labels": labels})
    try:
        with Trajectory.open(path) as trajectory:
            figures(trajectory, folder, analysis=track, progress=lambda done, total: _say(f"{done} {total}"))
    except Exception as error:
        kind = "" if isinstance(error, ParticleflowError) else f"{type(error).__name__}: "
        _say(" ".join(f"{kind}{str(error)[:300]}".split()))
        sys.exit(1)


def _warm_up() -> None:
    """Draw a figure that nobody sees: half a second of loading, fonts and formulas is over when the task comes."""
    from scipy import sparse, spatial  # noqa: F401

    from particleflow.view import style
    from particleflow.view.drawing.base import SQUARE, new_axes

    with style.use("light"):
        axes = new_axes(None, SQUARE)
        axes.set_title(r"$10^{-1}$, $\beta$")
        axes.figure.canvas.draw()


def _say(line: str) -> None:
    sys.stdout.buffer.write(f"{line}\n".encode())
    sys.stdout.buffer.flush()
