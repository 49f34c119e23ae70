"""Stopping on request: somebody asks, long work looks and ends where nothing is lost.

A run with a file heeds SIGINT and SIGTERM itself: it ends after its window. Whoever answers signals in its place, on
another thread (the command line does, since a thread inside a compiled program answers nobody), asks by `ask`.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

_asked = threading.Event()


def ask() -> None:
    """Ask all long work of this process to stop."""
    _asked.set()


def asked() -> bool:
    """Whether somebody has asked."""
    return _asked.is_set()


def forget() -> None:
    """Begin anew: nobody has asked."""
    _asked.clear()


@contextlib.contextmanager
def heeding(*, active: bool) -> Iterator[Callable[[], bool]]:
    """While active, SIGINT and SIGTERM only raise a flag, so that a run can end cleanly after its window.

    A second signal falls back to what was set before. Yields what tells whether to stop.
    """
    caught = threading.Event()
    if not active or threading.current_thread() is not threading.main_thread():
        yield asked
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: Any) -> None:
        caught.set()
        signal.signal(number, previous[signal.Signals(number)])

    for number in previous:
        signal.signal(number, note)
    try:
        yield lambda: caught.is_set() or asked()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
