"""A million tokens: sums to a tolerance beside PyTorch's exact attention, in one run.

    python tests/benchmarks/million.py [--largest 1000000] [--exact 65536] [--repetitions 3] [--rows 0 1 2]

One row a problem: the field of N points (weights, means) to the tolerance in the table, as a ratio to torch's
scaled_dot_product_attention of the same dimension and precision (float64), which is measured at `--exact` points and
extrapolated by (N / exact)². Errors are the largest of 256 random queries against a sum over all sources in NumPy. The
slope is that of log time over log N between N = 10⁴ and N. Times are processor times of all threads, the smallest of
the repetitions, so that a busy machine disturbs little; choosing and compiling are not among them. Needs torch.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch  # pyright: ignore[reportMissingImports]

from particleflow.kernels import AbstractKernel, Attention, Gaussian
from particleflow.measure import Measure
from particleflow.summation import Spectral

SAMPLE = 256
SMALLEST = 10_000


class Problem(NamedTuple):
    """A kernel, a cloud of any size, the logarithm of the kernel in NumPy, and the tolerance to keep."""

    name: str
    kernel: AbstractKernel
    cloud: Callable[[np.random.Generator, int], np.ndarray]
    log_kernel: Callable[[np.ndarray, np.ndarray], np.ndarray]
    tolerance: float
    least_ratio: float


def sphere(dimension: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Uniform points on a sphere."""

    def cloud(rng: np.random.Generator, count: int) -> np.ndarray:
        points = rng.normal(size=(count, dimension))
        return points / np.linalg.norm(points, axis=1, keepdims=True)

    return cloud


def blobs(rng: np.random.Generator, count: int) -> np.ndarray:
    """Five blobs in the plane."""
    return rng.uniform(-2, 2, size=(5, 2))[rng.integers(0, 5, count)] + 0.3 * rng.normal(size=(count, 2))


def gaussian(xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
    """−|x − y|² / (2 · 0.3²)."""
    return -0.5 / 0.3**2 * np.sum((xs[:, None] - ys[None]) ** 2, axis=-1)


PROBLEMS = [
    Problem("attention on the circle, β = 9", Attention(9.0), sphere(2), lambda x, y: 9 * x @ y.T, 1e-10, 1000),
    Problem("attention on S², β = 9", Attention(9.0), sphere(3), lambda x, y: 9 * x @ y.T, 1e-6, 150),
    Problem("MeanShift in the plane, width .3", Gaussian(0.3), blobs, gaussian, 1e-6, 300),
]


def processor_time(task: Callable[[], Any], repetitions: int) -> float:
    """The smallest processor time of a task, after one call that compiles and warms up."""
    task()
    times = []
    for _ in range(repetitions):
        begin = time.process_time()
        task()
        times.append(time.process_time() - begin)
    return min(times)


def torch_seconds(dimension: int, count: int, repetitions: int) -> float:
    """One field by torch's fused attention, in float64."""
    points = torch.from_numpy(sphere(dimension)(np.random.default_rng(0), count))[None, None]
    attention = torch.nn.functional.scaled_dot_product_attention
    with torch.no_grad():
        return processor_time(lambda: attention(points, points, points, scale=9.0), repetitions)


def error(problem: Problem, points: np.ndarray, found: Any, rng: np.random.Generator) -> float:
    """The largest error of log-mass and mean at some random queries; the mean's relative to max |z|."""
    chosen = rng.integers(0, len(points), SAMPLE)
    logits = problem.log_kernel(points[chosen], points) - np.log(len(points))
    highest = logits.max(axis=1, keepdims=True)
    weights = np.exp(logits - highest)
    masses = weights.sum(axis=1)
    mean = weights @ points / masses[:, None]
    off_mass = np.abs(np.asarray(found.log_mass)[chosen] - np.log(masses) - highest[:, 0]).max()
    off_mean = np.abs(np.asarray(found.mean)[chosen] - mean).max() / np.linalg.norm(points, axis=1).max()
    return float(max(off_mass, off_mean))


def measured(problem: Problem, count: int, repetitions: int) -> tuple[float, float, str]:
    """Seconds and error of one field of so many points, and what summed it."""
    rng = np.random.default_rng(1)
    points = problem.cloud(rng, count)
    measure = Measure.uniform(jnp.asarray(points))
    choice = Spectral(problem.tolerance).select(problem.kernel, measure, measure)
    field = jax.jit(lambda cloud: choice.summation.moments(problem.kernel, cloud, cloud))
    seconds = processor_time(lambda: jax.block_until_ready(field(measure)), repetitions)
    return seconds, error(problem, points, field(measure), rng), choice.reason


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=1_000_000)
    parser.add_argument("--exact", type=int, default=65_536)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rows", type=int, nargs="+", default=list(range(len(PROBLEMS))), help="which problems")
    options = parser.parse_args()
    print(f"jax {jax.__version__}, torch {torch.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'N = ' + str(options.largest):<34} {'tolerance':>9} {'error':>8} {'seconds':>8} {'torch':>8} "
          f"{'ratio':>7} {'wanted':>7} {'slope':>6}  by")  # fmt: skip
    for problem in (PROBLEMS[row] for row in options.rows):
        dimension = problem.cloud(np.random.default_rng(0), 2).shape[1]
        exact = torch_seconds(dimension, options.exact, 1) * (options.largest / options.exact) ** 2
        few = measured(problem, SMALLEST, options.repetitions)[0]
        seconds, off, reason = measured(problem, options.largest, options.repetitions)
        slope = np.log(seconds / few) / np.log(options.largest / SMALLEST)
        print(f"{problem.name:<34} {problem.tolerance:>9.0e} {off:>8.1e} {seconds:>8.3f} {exact:>8.0f} "
              f"{exact / seconds:>7.0f} {problem.least_ratio:>7.0f} {slope:>6.2f}  {reason}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
