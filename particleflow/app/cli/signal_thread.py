"""Ctrl-C is handled at once: commands run on a thread of their own, while the main thread waits for signals.

Python handles signals on the main thread only, between two of its instructions; inside a compiled program, or inside
HDF5, that thread would handle them when the call returns.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from particleflow._support import signals
from particleflow.app.cli.console import note

INTERRUPTED = 130  # the convention of shells: 128 + SIGINT
_PATIENCE_SECONDS = 0.1  # between two checks whether the command has ended; a signal is handled sooner


def answering_signals(work: Callable[[], int]) -> int:
    """Run `work` and return its code; the first signal asks it to stop, the second one ends the process.

    Off the main thread, where Python allows no handlers, `work` is run as it is. The handlers from before are set again
    in the end.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    signals.forget()
    codes: list[int] = []
    raised: list[BaseException] = []

    def do() -> None:
        try:
            codes.append(work())
        except BaseException as error:
            raised.append(error)

    before = {number: signal.signal(number, _answer) for number in (signal.SIGINT, signal.SIGTERM)}
    worker = threading.Thread(target=do, name="command", daemon=True)
    try:
        worker.start()
        while worker.is_alive():
            worker.join(_PATIENCE_SECONDS)
    finally:
        signals.forget()
        for number, handler in before.items():
            if handler is not None:  # None: installed by other code than Python, which cannot restore it
                signal.signal(number, handler)
    if raised:
        raise raised[0]
    return codes[0]


def _answer(number: int, frame: Any) -> None:
    """Ask the command to stop, and end the process if that was asked before."""
    if signals.asked():
        note("Quit. What was saved is safe; `particleflow resume` goes on from there.")
        sys.stdout.flush()
        os._exit(INTERRUPTED)
    signals.ask()
    note("\nStopping after this window; again to quit now.")
