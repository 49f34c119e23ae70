"""Near pairs beside all pairs: how many times faster `NearFar` is than the exact native sum, and its error.

    python tests/benchmarks/near_far.py [--count 100000] [--tolerance 1e-6] [--repetitions 5] [--precisions float64]
        [--rows 0 1]

One field of N points that look at themselves: β = 400 on S², a Gaussian of width .01 and a ball of radius .03 in the
unit square, and clouds that are harder: normal points, tight clusters, weights over ten orders of magnitude. The exact
sum is timed on some of the queries and multiplied; the two take turns. `by` is what `Auto(tolerance)` takes for these
points, which is what is timed. Ratios are of medians on the clock, and of the time of processors, which a busy machine
disturbs less; errors are the largest over those queries.
"""

import argparse
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from turns import median_times

from particleflow import kernels as k
from particleflow.measure import Measure
from particleflow.summation import Auto, Native
from particleflow.summation.native.build import library

SAMPLE = 2048  # queries of the exact sum


def cases(count: int) -> dict[str, tuple[Any, np.ndarray, np.ndarray]]:
    """Kernel, points and log-weights by name."""
    rng = np.random.default_rng(0)
    sphere = rng.normal(size=(count, 3))
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    plane, none = rng.uniform(size=(count, 2)), np.zeros(count)
    clusters = rng.uniform(size=(50, 2))[rng.integers(50, size=count)] + 1e-3 * rng.normal(size=(count, 2))
    return {
        "sphere, β = 400": (k.Attention(400.0), sphere, none),
        "plane, width .01": (k.Gaussian(0.01), plane, none),
        "plane, ball of radius .03": (k.Ball(0.03), plane, none),
        "normal points, width .01": (k.Gaussian(0.01), rng.normal(size=(count, 2)), none),
        "tight clusters, width .01": (k.Gaussian(0.01), clusters, none),
        "weights over 10 orders": (k.Gaussian(0.01), plane, rng.uniform(-23, 0, size=count)),
    }


def row(name: str, case: tuple[Any, np.ndarray, np.ndarray], dtype: Any, options: argparse.Namespace) -> str:
    """One line of the table."""
    kernel, points, log_weights = case[0], case[1].astype(dtype), case[2].astype(dtype)
    some = np.sort(np.random.default_rng(1).choice(len(points), size=min(SAMPLE, len(points)), replace=False))
    cloud, weights = jnp.asarray(points), jnp.asarray(log_weights)
    measure = Measure(cloud, weights)
    chosen = Auto(tolerance=options.tolerance).select(kernel, measure, measure).summation
    near = jax.jit(lambda x, w: chosen.moments(kernel, Measure(x, w), x))
    exact = jax.jit(lambda x, w: Native().moments(kernel, Measure(x, w), x[some]))
    tasks = {"near": lambda: jax.block_until_ready(near(cloud, weights))}
    tasks["exact"] = lambda: jax.block_until_ready(exact(cloud, weights))
    found, expected = (task() for task in tasks.values())
    fast, slow = median_times(tasks, options.repetitions).values()
    ratios = [len(points) / len(some) * theirs / ours for ours, theirs in zip(fast, slow, strict=True)]
    of_mean = np.linalg.norm(np.asarray(found.mean[some] - expected.mean, np.float64), axis=1).max()
    of_mean /= np.linalg.norm(points, axis=1).max()
    of_mass = np.abs(np.asarray(found.log_mass[some] - expected.log_mass, np.float64)).max()
    numbers = f"{fast.clock:>9.3f} {ratios[0]:>8.1f} {ratios[1]:>11.1f} {of_mean:>10.1e} {of_mass:>10.1e}"
    return f"{name:>26} {np.dtype(dtype).name:>8} {numbers}  {type(chosen).__name__}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--tolerance", type=float, default=1e-6)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--precisions", nargs="+", default=["float64", "float32"], choices=["float64", "float32"])
    parser.add_argument("--rows", type=int, nargs="+", default=list(range(6)), help="which cases")
    options = parser.parse_args()
    print(f"N = {options.count}, tolerance {options.tolerance}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f};")
    print(f"native sum: {library().reason}")
    print(f"{'':>26} {'':>8} {'seconds':>9} {'× clock':>8} {'× processor':>11} {'mean off':>10} {'log-mass':>10}  by")
    for precision in options.precisions:
        given = list(cases(options.count).items())
        for name, case in (given[place] for place in options.rows):
            print(row(name, case, np.dtype(precision), options), flush=True)


if __name__ == "__main__":
    main()
