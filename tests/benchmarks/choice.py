"""Does `Auto(tolerance)` take the fastest sum that keeps the tolerance? Every way timed, and its stated cost beside it.

    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/choice.py [--counts 2000 10000 50000 200000] [--rows 0 1 …]
                     [--tolerances 1e-3 1e-6 1e-9] [--queries 1000] [--precision float32] [--weighted] [--repetitions 3]

One row a kernel, a cloud, its size N and a tolerance: seconds of one field by the exact sum; the time of each
approximation that promises the tolerance, with the cost that it states in brackets, both relative to the exact sum, and
its error; what `Auto` takes; and how many times longer than the fastest that is. What must hold is 1.3, where the
fastest takes a millisecond at least. Choosing and compiling do not count. Ways whose stated cost is more than four
times the least are left out. Errors are the largest of 64 queries, of the mean relative to max |z| and of the log-mass.
Queries are all points, or the last of them. The exact sum is timed on so many queries as make 2·10⁸ pairs. Times are of
all processors; without the variable, threads of LAPACK that wait for each other on a busy machine count as work.
"""

import argparse
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from turns import median_times

from particleflow.kernels import AbstractKernel, Attention, Cauchy, Gaussian, InverseDistance, Laplace
from particleflow.measure import Measure
from particleflow.summation import Auto, Features, NearFar, Spectral, Tree
from particleflow.summation.base import Choice, Limits
from particleflow.summation.native.native import Native
from particleflow.summation.prepared import prepare

SAMPLE = 64
HOPELESS = 4.0  # times the least cost
TIMED_PAIRS = 2 * 10**8  # of the exact sum
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
    Problem("Cauchy of width 1 in space", Cauchy(1.0), blobs(3)),
    Problem("Laplace of width 1 in the plane", Laplace(1.0), blobs(2)),
    Problem("Laplace of width .05 in the plane", Laplace(0.05), blobs(2)),
    Problem("Gaussian of width .05 in space", Gaussian(0.05), blobs(3)),
    Problem("Gaussian of width 4 in 8 dimensions", Gaussian(4.0), blobs(8)),
    Problem("Cauchy of width .01 in the plane", Cauchy(0.01), blobs(2)),
    Problem("Cauchy of width .1 in space", Cauchy(0.1), blobs(3)),
    Problem("1/r in the plane", InverseDistance(1.0, 1e-3), blobs(2)),
    Problem("1/r in space", InverseDistance(1.0, 1e-3), blobs(3)),
]


class Sizes(NamedTuple):
    """What a row is about, beside its problem; `queries` are the last points, all if None."""

    sources: int
    tolerance: float
    queries: int | None
    precision: str
    weighted: bool


def ways(problem: Problem, measure: Measure, queries: jax.Array, tolerance: float) -> Iterator[Choice]:
    """The exact sum, then every approximation that promises the tolerance for these points and is not hopeless."""
    prepared = prepare(problem.kernel, measure, queries)
    limits = Limits(tolerance, 0)
    exact = Native().promise(prepared, limits)
    assert exact is not None, "this benchmark needs native code"
    least = Native().cost_of_known(prepared)
    yield exact._replace(cost=least)
    candidates = (Tree(), Spectral(), Features(), NearFar())  # that whose bounds take longest last
    for each in candidates:
        if all(bound < HOPELESS * least for bound in each.cost_bounds(prepared, limits)):
            found = each.promise(prepared, limits)
            if found is not None and found.cost < HOPELESS * least:
                least = min(least, found.cost)
                yield found


def field_of(problem: Problem, measure: Measure, queries: jax.Array, choice: Choice) -> Callable[[], Any]:
    """One field as a task."""
    field = jax.jit(lambda cloud, seen: choice.summation.moments(problem.kernel, cloud, seen))
    return lambda: jax.block_until_ready(field(measure, queries))


def error_between(found: Any, exact: Any, points: np.ndarray) -> float:
    """The largest difference of two fields at some of the first queries."""
    chosen = np.random.default_rng(3).integers(0, len(exact.log_mass), SAMPLE)
    off_mass = np.abs(np.asarray(found.log_mass[chosen] - exact.log_mass[chosen])).max()
    off_mean = np.abs(np.asarray(found.mean[chosen] - exact.mean[chosen])).max() / np.linalg.norm(points, axis=1).max()
    return float(max(off_mass, off_mean))


def clouds(problem: Problem, sizes: Sizes) -> tuple[Measure, jax.Array]:
    """The points with their weights, and the queries."""
    points = jnp.asarray(problem.cloud(np.random.default_rng(1), sizes.sources).astype(sizes.precision))
    weights = np.random.default_rng(2).normal(size=sizes.sources) * sizes.weighted
    return Measure(points, jnp.asarray(weights.astype(sizes.precision))), points[-(sizes.queries or sizes.sources) :]


def row(problem: Problem, sizes: Sizes, repetitions: int) -> str:
    """One line of the table."""
    measure, queries = clouds(problem, sizes)
    count, tolerance, points = sizes.sources, sizes.tolerance, np.asarray(measure.points)
    choices = {type(each.summation).__name__: each for each in ways(problem, measure, queries, tolerance)}
    some = queries[: max(SAMPLE, TIMED_PAIRS // count)]
    seen = {name: some if name == "Native" else queries for name in choices}
    tasks = {name: field_of(problem, measure, seen[name], each) for name, each in choices.items()}
    seconds = {name: each.processors for name, each in median_times(tasks, repetitions).items()}
    seconds["Native"] *= len(queries) / len(some)
    taken = type(Auto(tolerance=tolerance).select(problem.kernel, measure, queries).summation).__name__
    exact = tasks["Native"]()
    cells = [problem.name, f"{count:,}", f"{tolerance:.0e}", f"{seconds['Native']:.4f}"]
    for name in ("Spectral", "NearFar", "Tree", "Features"):
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
    parser.add_argument("--queries", type=int, help="how many, if not all points")
    parser.add_argument("--precision", choices=["float64", "float32"], default="float64")
    parser.add_argument("--weighted", action="store_true", help="weights of log-normal law")
    parser.add_argument("--rows", type=int, nargs="+", default=list(range(len(PROBLEMS))), help="which problems")
    options = parser.parse_args()
    print(f"jax {jax.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; seconds of all processors\n")
    print("| one field | N | tolerance | exact, s | Spectral | NearFar | Tree | Features | taken | ÷ the fastest |")
    print(f"|---|{'---|' * 9}")
    for place in options.rows:
        for count in options.counts:
            for tolerance in options.tolerances:
                sizes = Sizes(count, tolerance, options.queries, options.precision, options.weighted)
                print(row(PROBLEMS[place], sizes, options.repetitions), flush=True)


if __name__ == "__main__":
    main()
