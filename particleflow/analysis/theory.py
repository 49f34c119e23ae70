"""Curves from theory, to lay over what was simulated."""

import numpy as np


def equiangular_time(beta: float, count: int, rho: float = 0.999) -> float:
    """When n equiangular tokens, orthogonal at first, come to the inner product ρ under row-normalised attention.

    T = ∫_0^ρ dr (e^β + (n−1)e^{βr}) / (2e^{βr}(1−r)((n−1)r+1)), with n = `count` and ρ = `rho`.
    """
    from scipy.integrate import quad

    def slowness(r: float) -> float:
        return (np.exp(beta * (1 - r)) + count - 1) / (2 * (1 - r) * ((count - 1) * r + 1))

    return float(quad(slowness, 0.0, rho, limit=200, points=[0.1 / count, 0.9])[0])


def equiangular_curve(lowest: float, highest: float, count: int, samples: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Values of β from `lowest` to `highest` and the `equiangular_time` of `count` tokens at each of them."""
    betas = np.linspace(lowest, highest, samples)
    return betas, np.asarray([equiangular_time(float(beta), count) for beta in betas])
