"""Sums of slowly decaying kernels by a tree beside the exact sum: error, ratio of processor times, growth of cost.

    python tests/benchmarks/far.py [--count 100000] [--repetitions 3] [--rows 0 1] [--gradients] [--slopes]

One field of N points that look at themselves, and on request its gradient by the points. The exact sum (`Auto` without
a tolerance: native code) is timed on some of the queries and multiplied; the two take turns.
Times are of processors, which a busy machine disturbs less. Errors are the largest over those queries: of the log-mass,
and of the mean relative to the largest point. `--slopes` prints the exponent of the cost from N = 10⁴ to 10⁶.
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
from particleflow.summation import Auto, Tree
from particleflow.summation.native.build import library

SAMPLE = 1024  # queries of the exact sum


def cases(count: int) -> dict[str, tuple[Any, np.ndarray, np.ndarray, float]]:
    """Kernel, points, log-weights and tolerance by name."""
    rng = np.random.default_rng(0)
    plane, space, none = rng.uniform(size=(count, 2)), rng.uniform(size=(count, 3)), np.zeros(count)
    clusters = plane
    for scale in (1e-2, 1e-4):
        clusters = clusters[rng.integers(0, 100, count)] + scale * rng.normal(size=plane.shape)
    outliers = plane.copy()
    outliers[::1000] *= 10.0 ** rng.uniform(2, 6, size=(len(outliers[::1000]), 1))
    copies = plane[rng.integers(0, count // 20, count)]
    galaxy = rng.normal(size=(count, 3)) * np.exp(rng.normal(size=(count, 1)))
    return {
        "plane, Cauchy": (k.Cauchy(0.01), plane, none, 1e-6),
        "plane, 1/r": (k.InverseDistance(1.0, 1e-3), plane, none, 1e-6),
        "clusters in clusters, Cauchy": (k.Cauchy(0.01), clusters, none, 1e-6),
        "far outliers, Cauchy": (k.Cauchy(0.01), outliers, none, 1e-6),
        "twenty copies, Cauchy": (k.Cauchy(0.01), copies, none, 1e-6),
        "weights over 10 orders, Cauchy": (k.Cauchy(0.01), plane, rng.uniform(-23, 0, size=count), 1e-6),
        "space, Cauchy": (k.Cauchy(0.1), space, none, 1e-2),
        "space, 1/r": (k.InverseDistance(1.0, 1e-3), space, none, 1e-3),
        "heavy-tailed cloud in space, 1/r": (k.InverseDistance(1.0, 1e-3), galaxy, none, 1e-3),
    }


def fields(how: Any, kernel: Any, queries: Any, gradients: bool) -> Any:
    """The moments as a compiled function of points and log-weights; with `gradients` the derivative by points, too."""

    def moments(x: Any, w: Any) -> Any:
        return how.moments(kernel, Measure(x, w), x if queries is None else x[queries])

    def total(x: Any, w: Any) -> Any:
        found = moments(x, w)
        return jnp.sum(found.log_mass) + jnp.sum(jnp.sin(found.mean)), found

    return jax.jit(jax.value_and_grad(total, has_aux=True) if gradients else moments)


def row(name: str, case: tuple[Any, np.ndarray, np.ndarray, float], options: argparse.Namespace) -> str:
    """One line of the table."""
    kernel, points, log_weights, tolerance = case
    some = np.sort(np.random.default_rng(1).choice(len(points), size=min(SAMPLE, len(points)), replace=False))
    cloud, weights = jnp.asarray(points), jnp.asarray(log_weights)
    fast = fields(Tree(tolerance), kernel, None, options.gradients)
    slow = fields(Auto(), kernel, some, options.gradients)
    tasks = {"tree": lambda: jax.block_until_ready(fast(cloud, weights))}
    tasks["exact"] = lambda: jax.block_until_ready(slow(cloud, weights))
    found, expected = (task()[0][1] if options.gradients else task() for task in tasks.values())
    ours, theirs = median_times(tasks, options.repetitions).values()
    ratio = len(points) / len(some) * theirs.processors / ours.processors
    of_mean = np.linalg.norm(found.mean[some] - expected.mean, axis=1).max() / np.linalg.norm(points, axis=1).max()
    of_mass = np.abs(found.log_mass[some] - expected.log_mass).max()
    return f"{name:>34} {tolerance:>8.0e} {ours.processors:>9.3f} {ratio:>8.1f} {of_mean:>10.1e} {of_mass:>10.1e}"


def slope(name: str, options: argparse.Namespace) -> str:
    """The exponent of the cost from N = 10⁴ to 10⁶, from processor times that take turns."""
    tasks = {}
    for count in (10_000, 1_000_000):
        kernel, points, log_weights, tolerance = cases(count)[name]
        field = fields(Tree(tolerance), kernel, None, options.gradients)
        cloud, weights = jnp.asarray(points), jnp.asarray(log_weights)
        tasks[str(count)] = lambda field=field, x=cloud, w=weights: jax.block_until_ready(field(x, w))
        tasks[str(count)]()
    small, large = (each.processors for each in median_times(tasks, options.repetitions).values())
    return f"{name:>34}  {small:8.3f} s  {large:8.2f} s  slope {np.log(large / small) / np.log(100):.2f}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rows", type=int, nargs="+", default=list(range(9)), help="which cases")
    parser.add_argument("--gradients", action="store_true", help="with the derivative by the points")
    parser.add_argument("--slopes", action="store_true", help="growth of the cost instead of ratios")
    options = parser.parse_args()
    print(f"N = {options.count}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; native sum: {library().reason}")
    names = list(cases(100))
    if options.slopes:
        for place in options.rows:
            print(slope(names[place], options), flush=True)
        return
    print(f"{'':>34} {'allowed':>8} {'seconds':>9} {'× faster':>8} {'mean off':>10} {'log-mass':>10}")
    given = cases(options.count)
    for place in options.rows:
        print(row(names[place], given[names[place]], options), flush=True)


if __name__ == "__main__":
    main()
