"""Exact sums beside PyTorch's fused attention, in one run and one table.

    python tests/benchmarks/summation.py [--count 16384] [--repetitions 15]

One self-attention field of N points on the sphere in float32, softmax(β⟨x, y⟩) with β = 4 on both sides.
Repetitions are interleaved, so that a busy moment of the machine hits everybody, and each timed call follows an
untimed one, so that nobody pays for the memory another one gave back; the minimum counts. Needs torch.
"""

import argparse
import math
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import torch  # pyright: ignore[reportMissingImports]

from particleflow.kernels import Attention
from particleflow.local import local_mean
from particleflow.measure import Measure
from particleflow.summation import Auto, Blockwise, Dense

BETA = 4.0


def contestants(points: np.ndarray) -> dict:
    """Name → a function of no arguments that returns the local means as a NumPy array."""
    tokens = torch.from_numpy(points)[None, None]

    def by_torch() -> np.ndarray:
        with torch.no_grad():
            attended = torch.nn.functional.scaled_dot_product_attention(tokens, tokens, tokens, scale=BETA)
        return attended[0, 0].numpy()

    @jax.jit
    def field(kernel, cloud, how):
        return local_mean(kernel, Measure.uniform(cloud), cloud, summation=how)

    cloud = jnp.asarray(points)

    def by(how):
        return lambda: np.asarray(field(Attention(BETA), cloud, how))

    return {"torch": by_torch, "Dense": by(Dense()), "Blockwise": by(Blockwise()), "Auto": by(Auto())}


def measure(functions: dict, repetitions: int) -> tuple[dict, dict]:
    """The shortest time of each, and what it returned."""
    answers = {name: function() for name, function in functions.items()}  # compiles
    times = dict.fromkeys(functions, math.inf)
    for _ in range(repetitions):
        for name, function in functions.items():
            function()
            start = time.perf_counter()
            function()
            times[name] = min(times[name], time.perf_counter() - start)
    return times, answers


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=16384)
    parser.add_argument("--repetitions", type=int, default=15)
    options = parser.parse_args()
    versions = f"jax {jax.__version__}, torch {torch.__version__}"
    print(f"N = {options.count}, float32, {versions}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'d':>3}  {'summation':<10} {'seconds':>8} {'÷ torch':>8} {'max |difference|':>17}")
    for dimension in (3, 16, 64):
        points = np.random.default_rng(dimension).normal(size=(options.count, dimension)).astype(np.float32)
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        times, answers = measure(contestants(points), options.repetitions)
        for name, seconds in times.items():
            difference = np.abs(answers[name] - answers["torch"]).max()
            print(f"{dimension:>3}  {name:<10} {seconds:>8.3f} {seconds / times['torch']:>8.2f} {difference:>17.1e}")


if __name__ == "__main__":
    main()
