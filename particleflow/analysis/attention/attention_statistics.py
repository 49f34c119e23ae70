"""Statistics of the attention matrix of a cloud: rank, entropy, distance to Boolean, leaders.

With the kernel K_ij = e^{β⟨Q x_i, K x_j⟩} K₂(s_i, s_j), K₂ a kernel of positions (in the causal case 1 for s_j ≤ s_i
and otherwise 0), and masses w_j:

    row        A_ij = w_j K_ij / Σ_k w_k K_ik                  softmax: rows sum to one
    sinkhorn   A_ij = w_j K_ij e^{f_i + g_j}                   doubly stochastic: also Σ_i w_i A_ij = w_j
    none       unnormalised attention has weights w_j K_ij; what is reported are its row-normalised ones

A token that sees no token, as the first one of a strictly causal sequence, has a row of zeros.

The potentials f and g are unique up to a constant that moves from one to the other, and A is unique. As β grows,
softmax rows turn Boolean, each token following the points that are largest in its direction; Sinkhorn's tend to the
identity for distinct points of a sphere, since no other assignment σ has as large a Σ_i ⟨x_i, x_σ(i)⟩.

Everything is computed in the log domain and, except for the rank, by blocks of rows, so that the matrix need not fit in
memory. Only the product of β and the scale of the points enters: on a sphere of radius R, β stands for βR².
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from particleflow.analysis.reading import FloatArray, IntArray, as_points, as_weights
from particleflow.errors import ArgumentError, ShapeError
from particleflow.trajectory.facts import NORMALIZATIONS
from particleflow.trajectory.position_kernels import CAUSAL, PositionKernel, position_kernel

_BLOCK_ENTRIES = 1 << 22  # of the matrix at once: 32 MB
_MAXIMUM_SWEEPS = 2000  # of the Sinkhorn iteration
_TOLERANCE_ULPS = 8.0  # moves of the potentials below so many units of rounding count as none
_SMALLEST_SUM = 1e-200  # a smaller sum of exponentials may have lost terms that count


@dataclass(frozen=True)
class AttentionStatistics:
    """What the attention matrix of the tokens that have mass looks like.

    causal: whether K₂ is the causal mask and nothing else; positional: the factors of K₂; rank: singular values above
    rank_tolerance times the largest (None beyond rank_limit tokens); entropy: mean over rows of −Σ_j A_ij log A_ij, in
    nats, weighted by the tokens' masses; effective_targets: mean of e^{row entropy}, 0 for a token that sees none;
    boolean_distance: max_ij min(A_ij, 1 − A_ij), 0 for a matrix of zeros and ones; leaders: the tokens that are the
    strongest target of some token, the most followed first; followers: the mass that follows each.
    """

    beta: float
    causal: bool
    positional: list[dict[str, Any]]
    normalization: str
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
    positional: PositionKernel | Mapping[str, Any] | None = None,
    positions: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    normalization: str = "row",
) -> FloatArray:
    """Return the attention matrix (N, N) of a cloud; its rows sum to one.

    query, key: a matrix (d', d), a diagonal (d,) or a number; the identity if left out. causal: token i sees the tokens
    at positions s_j ≤ s_i only; positional: K₂, or a table that describes it (see `positions`), {"kind": "window",
    "radius": 3.0}. positions: (N,), the order of the tokens if left out. weights: (N,); a token of weight zero is seen
    by none. normalization: "row", "sinkhorn", or "none", which gives the row-normalised weights, too. points: (N, d);
    beta: β, any finite number.
    """
    scores = _scores(points, beta, query, key, _position_kernel(causal, positional), positions, weights)
    return np.exp(np.concatenate([rows for _, rows in _log_rows(scores, normalization)]))


def attention_statistics(
    points: ArrayLike,
    beta: float,
    *,
    query: ArrayLike | None = None,
    key: ArrayLike | None = None,
    causal: bool = False,
    positional: PositionKernel | Mapping[str, Any] | None = None,
    positions: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    normalization: str = "row",
    rank_tolerance: float = 1e-6,
    rank_limit: int = 4096,
    tie_tolerance: float = 1e-9,
) -> AttentionStatistics:
    """Summarise the attention matrix of a cloud; the first arguments are those of `attention_matrix`.

    rank_limit: beyond so many tokens the rank, which takes O(N³), is left out. tie_tolerance: targets whose
    log-attention is so close to the strongest are equal, and the first of them leads. Tokens of weight zero are left
    out of everything.
    """
    kernel, array = _position_kernel(causal, positional), as_points(points)
    mass = as_weights(weights, array.shape[0])
    alive = np.flatnonzero(mass > 0)
    mass, places = mass[alive], _positions(positions, array.shape[0])[alive]
    log_rows = _log_rows(_scores(array[alive], beta, query, key, kernel, places, mass), normalization)
    entropy, leader, distance, blocks = _row_statistics(log_rows, mass.size, tie_tolerance, mass.size <= rank_limit)
    leaders, followers = _followers(leader, mass)
    return AttentionStatistics(
        beta=float(beta),
        causal=kernel.is_causal,
        positional=kernel.description(),
        normalization=normalization,
        rank=_rank(np.concatenate(blocks), rank_tolerance) if blocks else None,
        rank_tolerance=rank_tolerance,
        entropy=float(mass @ entropy),
        effective_targets=float(mass @ np.where(leader >= 0, np.exp(entropy), 0.0)),
        boolean_distance=distance,
        leaders=alive[leaders].tolist(),
        followers=followers,
    )


@dataclass(frozen=True)
class _Scores:
    """The exponents log K_ij = β⟨Q x_i, K x_j⟩ + log K₂(s_i, s_j), a block of rows at a time; −∞ for what is unseen."""

    queries: FloatArray
    keys: FloatArray
    log_mass: FloatArray
    kernel: PositionKernel
    positions: FloatArray

    def blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield (rows, log K of these rows), a new array each."""
        count = self.keys.shape[0]
        size = max(1, _BLOCK_ENTRIES // count)
        for start in range(0, count, size):
            rows = slice(start, min(start + size, count))
            logits = self.queries[rows] @ self.keys.T
            if self.kernel.factors:
                logits += self.kernel.log_matrix(self.positions[rows], self.positions)
            yield rows, logits


def _scores(
    points: ArrayLike,
    beta: float,
    query: ArrayLike | None,
    key: ArrayLike | None,
    kernel: PositionKernel,
    positions: ArrayLike | None,
    weights: ArrayLike | None,
) -> _Scores:
    """Check the arguments of `attention_matrix` and return the exponents they make, log w beside them.

    A token of weight zero has log w = −∞: it is a query like any other, but no target. In the causal case the
    first token must have mass, or it would have no target at all.
    """
    array = as_points(points)
    mass = as_weights(weights, array.shape[0])
    if not np.isfinite(beta):
        raise ArgumentError(f"Argument `beta` must be finite, but is {beta}.")
    queries, keys = _apply(query, array, "query"), _apply(key, array, "key")
    if queries.shape[1] != keys.shape[1]:
        raise ShapeError(f"Queries and keys must have one dimension, but have {queries.shape[1]} and {keys.shape[1]}.")
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(float(beta) * np.abs(queries).sum(axis=1).max() * np.abs(keys).max()):
            raise ArgumentError(f"Argument `beta` is {beta:g}, for which the exponents β⟨Qx, Ky⟩ overflow.")
    places = _positions(positions, array.shape[0])
    if kernel.is_causal and places[mass > 0].min() > places.min():
        raise ArgumentError("The first token of a causal sequence must have mass: it sees only itself.")
    with np.errstate(divide="ignore"):
        log_mass = np.log(mass)
    return _Scores(float(beta) * queries, keys, log_mass, kernel, places)


def _position_kernel(causal: bool, positional: PositionKernel | Mapping[str, Any] | None) -> PositionKernel:
    """Return K₂: the kernel or table that is given, times the causal mask with `causal`."""
    kernel = positional if isinstance(positional, PositionKernel) else position_kernel(positional)
    if kernel is None:
        raise ArgumentError(f"Argument `positional` must be a known kernel of positions, but is {positional!r}.")
    return PositionKernel((*CAUSAL.factors, *kernel.factors)) if causal else kernel


def _positions(positions: ArrayLike | None, count: int) -> FloatArray:
    """Return the place of every token in the sequence: what is given, or 0, 1, … in the order of the tokens."""
    places = np.arange(count, dtype=np.float64) if positions is None else np.asarray(positions, dtype=np.float64)
    if places.shape != (count,) or not np.isfinite(places).all():
        raise ShapeError(f"`positions` must be {count} finite numbers, but has shape {places.shape}.")
    return places


def _log_rows(scores: _Scores, normalization: str) -> Iterator[tuple[slice, FloatArray]]:
    """Yield (rows, log A of these rows): log w_j + log K_ij − log Σ_k w_k K_ik, or log w_j + log K_ij + f_i + g_j."""
    if normalization not in NORMALIZATIONS:
        choices = ", ".join(f'"{name}"' for name in NORMALIZATIONS)
        raise ArgumentError(f"Argument `normalization` must be one of {choices}, but is {normalization!r}.")
    if normalization == "sinkhorn":
        row, column = _sinkhorn_potentials(scores)
        for rows, logits in scores.blocks():
            logits += scores.log_mass + column
            yield rows, logits + row[rows, None]
        return
    for rows, logits in scores.blocks():
        logits += scores.log_mass
        total = _log_sum(logits, axis=1)[:, None]
        yield rows, logits - np.where(np.isneginf(total), 0.0, total)


def _sinkhorn_potentials(scores: _Scores) -> tuple[FloatArray, FloatArray]:
    """Return the potentials f, g that make w_j K_ij e^{f_i + g_j} doubly stochastic, each of shape (N,).

    f_i = −log Σ_j w_j K_ij e^{g_j},  g_j = −log Σ_i w_i K_ij e^{f_i}.  Both are moved half of the way at a time, which
    halves the error with every sweep where K is symmetric and positive definite, at any β; for others the convergence
    may be slow. Sweeps end when the potentials stand still to rounding; each computes the blocks of K anew.
    """
    if scores.kernel.is_one_sided:
        raise ArgumentError(
            'Argument `normalization` must not be "sinkhorn" for causal attention: a triangular matrix is doubly '
            "stochastic only if it is the identity."
        )
    row, column = np.zeros(scores.log_mass.size), np.zeros(scores.log_mass.size)
    largest = float(np.abs(scores.log_mass[np.isfinite(scores.log_mass)]).max())
    moved = np.inf
    for _ in range(_MAXIMUM_SWEEPS):
        row_sum, column_sum = _log_sums(scores, row, column)
        row_move, column_move = -0.5 * row_sum, -0.5 * column_sum
        row, column = row + row_move, column + column_move
        scale = 1.0 + largest + float(np.abs(row).max() + np.abs(column).max())
        moved = max(float(np.abs(row_move).max()), float(np.abs(column_move).max()))
        if moved <= _TOLERANCE_ULPS * np.finfo(np.float64).eps * scale:
            return row, column
    raise ArgumentError(
        f"The Sinkhorn potentials still move by {moved:.2g} after {_MAXIMUM_SWEEPS} sweeps; with a kernel that is not "
        "symmetric and positive definite they settle slowly at a large `beta`."
    )


def _log_sums(scores: _Scores, row: FloatArray, column: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return log Σ_j w_j K_ij e^{f_i + g_j} for every i, and log Σ_i w_i K_ij e^{f_i + g_j} for every j.

    Moving both potentials half of the way leaves no K_ij e^{f_i + g_j} above 1/√(w_i w_j), so that after the first
    sweep the exponentials themselves are summed, which is three times faster; where a sum is still out of range, all
    are computed in the log domain.
    """
    weights, of_rows, of_columns = np.exp(scores.log_mass), np.empty(row.size), np.zeros(row.size)
    with np.errstate(all="ignore"):
        for rows, logits in scores.blocks():
            logits += column + row[rows, None]
            np.exp(logits, out=logits)
            of_rows[rows] = logits @ weights
            of_columns += weights[rows] @ logits
    if all(((sums > _SMALLEST_SUM) & (sums < np.inf)).all() for sums in (of_rows, of_columns)):
        return np.log(of_rows), np.log(of_columns)
    of_columns[:] = -np.inf
    for rows, logits in scores.blocks():
        logits += column + row[rows, None]
        of_rows[rows] = _log_sum(logits + scores.log_mass, axis=1)
        of_columns = np.logaddexp(of_columns, _log_sum(logits + scores.log_mass[rows, None], axis=0))
    return of_rows, of_columns


def _log_sum(logits: FloatArray, axis: int) -> FloatArray:
    """Return log Σ e^{l} = M + log Σ e^{l − M} along an axis, M the largest there; −∞ where there is nothing."""
    largest = logits.max(axis=axis, keepdims=True)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(logits - shift).sum(axis=axis)) + shift.squeeze(axis)


def _apply(matrix: ArrayLike | None, points: FloatArray, name: str) -> FloatArray:
    """Return M x of every point, for a number, a diagonal or a matrix M."""
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


def _row_statistics(
    log_rows: Iterator[tuple[slice, FloatArray]], count: int, tie_tolerance: float, keep: bool
) -> tuple[FloatArray, IntArray, float, list[FloatArray]]:
    """Return every row's entropy and leader (−1: none), the distance to Boolean, and, to keep, the matrix's blocks."""
    entropy, leader, distance = np.empty(count), np.empty(count, dtype=np.int64), 0.0
    blocks: list[FloatArray] = []
    for place, rows in log_rows:
        matrix = np.exp(rows)
        entropy[place] = _entropies(matrix)
        strongest = rows.max(axis=1, keepdims=True)
        first = np.argmax(rows >= strongest - tie_tolerance, axis=1)
        leader[place] = np.where(np.isneginf(strongest[:, 0]), -1, first)
        distance = max(distance, _boolean_distance(matrix))
        blocks += [matrix] if keep else []
    return entropy, leader, distance, blocks


def _entropies(matrix: FloatArray) -> FloatArray:
    """Return −Σ_j A_ij log A_ij of every row."""
    from scipy.special import entr

    return entr(matrix).sum(axis=1)


def _followers(leader: IntArray, mass: FloatArray) -> tuple[list[int], list[float]]:
    """Return the distinct leaders j, the most followed first, and the mass Σ w_i of the tokens i that follow each.

    A token that sees any follows exactly one leader, possibly itself; the others have the leader −1 and follow none.
    """
    follows = leader >= 0
    followed = np.bincount(leader[follows], weights=mass[follows], minlength=mass.size)
    leaders: list[int] = sorted(np.unique(leader[follows]).tolist(), key=lambda token: -followed[token])
    return leaders, followed[leaders].tolist()


def _boolean_distance(matrix: FloatArray) -> float:
    """Return max min(A, 1 − A); for entries near one, 1 − A is the sum of the rest of the row (no cancellation)."""
    rest = matrix.copy()
    rows = np.arange(matrix.shape[0])
    strongest = np.argmax(matrix, axis=1)
    rest[rows, strongest] = 0.0
    complement = rest.sum(axis=1)
    return float(max(np.max(np.minimum(rest, 1.0 - rest)), np.max(np.minimum(matrix[rows, strongest], complement))))


def _rank(matrix: FloatArray, tolerance: float) -> int:
    """Return the number of singular values above `tolerance` times the largest."""
    values = np.linalg.svd(matrix, compute_uv=False)
    return int((values > tolerance * values[0]).sum())
