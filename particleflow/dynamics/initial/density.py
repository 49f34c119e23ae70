"""Densities of initial kinds, from which measures on meshes and grids are made.

A density is with respect to the length, area or volume of its space: of the *unit* sphere in R^dimension, or of flat
space. It is evaluated outside of compiled programs, in NumPy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from particleflow.errors import ArgumentError

_MISSED = 0.01  # the share of its mass that quadrature at a few places may miss
_NEWTON_STEPS = 100  # more than needed: they stand still at the root


@dataclass(frozen=True)
class Density:
    """A density on the unit sphere or in flat space: `values(points)` are its numbers at points (n, dimension)."""

    space: Literal["sphere", "flat"]
    dimension: int
    values: Callable[[np.ndarray], np.ndarray]

    def mapped(self, centre: np.ndarray, matrix: np.ndarray, onto: np.ndarray) -> "Density":
        """The density of onto + matrix (x − centre), for a density of flat space: ρ(M⁻¹(y − onto) + centre)/|det M|."""
        back, volume = np.linalg.inv(matrix), abs(np.linalg.det(matrix))
        return Density(
            self.space, self.dimension, lambda points: self.values((points - onto) @ back.T + centre) / volume
        )

    def at(self, points: np.ndarray) -> np.ndarray:
        """The numbers at some points; refused unless they are those of a density."""
        found = np.asarray(self.values(points), float)
        if found.shape != points.shape[:1] or not np.isfinite(found).all():
            raise ArgumentError(
                f"A density must give one finite number for each of {len(points)} points, but gives shape {found.shape}"
                f"{' with NaN or infinity' if found.shape == points.shape[:1] else ''}."
            )
        if (found < 0).any():
            worst = int(np.argmin(found))
            place = ", ".join(f"{number:.4g}" for number in points[worst])
            raise ArgumentError(
                f"The density of the start must not be negative, but is {found[worst]:.3g} at ({place})."
            )
        return found

    def check_lives_on(self, kind: str, name: str) -> None:
        """Raise unless its space is that of a geometry, of some kind and name."""
        if self.space != kind:
            spaces = {"sphere": "on the unit sphere", "flat": "in flat space"}
            raise ArgumentError(
                f"The start has a density {spaces[self.space]}, but the geometry of the flow is {name}; take a start "
                "on that geometry, or draw points (`count`), which are brought onto it."
            )


def check_whole(total: float, where: str, hint: str) -> None:
    """Raise unless a density sums to one, nearly: it may jump between the places of quadrature."""
    if not abs(total - 1) <= _MISSED:
        raise ArgumentError(
            f"The density of the start must sum to one over {where}, but sums to {total:.6g}: {hint}; or it is not "
            "normalised."
        )


def sphere_area(dimension: int) -> float:
    """The area 2π^{d/2}/Γ(d/2) of the unit sphere in R^d."""
    from scipy.special import gammaln

    return float(2 * np.exp(0.5 * dimension * np.log(np.pi) - gammaln(0.5 * dimension)))


def circle_density(points: np.ndarray, mode: int, amplitude: float, order: float) -> np.ndarray:
    """The density of z = (w + order)/(1 + order · w), w = e^{i(θ + amplitude sin(mode θ))}, θ uniform.

    Backwards: w = (z − r)/(1 − r z) turns by (1 − r²)/|1 − r z|² where z turns by one, and E = mode θ solves Kepler's
    equation E + e sin E = M with e = mode · amplitude, which has one solution for |e| < 1.
    """
    z = points @ np.array([1.0, 1j])
    image = (z - order) / (1 - order * z)
    turn = (1 - order**2) / np.abs(1 - order * z) ** 2
    mean, eccentricity = mode * np.angle(image), mode * amplitude
    anomaly = np.array(mean)
    for _ in range(_NEWTON_STEPS):  # Newton's steps, shortened where the equation is flat
        step = (mean - anomaly - eccentricity * np.sin(anomaly)) / (1 + eccentricity * np.cos(anomaly))
        anomaly = anomaly + np.clip(step, -1.0, 1.0)
    return turn / (2 * np.pi * (1 + eccentricity * np.cos(anomaly)))


def normal_density(points: np.ndarray, centre: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The density of centre + scale ξ, ξ standard normal; `scale` is a number, a diagonal or a matrix."""
    dimension = points.shape[1]
    matrix = scale if scale.ndim == 2 else np.diag(np.broadcast_to(scale, (dimension,)))
    whitened = np.linalg.solve(matrix, (points - centre).T)
    _, log_volume = np.linalg.slogdet(matrix)
    exponent = -0.5 * np.sum(np.square(whitened), axis=0) - log_volume - 0.5 * dimension * np.log(2 * np.pi)
    return np.exp(exponent)
