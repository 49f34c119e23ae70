"""Clustering by MeanShift: x ← x + step (m(x) − x) until nothing moves; who ends at one place is one cluster.

Towards the samples as they are (MeanShift, Fukunaga and Hostetler 1975; Cheng 1995) the modes of the smoothed density
are found; towards the moving points themselves (blurring) everything contracts, faster.
"""

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
from particleflow.local import local_moments
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
from particleflow.summation.native import library

_MANY_PAIRS = 1e7  # fewer are summed exactly: it does not pay to ask what could be left out
_SHARE = 1e-2  # of the shift below which a seed rests: what a sum may be off by
_ROUND = 16  # shifts, after which it is looked who rests
_SEEDS = 64  # rounds have multiples of so many


class MeanShiftClustering(ClusterMixin, BaseEstimator):
    """Modes of the smoothed density, and for every sample the mode it climbs to.

    Parameters: `bandwidth`, a number, or None for `estimate_bandwidth`; `kernel`, "flat" as in scikit-learn, another
    name, or a kernel of one's own; `blurring`, whether points shift towards each other in place of the samples;
    `step`, 1 for the hard map x ← m(x), less for the soft one; `max_iter`; `tolerance`, in bandwidths: a seed that
    shifts by less rests; `seeds`, where to begin, the samples if left out, as they must be under blurring;
    `summation`, if left out near pairs alone for kernels that end, which is exact; for others, where there are many
    pairs, the cheapest that promises means within a hundredth of the tolerance, else `Auto()`.

    Ends closer than a bandwidth are one mode, that of the largest mass; a sample belongs to the mode nearest to it,
    under blurring to the one it shifted to.

    Attributes: `cluster_centers_`, the modes, the densest first; `labels_`; `n_iter_`; `bandwidth_`, `kernel_`;
    `summation_`, what was summed by.
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
        """Shift until nothing moves, and take together what ends at one place."""
        points = samples_of(self, X)
        self._check()
        self.bandwidth_ = estimate_bandwidth(points) if self.bandwidth is None else bandwidth_of(self.bandwidth, points)
        self.kernel_ = kernel_of(self.kernel, self.bandwidth_, points)
        measure = measure_of(points, None, sample_weight)
        begin = points if self.seeds is None else self._seeds()
        rest = self.tolerance * self.bandwidth_
        how = self.summation or _usual_summation(self.kernel_, measure, begin, rest, self.blurring)
        step, most = float(self.step), int(self.max_iter)
        if self.blurring:
            ends, masses, count = _blurred(jnp.asarray(begin), self.kernel_, measure, how, step, rest, most)
        else:
            own = self.summation is None
            ends, masses, count, how = _climbed(begin, self.kernel_, measure, how, step, rest, most, own)
        self.n_iter_, self.summation_ = int(count), how
        found = np.isfinite(np.asarray(masses))
        if not found.any():
            raise ArgumentError(
                f"No seed sees a sample within the bandwidth {self.bandwidth_:.4g}; choose a larger one or other seeds."
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
    """The mean distance of a sample to the furthest of its nearest neighbours, a share `quantile` of all samples."""
    points = np.asarray(X, np.float64)
    neighbours = max(1, min(len(points), int(len(points) * quantile)))
    distances = np.asarray(KDTree(points).query(points, k=neighbours)[0]).reshape(len(points), -1)
    width = float(distances[:, -1].mean())
    return width if width > 0 else 1.0  # all samples are one


def _usual_summation(
    kernel: AbstractKernel, measure: Measure, seeds: np.ndarray, rest: float, blurring: bool
) -> AbstractSummation:
    """Near pairs alone where a kernel ends, since that leaves nothing out; of many pairs what is off by little."""
    form = kernel.radial()
    if form is not None and form.support is not None and library().path is not None:
        return NearFar()
    if blurring or len(seeds) * measure.count < _MANY_PAIRS:
        return Auto()
    largest = float(jnp.max(jnp.linalg.norm(measure.points, axis=1)))
    allowed = float(np.clip(_SHARE * rest / max(largest, rest), 1e-10, 1e-3))
    return Auto(tolerance=allowed).select(kernel, measure, jnp.asarray(seeds)).summation


def _climbed(
    seeds: np.ndarray,
    kernel: AbstractKernel,
    measure: Measure,
    how: AbstractSummation,
    step: float,
    rest: float,
    most: int,
    exchangeable: bool,
) -> tuple[np.ndarray, np.ndarray, int, AbstractSummation]:
    """Where seeds end, the log-mass that they see there, after how many shifts all rest, and what summed.

    Seeds that rest are not shifted again: rounds are made of the others. A round of another size is another program to
    compile, so that rounds become smaller only when two thirds of their seeds rest, and are filled up until then. An
    `exchangeable` sum is taken exactly for the last few seeds, and from then on if it cannot keep its promise (NaN).
    """
    points, masses = seeds.copy(), np.full(len(seeds), -np.inf)
    moving, count, size = np.arange(len(seeds)), 0, len(seeds)
    while len(moving) and count < most:
        size = size if 3 * len(moving) > size else -(-len(moving) // _SEEDS) * _SEEDS
        filled = points[moving[np.arange(size) % len(moving)]]
        way = Auto() if exchangeable and size * measure.count < _MANY_PAIRS else how
        found = _round(jnp.asarray(filled), kernel, measure, way, step, rest, min(_ROUND, most - count))
        after, seen, moves, shifts = map(np.asarray, found)
        if exchangeable and np.isnan(seen).any():
            how, exchangeable = Auto(), False
            continue
        count += int(shifts)
        points[moving], masses[moving] = after[: len(moving)], seen[: len(moving)]
        moving = moving[moves[: len(moving)] > rest]
    return points, masses, count, how


@eqx.filter_jit
def _round(
    begin: Float[Array, "m d"],
    kernel: AbstractKernel,
    measure: Measure,
    how: AbstractSummation,
    step: float,
    rest: float,
    most: int,
) -> tuple[Array, Array, Array, Array]:
    """Seeds after at most so many shifts towards the samples, their log-masses and last shifts, and how many.

    One that rests stays.
    """

    def shift(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        points, masses, moves, count = state
        after, seen, length = _shifted(kernel, measure, points, how, step)
        moving = moves > rest
        return (
            jnp.where(moving[:, None], after, points),
            jnp.where(moving, seen, masses),
            jnp.where(moving, length, moves),
            count + 1,
        )

    def goes_on(state: tuple[Array, Array, Array, Array]) -> Array:
        return jnp.any(state[2] > rest) & (state[3] < most)

    count = begin.shape[0]
    return jax.lax.while_loop(
        goes_on, shift, (begin, jnp.full(count, -jnp.inf), jnp.full(count, jnp.inf), jnp.asarray(0))
    )


@eqx.filter_jit
def _blurred(
    begin: Float[Array, "m d"],
    kernel: AbstractKernel,
    measure: Measure,
    how: AbstractSummation,
    step: float,
    rest: float,
    most: int,
) -> tuple[Array, Array, Array]:
    """Where points that shift towards each other end, the log-mass that they see there, and after how many shifts."""

    def shift(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        points, _, _, count = state
        towards = Measure(points, measure.log_weights, positions=measure.positions)
        after, seen, length = _shifted(kernel, towards, points, how, step)
        return after, seen, jnp.max(length), count + 1

    def goes_on(state: tuple[Array, Array, Array, Array]) -> Array:
        return (state[2] > rest) & (state[3] < most)

    nothing = jnp.full(begin.shape[0], -jnp.inf), jnp.asarray(jnp.inf), jnp.asarray(0)
    points, masses, _, count = jax.lax.while_loop(goes_on, shift, (begin, *nothing))
    return points, masses, count


def _shifted(
    kernel: AbstractKernel, towards: Measure, points: Float[Array, "m d"], how: AbstractSummation, step: float
) -> tuple[Array, Array, Array]:
    """x + step (m(x) − x), the log-mass seen at x, and how far it went; one that sees nothing stays."""
    moments = local_moments(kernel, towards, points, summation=how)
    seen = ~jnp.isneginf(moments.log_mass)[:, None]
    moved = jnp.where(seen, step * (moments.mean - points), 0.0)
    return points + moved, moments.log_mass, jnp.linalg.norm(moved, axis=1)


def _merged(ends: np.ndarray, masses: np.ndarray, apart: float) -> np.ndarray:
    """Ends that are not within a distance of a denser one, the densest first."""
    order = np.lexsort([*ends.T, masses])[::-1]
    ends, alive = ends[order], np.ones(len(ends), bool)
    tree = KDTree(ends)
    for place in range(len(ends)):
        if alive[place]:
            alive[tree.query_ball_point(ends[place], apart)] = False
            alive[place] = True
    return ends[alive]
