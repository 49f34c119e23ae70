"""How a cloud spreads: its covariance through time, and each particle's distance to its nearest neighbour."""

from typing import TYPE_CHECKING

import numpy as np

from particleflow.analysis.reading import FloatArray, IntArray, as_points, frame_points, frame_weights, with_mass
from particleflow.errors import ArgumentError

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory


def principal_variances(trajectory: "Trajectory", frames: IntArray) -> FloatArray:
    """Return the eigenvalues of the covariance Σ_i w_i (x_i − x̄)(x_i − x̄)ᵀ in the given frames, (T, d), largest first.

    They are the squared singular values of √w_i (x_i − x̄), which keeps the small ones exact. trajectory: one run;
    frames: (T,) indices.
    """
    found = np.zeros((len(frames), trajectory.dimension))
    for row, frame in enumerate(frames):
        points, weights = with_mass(frame_points(trajectory, int(frame)), frame_weights(trajectory, int(frame)))
        centred = np.sqrt(weights)[:, None] * (points - weights @ points)
        values = np.linalg.svd(centred, compute_uv=False)
        found[row, : values.size] = np.square(values)
    return found


def excess_kurtosis(points: FloatArray, weights: FloatArray) -> FloatArray:
    """Return Σ w (x − x̄)⁴ / (Σ w (x − x̄)²)² − 3 of every coordinate, (d,): 0 of a Gaussian, NaN of a constant.

    points: (N, d); weights: (N,).
    """
    points, mass = with_mass(as_points(points), weights)
    centred = points - mass @ points
    squares = mass @ centred**2
    return np.divide(mass @ centred**4, squares**2, out=np.full(squares.shape, np.nan), where=squares > 0) - 3.0


def nearest_distances(points: FloatArray, radius: float | None = None) -> FloatArray:
    """Return every particle's distance to the nearest other one, (N,).

    It is |x_i − x_j|, or with a `radius` R the angle 2 arcsin(|x_i − x_j| / 2R) on a sphere, in radians. points: (N, d)
    with N ≥ 2.
    """
    from scipy.spatial import KDTree

    array = as_points(points)
    if array.shape[0] < 2:
        raise ArgumentError("Nearest neighbours need at least two particles, but there is one.")
    chords = KDTree(array).query(array, k=2)[0][:, 1]
    return chords if radius is None else 2.0 * np.arcsin(np.clip(chords / (2.0 * radius), 0.0, 1.0))
