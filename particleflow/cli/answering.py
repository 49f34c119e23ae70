"""Ctrl-C is answered at once: commands work on a thread of their own, while the first one waits for signals.

Python looks for signals between two lines of its own on the first thread only; a thread inside a compiled program, or
inside HDF5, would answer when that is over.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from particleflow import stopping
from particleflow.cli.console import note

INTERRUPTED = 130  # as shells say it: 128 + SIGINT
_PATIENCE = 0.1  # seconds between two looks; a signal is answered sooner


def answering_signals(work: Callable[[], int]) -> int:
    """Do `work` and return its code; the first signal asks it to stop, the second one ends the process."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    stopping.forget()
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
            worker.join(_PATIENCE)
    finally:
        stopping.forget()
        for number, handler in before.items():
            signal.signal(number, handler)
    if raised:
        raise raised[0]
    return codes[0]


def _answer(number: int, frame: Any) -> None:
    if stopping.asked():
        note("Quit. What was saved is safe; `particleflow resume` goes on from there.")
        sys.stdout.flush()
        os._exit(INTERRUPTED)
    stopping.ask()
    note("\nStopping after this window; again to quit now.")
