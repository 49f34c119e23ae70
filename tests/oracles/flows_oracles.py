"""Independent right-hand sides in NumPy, written from the formulas alone, and SciPy drivers for them.

Nothing here imports JAX or particleflow: a flow that agrees with these agrees with the mathematics.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

Field = Callable[[float, np.ndarray], np.ndarray]


def attention_weights(
    points: np.ndarray, beta: float, query: Any, key: Any, *, normalization: str = "row", causal: bool = False
) -> np.ndarray:
    """The matrix p_ij: softmax rows ("row"), e^{β⟨Qx_i, Kx_j⟩}/n ("none"), or doubly stochastic rows ("sinkhorn")."""
    count, dimension = points.shape
    logits = beta * (points @ _matrix(query, dimension).T) @ (points @ _matrix(key, dimension).T).T
    if causal:
        logits = np.where(np.tril(np.ones((count, count), bool)), logits, -np.inf)
    if normalization == "none":
        return np.exp(logits) / count
    if normalization == "sinkhorn":
        return _balanced(np.exp(logits - logits.max()))
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def _balanced(matrix: np.ndarray) -> np.ndarray:
    """Rows and columns scaled in turn until both sum to one."""
    left = right = np.ones(len(matrix))
    for _ in range(20_000):
        right = 1 / (left @ matrix)
        update = 1 / (matrix @ right)
        if np.max(np.abs(update / left - 1)) < 1e-15:
            break
        left = update
    return left[:, None] * matrix * right[None, :]


def attention_field(
    beta: float,
    query: Any = 1.0,
    key: Any = 1.0,
    value: Any = 1.0,
    *,
    normalization: str = "row",
    causal: bool = False,
    sphere: bool = False,
) -> Field:
    """ẋ_i = V Σ_j p_ij x_j, made tangent on the unit sphere (where the point is x/|x|)."""

    def field(time: float, points: np.ndarray) -> np.ndarray:
        if sphere:
            points = points / np.linalg.norm(points, axis=1, keepdims=True)
        weights = attention_weights(points, beta, query, key, normalization=normalization, causal=causal)
        velocity = weights @ points @ _matrix(value, points.shape[1]).T
        return tangent(points, velocity) if sphere else velocity

    return field


def tangent(points: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """v − ⟨x, v⟩x for unit vectors x."""
    return velocity - np.sum(points * velocity, axis=1, keepdims=True) * points


def solve(field: Field, start: np.ndarray, times: Any, rtol: float = 1e-12, atol: float = 1e-13) -> np.ndarray:
    """The states at `times` (the first one is the start), by DOP853."""
    shape = np.shape(start)
    solution = solve_ivp(
        lambda t, y: field(t, y.reshape(shape)).ravel(),
        (times[0], times[-1]),
        np.asarray(start, float).ravel(),
        method="DOP853",
        t_eval=times,
        rtol=rtol,
        atol=atol,
    )
    assert solution.success, solution.message
    return solution.y.T.reshape(len(times), *shape)


def on_sphere(points: np.ndarray) -> np.ndarray:
    """x/|x|."""
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def random_sphere(seed: int, count: int, dimension: int) -> np.ndarray:
    """Uniform points on the unit sphere."""
    return on_sphere(np.random.default_rng(seed).normal(size=(count, dimension)))


def circle(angles: np.ndarray) -> np.ndarray:
    """(cos θ, sin θ)."""
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)


def equiangular(count: int, similarity: float = 0.0) -> np.ndarray:
    """n unit vectors in R^n with all inner products equal."""
    return np.linalg.cholesky((1 - similarity) * np.eye(count) + similarity * np.ones((count, count)))


def equiangular_rate(rho: Any, beta: float, count: int, normalization: str = "row") -> Any:
    """ρ' of equiangular tokens on the sphere."""
    total = np.exp(beta) + (count - 1) * np.exp(beta * rho) if normalization == "row" else count
    return 2 * np.exp(beta * rho) * (1 - rho) * ((count - 1) * rho + 1) / total


def equiangular_path(beta: float, count: int, times: Any, normalization: str = "row", rho: float = 0.0) -> np.ndarray:
    """ρ at `times`."""
    return solve(lambda t, y: equiangular_rate(y, beta, count, normalization), np.array([rho]), times)[:, 0]


def equiangular_time(beta: float, count: int, target: float, normalization: str = "row") -> float:
    """When ρ reaches `target` from 0: ∫ dρ/ρ'."""
    from scipy.integrate import quad

    def slowness(rho: float) -> float:
        return 1 / equiangular_rate(rho, beta, count, normalization)

    return quad(slowness, 0, target, epsabs=1e-12, epsrel=1e-12, limit=500)[0]


def equiangular_scheme(scheme: str, beta: float, count: int, times: Any, alpha: float = 1.0) -> np.ndarray:
    """ρ at `times` under a normalisation scheme θ' = P A/s, from the closed equations for ρ and r."""

    def field(time: float, state: np.ndarray) -> np.ndarray:
        rho, radius = state
        own = np.exp(beta) / (np.exp(beta) + (count - 1) * np.exp(beta * rho))
        other = (1 - own) / (count - 1)
        along = own + (count - 1) * other * rho
        across = own * rho + other * (1 + (count - 2) * rho)
        size = np.sqrt(own**2 + 2 * own * other * (count - 1) * rho + other**2 * (count - 1) * (1 + (count - 2) * rho))
        slowing, growth = {
            "post": (1.0, 0.0),
            "pre": (radius, along),
            "peri": (radius * size, along / size),
            "ngpt": (size / alpha, 0.0),
            "sqrt": (np.sqrt(time + 1), 0.0),
        }[scheme]
        return np.array([2 * (across - rho * along) / slowing, growth])

    return solve(field, np.array([0.0, 1.0]), times)[:, 0]


def gram_deviation(points: np.ndarray, similarity: float) -> float:
    """How far any pair of different tokens is from ⟨x_i, x_j⟩ = similarity."""
    gram = points @ points.T
    return float(np.max(np.abs(gram[~np.eye(len(points), dtype=bool)] - similarity)))


def norm_error(points: Any, radius: float = 1.0) -> float:
    """The largest | |x| − radius | over all frames and particles."""
    return float(np.max(np.abs(np.linalg.norm(np.asarray(points), axis=-1) - radius)))


def cluster_count(points: np.ndarray, distance: float) -> int:
    """The number of single-linkage clusters at a threshold."""
    from scipy.cluster.hierarchy import fcluster, linkage

    return int(fcluster(linkage(points, "single"), distance, "distance").max())


def two_particle_time(beta: float, first: float, last: float) -> float:
    """When two tokens on the circle under SA come from angle `first` to `last`: φ' = −2 sin φ / (e^{β(1−cos φ)} + 1).

    Each of the two moves by the weight of the other, p = 1/(1 + e^{β(1 − cos φ)}), times sin φ.
    """
    from scipy.integrate import quad

    def slowness(angle: float) -> float:
        return (np.exp(beta * (1 - np.cos(angle))) + 1) / (2 * np.sin(angle))

    return quad(slowness, last, first, epsabs=1e-12, epsrel=1e-12, limit=500)[0]


def root(function: Callable[[float], Any], low: float, high: float) -> float:
    """The zero of a function between two numbers."""
    found: Any = brentq(function, low, high, xtol=1e-14, rtol=np.float64(1e-14))
    return float(found)


def _matrix(linear: Any, dimension: int) -> np.ndarray:
    linear = np.asarray(linear, float)
    return np.diag(np.broadcast_to(linear, dimension)) if linear.ndim < 2 else linear
