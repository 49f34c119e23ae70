"""Progress of long work: the type of the functions that report it, and the bar that shows it on a terminal.

Analyses, pictures and products take a `Progress` or None. `simulate` and `learn`, which report more than two numbers
at every step, take any function; `reporting` draws the bar where `progress` is true.
"""

import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from particleflow._support.text import duration
from particleflow.errors import ArgumentError

# Called with the amount done and the total; with (0, 0) when work has begun whose total is not known yet.
Progress = Callable[[int, int], None]


_LEAST_DONE = 0.05  # of all work, before the time left is estimated


class TimeLeft:
    """The seconds that work will still take: what is left of it times the seconds per unit of its latest half.

    None where the half before took more than twice or less than half as long per unit, as while the steps of a solver
    still grow, and in the first twentieth: such rates say nothing about what comes. The first call, before which
    programs are compiled, sets the clock.
    """

    def __init__(self, total: float, clock: Callable[[], float] = time.monotonic):
        self._total, self._clock = total, clock
        self._done: list[float] = []  # amounts since the first call, in order
        self._seconds: list[float] = []
        self._first = 0.0

    def __call__(self, done: float) -> float | None:
        """The seconds left after so much of the total."""
        if not self._done:
            self._first = done
        self._done.append(done - self._first)
        self._seconds.append(self._clock())
        half = bisect_right(self._done, self._done[-1] / 2) - 1
        quarter = bisect_right(self._done, self._done[half] / 2) - 1
        if quarter >= half or self._done[-1] < _LEAST_DONE * (self._total - self._first):
            return None
        late, early = self._rate(half, len(self._done) - 1), self._rate(quarter, half)
        return (self._total - done) * late if early / 2 <= late <= 2 * early else None

    def text(self, done: float) -> str:
        """ "about 12 min left", after so much of the total; empty where that is not known or less than a second."""
        left = self(done)
        return "" if left is None or left < 1 else f"about {duration(left)} left"

    def _rate(self, begin: int, end: int) -> float:
        """The seconds per unit between two calls."""
        return (self._seconds[end] - self._seconds[begin]) / (self._done[end] - self._done[begin])


def reporting(
    progress: bool | Callable[..., None] | None,
    label: str,
    total: int,
    told: Callable[..., tuple[int, str]],
    *,
    remaining: bool = True,
    after: float | None = None,
) -> AbstractContextManager[Callable[..., None]]:
    """A function to call at every step of long work: the user's own, or one that moves a bar, or one without effect.

    Parameters: `progress`, a function of the user's, true for a bar, false or None for nothing; the `label` and the
    `total` of the bar; `told`, a function from the arguments of a step to (amount done, text of details); `remaining`,
    whether the remaining time is estimated, for which all amounts must take equally long; `after`, the seconds after
    which there is a bar where `progress` is None, too, but on a terminal only. The bar is drawn on stderr, and only
    where that is a terminal or a notebook: a pipe or a log file stays empty.
    """
    if callable(progress):
        return nullcontext(progress)
    if progress not in (True, False, None):
        raise ArgumentError(f"Argument `progress` must be true, false or a function, but is {progress!r}.")
    unasked = progress is None and after is not None and sys.stderr.isatty()
    console = _console() if progress or unasked else None
    if console is None:
        return nullcontext(lambda *step: None)
    return _moved_bar(make_bar(console, remaining=remaining), label, total, told, after if unasked and after else 0.0)


@contextmanager
def _moved_bar(
    bar: Any, label: str, total: int, told: Callable[..., tuple[int, str]], after: float
) -> Iterator[Callable[..., None]]:
    task, begun = bar.add_task(f"compiling, then {label}", total=total, details=""), time.monotonic()
    with ExitStack() as shown:
        if not after:
            shown.enter_context(bar)

        def show(*step: Any) -> None:
            if not bar.live.is_started:
                if time.monotonic() - begun < after:
                    return
                shown.enter_context(bar)
            done, details = told(*step)
            bar.update(task, description=label, completed=done, details=details)

        yield show


def _console() -> Any:
    """The console on stderr, or None where no bar can be drawn on it."""
    from rich.console import Console

    console = Console(stderr=True)
    return console if sys.stderr.isatty() or console.is_jupyter else None


def make_bar(console: Any, *, remaining: bool = False) -> Any:
    """A bar with a description, the details of its task and the time elapsed.

    Parameters: the `console` of rich to draw on; `remaining`, whether the remaining time is estimated.
    """
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    # Bar and details share the width that the other columns leave: percentage and time fit on a narrow terminal, too.
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        TaskProgressColumn(),
        TextColumn("{task.fields[details]}", markup=False, table_column=Column(ratio=3, no_wrap=True)),
        TimeElapsedColumn(),
    )
    left = (TextColumn("left", markup=False), TimeRemainingColumn()) if remaining else ()
    return Progress(*columns, *left, console=console, transient=False, expand=True)
