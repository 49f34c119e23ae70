"""A million tokens: sums to a tolerance beside PyTorch's exact attention, in one run, as a table to paste.

    python tests/benchmarks/million.py [--largest 1000000] [--exact 65536] [--repetitions 3] [--rows 0 1 2]

One row a problem: the field of N points (log-masses, means) by what `Auto(tolerance)` takes, as a ratio to torch's
scaled_dot_product_attention of the same dimension and precision (float64), which is measured at `--exact` points and
extrapolated by (N / exact)². Errors are the largest of 256 random queries against a sum over all sources in NumPy. The
slope is that of log time over log N between N = 10⁴ and N. Tasks take turns, medians count, choosing and compiling do
not; ratios are of seconds on the clock, and of all processors, which a busy machine disturbs less. Needs torch.
"""

import argparse
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from turns import median_times

from particleflow.kernels import AbstractKernel, Attention, Gaussian
from particleflow.measure import Measure
from particleflow.summation import Auto

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


def exact_field(dimension: int, count: int) -> Callable[[], Any]:
    """One field by torch's fused attention, in float64."""
    points = torch.from_numpy(sphere(dimension)(np.random.default_rng(0), count))[None, None]

    def field() -> Any:
        with torch.no_grad():
            return torch.nn.functional.scaled_dot_product_attention(points, points, points, scale=9.0)

    return field


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


def field_of(problem: Problem, count: int) -> tuple[Callable[[], Any], np.ndarray, str]:
    """One field of so many points, as a task, the points, and what sums it."""
    points = problem.cloud(np.random.default_rng(1), count)
    measure = Measure.uniform(jnp.asarray(points))
    choice = Auto(tolerance=problem.tolerance).select(problem.kernel, measure, measure)
    field = jax.jit(lambda cloud: choice.summation.moments(problem.kernel, cloud, cloud))
    return lambda: jax.block_until_ready(field(measure)), points, type(choice.summation).__name__


def row(problem: Problem, options: argparse.Namespace) -> str:
    """One line of the table."""
    dimension = problem.cloud(np.random.default_rng(0), 2).shape[1]
    many, points, by = field_of(problem, options.largest)
    off = error(problem, points, many(), np.random.default_rng(2))
    tasks = {"torch": exact_field(dimension, options.exact), "many": many, "few": field_of(problem, SMALLEST)[0]}
    took = median_times(tasks, options.repetitions)
    more = (options.largest / options.exact) ** 2
    clock, processors = (more * theirs / ours for ours, theirs in zip(took["many"], took["torch"], strict=True))
    slope = np.log(took["many"].processors / took["few"].processors) / np.log(options.largest / SMALLEST)
    cells = [problem.name, f"{problem.tolerance:.0e}", f"{off:.0e}", f"{took['many'].clock:.2f}", f"{clock:,.0f}"]
    cells += [f"{processors:,.0f}", f"{problem.least_ratio:,.0f}", f"{slope:.2f}", by]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=1_000_000)
    parser.add_argument("--exact", type=int, default=65_536)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rows", type=int, nargs="+", default=list(range(len(PROBLEMS))), help="which problems")
    options = parser.parse_args()
    print(f"jax {jax.__version__}, torch {torch.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    print(f"| one field, N = {options.largest:,} | tolerance | error | seconds | × faster than torch's exact sum, "
          "on the clock | by processors | wanted | slope | by |")  # fmt: skip
    print(f"|---|{'---|' * 8}")
    for place in options.rows:
        print(row(PROBLEMS[place], options), flush=True)


if __name__ == "__main__":
    main()
