"""Closed forms of densities, and a plain loop of time steps that knows nothing of the integrator."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import particleflow as pf
from particleflow.discretization import FiniteVolumes
from particleflow.dynamics.initial import Density


def poisson(order: float) -> Density:
    """(1 − r²)/(2π(1 − 2r cos θ + r²)) on the circle."""

    def values(points: np.ndarray) -> np.ndarray:
        cosine = points[:, 0] / np.linalg.norm(points, axis=1)
        return (1 - order**2) / (2 * np.pi * (1 - 2 * order * cosine + order**2))

    return Density("sphere", 2, values)


def kuramoto_order(time: float, order: float) -> float:
    """r(t) of the Kuramoto flow."""
    return order * np.exp(time / 2) / np.sqrt(1 - order**2 + order**2 * np.exp(time))


def fisher(mean: np.ndarray, concentration: float) -> Density:
    """κ e^{κ(⟨m, x⟩ − 1)}/(2π(1 − e^{−2κ})) on S²."""
    scale = concentration / (2 * np.pi * (1 - np.exp(-2 * concentration)))
    return Density("sphere", 3, lambda points: scale * np.exp(concentration * (points @ mean - 1)))


def normal(mean: np.ndarray, covariance: np.ndarray) -> Density:
    """N(mean, covariance) in R^d."""
    from scipy.stats import multivariate_normal

    law: Any = multivariate_normal(mean, covariance)  # pyright: ignore[reportArgumentType]
    return Density("flat", len(mean), lambda points: law.pdf(points).reshape(len(points)))


def masses_of(volumes: FiniteVolumes, flow: pf.Flow, density: Density) -> np.ndarray:
    """The masses of all cells."""
    return np.exp(np.asarray(volumes.project(flow, density).log_weights))


def stepped(volumes: FiniteVolumes, flow: pf.Flow, start: Any, end: float, steps: int) -> np.ndarray:
    """The masses at the end, after equal steps of the classical Runge–Kutta method: smooth densities stay positive."""
    state = volumes.begin(flow, volumes.project(flow, start))
    flow = volumes.specialise_sums(flow, volumes.project(flow, start))
    size = end / steps

    @jax.jit
    def run(state: Any) -> Any:
        def rate(time: Any, density: Any) -> Any:
            return volumes.velocity(flow, time, state._replace(density=density)).density

        def step(density: Any, number: Any) -> tuple[Any, None]:
            time = size * number

            def stage(so_far: Any, numbers: Any) -> tuple[Any, None]:
                move, total = so_far
                node, weight = numbers
                move = rate(time + node * size, density + node * size * move)
                return (move, total + weight * move), None

            nodes, weights = jnp.asarray([0.0, 0.5, 0.5, 1.0]), jnp.asarray([1, 2, 2, 1]) / 6
            begin = (jnp.zeros_like(density), jnp.zeros_like(density))
            (_, total), _ = jax.lax.scan(stage, begin, (nodes, weights))
            return density + size * total, None

        density, _ = jax.lax.scan(step, state.density, jnp.arange(steps).astype(float))
        return density * state.mesh.cells.volumes

    return np.asarray(run(state))


def order_of(errors: list[float], factor: float = 2.0) -> float:
    """The order that the last two errors show, of cells that are `factor` times smaller each time."""
    return float(np.log(errors[-2] / errors[-1]) / np.log(factor))
