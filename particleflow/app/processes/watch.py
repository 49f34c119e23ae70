"""Signs of life between the processes of one run, over one connection from each to process 0.

A process that waits for another one inside a compiled program waits for ever, and cannot be interrupted. So a thread
of each process sends a line twice a second, and reads those of the other side:

    alive WINDOW        how many windows it has finished
    end                 it is done; nothing more follows
    failed WORDS        it has failed, for this reason

A process that sends nothing for `SILENCE_SECONDS` is stuck; one whose connection closes without a word is lost. Process
0 tells all others, and every process ends with a sentence.
"""

import contextlib
import os
import socket
import sys
import threading
import time
from typing import NamedTuple

SILENCE_SECONDS = 15.0
_PERIOD_SECONDS = 0.5
_LONGEST = 2000  # characters of a reason
_LAST_SECONDS = 1.0  # in which a process that has failed can say so itself: JAX ends it when process 0 has ended


class Line(NamedTuple):
    """A connection to another process, and the number of that process."""

    process: int
    connection: socket.socket


class Watch:
    """Watches the other processes of a run; ends this one with a sentence where one of them is lost or stuck.

    Parameters: the `index` of this process, and its `lines`: of process 0 to all others, of others to process 0.
    """

    def __init__(self, index: int, lines: list[Line]):
        self.index, self.lines = index, lines
        self.windows = 0  # that this process has finished
        self._ending = threading.Event()
        self._ended: set[int] = set()
        self._said = threading.Lock()
        self._threads = [threading.Thread(target=self._listen, args=(line,), daemon=True) for line in lines]
        self._threads.append(threading.Thread(target=self._speak, daemon=True))
        for thread in self._threads:
            thread.start()

    def window(self) -> None:
        """Count a window that this process has finished."""
        self.windows += 1

    def end(self) -> bool:
        """Part from the other processes, once all have come to their end; returns whether they have, in time."""
        self._ending.set()
        self._send("end")
        deadline = time.monotonic() + SILENCE_SECONDS
        while len(self._ended) < len(self.lines) and time.monotonic() < deadline:
            time.sleep(_PERIOD_SECONDS / 10)
        return len(self._ended) == len(self.lines)

    def fail(self, reason: str) -> None:
        """Tell the other processes that this one has failed, and why."""
        self._ending.set()
        self._send(f"failed {' '.join(reason.split())[:_LONGEST]}")

    def _send(self, words: str, but: int | None = None) -> None:
        """Send a line to all others, `but` one."""
        for line in self.lines:
            if line.process != but:
                with contextlib.suppress(OSError):
                    line.connection.sendall(f"{words}\n".encode())

    def _speak(self) -> None:
        """Send signs of life."""
        while not self._ending.wait(_PERIOD_SECONDS):
            self._send(f"alive {self.windows}")

    def _listen(self, line: Line) -> None:
        """Read what another process says, until it ends."""
        line.connection.settimeout(SILENCE_SECONDS)
        windows, rest = "0", b""
        while True:
            try:
                found = line.connection.recv(4096)
            except TimeoutError:
                self._stop(line, f"has given no sign of life for {SILENCE_SECONDS:g} s, after {windows} windows")
                return
            except OSError:
                found = b""
            if not found:
                if line.process not in self._ended and not self._ending.is_set():
                    self._stop(line, f"is lost, after {windows} windows")
                return
            *lines, rest = (rest + found).split(b"\n")
            for each in lines:
                word, _, more = each.decode(errors="replace").partition(" ")
                if word == "alive":
                    windows = more
                elif word == "end":
                    self._ended.add(line.process)
                    if line.process == 0 and not self._ending.wait(SILENCE_SECONDS):
                        self._stop(line, "has ended, but this one has not")
                elif word == "failed":
                    self._stop(line, f"has ended: {more}", told=True)
                    return

    def _stop(self, line: Line, what: str, *, told: bool = False) -> None:
        """End this process, since another one is lost, stuck or failed."""
        with self._said:
            passed_on = told and self.index > 0 and what.startswith("has ended: Process ")
            sentence = what.removeprefix("has ended: ") if passed_on else f"Process {line.process} {what}"
            self._send(f"failed {sentence}", but=line.process)
            if told:
                time.sleep(_LAST_SECONDS)
            text = sentence.rstrip(".") + ". The run ends here; `particleflow resume` goes on from its last window."
            sys.stderr.write(f"Error: {text}\n")
            sys.stderr.flush()
            os._exit(1)
