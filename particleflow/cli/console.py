"""Talking to the user: messages and progress on stderr, results on stdout."""

import json
import sys
import time
from typing import Any

from particleflow import stopping
from particleflow.progress_bar import make_bar

SIMULATING = "simulating"
_LINE_SECONDS = 5.0
_COUNTED_PARTICLES = 5000


def note(text: str, *, quiet: bool = False) -> None:
    """A line for people, on stderr."""
    if not quiet:
        print(printable(text), file=sys.stderr, flush=True)


def result(text: str) -> None:
    """A line for programs and people, on stdout; letters that its encoding lacks are written as escapes."""
    try:
        print(text, flush=True)
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def result_json(value: Any) -> None:
    """A result as JSON, on stdout."""
    print(json.dumps(value, ensure_ascii=True, allow_nan=False, default=str), flush=True)


def duration(seconds: float) -> str:
    """A time in the units that a person would use."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def printable(text: str) -> str:
    """Text that cannot play tricks on a terminal: no control characters besides the ends of lines."""
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text)


class Meter:
    """Progress of long work: a bar on a terminal, a plain line every few seconds otherwise, nothing when quiet."""

    def __init__(self, *, quiet: bool):
        self.quiet = quiet
        self.bar: Any = None
        self.task: Any = None
        self.label, self.ended = "", False
        self.last = time.monotonic()
        self.begun = self.last
        self.terminal = sys.stderr.isatty()

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
        """Stop the clock of the work that is over; a bar that did not know its length is full now."""
        if self.task is not None:
            if self.bar.tasks[self.task].total is None:
                self.bar.update(self.task, completed=1, total=1)
            self.bar.stop_task(self.task)

    def update(self, label: str, done: float, total: float, details: str = "") -> None:
        """Say how far the work called `label` is; work that was asked to stop ends here, but for a run."""
        if stopping.asked() and label != SIMULATING:  # a run ends by itself, with its window
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
    """Turns the windows of a run into progress: time, step size, energy, clusters, pairs a second, time left."""

    def __init__(
        self, meter: Meter, end: float, frames: int, geometry: Any = None, linking_distance: float | None = None
    ):
        self.meter, self.end, self.frames, self.geometry = meter, end, frames, geometry
        self.linking_distance = linking_distance
        self.threshold: float | None = None
        self.begun: tuple[float, int] | None = None  # when the first window was there, and its frames
        self.pairs = 0  # of the windows since then

    def __call__(self, frames: Any) -> None:
        """Show how the run stands after a window."""
        if self.meter.quiet or not len(frames.times):
            return
        progress = frames.progress
        parts = [f"t = {progress.time:.4g} of {self.end:.4g}", f"step {float(_first(progress.proposed)):.2g}"]
        for name in ("energy", "log_energy"):
            if name in frames.observables:
                parts.append(f"{name.replace('_', ' ')} {float(_first(frames.observables[name][-1])):.6g}")
        clusters = self._clusters(frames)
        if clusters is not None:
            parts.append(f"{clusters} cluster{'' if clusters == 1 else 's'}")
        parts += self._speed(frames)
        self.meter.update(SIMULATING, progress.frames, self.frames, "  ".join(parts))

    def _speed(self, frames: Any) -> list[str]:
        """Pairs a second and the time left, as the windows after the first one tell (it had to be compiled)."""
        now = time.monotonic()
        if self.begun is None:
            self.begun = now, frames.progress.frames
            return []
        began, frames_before = self.begun
        self.pairs += frames.pairs
        seconds = max(now - began, 1e-9)
        left = seconds * (self.frames - frames.progress.frames) / (frames.progress.frames - frames_before)
        said = [] if left < 1 else [f"about {duration(left)} left"]
        if frames.points is not None and self.pairs:
            said.insert(0, f"{self.pairs / seconds:.1e} pairs/s")
        return said

    def _clusters(self, frames: Any) -> int | None:
        """The number of clusters at the threshold of the analysis; not for large clouds, where it takes too long."""
        import numpy as np

        if frames.points is None:
            return None
        points = np.asarray(frames.points[-1], dtype=float)
        if points.ndim != 2 or len(points) > _COUNTED_PARTICLES or not np.isfinite(points).all():
            return None
        from particleflow.analysis import choose_threshold, cluster_count
        from particleflow.trajectory import Trajectory

        if self.threshold is None:
            first = Trajectory.from_arrays([0.0], frames.points[:1])
            first.metadata["linking distance"] = self.linking_distance
            if self.geometry is not None:
                first.metadata["space"] = self.geometry.facts(points.shape[-1]).description()
            self.threshold = choose_threshold(first).value
        return cluster_count(points, self.threshold)


def _first(values: Any) -> Any:
    import numpy as np

    return np.ravel(values)[0]
