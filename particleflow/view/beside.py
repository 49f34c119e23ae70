"""Figures drawn by a process of their own, beside whatever else is made of a run, where there is a core for it.

The process is a new one, never a copy of this one: a copy would inherit threads of JAX that do not run in it. It opens
the trajectory by itself, takes the analysis from us, and answers with what went wrong, if anything did.
"""

import os
import pickle
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from particleflow._files import written_folder
from particleflow.errors import ParticleflowError, StoreError

_DRAW = "from particleflow.view.beside import draw; draw()"


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class FiguresBeside:
    """The figures of the trajectory in `path`, on their way to `folder`, which appears when they are all there."""

    def __init__(self, path: Path, folder: Path, analysis: Any) -> None:
        self._resources = ExitStack()
        try:
            partial = self._resources.enter_context(written_folder(folder))
            self._answer = self._resources.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
            task = self._resources.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
            task.write(pickle.dumps((str(path.absolute()), str(Path(partial).absolute()), analysis)))
            task.seek(0)
            known = os.pathsep.join(entry for entry in sys.path if entry)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _DRAW],
                stdin=task,
                stdout=self._answer,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": known, "MPLBACKEND": "Agg"},
                start_new_session=True,  # Ctrl-C is for us, who then stop it
            )
        except BaseException:
            self._resources.__exit__(*sys.exc_info())
            raise

    def finish(self) -> None:
        """Wait for the figures, and put them into their place; raises what went wrong."""
        code = self._process.wait()
        self._answer.seek(0)
        said = self._answer.read().decode("utf-8", "replace").strip()
        if code != 0:
            raise StoreError(said or f"The process that draws the figures ended with exit code {code}.")
        self._resources.close()

    def stop(self) -> None:
        """End the process if it still runs, and take back what it has drawn; after `finish` this does nothing."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        stopped = StoreError("The figures were not finished.")
        self._resources.__exit__(StoreError, stopped, None)


def draw() -> None:
    """What that process does: draw the figures of its task."""
    path, folder, analysis = pickle.load(sys.stdin.buffer)
    from particleflow.trajectory import Trajectory
    from particleflow.view.drawing.collection import figures

    try:
        with Trajectory.open(path) as trajectory:
            figures(trajectory, folder, analysis=analysis)
    except Exception as error:
        kind = "" if isinstance(error, ParticleflowError) else f"{type(error).__name__}: "
        sys.stdout.write(f"{kind}{str(error)[:300]}")
        sys.stdout.flush()
        sys.exit(1)
