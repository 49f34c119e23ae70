"""Numerical ranks of kernel matrices: why sums over distant sets, or with smooth kernels, need only a few terms.

    rank_ε(A) = the least p with |A − A_p|_ij ≤ ε max|A| for all entries,    A_p = Σ_{l ≤ p} σ_l u_l v_lᵀ

For A_ij = 1/|x_i − y_j| between well-separated sets, |y − y*| ≤ δ |x − y*| with δ < 1, the expansion of 1/|x − y| in
powers of (y − y*)/(x − y*) leaves δ^p of the largest entry after p terms, so rank_ε ≤ C |log ε| with C near 1/|log δ|:
a few, however many points there are. This is what fast multipole methods and H-matrices rest on (Greengard and Rokhlin
1987; Hackbusch 1999).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from particleflow.errors import ArgumentError, ShapeError


@dataclass(frozen=True)
class BlockRanks:
    """Singular values (separations, count), each row relative to its largest, and ranks (separations, tolerances)."""

    separations: np.ndarray
    singular_values: np.ndarray
    tolerances: np.ndarray
    ranks: np.ndarray


def numerical_rank(matrix: np.ndarray, tolerance: float) -> int:
    """The least p for which all entries of A − Σ_{l ≤ p} σ_l u_l v_lᵀ are at most `tolerance` · max |A|."""
    if not 0 < tolerance < 1:
        raise ArgumentError(f"Argument `tolerance` must be between 0 and 1, but is {tolerance}.")
    matrix = np.asarray(matrix, float)
    if matrix.ndim != 2:
        raise ShapeError(f"Argument `matrix` must have two axes, but has shape {matrix.shape}.")
    return _rank(matrix, *np.linalg.svd(matrix, full_matrices=False), tolerance)


def _rank(matrix: np.ndarray, u: np.ndarray, values: np.ndarray, v: np.ndarray, tolerance: float) -> int:
    """The least rank whose remainder is within the tolerance in every entry, from the singular value decomposition."""
    left, allowed = matrix.copy(), tolerance * np.abs(matrix).max(initial=0.0)
    for rank, value in enumerate(values):
        if np.abs(left).max(initial=0.0) <= allowed:
            return rank
        left -= value * np.outer(u[:, rank], v[rank])
    return len(values)


def block_ranks(
    separations: Sequence[float] = (1.25, 1.5, 2.0, 3.0, 5.0, 9.0),
    tolerances: Sequence[float] = (1e-3, 1e-6, 1e-9, 1e-12),
    count: int = 200,
) -> BlockRanks:
    """The ranks of 1/|x − y| between `count` even points of [c − ½, c + ½] and of [−½, ½], for distances c of centres.

    Distances must exceed 1, where the segments touch; [1, 2] is at c = 1.5, with δ = ½.

    separations: the distances c; tolerances: ε of the ranks, each between 0 and 1; count: points a segment.
    """
    distances = np.asarray(separations, float)
    if not (distances > 1).all():
        raise ArgumentError(
            f"Argument `separations` must exceed 1, the length of a segment, but holds {distances.min()}."
        )
    segment = np.linspace(-0.5, 0.5, count)
    rows, ranks = [], []
    for distance in distances:
        matrix = 1 / np.abs(distance + segment[:, None] - segment[None, :])
        u, values, v = np.linalg.svd(matrix)
        rows.append(values / values[0])
        ranks.append([_rank(matrix, u, values, v, tolerance) for tolerance in tolerances])
    return BlockRanks(distances, np.array(rows), np.asarray(tolerances, float), np.array(ranks))


def feature_errors(exact: np.ndarray, approximations: Mapping[int, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Ranks in order, and the root mean square of the entries of K̂ − K for each; see `convergence_slope`.

    exact: K, (n, m); approximations: rank → K̂ of the same shape.
    """
    exact = np.asarray(exact, float)
    for rank, matrix in approximations.items():
        if np.shape(matrix) != exact.shape:
            raise ShapeError(f"The matrix of rank {rank} must have shape {exact.shape}, but has {np.shape(matrix)}.")
    ranks = np.array(sorted(approximations))
    return ranks, np.array([np.sqrt(np.mean((np.asarray(approximations[rank]) - exact) ** 2)) for rank in ranks])
