"""Peak memory and time of one exact local mean of many points, each precision in a process of its own.

    python tests/benchmarks/memory.py [--count 100000] [--dimension 3]

The peak is the resident memory of the whole process, interpreter and libraries included. A few rows are checked
against NumPy.
"""

import argparse
import resource
import subprocess
import sys
import time

BETA = 4.0


def measure(count: int, dimension: int, precision: str) -> None:
    """One local mean, timed once compiled; prints seconds, megabytes and the largest error of 100 rows."""
    import jax
    import numpy as np

    from particleflow.kernels import Attention
    from particleflow.measure import Measure
    from particleflow.summation.local_mean import local_mean

    rng = np.random.default_rng(0)
    points = rng.normal(size=(count, dimension))
    points = (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(precision)
    field = jax.jit(lambda cloud: local_mean(Attention(BETA), Measure.uniform(cloud), cloud)).lower(points).compile()
    imported = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.perf_counter()
    found = np.asarray(field(points))
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows, exact = rng.choice(count, size=100, replace=False), points.astype(np.float64)
    shares = np.exp(BETA * exact[rows] @ exact.T)
    error = np.abs(found[rows] - shares @ exact / shares.sum(1, keepdims=True)).max()
    print(f"{precision:<8} {seconds:>9.2f} {imported:>16.0f} {peak:>9.0f} {error:>12.1e}")


def main() -> None:
    """Print the table, or measure one precision when asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=3)
    parser.add_argument("--precision", choices=["float32", "float64"])
    options = parser.parse_args()
    if options.precision:
        measure(options.count, options.dimension, options.precision)
        return
    print(f"N = {options.count}, d = {options.dimension}, one exact local mean")
    print(f"{'':<8} {'seconds':>9} {'MB before it':>16} {'MB peak':>9} {'max error':>12}", flush=True)
    for precision in ("float32", "float64"):
        sizes = ["--count", str(options.count), "--dimension", str(options.dimension)]
        subprocess.run([sys.executable, __file__, *sizes, "--precision", precision], check=True)


if __name__ == "__main__":
    main()
