"""Rényi parking: the tokens of a causal sequence around which metastable clusters form.

Tokens are taken in order, and one becomes a centre when it is farther than δ from every centre before it. Under causal
attention with V = I the clusters of metastable runs sit near the centres for δ = 4 β^{−1/2}. On the circle the expected
number of centres of a long random sequence is 0.7475979 · 2π/δ (Rényi's constant).

δ is an angle and β that of unit vectors: on a sphere of radius R the exponent β⟨x, y⟩ is βR² times the cosine, so that
β here is βR².
"""

import numpy as np
from numpy.typing import ArrayLike

from particleflow.analysis.reading import IntArray, as_points, as_positive, as_weights
from particleflow.errors import ArgumentError, ShapeError

RENYI_CONSTANT = 0.7475979202534114


def parking_separation(beta: float) -> float:
    """Return the separation δ = 4 β^{−1/2} of metastable centres.

    beta: β > 0 of unit vectors.
    """
    return 4.0 / float(np.sqrt(as_positive(beta, "beta")))


def parking_centres(
    points: ArrayLike,
    *,
    beta: float | None = None,
    separation: float | None = None,
    metric: str = "geodesic",
    positions: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> IntArray:
    """Return the indices of the parking centres of a sequence, in the order in which they park.

    points: (N, d) in sequence order, or in the order of `positions` (N,). separation: δ, by default 4 β^{−1/2}. metric:
    "geodesic" measures angles between directions (the sphere); "euclidean" measures |x − y|. weights: (N,); tokens of
    weight zero neither park nor are parked upon. beta: β of unit vectors; give it or `separation`.
    """
    array = as_points(points)
    if (beta is None) == (separation is None):
        raise ArgumentError("Give exactly one of `beta` and `separation`.")
    if metric not in ("geodesic", "euclidean"):
        raise ArgumentError(f'Argument `metric` must be "geodesic" or "euclidean", but is {metric!r}.')
    delta = parking_separation(beta) if beta is not None else as_positive(separation or 0.0, "separation")
    order = np.arange(array.shape[0])
    if positions is not None:
        place = np.asarray(positions, dtype=np.float64)
        if place.shape != order.shape:
            raise ShapeError(f"`positions` must have shape {order.shape}, but has shape {place.shape}.")
        order = np.argsort(place, kind="stable")
    order = order[as_weights(weights, order.size)[order] > 0]
    array = array[order]
    if metric == "geodesic":
        norms = np.linalg.norm(array, axis=1, keepdims=True)
        if (norms == 0).any():
            raise ArgumentError(
                f"A geodesic needs directions, but token {int(order[np.argmin(norms)])} is at the origin."
            )
        array = array / norms
        # An angle above δ is a chord above 2 sin(δ/2); no two directions are more than π apart.
        delta = 2.0 * float(np.sin(0.5 * delta)) if delta < np.pi else np.inf
    return _park(array, order, delta)


def expected_centres(beta: float) -> float:
    """Return the expected number of centres on the circle for a long random sequence: 0.7475979 · 2π / δ.

    beta: β > 0 of unit vectors.
    """
    return RENYI_CONSTANT * 2.0 * np.pi / parking_separation(beta)


def _park(points: "np.ndarray", order: IntArray, delta: float) -> IntArray:
    """Remove everything within δ of each centre; the first particle left is the next centre. O(N) a centre."""
    centres: list[int] = []
    free = np.arange(points.shape[0])
    while free.size:
        centre = free[0]
        centres.append(int(order[centre]))
        distance = np.linalg.norm(points[free] - points[centre], axis=1)
        distance[0] = 0.0
        free = free[distance > delta]
    return np.array(centres, dtype=np.int64)
