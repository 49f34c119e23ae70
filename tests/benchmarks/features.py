"""Sums of low rank beside our own exact sum, in one run: how much faster an error of 3e-2 is reached.

    python tests/benchmarks/features.py [--count 65536] [--dimensions 16 64] [--repetitions 3] [--methods nystrom]

One self-attention field of N points on the sphere at β = 1. For each method the least rank (a power of two) is taken
whose errors of mean (relative to max |z| = 1) and log-mass stay below the wanted one for three seeds, at 512 random
queries. Then the whole field is timed, as a ratio to the exact sum, which is timed at 4,096 queries and multiplied.
Times are processor times of all threads, the smallest of the repetitions. The slope is that of log time over log N
between N/8 and N. The mean of points on a sphere is about βx/d, so that in 64 dimensions 0 has an error of .016: what
zero would have stands beside each error of the mean.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from particleflow.kernels import Attention
from particleflow.measure import Measure
from particleflow.summation import Features, Native
from particleflow.summation.features.features import Method
from particleflow.summation.moments import Moments

WANTED, SEEDS = 3e-2, 3
RANKS = [2**power for power in range(4, 12)]
SAMPLE, TIMED = 512, 4096  # queries whose errors are looked at, and those of the exact sum that are timed


@jax.jit
def moments(points: jax.Array, queries: jax.Array, how: Any) -> Moments:
    """The moments of a cloud under attention at β = 1."""
    return how.moments(Attention(1.0), Measure.uniform(points), queries)


def least_rank(points: jax.Array, queries: jax.Array, exact: Moments, method: Any) -> tuple[int, float, float] | None:
    """The first rank whose errors are small enough for all seeds, with the largest of mean and log-mass."""
    for rank in RANKS:
        worst = np.zeros(2)
        for seed in range(SEEDS):
            found = moments(points, queries, Features(rank, method, seed))
            mean = float(jnp.linalg.norm(found.mean - exact.mean, axis=1).max())
            worst = np.maximum(worst, [mean, float(jnp.abs(found.log_mass - exact.log_mass).max())])
            if not worst.max() <= WANTED:  # NaN is not small either
                break
        else:
            return rank, float(worst[0]), float(worst[1])
    return None


def seconds(task: Callable[[], Any], repetitions: int) -> float:
    """The smallest processor time of a task, after one call that compiles and warms up."""
    jax.block_until_ready(task())
    times = []
    for _ in range(repetitions):
        begin = time.process_time()
        jax.block_until_ready(task())
        times.append(time.process_time() - begin)
    return min(times)


def print_rows(points: jax.Array, methods: list[Any], repetitions: int) -> None:
    """One row a method."""
    count, dimension = points.shape
    queries = points[np.sort(np.random.default_rng(1).choice(count, min(SAMPLE, count), replace=False))]
    exact = moments(points, queries, Native())
    zero = float(jnp.linalg.norm(exact.mean, axis=1).max())
    some = points[:TIMED]
    native = seconds(lambda: moments(points, some, Native()), repetitions) * count / len(some)
    print(f"d = {dimension:<3} exact {'':<36} {native:>9.3f}", flush=True)
    for method in methods:
        name, found = f"d = {dimension:<3} {method}", least_rank(points, queries, exact, method)
        if found is None:
            print(f"{name:<18} not reached with {RANKS[-1]} features", flush=True)
            continue
        how, few = Features(found[0], method), points[: count // 8]
        took = seconds(lambda how=how: moments(points, points, how), repetitions)
        slope = np.log(took / seconds(lambda how=how, few=few: moments(few, few, how), repetitions)) / np.log(8)
        errors = f"{found[0]:>6} {found[1]:>9.1e} {zero:>9.1e} {found[2]:>9.1e}"
        print(f"{name:<18} {errors} {took:>9.3f} {native / took:>9.1f} {slope:>6.2f}", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=65536)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=["nystrom", "positive", "fourier"], choices=get_args(Method))
    parser.add_argument("--single", action="store_true", help="float32 in place of float64")
    options = parser.parse_args()
    print(f"jax {jax.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, N = {options.count}")
    print(f"{f'error ≤ {WANTED:g}':<18} {'rank':>6} {'mean':>9} {'of zero':>9} {'log-mass':>9} {'seconds':>9} "
          f"{'× faster':>9} {'slope':>6}")  # fmt: skip
    for dimension in options.dimensions:
        points = np.random.default_rng(dimension).normal(size=(options.count, dimension))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        given = jnp.asarray(points, jnp.float32 if options.single else jnp.float64)
        print_rows(given, options.methods, options.repetitions)


if __name__ == "__main__":
    main()
