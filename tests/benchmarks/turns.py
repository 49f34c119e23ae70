"""Times of tasks that take turns, so that a busy moment of the machine hits all of them."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

PAUSE = 0.1  # seconds before each: the threads of whoever came before still spin for a while


def medians(tasks: dict[str, Callable[[], Any]], repetitions: int) -> dict[str, float]:
    """The median time of each task; their repetitions take turns, and the first two, which compile, are left out."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for task in [*tasks.values(), *tasks.values()]:
        task()
    for _ in range(repetitions):
        for name, task in tasks.items():
            time.sleep(PAUSE)
            begin = time.perf_counter()
            task()
            times[name].append(time.perf_counter() - begin)
    return {name: float(np.median(each)) for name, each in times.items()}
