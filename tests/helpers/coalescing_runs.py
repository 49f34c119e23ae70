"""Runs whose particles coalesce, what they are in NumPy, and one that is killed."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

import flows_oracles as oracle
import particleflow as pf
from particleflow import kernels, observables

COUNT, EPSILON = 24, 1e-4
TIMES = np.linspace(0.0, 16.0, 17)
TRACED: list[int] = []


def watched(present: Any) -> Any:
    """log E, noting the size of the arrays that a program is made for."""
    TRACED.append(present.state.moving.shape[0])
    return observables.log_energy(present)


OPTIONS: dict[str, Any] = {
    "rtol": 1e-7, "atol": 1e-9, "window": 2, "observe": [watched, observables.mean_similarity],
    "discretization": pf.Particles(coalesce=EPSILON),
}  # fmt: skip


def cloud(seed: int, dimension: int) -> np.ndarray:
    """Three loose heaps, of which no two meet within the runs below."""
    rng = np.random.default_rng(seed)
    heaps = (4.0 * np.eye(3) - 1.0)[:, :dimension]
    return heaps[np.arange(COUNT) % 3] + 0.4 * rng.normal(size=(COUNT, dimension))


ROUND = oracle.on_sphere(cloud(1, 3))
WEIGHTS = np.where(np.arange(COUNT) % 9 == 4, 0.0, 10.0 ** np.random.default_rng(2).uniform(-5, 0, COUNT))
SPHERE = pf.Flow(pf.Attend(kernels.Attention(beta=8.0)), geometry=pf.Sphere())
PLANE = pf.Flow(pf.MeanShift(kernels.Gaussian(0.7)))
FEW = 16  # for which there is one size of arrays only
HEAVY = pf.Measure.weighted(cloud(3, 2)[:FEW], WEIGHTS[:FEW])


def weighted_field(beta: float, weights: np.ndarray, *, sphere: bool) -> oracle.Field:
    """P_x m(x) on the sphere, m(x) − x in the plane, both with weights w_j e^{−β|x_i − x_j|²/2}."""

    def field(time: float, points: np.ndarray) -> np.ndarray:
        points = oracle.on_sphere(points) if sphere else points
        shares = weights * np.exp(-0.5 * beta * cdist(points, points, "sqeuclidean"))
        means = shares @ points / shares.sum(axis=1, keepdims=True)
        return oracle.tangent(points, means) if sphere else means - points

    return field


def log_energy(points: np.ndarray, beta: float, weights: np.ndarray, *, sphere: bool) -> np.ndarray:
    """log (1/2β) ΣΣ w_i w_j K(x_i, x_j) of every frame."""
    products = [p @ p.T if sphere else -0.5 * cdist(p, p, "sqeuclidean") for p in points]
    return np.array([np.log(weights @ np.exp(beta * each) @ weights / (2 * beta)) for each in products])


EQUAL = np.full(COUNT, 1 / COUNT)
BETWEEN: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-14, "window": 2, "discretization": pf.Particles(coalesce=1e-3)}
# Merged, the first two would be within 2e-3 of the third, which neither of them is.
THREE = np.array([[-0.45, 0.0], [0.45, 0.0], [0.0, np.sqrt(2.0001**2 - 0.45**2)]]) * 1e-3


def run_and_die(path: str, merged: int) -> None:
    """Begin the run on the sphere, and be killed when so many particles have merged."""

    def die(frames: Any) -> None:
        if COUNT - int(frames.progress.state.carrying[0]) >= merged:
            os.kill(os.getpid(), signal.SIGKILL)

    resume = Path(path).exists()
    pf.simulate(SPHERE, ROUND, TIMES, **OPTIONS, store=path, progress=die, resume=resume)
