"""Times of tasks that take turns, so that a busy moment of the machine hits all of them."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

PAUSE = 0.1  # seconds before each: the threads of whoever came before still spin for a while


class Times(NamedTuple):
    """Seconds on the clock, and of all processors, which a busy machine disturbs less."""

    clock: float
    processors: float


def median_times(tasks: dict[str, Callable[[], Any]], repetitions: int) -> dict[str, Times]:
    """The median times of each task; their repetitions take turns, and the first two, which compile, are left out."""
    times: dict[str, list[Times]] = {name: [] for name in tasks}
    for task in [*tasks.values(), *tasks.values()]:
        task()
    for _ in range(repetitions):
        for name, task in tasks.items():
            time.sleep(PAUSE)
            begin = Times(time.perf_counter(), time.process_time())
            task()
            times[name].append(Times(time.perf_counter() - begin.clock, time.process_time() - begin.processors))
    return {name: Times(*map(float, np.median(each, axis=0))) for name, each in times.items()}


def medians(tasks: dict[str, Callable[[], Any]], repetitions: int) -> dict[str, float]:
    """The median seconds on the clock of each task, see `median_times`."""
    return {name: each.clock for name, each in median_times(tasks, repetitions).items()}
