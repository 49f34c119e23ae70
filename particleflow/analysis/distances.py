"""Distances between empirical measures: exact W1 and W2, sliced W2 and the energy distance.

Both clouds may carry weights, and need not have the same number of particles. The ground distance is |x − y|, chordal
on the sphere, unless W1 or W2 is computed with `metric="geodesic"`. All are distances of measures Σ_i w_i δ_{x_i}, so
points of weight zero do not matter, nor does it matter whether a mass sits in one particle or in several at one place:

    W1(μ, ν)   = min_π Σ_ij π_ij d(x_i, y_j)
    W2²(μ, ν)  = min_π Σ_ij π_ij d(x_i, y_j)²,   Σ_j π_ij = w_i,  Σ_i π_ij = v_j,  π ≥ 0
    SW2²(μ, ν) = mean over directions θ of W2² of the projections ⟨θ, x⟩ and ⟨θ, y⟩
    D²(μ, ν)   = 2 E|X − Y| − E|X − X'| − E|Y − Y'|,   X, X' ~ μ and Y, Y' ~ ν independent
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from particleflow.analysis.reading import FloatArray, as_points, as_positive, with_mass
from particleflow.errors import ArgumentError, ShapeError

_ASSIGNMENT_LIMIT = 5000  # particles a side with equal weights
_PLAN_LIMIT = 1_000_000  # pairs with unequal weights
_BLOCK_ROWS = 1024


def wasserstein1(
    x: ArrayLike,
    y: ArrayLike,
    *,
    x_weights: ArrayLike | None = None,
    y_weights: ArrayLike | None = None,
    metric: str = "chordal",
    radius: float = 1.0,
) -> float:
    """Return the exact W1 distance, min_π Σ π_ij d(x_i, y_j): on a line ∫ |F − G| dx for the distribution functions.

    On a circle with "geodesic" distances it is min_c ∫ |F − G − c| ds, c a median of F − G (Delon, Salomon and
    Sobolevski 2010). Both sort the points; everything else is solved as W2 is, with the same limits of size. metric and
    radius are those of `wasserstein2`.

    x: (N, d); y: (M, d); x_weights: (N,), y_weights: (M,), equal if left out.
    """
    left, right, left_weights, right_weights = _measures(x, y, x_weights, y_weights)
    _check_metric(metric)
    if left.shape[1] == 1 and metric == "chordal":
        return _line_distance(left[:, 0], right[:, 0], left_weights, right_weights)
    radius = as_positive(radius, "radius")
    if left.shape[1] == 2 and metric == "geodesic":
        _check_norms(left, right, radius)
        angles = [np.arctan2(each[:, 1], each[:, 0]) for each in (left, right)]
        return radius * _circle_distance(angles[0], angles[1], left_weights, right_weights)
    return _optimal(np.sqrt, left, right, left_weights, right_weights, metric, radius, "W1")


def wasserstein2(
    x: ArrayLike,
    y: ArrayLike,
    *,
    x_weights: ArrayLike | None = None,
    y_weights: ArrayLike | None = None,
    metric: str = "chordal",
    radius: float = 1.0,
) -> float:
    """Return the exact W2 distance, W2² = min_π Σ π_ij d(x_i, y_j)², over couplings π of the two measures.

    On a line by quantiles, for equal numbers of equal weights by optimal assignment (up to 5,000 particles), otherwise
    by linear programming (up to a million pairs). metric: "chordal" is |x − y|; "geodesic" is the length of the arc
    between points of the sphere of that `radius`, 2R arcsin(|x − y| / 2R). x: (N, d); y: (M, d); x_weights: (N,),
    y_weights: (M,), equal if left out.
    """
    left, right, left_weights, right_weights = _measures(x, y, x_weights, y_weights)
    _check_metric(metric)
    if metric == "chordal" and left.shape[1] == 1:
        return float(np.sqrt(_line_cost(left[:, 0], right[:, 0], left_weights, right_weights)))
    radius = as_positive(radius, "radius")
    value = _optimal(np.asarray, left, right, left_weights, right_weights, metric, radius, "W2")
    return float(np.sqrt(max(value, 0.0)))


def _check_metric(metric: str) -> None:
    """Refuse a metric of another name than "chordal" and "geodesic"."""
    if metric not in ("chordal", "geodesic"):
        raise ArgumentError(f'Argument `metric` must be "chordal" or "geodesic", but is {metric!r}.')


def _optimal(
    of_squares: Callable[[FloatArray], FloatArray],
    left: FloatArray,
    right: FloatArray,
    left_weights: FloatArray,
    right_weights: FloatArray,
    metric: str,
    radius: float,
    name: str,
) -> float:
    """Return the least cost of a coupling, the cost of a pair being a function of its squared distance."""
    same = left.shape[0] == right.shape[0] and np.ptp(left_weights) == 0 and np.ptp(right_weights) == 0
    pairs = left.shape[0] * right.shape[0]
    if pairs > (_ASSIGNMENT_LIMIT**2 if same else _PLAN_LIMIT):
        raise ArgumentError(
            f"Exact {name} between {left.shape[0]} and {right.shape[0]} particles is too large: at most "
            f"{_ASSIGNMENT_LIMIT} each with equal weights, or {_PLAN_LIMIT} pairs. Use `sliced_wasserstein2`."
        )
    cost = of_squares(_costs(left, right, metric, radius))
    return _assignment(cost) if same else _transport(cost, left_weights, right_weights)


def sliced_wasserstein2(
    x: ArrayLike,
    y: ArrayLike,
    *,
    seed: int,
    directions: int = 256,
    x_weights: ArrayLike | None = None,
    y_weights: ArrayLike | None = None,
) -> float:
    """Return sliced W2, SW2² = mean over directions θ of W2²(⟨θ, x⟩, ⟨θ, y⟩), with random directions of the seed.

    Over all directions the mean of ⟨θ, v⟩² is |v|²/d, so that SW2 ≤ W2/√d, with equality for a shift. Each direction
    costs two sorts; with m of them the standard error of SW2² is its standard deviation over θ divided by √m. Memory
    O(N): one direction at a time.

    x: (N, d); y: (M, d); x_weights: (N,), y_weights: (M,), equal if left out.
    """
    left, right, left_weights, right_weights = _measures(x, y, x_weights, y_weights)
    if directions < 1:
        raise ArgumentError(f"Argument `directions` must be at least 1, but is {directions}.")
    theta = np.random.default_rng(seed).normal(size=(left.shape[1], directions))
    theta /= np.linalg.norm(theta, axis=0)
    columns = np.ascontiguousarray(theta.T)
    costs = [_line_cost(left @ each, right @ each, left_weights, right_weights) for each in columns]
    return float(np.sqrt(np.mean(costs)))


def energy_distance(
    x: ArrayLike, y: ArrayLike, *, x_weights: ArrayLike | None = None, y_weights: ArrayLike | None = None
) -> float:
    """Return the energy distance √(2 E|X − Y| − E|X − X'| − E|Y − Y'|), in blocks: memory O(N), time O(N²).

    It is zero only between equal measures, because −|x − y| is strictly conditionally positive definite; what rounding
    leaves below zero counts as zero.

    x: (N, d); y: (M, d); x_weights: (N,), y_weights: (M,), equal if left out.
    """
    left, right, left_weights, right_weights = _measures(x, y, x_weights, y_weights)
    between = _mean_distance(left, right, left_weights, right_weights)
    within_left = _mean_distance(left, left, left_weights, left_weights)
    within_right = _mean_distance(right, right, right_weights, right_weights)
    return float(np.sqrt(max(2.0 * between - within_left - within_right, 0.0)))


def _measures(
    x: ArrayLike, y: ArrayLike, x_weights: ArrayLike | None, y_weights: ArrayLike | None
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return both clouds and both weights, without what has no mass."""
    left, right = as_points(x, "x"), as_points(y, "y")
    if left.shape[1] != right.shape[1]:
        raise ShapeError(f"`x` and `y` must have one dimension, but have {left.shape[1]} and {right.shape[1]}.")
    left, left_weights = with_mass(left, x_weights)
    right, right_weights = with_mass(right, y_weights)
    return left, right, left_weights, right_weights


def _costs(left: FloatArray, right: FloatArray, metric: str, radius: float) -> FloatArray:
    """Return d(x_i, y_j)² of all pairs."""
    from scipy.spatial.distance import cdist

    chord = cdist(left, right)
    if metric == "chordal":
        return np.square(chord)
    _check_norms(left, right, radius)
    return np.square(2.0 * radius * np.arcsin(np.clip(0.5 * chord / radius, 0.0, 1.0)))


def _check_norms(left: FloatArray, right: FloatArray, radius: float) -> None:
    """Refuse points that are off the sphere of the radius by more than 1e-6 of it."""
    norms = np.concatenate([np.linalg.norm(left, axis=1), np.linalg.norm(right, axis=1)])
    if np.abs(norms - radius).max() > 1e-6 * radius:
        raise ArgumentError(
            f"Geodesic distances need points of the sphere of `radius` {radius:g} (unit vectors by default), but a "
            f"point has the norm {norms[np.argmax(np.abs(norms - radius))]:g}."
        )


def _assignment(cost: FloatArray) -> float:
    """Solve the transport problem of equal masses: some permutation σ is optimal, with the cost (1/N) Σ_i c_{iσ(i)}."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(cost)
    return float(cost[rows, columns].mean())


def _transport(cost: FloatArray, left_weights: FloatArray, right_weights: FloatArray) -> float:
    """Solve min Σ c_ij π_ij, Σ_j π_ij = w_i, Σ_i π_ij = v_j, π ≥ 0 as a linear program.

    Both sides sum to one, so the last column's constraint follows from the others and is left out.
    """
    from scipy.optimize import linprog
    from scipy.sparse import eye_array, kron, vstack

    rows, columns = cost.shape
    ones_row, ones_column = np.ones((1, columns)), np.ones((1, rows))
    of_rows = kron(eye_array(rows), ones_row, format="csr")
    of_columns = kron(ones_column, eye_array(columns), format="csr")[:-1]
    scale = float(cost.max()) or 1.0  # the solver's tolerances are absolute
    solution = linprog(
        cost.ravel() / scale,
        A_eq=vstack([of_rows, of_columns]),
        b_eq=np.concatenate([left_weights, right_weights[:-1]]),
        method="highs",
    )
    if not solution.success:
        raise ArgumentError(f"The transport problem could not be solved: {solution.message}")
    return float(solution.fun) * scale


def _excesses(left: FloatArray, right: FloatArray, left_weights: FloatArray, right_weights: FloatArray) -> Any:
    """Return all places in order, and F − G after each of them."""
    places = np.concatenate([left, right])
    order = np.argsort(places, kind="stable")
    return places[order], np.cumsum(np.concatenate([left_weights, -right_weights])[order])


def _line_distance(left: FloatArray, right: FloatArray, left_weights: FloatArray, right_weights: FloatArray) -> float:
    """Return ∫ |F − G| dx: F − G is constant between places."""
    places, excess = _excesses(left, right, left_weights, right_weights)
    return float(np.diff(places) @ np.abs(excess[:-1]))


def _circle_distance(left: FloatArray, right: FloatArray, left_weights: FloatArray, right_weights: FloatArray) -> float:
    """Return min_c ∫ |F − G − c| dθ over angles; the median is weighted by the lengths between places."""
    places, excess = _excesses(left, right, left_weights, right_weights)
    lengths = np.diff(places, append=places[0] + 2 * np.pi)
    order = np.argsort(excess)
    reached = np.cumsum(lengths[order])
    median = excess[order][np.searchsorted(reached, 0.5 * reached[-1])]
    return float(lengths @ np.abs(excess - median))


def _line_cost(left: FloatArray, right: FloatArray, left_weights: FloatArray, right_weights: FloatArray) -> float:
    """Return W2² of two measures on the line by matching quantiles: ∫₀¹ |F⁻¹(u) − G⁻¹(u)|² du.

    Both quantile functions are constant between the cumulated weights of both sides, so that the integral is a sum over
    these pieces, each with the two particles whose cumulated weights reach over its middle. Equal numbers of equal
    weights are matched in order.
    """
    if left.size == right.size and np.ptp(left_weights) == np.ptp(right_weights) == 0:
        return float(np.mean(np.square(np.sort(left) - np.sort(right))))
    first, second = np.argsort(left), np.argsort(right)
    left_edges = np.cumsum(left_weights[first])
    right_edges = np.cumsum(right_weights[second])
    left_edges[-1] = right_edges[-1] = 1.0
    edges = np.sort(np.concatenate([left_edges, right_edges]))
    lengths = np.diff(edges, prepend=0.0)
    middle = edges - 0.5 * lengths
    left_place = np.minimum(np.searchsorted(left_edges, middle), first.size - 1)
    right_place = np.minimum(np.searchsorted(right_edges, middle), second.size - 1)
    return float(lengths @ np.square(left[first[left_place]] - right[second[right_place]]))


def _mean_distance(left: FloatArray, right: FloatArray, left_weights: FloatArray, right_weights: FloatArray) -> float:
    """Return E|X − Y| = Σ_ij w_i v_j |x_i − y_j|, a block of rows at a time."""
    from scipy.spatial.distance import cdist

    total = 0.0
    for start in range(0, left.shape[0], _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        total += float(left_weights[rows] @ (cdist(left[rows], right) @ right_weights))
    return total
