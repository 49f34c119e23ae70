"""Clustering by MeanShift: x ← x + step (m(x) − x) until nothing moves; points that end at one place are one cluster.

With m over the fixed samples (MeanShift, Fukunaga and Hostetler 1975; Cheng 1995) points climb to the modes of the
smoothed density; with m over the moving points themselves (blurring) all points contract, in fewer steps.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.spatial import KDTree
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import validate_data

from particleflow.errors import ArgumentError
from particleflow.kernels import AbstractKernel
from particleflow.measure import Measure
from particleflow.models.base import (
    bandwidth_of,
    check_count,
    check_share,
    kernel_of,
    measure_of,
    queries_of,
    samples_of,
)
from particleflow.summation import AbstractSummation, Auto, NearFar
from particleflow.summation.local_mean import local_moments
from particleflow.summation.native.build import library

_MANY_PAIRS = 1e7  # fewer pairs are summed exactly: choosing an approximation would cost more than it saves
_ERROR_SHARE = 1e-2  # allowed error of a sum, as a share of the shift below which a seed rests
_ROUND = 16  # shifts between two searches for seeds at rest
_SEEDS = 64  # the size of a round is a multiple of this


class MeanShiftClustering(ClusterMixin, BaseEstimator):
    """Modes of the smoothed density, and for every sample the mode it climbs to.

    Parameters: `bandwidth`, a number, or None for `estimate_bandwidth`; `kernel`, "flat" as in scikit-learn, another
    name, or a kernel object; `blurring`, whether points shift towards each other in place of the samples; `step`, 1 for
    the hard map x ← m(x), less for the soft one; `max_iter`; `tolerance`, in bandwidths: a seed that shifts by less is
    at rest; `seeds` (m, d), where to begin, the samples if left out, as under blurring they must be; `summation`,
    chosen if left out: near pairs alone for kernels of finite support, which is exact; for others, if there are many
    pairs, the cheapest sum whose error bound is a hundredth of the tolerance, and else `Auto()`.

    Ends closer than a bandwidth are one mode, that of the largest mass; a sample belongs to the mode nearest to it,
    under blurring to the one it shifted to.

    Attributes: `cluster_centers_`, the modes, the densest first; `labels_`; `n_iter_`; `bandwidth_`, `kernel_`;
    `summation_`, the summation used.
    """

    def __init__(
        self,
        bandwidth: float | None = None,
        kernel: Any = "flat",
        blurring: bool = False,
        step: float = 1.0,
        max_iter: int = 300,
        tolerance: float = 1e-3,
        seeds: Any = None,
        summation: AbstractSummation | None = None,
    ):
        self.bandwidth = bandwidth
        self.kernel = kernel
        self.blurring = blurring
        self.step = step
        self.max_iter = max_iter
        self.tolerance = tolerance
        self.seeds = seeds
        self.summation = summation

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "MeanShiftClustering":
        """Shift until nothing moves, and merge ends closer than a bandwidth."""
        points = samples_of(self, X)
        self._check()
        self.bandwidth_ = estimate_bandwidth(points) if self.bandwidth is None else bandwidth_of(self.bandwidth, points)
        self.kernel_ = kernel_of(self.kernel, self.bandwidth_, points)
        measure = measure_of(points, None, sample_weight)
        begin = points if self.seeds is None else self._seeds()
        rest = self.tolerance * self.bandwidth_
        how = self.summation or _usual_summation(self.kernel_, measure, begin, rest, self.blurring)
        shift, most = _Shift(self.kernel_, how, float(self.step), rest), int(self.max_iter)
        if self.blurring:
            ends, masses, count = _blurred(jnp.asarray(begin), shift, measure, most)
        else:
            ends, masses, count, how = _climbed(begin, shift, measure, most, exchangeable=self.summation is None)
        self.n_iter_, self.summation_ = int(count), how
        found = np.isfinite(np.asarray(masses))
        if not found.any():
            raise ArgumentError(
                f"No seed has a sample within the bandwidth {self.bandwidth_:.4g}; choose a larger one or other seeds."
            )
        ends = np.asarray(ends)
        self.cluster_centers_ = _merged(ends[found], np.asarray(masses)[found], self.bandwidth_)
        self.labels_ = self._nearest(ends if self.blurring else points)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The mode nearest to every row of X."""
        return self._nearest(queries_of(self, X))

    def _nearest(self, points: np.ndarray) -> np.ndarray:
        return np.asarray(KDTree(self.cluster_centers_).query(points)[1], np.int64)

    def _seeds(self) -> np.ndarray:
        """The given seeds, as wide as the samples."""
        if self.blurring:
            raise ArgumentError("Argument `seeds` means nothing under blurring, where all samples move; leave it out.")
        return np.asarray(validate_data(self, self.seeds, reset=False, dtype=np.float64))

    def _check(self) -> None:
        if not 0 < self.step <= 1:
            raise ArgumentError(f"Argument `step` must be above 0 and at most 1, but is {self.step!r}.")
        check_count(self.max_iter, "max_iter")
        check_share(self.tolerance, "tolerance")


def estimate_bandwidth(X: Any, quantile: float = 0.3) -> float:
    """The mean distance of a sample to the k-th of its nearest neighbours, itself among them, k = `quantile` · n.

    This is scikit-learn's rule for MeanShift; 1 where all samples are equal.
    """
    points = np.asarray(X, np.float64)
    neighbours = max(1, min(len(points), int(len(points) * quantile)))
    distances = np.asarray(KDTree(points).query(points, k=neighbours)[0]).reshape(len(points), -1)
    width = float(distances[:, -1].mean())
    return width if width > 0 else 1.0


def _usual_summation(
    kernel: AbstractKernel, measure: Measure, seeds: np.ndarray, rest: float, blurring: bool
) -> AbstractSummation:
    """Near pairs alone for kernels of finite support, which is exact; for many pairs an error-bounded sum."""
    form = kernel.radial()
    if form is not None and form.support is not None and library().path is not None:
        return NearFar()
    if blurring or len(seeds) * measure.count < _MANY_PAIRS:
        return Auto()
    largest = float(jnp.max(jnp.linalg.norm(measure.points, axis=1)))
    allowed = float(np.clip(_ERROR_SHARE * rest / max(largest, rest), 1e-10, 1e-3))
    return Auto(tolerance=allowed).select(kernel, measure, jnp.asarray(seeds)).summation


class _Shift(eqx.Module):
    """The map x ← x + step (m(x) − x), and the length of shifts below which a point is at rest.

    Parameters: `kernel`; `how`, the summation; `step`; `rest`, that length.
    """

    kernel: AbstractKernel
    how: AbstractSummation
    step: float
    rest: float

    def __call__(self, towards: Measure, points: Float[Array, "m d"]) -> tuple[Array, Array, Array]:
        """The shifted points, the log-mass G at their old places, and the lengths of the shifts; 0 where G = −∞."""
        moments = local_moments(self.kernel, towards, points, summation=self.how)
        seen = ~jnp.isneginf(moments.log_mass)[:, None]
        moved = jnp.where(seen, self.step * (moments.mean - points), 0.0)
        return points + moved, moments.log_mass, jnp.linalg.norm(moved, axis=1)


def _climbed(
    seeds: np.ndarray, shift: _Shift, measure: Measure, most: int, *, exchangeable: bool
) -> tuple[np.ndarray, np.ndarray, int, AbstractSummation]:
    """Shift seeds towards the samples until all rest: ends, log-masses there, number of shifts, summation used.

    Only seeds that still move are shifted. A round of another size is another program to compile, so the size is
    reduced only when two thirds of a round's seeds rest, and the round is filled up with repeated seeds until then. An
    `exchangeable` summation is replaced by an exact one for the last few seeds, and for good when it returns NaN
    because it cannot keep its error bound.
    """
    points, masses, how = seeds.copy(), np.full(len(seeds), -np.inf), shift.how
    moving, count, size = np.arange(len(seeds)), 0, len(seeds)
    while len(moving) and count < most:
        size = size if 3 * len(moving) > size else -(-len(moving) // _SEEDS) * _SEEDS
        filled = points[moving[np.arange(size) % len(moving)]]
        exact = exchangeable and size * measure.count < _MANY_PAIRS
        found = _round(
            jnp.asarray(filled), replace(shift, how=Auto() if exact else how), measure, min(_ROUND, most - count)
        )
        after, seen, moves, shifts = map(np.asarray, found)
        if exchangeable and np.isnan(seen).any():
            how, exchangeable = Auto(), False
            continue
        count += int(shifts)
        points[moving], masses[moving] = after[: len(moving)], seen[: len(moving)]
        moving = moving[moves[: len(moving)] > shift.rest]
    return points, masses, count, how


@eqx.filter_jit
def _round(begin: Float[Array, "m d"], shift: _Shift, measure: Measure, most: int) -> tuple[Array, Array, Array, Array]:
    """Shift seeds towards the samples until all rest, `most` times at most; a seed at rest stays where it is.

    Returns the seeds, their log-masses, the lengths of their last shifts, and the number of shifts.
    """

    def once(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        points, masses, moves, count = state
        after, seen, length = shift(measure, points)
        moving = moves > shift.rest
        return (
            jnp.where(moving[:, None], after, points),
            jnp.where(moving, seen, masses),
            jnp.where(moving, length, moves),
            count + 1,
        )

    def goes_on(state: tuple[Array, Array, Array, Array]) -> Array:
        return jnp.any(state[2] > shift.rest) & (state[3] < most)

    count = begin.shape[0]
    begin_state = begin, jnp.full(count, -jnp.inf), jnp.full(count, jnp.inf), jnp.asarray(0)
    return jax.lax.while_loop(goes_on, once, begin_state)


@eqx.filter_jit
def _blurred(begin: Float[Array, "m d"], shift: _Shift, measure: Measure, most: int) -> tuple[Array, Array, Array]:
    """Shift points towards each other until all rest: where they end, their log-masses, and the number of shifts."""

    def once(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        points, _, _, count = state
        after, seen, length = shift(Measure(points, measure.log_weights, positions=measure.positions), points)
        return after, seen, jnp.max(length), count + 1

    def goes_on(state: tuple[Array, Array, Array, Array]) -> Array:
        return (state[2] > shift.rest) & (state[3] < most)

    nothing = jnp.full(begin.shape[0], -jnp.inf), jnp.asarray(jnp.inf), jnp.asarray(0)
    points, masses, _, count = jax.lax.while_loop(goes_on, once, (begin, *nothing))
    return points, masses, count


def _merged(ends: np.ndarray, masses: np.ndarray, apart: float) -> np.ndarray:
    """The ends that are not within the distance `apart` of a denser one, the densest first."""
    order = np.lexsort([*ends.T, masses])[::-1]
    ends, alive = ends[order], np.ones(len(ends), bool)
    tree = KDTree(ends)
    for place in range(len(ends)):
        if alive[place]:
            alive[tree.query_ball_point(ends[place], apart)] = False
            alive[place] = True
    return ends[alive]
