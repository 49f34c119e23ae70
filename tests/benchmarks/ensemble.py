"""An ensemble against plain batched Euler steps in torch: `python tests/benchmarks/ensemble.py [--repeat 15]`.

640 runs (20 β × 32 seeds, n = 32, d = 8, T = 10) on the sphere: ours with adaptive steps at rtol 1e-6, theirs with
dt = 0.1, and again with dt = 0.01. The error is the largest error of any Gram entry ⟨x_i, x_j⟩ of any run against a
reference at rtol 1e-12. Repetitions take turns, and medians count. Limit: ours within the time of dt = 0.1 in float64.
Needs torch, which is not a dependency.
"""

import argparse
from typing import Any

import equinox as eqx
import numpy as np
from turns import medians

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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=15)
    repeat = parser.parse_args().repeat
    points = starts()
    exact = adaptive(points, 1e-12, 1e-13)[0]
    tasks: dict[str, Any] = {
        "torch Euler, dt 0.1, float64": lambda: torch_euler(points, 0.1, "float64"),
        "particleflow, rtol 1e-6, float64": lambda: adaptive(points, 1e-6, 1e-8)[0],
        "torch Euler, dt 0.1, float32": lambda: torch_euler(points, 0.1, "float32"),
    }
    finer = {"torch Euler, dt 0.01, float64": lambda: torch_euler(points, 0.01, "float64")}
    took = medians(tasks, repeat) | medians(finer, 1)
    base = took["torch Euler, dt 0.1, float64"]
    print(f"{'method':<34}{'Gram error':>12}{'wall s':>10}{'ratio':>8}   median of {repeat}")
    for name, task in (tasks | finer).items():
        print(f"{name:<34}{gram_error(task(), exact):>12.2e}{took[name]:>10.3f}{took[name] / base:>8.2f}")
    statistics = adaptive(points, 1e-6, 1e-8)[1]
    print({name: statistics[name] for name in ("accepted steps", "rejected steps", "field evaluations")})


if __name__ == "__main__":
    main()
