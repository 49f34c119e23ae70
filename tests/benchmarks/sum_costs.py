"""Are the costs that summations state right? Each part of the cost model timed alone, beside what it states.

    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/sum_costs.py [--parts native spectral near features]
                                                             [--repetitions 3]

One row a sum: its processor time in native pairs (of 8,192 points on S², β = 1, in double precision), what is stated,
and stated ÷ measured; then, for each part, the mean of that ratio and its spread (of the logarithms, as a factor). The
numbers in `summation.base`, `native`, `mode_choice`, `near_far` and `features` are right where means are 1. The time of
features is that without threads of LAPACK, which wait for each other where other programs run: hence the variable.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from choice import blobs, sphere

from particleflow.kernels import AbstractKernel, Attention, Cauchy, Gaussian, Laplace
from particleflow.measure import Measure
from particleflow.summation import Features, NearFar, Spectral
from particleflow.summation.base import AbstractSummation, Limits, value_columns
from particleflow.summation.features.features import _Size
from particleflow.summation.features.positive_definite import LowRankForm
from particleflow.summation.native.native import Native
from particleflow.summation.prepared import prepare

REFERENCE = 8192


class Part(NamedTuple):
    """One sum of the model: its name, its kernel and cloud, the summation, and the cost that is stated for it."""

    name: str
    kernel: AbstractKernel
    measure: Measure
    summation: AbstractSummation
    stated: float


def measure_of(points: np.ndarray, precision: str = "float64") -> Measure:
    """Equal weights in some precision."""
    return Measure.uniform(jnp.asarray(points.astype(precision)))


def native_parts(rng: np.random.Generator) -> Iterator[Part]:
    """All pairs, for every curve, precision and dimension."""
    for precision in ("float64", "float32"):
        for dimension in (1, 2, 3, 8, 16):
            for kernel in (Attention(1.0), Attention(9.0), Gaussian(0.3), Cauchy(0.3), Laplace(0.3)):
                if dimension == 1 and isinstance(kernel, Attention):
                    continue
                cloud = sphere if isinstance(kernel, Attention) else blobs
                measure = measure_of(cloud(dimension)(rng, REFERENCE), precision)
                stated = Native().cost_of_known(prepare(kernel, measure, measure))
                yield Part(f"native {precision}, d = {dimension}, {kernel}", kernel, measure, Native(), stated)


def spectral_parts(rng: np.random.Generator) -> Iterator[Part]:
    """Transforms of many grids and accuracies."""
    for dimension, grids in ((2, (32, 128, 512)), (3, (16, 32, 64))):
        for count in (10_000, 100_000):
            measure = measure_of(sphere(dimension)(rng, count))
            for modes in grids:
                for accuracy in (1e-5, 1e-8, 1e-9, 1e-12):
                    how = Spectral(0.5, (modes,) * dimension, accuracy)
                    (choice,) = how.choices(Attention(2.0), measure, measure)
                    name = f"spectral {modes}^{dimension}, accuracy {accuracy:.0e}, N = {count:,}"
                    yield Part(name, Attention(2.0), measure, how, choice.cost)


def near_parts(rng: np.random.Generator) -> Iterator[Part]:
    """Near pairs of narrow kernels; their number is an estimate, which is part of the model."""
    for count in (10_000, 100_000):
        for kernel, dimension in ((Gaussian(0.05), 2), (Gaussian(0.05), 3), (Laplace(0.05), 2), (Gaussian(0.02), 1)):
            for precision in ("float64", "float32"):
                measure = measure_of(blobs(dimension)(rng, count), precision)
                found = NearFar().promise(prepare(kernel, measure, measure), Limits(1e-3, 0))
                assert found is not None, "this benchmark needs native code"
                name = f"near {precision}, {kernel}, d = {dimension}, N = {count:,}"
                yield Part(name, kernel, measure, found.summation, found.cost)


def feature_parts(rng: np.random.Generator) -> Iterator[Part]:
    """Landmarks and random features of many ranks."""
    for precision in ("float64", "float32"):
        for count in (10_000, 100_000):
            for dimension in (3, 8):
                measure = measure_of(rng.normal(size=(count, dimension)), precision)
                form = LowRankForm.of(Gaussian(2.0), measure, measure.sites)
                size = _Size.of(form, value_columns(measure))
                for method in ("nystrom", "positive", "fourier"):
                    for rank in (32, 128, 512, 1024):
                        if rank * count <= 2e7 * (2 if method == "nystrom" else 1):
                            name = f"{method} {precision}, R = {rank}, d = {dimension}, N = {count:,}"
                            how = Features(rank, method)  # pyright: ignore[reportArgumentType]
                            yield Part(name, Gaussian(2.0), measure, how, size.cost(method, rank))


PARTS: dict[str, Callable[[np.random.Generator], Iterator[Part]]] = {
    "native": native_parts, "spectral": spectral_parts, "near": near_parts, "features": feature_parts
}  # fmt: skip


def processor_seconds(part: Part, repetitions: int) -> float:
    """The median processor time of one field, after two that compile."""
    field = jax.jit(lambda cloud: part.summation.moments(part.kernel, cloud, cloud))
    times = []
    for _ in range(repetitions + 2):
        begin = time.process_time()
        jax.block_until_ready(field(part.measure))
        times.append(time.process_time() - begin)
    return float(np.median(times[2:]))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    reference = Part("", Attention(1.0), measure_of(sphere(3)(rng, REFERENCE)), Native(), REFERENCE**2)
    print(f"jax {jax.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    print("| sum | native pairs measured | stated | stated ÷ measured |\n|---|---|---|---|")
    for name in options.parts:
        ratios: list[Any] = []
        for part in PARTS[name](rng):
            pair = processor_seconds(reference, 3) / REFERENCE**2
            found = processor_seconds(part, options.repetitions) / pair
            ratios.append(np.log(part.stated / found))
            print(f"| {part.name} | {found:.3g} | {part.stated:.3g} | {np.exp(ratios[-1]):.2f} |", flush=True)
        print(f"| all of {name} | | | {np.exp(np.mean(ratios)):.2f}, spread {np.exp(np.std(ratios)):.2f} |", flush=True)


if __name__ == "__main__":
    main()
