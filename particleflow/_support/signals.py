"""Stop long work on request: `ask` or a signal sets a flag, which is read at places where stopping loses nothing.

A run with a file handles SIGINT and SIGTERM itself, by `heeding`: it ends after its window. The command line handles
them on the main thread instead and calls `ask`, because a thread inside a compiled program cannot handle signals.
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
    """Whether long work was asked to stop."""
    return _asked.is_set()


def forget() -> None:
    """Clear the request, for the next command of this process."""
    _asked.clear()


@contextlib.contextmanager
def heeding(*, active: bool) -> Iterator[Callable[[], bool]]:
    """While active, SIGINT and SIGTERM only raise a flag, so that a run can end cleanly after its window.

    Yields a function that returns whether to stop. The previous handlers are called for a second signal, and are set
    again at the end. Off the main thread, where Python allows no handlers, and where a previous handler was not set by
    Python, which could not set it again, signals are not handled.
    """
    caught = threading.Event()
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if not active or None in previous.values() or threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def raise_flag(number: int, frame: Any) -> None:
        caught.set()
        signal.signal(number, previous[signal.Signals(number)])

    for number in previous:
        signal.signal(number, raise_flag)
    try:
        yield lambda: caught.is_set() or asked()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
