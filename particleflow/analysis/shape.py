"""The shape of a cloud of points: its principal components, and the sphere that it lies on."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from particleflow.analysis.reading import FloatArray, is_spherical

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

# How much norms may differ from their mean, as a share of it, to count as equal: in a run whose facts say that it lives
# on a sphere, and in one whose facts say nothing.
STATED_TOLERANCE = 1e-2
UNSTATED_TOLERANCE = 1e-5


@dataclass(frozen=True)
class PrincipalComponents:
    """A cloud's `center` (d,), orthonormal `directions` (d, k), and the `shares` (k,) of the variance along them."""

    center: FloatArray
    directions: FloatArray
    shares: FloatArray

    def __call__(self, points: FloatArray) -> FloatArray:
        """The coordinates (..., k) of points (..., d) along the directions: (x − center) directions."""
        return (points - self.center) @ self.directions


def principal_components(points: FloatArray, count: int) -> PrincipalComponents:
    """The directions along which points (..., d) vary most, by a singular value decomposition.

    X − x̄ = U S Wᵀ; the directions are the first `count` ≤ d columns of W, each with a positive largest entry, and
    their shares S_i² / Σ S² of the variance, which are 0 for a cloud that is one point. Points that are not finite are
    passed over; without any other the center is 0.
    """
    rows = points.reshape(-1, points.shape[-1])
    rows = rows[np.isfinite(rows).all(axis=-1)]
    if len(rows) == 0:
        rows = np.zeros((1, points.shape[-1]))
    center = rows.mean(axis=0)
    # the triangle of a QR factorization has the same S and W, and is small where the rows are many
    _, singular, transposed = np.linalg.svd(np.linalg.qr(rows - center, mode="r"))
    directions = transposed[:count].T
    largest = np.abs(directions).argmax(axis=0)
    directions = directions * np.sign(directions[largest, np.arange(count)])
    variances = np.zeros(points.shape[-1])
    variances[: len(singular)] = (singular / (singular[0] or 1.0)) ** 2  # relative, so that no square overflows
    return PrincipalComponents(center, directions, variances[:count] / (variances.sum() or 1.0))


def common_norm(trajectory: "Trajectory", points: FloatArray) -> float | None:
    """The common norm of a run's points (..., d), or None if they have none.

    Norms may differ by 1 % in a run whose metadata state a sphere; where the geometry is not known they must agree to
    1e-5. In a run whose metadata state a flat space, equal norms mean nothing: None.
    """
    if trajectory.facts.space_is_stated and not is_spherical(trajectory):
        return None
    norms = np.linalg.norm(points, axis=-1)
    norms = norms[np.isfinite(norms)]
    radius = float(norms.mean()) if norms.size else 0.0
    tolerance = STATED_TOLERANCE if is_spherical(trajectory) else UNSTATED_TOLERANCE
    return radius if radius > 0 and np.abs(norms - radius).max() <= tolerance * radius else None
