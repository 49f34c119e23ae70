"""Ranks of an attention matrix A: what its best approximations of few terms leave, and what is left beside a band.

    left(r) = √(Σ_{l>r} σ_l² / Σ_l σ_l²)    by the best approximation of rank r (Eckart and Young 1936)
    rank_ε(M) = #{l : σ_l(M) > ε σ_1(A)}    of A, and of A − D, D the entries with |i − j| ≤ k

The share is of the Frobenius norm. Rows of k well-separated clusters are k different ones, so that rank one loses a
constant share and rank k little. The band depends on the order of the particles. Where weights decay slowly in this
order, as 1/(1 + |i − j|), the part beside a band is of lower rank than A (the case that FMMformer is made for: Nguyen
and others, 2021); blocks of clusters are of rank one already, and a band that cuts into them raises the rank.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from particleflow.errors import ArgumentError, ShapeError

_TOLERANCES = (1e-1, 1e-2, 1e-3)
_MOST_WIDTHS = 12


@dataclass(frozen=True)
class AttentionRanks:
    """What is left of a matrix at each rank (n + 1,), and ranks (widths, tolerances) beside bands; −1 is no band."""

    left: np.ndarray
    widths: np.ndarray
    tolerances: np.ndarray
    ranks: np.ndarray

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON, the share that is left for at most 64 terms."""
        return {
            "left": [float(each) for each in self.left[:65]],
            "tolerances": [float(each) for each in self.tolerances],
            "ranks": {
                "none" if width < 0 else str(int(width)): [int(each) for each in row]
                for width, row in zip(self.widths, self.ranks, strict=True)
            },
        }


def attention_ranks(
    matrix: np.ndarray, widths: Sequence[int] | None = None, tolerances: Sequence[float] = _TOLERANCES
) -> AttentionRanks:
    """The ranks of a square matrix in its own order; with no band (−1) and for a few `widths` k, else powers of two.

    Parameters: `matrix` (n, n); `widths`, whole numbers from −1 on; `tolerances` ε, each between 0 and 1.
    """
    matrix = np.asarray(matrix, float)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ShapeError(f"Argument `matrix` must be square, but has shape {matrix.shape}.")
    if not all(0 < each < 1 for each in tolerances):
        raise ArgumentError(f"Argument `tolerances` must hold numbers between 0 and 1, but is {tuple(tolerances)}.")
    count = len(matrix)
    if widths is None:
        widths = [-1, 0, *(2**power for power in range(_MOST_WIDTHS) if 2 ** (power + 1) <= count)]
    if any(width != int(width) or width < -1 for width in widths):
        raise ArgumentError(f"Argument `widths` must hold whole numbers from -1 on, but is {tuple(widths)}.")
    lags = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    values = {
        int(width): np.linalg.svd(np.where(lags > width, matrix, 0.0), compute_uv=False) for width in {-1, *widths}
    }
    squares = np.square(values[-1])
    if not squares.sum() > 0:
        raise ArgumentError("Argument `matrix` must have an entry that is not 0.")
    left = np.sqrt(np.append(np.cumsum(squares[::-1])[::-1], 0.0) / squares.sum())
    limits = np.asarray(tolerances, float) * values[-1][0]
    ranks = np.array([[int(np.sum(values[int(width)] > limit)) for limit in limits] for width in widths])
    return AttentionRanks(left, np.asarray(widths, int), np.asarray(tolerances, float), ranks)
