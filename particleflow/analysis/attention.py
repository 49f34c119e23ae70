"""Statistics of the attention matrix of a cloud: rank, entropy, distance to Boolean, leaders.

A_ij = w_j e^{β⟨Q x_i, K x_j⟩} / Σ_k w_k e^{β⟨Q x_i, K x_k⟩}, with k, j ≤ i in the causal case. Everything is computed
in the log domain and, except for the rank, by blocks of rows, so that the matrix need not fit in memory.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from particleflow.analysis.frames import FloatArray, as_points, as_weights
from particleflow.errors import ArgumentError, ShapeError

_BLOCK_ENTRIES = 1 << 22


@dataclass(frozen=True)
class AttentionStatistics:
    """What the attention matrix looks like.

    rank: singular values above rank_tolerance times the largest (None beyond rank_limit tokens); entropy: mean
    over rows of −Σ_j A_ij log A_ij, in nats, weighted by the tokens' masses; effective_targets: mean of
    e^{row entropy}; boolean_distance: max_ij min(A_ij, 1 − A_ij), 0 for a matrix of zeros and ones; leaders: the
    tokens that are the strongest target of some token, the most followed first; followers: the mass that follows each.
    """

    beta: float
    causal: bool
    rank: int | None
    rank_tolerance: float
    entropy: float
    effective_targets: float
    boolean_distance: float
    leaders: list[int]
    followers: list[float]

    def to_dict(self, maximum: int = 100) -> dict[str, Any]:
        """Return the statistics for JSON, with at most `maximum` leaders."""
        result = asdict(self) | {"leader_count": len(self.leaders)}
        return result | {"leaders": self.leaders[:maximum], "followers": self.followers[:maximum]}


def attention_matrix(
    points: ArrayLike,
    beta: float,
    *,
    query: ArrayLike | None = None,
    key: ArrayLike | None = None,
    causal: bool = False,
    weights: ArrayLike | None = None,
) -> FloatArray:
    """Return the attention matrix (N, N) of a cloud; its rows sum to one.

    query, key: a matrix (d', d), a diagonal (d,) or a number; the identity if left out.
    """
    return np.exp(np.concatenate([rows for _, rows in _log_rows(points, beta, query, key, causal, weights)]))


def attention_statistics(
    points: ArrayLike,
    beta: float,
    *,
    query: ArrayLike | None = None,
    key: ArrayLike | None = None,
    causal: bool = False,
    weights: ArrayLike | None = None,
    rank_tolerance: float = 1e-6,
    rank_limit: int = 4096,
    tie_tolerance: float = 1e-9,
) -> AttentionStatistics:
    """Summarise the attention matrix of a cloud.

    causal: token i sees tokens 0 … i only. rank_limit: beyond so many tokens the rank, which takes O(N³), is left out.
    tie_tolerance: targets whose log-attention is so close to the strongest are equal, and the first of them leads.
    """
    array = as_points(points)
    mass = as_weights(weights, array.shape[0])
    entropy, leader, distance = np.empty(mass.size), np.empty(mass.size, dtype=np.int64), 0.0
    blocks: list[FloatArray] = []
    for start, rows in _log_rows(array, beta, query, key, causal, weights):
        place = slice(start, start + rows.shape[0])
        matrix = np.exp(rows)
        entropy[place] = _entropies(matrix)
        leader[place] = np.argmax(rows >= rows.max(axis=1, keepdims=True) - tie_tolerance, axis=1)
        distance = max(distance, _boolean_distance(matrix))
        blocks += [matrix] if mass.size <= rank_limit else []
    leaders, followers = _followers(leader, mass)
    return AttentionStatistics(
        beta=float(beta),
        causal=causal,
        rank=_rank(np.concatenate(blocks), rank_tolerance) if blocks else None,
        rank_tolerance=rank_tolerance,
        entropy=float(mass @ entropy),
        effective_targets=float(mass @ np.exp(entropy)),
        boolean_distance=distance,
        leaders=leaders,
        followers=followers,
    )


def _log_rows(
    points: ArrayLike,
    beta: float,
    query: ArrayLike | None,
    key: ArrayLike | None,
    causal: bool,
    weights: ArrayLike | None,
) -> Iterator[tuple[int, FloatArray]]:
    """Yield (first row, block of log-attention rows)."""
    from scipy.special import logsumexp

    array = as_points(points)
    mass = as_weights(weights, array.shape[0])
    if not np.isfinite(beta):
        raise ArgumentError(f"Argument `beta` must be finite, but is {beta}.")
    queries, keys = _apply(query, array, "query"), _apply(key, array, "key")
    if queries.shape[1] != keys.shape[1]:
        raise ShapeError(f"Queries and keys must have one dimension, but have {queries.shape[1]} and {keys.shape[1]}.")
    with np.errstate(divide="ignore"):
        log_mass = np.log(mass)
    if causal and mass[0] == 0:
        raise ArgumentError("The first token of a causal sequence must have mass: it sees only itself.")
    block = max(1, _BLOCK_ENTRIES // array.shape[0])
    index = np.arange(array.shape[0])
    for start in range(0, array.shape[0], block):
        logits = float(beta) * (queries[start : start + block] @ keys.T) + log_mass
        if causal:
            logits[index[None, :] > index[start : start + block, None]] = -np.inf
        yield start, logits - logsumexp(logits, axis=1, keepdims=True)


def _apply(matrix: ArrayLike | None, points: FloatArray, name: str) -> FloatArray:
    if matrix is None:
        return points
    array = np.asarray(matrix, dtype=np.float64)
    if array.ndim == 0:
        return float(array) * points
    if array.shape == (points.shape[1],):
        return points * array
    if array.ndim != 2 or array.shape[1] != points.shape[1]:
        raise ShapeError(f"`{name}` must be a number, a diagonal or (d', {points.shape[1]}), but is {array.shape}.")
    return points @ array.T


def _entropies(matrix: FloatArray) -> FloatArray:
    from scipy.special import entr

    return entr(matrix).sum(axis=1)


def _followers(leader: "np.ndarray", mass: FloatArray) -> tuple[list[int], list[float]]:
    """Return the distinct leaders, the most followed first, and the mass that follows each."""
    followed = np.bincount(leader, weights=mass, minlength=mass.size)
    leaders: list[int] = sorted(np.unique(leader).tolist(), key=lambda token: -followed[token])
    return leaders, followed[leaders].tolist()


def _boolean_distance(matrix: FloatArray) -> float:
    """Return max min(A, 1 − A); next to one, 1 − A is the sum of the rest of the row, which does not cancel."""
    rest = matrix.copy()
    rows = np.arange(matrix.shape[0])
    strongest = np.argmax(matrix, axis=1)
    rest[rows, strongest] = 0.0
    complement = rest.sum(axis=1)
    return float(max(np.max(np.minimum(rest, 1.0 - rest)), np.max(np.minimum(matrix[rows, strongest], complement))))


def _rank(matrix: FloatArray, tolerance: float) -> int:
    values = np.linalg.svd(matrix, compute_uv=False)
    return int((values > tolerance * values[0]).sum())
