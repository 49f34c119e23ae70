"""Does `Auto(tolerance)` take the fastest sum that keeps the tolerance? Every way timed, and its stated cost beside it.

    python tests/benchmarks/choice.py [--counts 2000 10000 50000 200000] [--tolerances 1e-3 1e-6 1e-9]
                                      [--rows 0 1 …] [--repetitions 3]

One row a kernel, a cloud, its size N and a tolerance: seconds of one field by the exact sum; the time of each
approximation that promises the tolerance, with the cost that it states in brackets, both relative to the exact sum, and
its error; what `Auto` takes; and how many times longer than the fastest that is. What must hold is 1.3, where the
fastest takes a millisecond at least. Choosing and compiling do not count. Ways whose stated cost is more than 30 times
that of the exact sum are left out. Errors are the largest of 64 queries, of the mean relative to max |z| and of the
log-mass.
"""

import argparse
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from turns import median_times

from particleflow.kernels import AbstractKernel, Attention, Cauchy, Gaussian
from particleflow.measure import Measure
from particleflow.summation import Auto, Features, NearFar, Spectral
from particleflow.summation.base import Choice, Limits
from particleflow.summation.native.native import Native
from particleflow.summation.prepared import prepare

SAMPLE = 64
HOPELESS = 30.0  # times the exact sum's cost
LIMIT = 1.3
Cloud = Callable[[np.random.Generator, int], np.ndarray]


class Problem(NamedTuple):
    """A kernel and a cloud of any size."""

    name: str
    kernel: AbstractKernel
    cloud: Cloud


def sphere(dimension: int) -> Cloud:
    """Uniform points on a sphere."""

    def cloud(rng: np.random.Generator, count: int) -> np.ndarray:
        points = rng.normal(size=(count, dimension))
        return points / np.linalg.norm(points, axis=1, keepdims=True)

    return cloud


def clusters(dimension: int) -> Cloud:
    """Five tight clusters on a sphere, as a run has them in the end."""

    def cloud(rng: np.random.Generator, count: int) -> np.ndarray:
        centres = sphere(dimension)(rng, 5)
        points = centres[rng.integers(0, 5, count)] + 0.02 * rng.normal(size=(count, dimension))
        return points / np.linalg.norm(points, axis=1, keepdims=True)

    return cloud


def blobs(dimension: int) -> Cloud:
    """Five blobs in a box of side 4."""

    def cloud(rng: np.random.Generator, count: int) -> np.ndarray:
        centres = rng.uniform(-2, 2, size=(5, dimension))
        return centres[rng.integers(0, 5, count)] + 0.3 * rng.normal(size=(count, dimension))

    return cloud


PROBLEMS = [
    Problem("attention on the circle, β = 9", Attention(9.0), sphere(2)),
    Problem("attention on S², β = 1", Attention(1.0), sphere(3)),
    Problem("attention on S², β = 9", Attention(9.0), sphere(3)),
    Problem("attention on S², β = 64", Attention(64.0), sphere(3)),
    Problem("attention on S², β = 9, clusters", Attention(9.0), clusters(3)),
    Problem("attention on S⁷, β = 1", Attention(1.0), sphere(8)),
    Problem("attention on S⁷, β = 9", Attention(9.0), sphere(8)),
    Problem("attention on S¹⁵, β = 1", Attention(1.0), sphere(16)),
    Problem("Gaussian of width .3 on a line", Gaussian(0.3), blobs(1)),
    Problem("Gaussian of width .3 in the plane", Gaussian(0.3), blobs(2)),
    Problem("Gaussian of width .05 in the plane", Gaussian(0.05), blobs(2)),
    Problem("Gaussian of width .3 in space", Gaussian(0.3), blobs(3)),
    Problem("Gaussian of width 1 in 8 dimensions", Gaussian(1.0), blobs(8)),
    Problem("Cauchy of width .3 in the plane", Cauchy(0.3), blobs(2)),
]


def ways(problem: Problem, measure: Measure, tolerance: float) -> Iterator[Choice]:
    """The exact sum, then every approximation that promises the tolerance for these points and is not hopeless."""
    prepared = prepare(problem.kernel, measure, measure)
    limits = Limits(tolerance, 0)
    exact = Native().promise(prepared, limits)
    assert exact is not None, "this benchmark needs native code"
    yield exact
    for candidate in (Spectral(), NearFar(), Features()):
        if max(candidate.cost_bounds(prepared, limits)) < HOPELESS * exact.cost:
            found = candidate.promise(prepared, limits)
            if found is not None and found.cost < HOPELESS * exact.cost:
                yield found


def field_of(problem: Problem, measure: Measure, choice: Choice) -> Callable[[], Any]:
    """One field as a task."""
    field = jax.jit(lambda cloud: choice.summation.moments(problem.kernel, cloud, cloud))
    return lambda: jax.block_until_ready(field(measure))


def error_between(found: Any, exact: Any, points: np.ndarray) -> float:
    """The largest difference of two fields at some queries."""
    chosen = np.random.default_rng(3).integers(0, len(points), SAMPLE)
    off_mass = np.abs(np.asarray(found.log_mass - exact.log_mass)[chosen]).max()
    off_mean = np.abs(np.asarray(found.mean - exact.mean)[chosen]).max() / np.linalg.norm(points, axis=1).max()
    return float(max(off_mass, off_mean))


def row(problem: Problem, count: int, tolerance: float, repetitions: int) -> str:
    """One line of the table."""
    points = problem.cloud(np.random.default_rng(1), count)
    measure = Measure.uniform(jnp.asarray(points))
    choices = {type(each.summation).__name__: each for each in ways(problem, measure, tolerance)}
    tasks = {name: field_of(problem, measure, each) for name, each in choices.items()}
    seconds = {name: each.processors for name, each in median_times(tasks, repetitions).items()}
    taken = type(Auto(tolerance=tolerance).select(problem.kernel, measure, measure).summation).__name__
    exact = tasks["Native"]()
    cells = [problem.name, f"{count:,}", f"{tolerance:.0e}", f"{seconds['Native']:.4f}"]
    for name in ("Spectral", "NearFar", "Features"):
        if name in choices:
            stated = choices[name].cost / choices["Native"].cost
            off = error_between(tasks[name](), exact, points)
            cells.append(f"{seconds[name] / seconds['Native']:.3f} ({stated:.3f}), {off:.0e}")
        else:
            cells.append("")
    longer = seconds[taken] / min(seconds.values())
    mark = " !" if longer > LIMIT and min(seconds.values()) > 1e-3 else ""
    return f"| {' | '.join([*cells, taken, f'{longer:.2f}{mark}'])} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", type=int, nargs="+", default=[2_000, 10_000, 50_000])
    parser.add_argument("--tolerances", type=float, nargs="+", default=[1e-3, 1e-6, 1e-9])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rows", type=int, nargs="+", default=list(range(len(PROBLEMS))), help="which problems")
    options = parser.parse_args()
    print(f"jax {jax.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; seconds of all processors\n")
    print("| one field | N | tolerance | exact, s | Spectral | NearFar | Features | taken | ÷ the fastest |")
    print(f"|---|{'---|' * 8}")
    for place in options.rows:
        for count in options.counts:
            for tolerance in options.tolerances:
                print(row(PROBLEMS[place], count, tolerance, options.repetitions), flush=True)


if __name__ == "__main__":
    main()
