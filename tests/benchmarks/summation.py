"""Exact sums beside PyTorch's fused attention, and whole runs beside SciPy around it, in one run.

    python tests/benchmarks/summation.py [--counts 256 1024 4096 16384] [--repetitions 9] [--skip fields runs gradients]

Fields: one self-attention field of N points on the sphere, softmax(β⟨x, y⟩) with β = 4 on both sides, as a ratio to
torch's scaled_dot_product_attention. Repetitions are interleaved, so that a busy moment of the machine hits everybody,
and many fields of a small cloud are one repetition; medians count. Runs: β = 9 to t = 10 at rtol 1e-6 in float64,
against SciPy's RK45 with torch as its field; errors are the largest of any coordinate against a run at rtol 1e-12.
Gradients: of the sum of squares of the field, against `Blockwise`. Needs torch.
"""

import argparse
import os
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from scipy.integrate import solve_ivp
from turns import medians

import particleflow as pf
from particleflow.kernels import Attention
from particleflow.measure import Measure
from particleflow.summation import Blockwise, Dense, Native
from particleflow.summation.local_mean import local_mean
from particleflow.summation.native.build import library

BETA, DIMENSIONS = 4.0, (2, 3, 8, 16, 64)
PAIRS = 3e7  # so many pairs make one repetition
RUN_BETA, RUN_END, RUN_COUNTS = 9.0, 10.0, (256, 2048, 8192)


def sphere(count: int, dimension: int, dtype: Any) -> np.ndarray:
    """Uniform points on the sphere."""
    points = np.random.default_rng(dimension).normal(size=(count, dimension))
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(dtype)


@partial(jax.jit, static_argnums=2)
def fields(kernel: Attention, cloud: jax.Array, often: int, how: Any) -> jax.Array:
    """The field of a cloud that moves a little after each, so that none can be left out."""

    def one(_: Any, points: jax.Array) -> jax.Array:
        return 0.9 * points + 0.1 * local_mean(kernel, Measure.uniform(points), points, summation=how)

    return jax.lax.fori_loop(0, often, one, cloud)


def torch_fields(cloud: torch.Tensor, often: int) -> torch.Tensor:
    """The same in torch."""
    with torch.no_grad():
        for _ in range(often):
            pulled = torch.nn.functional.scaled_dot_product_attention(cloud, cloud, cloud, scale=BETA)
            cloud = 0.9 * cloud + 0.1 * pulled
    return cloud


def print_fields(counts: list[int], repetitions: int) -> None:
    """One row a precision and number of points, one column a dimension."""
    print("\nOne field: time ÷ torch (÷ XLA)")
    print(f"{'':>18}" + "".join(f"{f'd = {dimension}':>16}" for dimension in DIMENSIONS))
    for dtype in (np.float32, np.float64):
        for count in counts:
            cells = []
            for dimension in DIMENSIONS:
                points = sphere(count, dimension, dtype)
                often = max(1, int(PAIRS / count**2 / (1 + dimension / 16)))
                kernel, cloud, tensor = Attention(BETA), jnp.asarray(points), torch.from_numpy(points)[None, None]
                xla = Dense() if count <= 1024 else Blockwise()
                tasks = {
                    "torch": partial(torch_fields, tensor, often),
                    "native": lambda k=kernel, c=cloud, n=often: fields(k, c, n, Native()).block_until_ready(),
                    "xla": lambda k=kernel, c=cloud, n=often, x=xla: fields(k, c, n, x).block_until_ready(),
                }
                took = medians(tasks, repetitions)
                cells.append(f"{took['native'] / took['torch']:.2f} ({took['native'] / took['xla']:.2f})")
            name = f"{np.dtype(dtype).name} N = {count}"
            print(f"{name:>18}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


def scipy_run(points: np.ndarray, rtol: float) -> tuple[np.ndarray, int]:
    """SciPy's RK45 around torch: the last points, and how often the field was asked."""

    def field(_: float, flat: np.ndarray) -> np.ndarray:
        x = torch.from_numpy(flat.reshape(points.shape))
        with torch.no_grad():
            y = torch.nn.functional.scaled_dot_product_attention(
                x[None, None], x[None, None], x[None, None], scale=RUN_BETA
            )
        y = y[0, 0]
        return (y - (x * y).sum(-1, keepdim=True) * x).numpy().ravel()

    found = solve_ivp(field, (0.0, RUN_END), points.ravel(), rtol=rtol, atol=1e-2 * rtol)
    return found.y[:, -1].reshape(points.shape), found.nfev


def our_run(points: np.ndarray, rtol: float) -> tuple[np.ndarray, pf.Trajectory]:
    """The same by `simulate`; its statistics are asked for when time is not taken."""
    flow = pf.Flow(pf.Attend(Attention(RUN_BETA)), geometry=pf.Sphere())
    run = pf.simulate(flow, points, [0.0, RUN_END], rtol=rtol, atol=1e-2 * rtol)
    return np.asarray(run.points[-1]), run


def print_runs(repetitions: int) -> None:
    """One row a number of points."""
    print("\nA whole run on the sphere in float64, rtol 1e-6: ours ÷ SciPy RK45 + torch")
    print(f"{'N':>6} {'time':>6} {'our error':>10} {'theirs':>9} {'our fields':>11} {'theirs':>7}")
    for count in RUN_COUNTS:
        points = sphere(count, 3, np.float64)
        exact = our_run(points, 1e-12)[0]
        tasks = {"ours": partial(our_run, points, 1e-6), "theirs": partial(scipy_run, points, 1e-6)}
        took = medians(tasks, max(3, repetitions // (1 + count // 1000)))
        (ours, run), (theirs, their_fields) = our_run(points, 1e-6), scipy_run(points, 1e-6)
        our_fields = int(run.metadata["statistics"]["field evaluations"])
        errors = [float(np.max(np.abs(each - exact))) for each in (ours, theirs)]
        ratio = took["ours"] / took["theirs"]
        print(
            f"{count:>6} {ratio:>6.2f} {errors[0]:>10.1e} {errors[1]:>9.1e} {our_fields:>11} {their_fields:>7}",
            flush=True,
        )


@jax.jit
def gradient(cloud: jax.Array, how: Any) -> jax.Array:
    """The gradient of Σ |m(x)|² with respect to all points."""

    def size(points: jax.Array) -> jax.Array:
        return jnp.sum(jnp.square(local_mean(Attention(BETA), Measure.uniform(points), points, summation=how)))

    return jax.grad(size)(cloud)


def print_gradients(repetitions: int) -> None:
    """One row a precision, one column a dimension."""
    print("\nA gradient at N = 4096: native ÷ XLA")
    print(f"{'':>18}" + "".join(f"{f'd = {dimension}':>16}" for dimension in DIMENSIONS))
    for dtype in (np.float32, np.float64):
        cells = []
        for dimension in DIMENSIONS:
            cloud = jnp.asarray(sphere(4096, dimension, dtype))
            tasks = {
                name: lambda c=cloud, h=how: gradient(c, h).block_until_ready()
                for name, how in (("native", Native()), ("xla", Blockwise()))
            }
            took = medians(tasks, repetitions)
            cells.append(f"{took['native'] / took['xla']:.2f}")
        print(f"{np.dtype(dtype).name:>18}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", type=int, nargs="+", default=[256, 1024, 4096, 16384])
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--skip", nargs="+", default=[], choices=["fields", "runs", "gradients"])
    options = parser.parse_args()
    versions = f"jax {jax.__version__}, torch {torch.__version__}"
    print(f"{versions}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; native sum: {library().reason}")
    if "fields" not in options.skip:
        print_fields(options.counts, options.repetitions)
    if "gradients" not in options.skip:
        print_gradients(options.repetitions)
    if "runs" not in options.skip:
        print_runs(options.repetitions)


if __name__ == "__main__":
    main()
