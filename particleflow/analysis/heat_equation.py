"""Repelling attention on the circle as the heat equation, and the exact solution of that.

Row-normalised attention of large β is m(x) − x ≈ (1/β) ∇log f for a density f, so that with a value −v the density
obeys ∂_t f = (v/β) ∂²_θ f, whose mode k decays as e^{−k² v t/β}. Source: Sander, Ablin, Blondel and Peyré, Sinkformers
(2022).
"""

from typing import TYPE_CHECKING

import numpy as np

from particleflow.analysis.reading import FloatArray
from particleflow.errors import ArgumentError

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

_LARGE = 20.0  # β from which the law is compared


def heat_rate(run: "Trajectory") -> float | None:
    """The diffusivity v/β of one run whose density obeys the heat equation at large β; None for any other run.

    It needs: one row-normalised attention on the unit circle with β ≥ 20, numbers Q = K = 1 and V = −v < 0, without a
    mask, noise or a schedule.
    """
    facts = run.facts
    circle = facts.space.kind == "sphere" and run.dimension == 2 and facts.space.radius == 1.0
    if not circle or facts.temperature > 0 or facts.common_temperature > 0 or facts.schedule is not None:
        return None
    if len(facts.interactions) != 1 or not facts.interactions[0].is_attention:
        return None
    head = facts.interactions[0]
    plain = head.normalization == "row" and head.positions is not None and not head.positions.factors
    query, key, value, beta = head.query, head.key, head.value, head.beta or 0.0
    if not plain or not isinstance(value, float) or not isinstance(query, float) or not isinstance(key, float):
        return None
    return -value / beta if value < 0 and query == key == 1.0 and beta >= _LARGE else None


def heat_profile(angles: FloatArray, weights: FloatArray, spread: float, grid: FloatArray, modes: int) -> FloatArray:
    """The density (G,) at the angles of a grid of mass that diffused on the circle, in its first Fourier modes.

    f(θ) = (1/2π) Σ_{|k| ≤ K} e^{−k² s} Σ_j w_j e^{ik(θ − θ_j)}; without diffusion, s = 0, it is that of the particles.

    angles, weights: (n,) of the particles at the start; spread: s, diffusivity times time; modes: K.
    """
    if spread < 0 or modes < 1:
        raise ArgumentError(f"Arguments `spread` ≥ 0 and `modes` ≥ 1 are needed, but are {spread} and {modes}.")
    wave = np.arange(1, modes + 1)
    coefficients = np.exp(-1j * np.outer(wave, angles)) @ weights * np.exp(-(wave**2) * spread)
    return (weights.sum() + 2 * np.real(np.exp(1j * np.outer(grid, wave)) @ coefficients)) / (2 * np.pi)
