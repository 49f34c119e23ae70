"""Bars on the terminal, and one for a run that a Python program has started; none where nobody would see it move."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from particleflow.errors import ArgumentError

Report = Callable[[Any], None]


def reporting(progress: bool | Report | None, end: float, frames: int) -> AbstractContextManager[Report]:
    """Who is told of every window of a run: the user's own function, a bar if `progress` is true, else nobody.

    Parameters: `progress`; the `end` of the run in time and in `frames`. The bar goes to stderr, and only where that is
    a terminal or a notebook: a pipe or a log file stays empty.
    """
    if callable(progress):
        return nullcontext(progress)
    if progress not in (True, False, None):
        raise ArgumentError(f"Argument `progress` must be true, false or a function of a window, but is {progress!r}.")
    console = _console() if progress else None
    return nullcontext(_nobody) if console is None else _shown(console, end, frames)


def counting(
    progress: bool | Callable[[int, float], None] | None, steps: int, what: str
) -> AbstractContextManager[Callable[[int, float], None]]:
    """Who is told of every step of a search and of its loss: as for `reporting`.

    Parameters: `progress`; the most `steps` that are taken; `what` is done.
    """
    if callable(progress):
        return nullcontext(progress)
    if progress not in (True, False, None):
        raise ArgumentError(f"Argument `progress` must be true, false or a function of a step, but is {progress!r}.")
    console = _console() if progress else None
    return nullcontext(_nobody) if console is None else _counted(console, steps, what)


@contextmanager
def _counted(console: Any, steps: int, what: str) -> Iterator[Callable[[int, float], None]]:
    with make_bar(console) as bar:
        task = bar.add_task(what, total=steps, details="compiling")
        yield lambda step, loss: bar.update(task, completed=step, details=f"loss {loss:.6g}")


def _nobody(*told: Any) -> None:
    """Nobody is told."""


@contextmanager
def _shown(console: Any, end: float, frames: int) -> Iterator[Report]:
    with make_bar(console, remaining=True) as bar:
        task = bar.add_task("compiling, first window", total=frames, details="")

        def show(window: Any) -> None:
            reached = window.progress
            details = f"t = {reached.time:.4g} of {end:.4g}"
            bar.update(task, description="simulating", completed=reached.frames, details=details)

        yield show


def _console() -> Any:
    """Where a bar can be drawn, or None."""
    from rich.console import Console

    console = Console(stderr=True)
    return console if sys.stderr.isatty() or console.is_jupyter else None


def make_bar(console: Any, *, remaining: bool = False) -> Any:
    """A bar with a description, the details of its task and the time elapsed; with an estimate of what remains."""
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    # bar and details share what the others leave: else a narrow terminal would show neither percentage nor time
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        TaskProgressColumn(),
        TextColumn("{task.fields[details]}", markup=False, table_column=Column(ratio=3, no_wrap=True)),
        TimeElapsedColumn(),
    )
    left = (TextColumn("left", markup=False), TimeRemainingColumn()) if remaining else ()
    return Progress(*columns, *left, console=console, transient=False, expand=True)
