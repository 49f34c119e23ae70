"""Output of the command line: messages and progress to stderr, results to stdout, so that pipes stay clean."""

import json
import math
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from particleflow._support import signals
from particleflow._support.progress import Progress, TimeLeft, make_bar
from particleflow._support.text import plural, printable

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

SIMULATING = "simulating"
_LINE_SECONDS = 5.0
_COUNTED_PARTICLES = 5000


def note(text: str, *, quiet: bool = False) -> None:
    """Print a line for people, to stderr, unless `quiet`."""
    if not quiet:
        print(printable(text), file=sys.stderr, flush=True)


def result(text: str) -> None:
    """Print a result, to stdout; letters that its encoding lacks are written as escapes."""
    try:
        print(text, flush=True)
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def fitted(text: str, columns: int) -> str:
    """A text for stdout, cut to so many columns on a terminal; whole in a pipe or a file, which a program may read."""
    whole = len(text) <= columns or not sys.stdout.isatty()
    return text if whole else text[: columns - 1] + "…"


def result_json(value: Any) -> None:
    """Print a result as one line of JSON, to stdout; never NaN, which JSON lacks."""
    print(json.dumps(value, ensure_ascii=True, allow_nan=False, default=str), flush=True)


class Meter:
    """Progress of long work: a bar on a terminal, a plain line every few seconds otherwise, nothing when quiet.

    `stage(label)` gives the `Progress` of one piece of work; the bar of the piece before it is closed when it begins.
    """

    def __init__(self, *, quiet: bool):
        self.quiet = quiet
        self.bar: Any = None
        self.task: Any = None
        self.label, self.ended = "", False
        self.last = time.monotonic()
        self.begun = self.last
        self.terminal = sys.stderr.isatty()

    def stage(self, label: str) -> Progress:
        """The function to call with how much of the work called `label` is done, and of how much."""
        return partial(self.update, label)

    def __enter__(self) -> "Meter":
        if self.terminal and not self.quiet:
            from rich.console import Console

            self.bar = make_bar(Console(stderr=True))
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.bar is not None:
            if kind is None:
                self._end_task()
            self.bar.stop()

    def _end_task(self) -> None:
        """Stop the clock of the work that is over; a bar of unknown length becomes full."""
        if self.task is not None:
            if self.bar.tasks[self.task].total is None:
                self.bar.update(self.task, completed=1, total=1)
            self.bar.stop_task(self.task)

    def update(self, label: str, done: float, total: float, details: str = "") -> None:
        """Show how far the work called `label` is.

        Parameters: `done` of `total`, (0, 0) where the length is not known; `details`, a few words behind the bar. If a
        signal has come, work other than a run ends here with `KeyboardInterrupt`.
        """
        if signals.asked() and label != SIMULATING:  # a run ends by itself, with its window
            raise KeyboardInterrupt
        if self.quiet:
            return
        if self.bar is not None:
            if label != self.label:
                self._end_task()
                self.task = self.bar.add_task(printable(label), total=total or None, details="")
            self.bar.update(self.task, completed=done, total=total or None, details=printable(details))
            self.label = label
            return
        begins, ends = label != self.label, bool(total) and done >= total
        if begins or time.monotonic() - self.last > _LINE_SECONDS or (ends and not self.ended):  # a pipe gets few lines
            share = f" {100 * done / total:.0f} %" if total else ""
            note(f"{label}{share}{'  ' + details if details else ''}  [{time.monotonic() - self.begun:.0f} s]")
            self.last = time.monotonic()
        self.label, self.ended = label, ends


class RunMeter:
    """Turns the windows of a run into progress: time, step size, energy, clusters, pairs a second, time left.

    Parameters: the `meter` that shows it; the `end` of the run in time and in `frames`; its `geometry` and the
    `linking_distance` of its event, and the kind of its first `drift`, by which clusters are counted as the analysis
    does.
    """

    def __init__(
        self, meter: Meter, end: float, frames: int, geometry: Any = None, linking_distance: float | None = None,
        drift: str | None = None,
    ):  # fmt: skip
        self.meter, self.end, self.frames, self.geometry = meter, end, frames, geometry
        self.linking_distance, self.drift = linking_distance, drift
        self.first: "Trajectory | None" = None  # the first frame, with the facts by which clusters are counted
        self.time_left = TimeLeft(end)
        self.begun: float | None = None  # when the first window was there
        self.pairs = 0  # of the windows since then

    def __call__(self, frames: Any) -> None:
        """Show the progress of the run after a window."""
        if self.meter.quiet or not len(frames.times):
            return
        progress = frames.progress
        parts = [f"t = {progress.time:.4g} of {self.end:.4g}", f"step {float(_first(progress.proposed)):.2g}"]
        for name in ("energy", "log_energy"):
            if name in frames.observables and math.isfinite(value := float(_first(frames.observables[name][-1]))):
                parts.append(f"{name.replace('_', ' ')} {value:.6g}")
                break
        parts += self._clusters(frames)
        parts += self._speed(frames)
        self.meter.update(SIMULATING, progress.frames, self.frames, "  ".join(parts))

    def _speed(self, frames: Any) -> list[str]:
        """Pairs a second and the time left, from the windows after the first, which had to be compiled."""
        now, left = time.monotonic(), self.time_left.text(frames.progress.time)
        if self.begun is None:
            self.begun = now
            return []
        self.pairs += frames.pairs
        is_counted = frames.points is not None and self.pairs
        speed = f"{self.pairs / max(now - self.begun, 1e-9):.1e} pairs/s" if is_counted else ""
        return [part for part in (speed, left) if part]

    def _clusters(self, frames: Any) -> list[str]:
        """The number of clusters at the threshold of the analysis; not for large clouds, where it takes too long."""
        import numpy as np

        if frames.points is None:
            return []
        points = np.asarray(frames.points[-1], dtype=float)
        if points.ndim != 2 or len(points) > _COUNTED_PARTICLES or not np.isfinite(points).all():
            return []
        from particleflow.analysis import choose_threshold, cluster_count
        from particleflow.analysis.clusters.clusters import linked_points
        from particleflow.trajectory.trajectory import Trajectory

        if self.first is None:
            self.first = Trajectory.from_arrays([0.0], frames.points[:1])
            self.first.metadata.update({"linking distance": self.linking_distance, "drift": self.drift})
            if self.geometry is not None:
                self.first.metadata["space"] = self.geometry.facts(points.shape[-1]).description()
        count = cluster_count(linked_points(self.first, points), choose_threshold(self.first).value)
        return ["clusters not separated" if count is None else plural(count, "cluster")]


def _first(values: Any) -> Any:
    import numpy as np

    return np.ravel(values)[0]
