"""An ensemble against plain batched Euler steps in torch: `python tests/benchmarks/ensemble.py [--repeat 5]`.

640 runs (20 β × 32 seeds, n = 32, d = 8, T = 10) on the sphere: ours with adaptive steps at rtol 1e-6, theirs with
dt = 0.1, and again with dt = 0.01. The error is the largest error of any Gram entry ⟨x_i, x_j⟩ of any run against a
reference at rtol 1e-12. Limit: ours within the time of dt = 0.1. Needs torch, which is not a dependency.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np

import particleflow as pf
from particleflow import kernels

BETAS, SEEDS, COUNT, DIMENSION, END = np.linspace(0.1, 9.0, 20), 32, 32, 8, 10.0


def starts() -> np.ndarray:
    """Uniform points on the sphere, one cloud a run."""
    normal = np.random.default_rng(0).normal(size=(len(BETAS) * SEEDS, COUNT, DIMENSION))
    return normal / np.linalg.norm(normal, axis=-1, keepdims=True)


def flows() -> pf.Flow:
    """One flow a run."""
    return eqx.filter_vmap(lambda beta: pf.Flow(pf.Attend(kernels.Attention(beta=beta)), geometry=pf.Sphere()))(
        np.repeat(BETAS, SEEDS)
    )


def adaptive(points: np.ndarray, rtol: float, atol: float) -> tuple[np.ndarray, dict[str, Any]]:
    """The last frame of the ensemble, and what it cost."""
    run = pf.simulate(flows(), points, [0.0, END], rtol=rtol, atol=atol)
    return np.asarray(run.points[-1]), run.metadata["statistics"]


def torch_euler(points: np.ndarray, step: float, dtype: str) -> np.ndarray:
    """x ← N(x + dt P_x softmax(β x xᵀ) x), all runs in one batch."""
    import torch  # pyright: ignore[reportMissingImports]

    with torch.no_grad():
        x = torch.tensor(points, dtype=getattr(torch, dtype))
        beta = torch.tensor(np.repeat(BETAS, SEEDS), dtype=x.dtype)[:, None, None]
        for _ in range(round(END / step)):
            pull = torch.softmax(beta * (x @ x.transpose(1, 2)), -1) @ x
            x = x + step * (pull - (pull * x).sum(-1, keepdim=True) * x)
            x = x / x.norm(dim=-1, keepdim=True)
        return x.double().numpy()


def gram_error(found: np.ndarray, exact: np.ndarray) -> float:
    """The largest error of an inner product."""
    return float(np.max(np.abs(found @ found.swapaxes(1, 2) - exact @ exact.swapaxes(1, 2))))


def measure(task: Callable[[], Any], repeat: int) -> tuple[Any, float, float]:
    """The result, and the best wall and processor seconds; the first call, which compiles, does not count."""
    result, walls, processor = task(), [], []
    for _ in range(repeat):
        wall, cpu = time.perf_counter(), time.process_time()
        task()
        walls.append(time.perf_counter() - wall)
        processor.append(time.process_time() - cpu)
    return result, min(walls), min(processor)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    points = starts()
    exact = adaptive(points, 1e-12, 1e-13)[0]
    rows = []
    (ours, statistics), wall, cpu = measure(lambda: adaptive(points, 1e-6, 1e-8), repeat)
    rows.append(("particleflow, rtol 1e-6, float64", ours, wall, cpu))
    for step, dtype in ((0.1, "float64"), (0.1, "float32"), (0.01, "float64")):
        theirs, *seconds = measure(lambda s=step, t=dtype: torch_euler(points, s, t), repeat if step == 0.1 else 1)
        rows.append((f"torch Euler, dt {step}, {dtype}", theirs, *seconds))
    base = rows[1]
    print(f"{'method':<34}{'Gram error':>12}{'wall s':>10}{'ratio':>8}{'cpu s':>10}{'ratio':>8}")
    for name, found, wall, cpu in rows:
        ratios = wall / base[2], cpu / base[3]
        print(f"{name:<34}{gram_error(found, exact):>12.2e}{wall:>10.3f}{ratios[0]:>8.2f}{cpu:>10.3f}{ratios[1]:>8.2f}")
    print({name: statistics[name] for name in ("accepted steps", "rejected steps", "field evaluations")})


if __name__ == "__main__":
    main()
