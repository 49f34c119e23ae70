"""Curves from theory, to lay over what was simulated."""

import numpy as np


def equiangular_time(beta: float, count: int, rho: float = 0.999) -> float:
    """The time T at which n tokens, orthogonal at t = 0, reach the inner product ρ under row-normalised attention.

    Equal angles stay equal, and T = ∫_0^ρ dr (e^β + (n−1)e^{βr}) / (2e^{βr}(1−r)((n−1)r+1)), with n = `count` and
    ρ = `rho`. beta: β.
    """
    from scipy.integrate import quad

    def slowness(r: float) -> float:
        """dt / dr, the time that the inner product r takes per unit."""
        return (np.exp(beta * (1 - r)) + count - 1) / (2 * (1 - r) * ((count - 1) * r + 1))

    return float(quad(slowness, 0.0, rho, limit=200, points=[0.1 / count, 0.9])[0])


def equiangular_curve(lowest: float, highest: float, count: int, samples: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Values of β from `lowest` to `highest` and the `equiangular_time` of `count` tokens at each of them.

    samples: how many values, evenly spaced.
    """
    betas = np.linspace(lowest, highest, samples)
    return betas, np.asarray([equiangular_time(float(beta), count) for beta in betas])


def gaussian_variance(start: float, rate: float, times: np.ndarray) -> np.ndarray:
    """The variance of Gaussian tokens under softmax attention, s(t) = s₀ / (1 − 2 r s₀ t); NaN from its pole on.

    start: s₀ at t = 0; rate: r = β q k v for the numbers Q, K, V. A Gaussian stays one: s' = 2 r s². Where Q, K, V are
    numbers it also holds for each principal variance in any dimension. times: t, any shape.
    """
    left = 1.0 - 2.0 * rate * start * np.asarray(times, float)
    return np.divide(start, left, out=np.full(left.shape, np.nan), where=left > 0)


def gaussian_blow_up(start: float, rate: float) -> float | None:
    """The time 1/(2 r s₀) at which `gaussian_variance` becomes infinite, or None if it never does.

    start: s₀; rate: r, as of `gaussian_variance`.
    """
    return 1.0 / (2.0 * rate * start) if rate * start > 0 else None
