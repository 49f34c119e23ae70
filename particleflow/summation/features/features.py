"""Sums of low rank: `Features`, and the error and cost that it promises."""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from particleflow.errors import ArgumentError, whole_number
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.summation.base import (
    NATIVE_TIME,
    Choice,
    Limits,
    check_precision,
    cost_of_pair,
    cost_of_pairs,
    value_columns,
)
from particleflow.summation.candidates import Approximation
from particleflow.summation.features.error_bounds import (
    CONFIDENCE,
    errors_between,
    numerical_rank,
    nystrom_errors,
    random_variances,
    sampled_queries,
    standard_deviations,
)
from particleflow.summation.features.nystrom import CANDIDATES_A_LANDMARK, chosen_landmarks, nystrom_moments
from particleflow.summation.features.positive_definite import LowRankForm, obstacle
from particleflow.summation.features.positive_features import positive_moments
from particleflow.summation.features.random_frequencies import frequencies, phases
from particleflow.summation.features.trigonometric import trigonometric_moments
from particleflow.summation.moments import Moments
from particleflow.summation.native.native import Native
from particleflow.summation.prepared import PreparedSum

Method = Literal["positive", "fourier", "phase", "nystrom"]
_FEWEST_PAIRS = 2**20  # a sum over fewer takes a millisecond
_FEWEST_LANDMARKS = 32
_SLACK = 1.5  # random features, in multiples of the number that their variance needs
_MARGIN = 2.0  # the promise of landmarks, in multiples of the largest error measured
FEATURE_SUM_ULPS = 1e3  # the rounding of a sum by features, in eps · max |z|
_SMALL_VARIANCE = 0.01  # of one random feature; kernels that hardly vary have less
# The cost of choosing and factoring landmarks, in native pairs, where the matrix of candidates fits into the cache of a
# processor and where it does not; measured with one thread of LAPACK, whose threads wait for each other where other
# programs run, which has taken 17 times as long.
_PAIRS_A_LANDMARK_CUBED, _PAIRS_BEYOND_CACHE = 1.1, 2.3
_CACHED_BYTES = 16 * 2**20
_PAIRS_A_LANDMARK = 2e4  # a step of the factorisation
_PAIRS_A_SOURCE = 450.0  # for the draw of candidates
# The cost of a pair of a point and a random feature, in native pairs, and of a point.
_POSITIVE_TIME, _POSITIVE_PAIRS_A_POINT = 1.1, 40.0
_WAVE_TIME, _WAVE_TIME_A_COLUMN = 14.5, 0.35  # cosines and sines by XLA, for coordinates and values
METHODS: tuple[Method, ...] = ("positive", "fourier", "phase", "nystrom")


class Features(Approximation):
    """K(x, y) ≈ ⟨φ(x), φ(y)⟩ with `rank` = R features, in any dimension: O((m + n) R), an approximation.

    Methods: `positive` (FAVOR+; bilinear kernels and Gaussians, masses stay positive), `fourier` (pairs of cosine and
    sine) and `phase` (cosines with random phases) for products of bilinear kernels, Gaussians, Laplace, Cauchy and
    Student's t, and `nystrom` (landmarks chosen among the sources) for the same. The error of random features falls as
    R^{−½}, that of Nyström's as fast as the eigenvalues of the kernel; trigonometric features and Nyström's may find a
    negative mass, which shows as NaN. Masks and bands of positions have no such features and are refused.

    R counts the columns of φ: cosines and sines together, cosines, exponentials, landmarks. The draw is a function of
    `seed` alone: the same seed, the same bits. Draws are orthogonal unless `orthogonal` is false; landmarks have none.
    """

    rank: int = eqx.field(static=True, default=256)
    method: Method = eqx.field(static=True, default="nystrom")
    seed: int = eqx.field(static=True, default=0)
    orthogonal: bool | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if self.method not in METHODS:
            raise ArgumentError(f"Argument `method` must be one of {', '.join(METHODS)}, but is {self.method!r}.")
        for name, least in (("rank", 1), ("seed", 0)):
            given = getattr(self, name)
            whole_number(given, name, least)
        if self.method == "fourier" and self.rank % 2:
            raise ArgumentError(
                f"Argument `rank` must be even for pairs of cosine and sine (method 'fourier'), but is {self.rank}."
            )
        if self.method == "nystrom" and self.orthogonal is not None:
            raise ArgumentError("Argument `orthogonal` is for random features, and method 'nystrom' draws none.")

    def summed(self, prepared: PreparedSum, values: Any = None) -> Moments:
        """The moments under ⟨φ(x), φ(y)⟩ in place of K."""
        kernel, measure, queries = prepared.kernel, prepared.measure, prepared.queries
        return _moments(self, kernel, measure, queries, value_columns(measure, values))

    def promise(self, prepared: PreparedSum, limits: Limits) -> Choice | None:
        """The cheapest features whose error bound meets the tolerance for these points.

        For landmarks it is the bound of their residuals at all queries, or else twice the largest error measured
        against an exact sum at 64 queries, half of them those of the largest bounds (a larger error that 7 in 100 of
        the other queries have would have shown with probability 0.9). For random features it comes from their variance,
        with probability 0.99 for all queries together (`error_bounds`), and with half as many features again as it
        takes. Both are bounds for these points; landmarks are chosen anew, inside `jit`, wherever points have moved to.
        """
        if limits.tolerance is None or not _is_worth_a_look(prepared):
            return None
        kernel, measure, queries = prepared.kernel, prepared.measure, prepared.queries
        check_precision(kernel, measure, queries)
        form, values = LowRankForm.of(kernel, measure, queries), value_columns(measure)
        drawn = self._by_variance(form, values, limits.tolerance)
        curve = None if prepared.parts is None else prepared.parts.curve
        most = min([cost_of_pairs(measure, queries, NATIVE_TIME, curve), *(2 * choice.cost for choice in drawn)])
        landmarks = self._by_residuals(prepared, form, limits.tolerance, most)
        return min([*drawn, *landmarks], key=lambda choice: choice.cost, default=None)

    def cost_bounds(self, prepared: PreparedSum, limits: Limits) -> Iterator[float]:
        """What the fewest landmarks cost, or random features of a small variance; then with as many as a sample of the
        points needs."""
        if limits.tolerance is None or not _is_worth_a_look(prepared):
            yield float("inf")
            return
        yield _cost_from(_FEWEST_LANDMARKS, prepared, limits.tolerance)
        yield _cost_from(_least_rank(prepared, limits.tolerance), prepared, limits.tolerance)

    def _by_variance(self, form: LowRankForm, values: Array, tolerance: float) -> list[Choice]:
        """Random features, as many as their variance makes necessary."""
        allowed = (tolerance / standard_deviations(len(form.queries))) ** 2
        size, found = _Size.of(form, values), []
        affordable = len(form.keys) * allowed / _SLACK
        for method, variance in random_variances(form, values, self.seed, affordable).items():
            wanted = max(1.0, _SLACK * variance / allowed)
            if wanted > len(form.keys):
                continue
            rank = 2 ** max(1, int(np.ceil(np.log2(wanted))))  # a power of two, so that moving points need few programs
            reason = (
                f"{rank} random features ({method}); an error by variance, kept at all queries in "
                f"{100 * CONFIDENCE:.3g} of 100 draws"
            )
            error = float(np.sqrt(variance / rank)) * standard_deviations(len(form.queries)) + _rounding(values)
            how = Features(rank, method, self.seed)  # pyright: ignore[reportArgumentType]
            if error <= tolerance:  # rounding in single precision may be all that is allowed
                found.append(Choice(how, reason, error, size.cost(method, rank)))
        return found

    def _by_residuals(self, prepared: PreparedSum, form: LowRankForm, tolerance: float, most: float) -> list[Choice]:
        """Landmarks, doubled at each try, while summing with them and bounding their error costs less than `most`."""
        kernel, measure, queries = prepared.kernel, prepared.measure, prepared.queries
        values, found = value_columns(measure), []
        size = _Size.of(form, values)
        rank = max(_FEWEST_LANDMARKS, _least_rank(prepared, tolerance) // 2)
        looking = (len(form.keys) + len(form.queries)) / 20  # times R² the cost of all residuals, in native pairs
        while not found and rank < measure.count and max(2 * size.cost("nystrom", rank), looking * rank**2) < most:
            how = Features(rank, "nystrom", self.seed)
            moments = how.moments(kernel, measure, queries)
            landmarks = chosen_landmarks(self.seed, form, measure.log_weights, rank)
            bounds = nystrom_errors(form, landmarks, moments.log_mass)
            error, why = float(bounds.max()) + _rounding(values), "by their residuals"
            if error > tolerance:
                some = sampled_queries(bounds, self.seed)
                picked, sites = jax.tree_util.tree_map(lambda leaf: leaf[some], (moments, queries))  # noqa: B023
                measured = errors_between(picked, Native().moments(kernel, measure, sites), values)
                error, why = _MARGIN * float(measured.max()), f"to {_MARGIN:g} times what {len(some)} queries show"
            if error <= tolerance:
                found = [Choice(how, f"{rank} landmarks, their error bounded {why}", error, size.cost("nystrom", rank))]
            rank *= 2
        return found


class _Size(NamedTuple):
    """The numbers of queries, sources, dimensions and value columns, the curve of κ, and the bytes of a number."""

    queries: int
    sources: int
    dimension: int
    columns: int
    curve: str = "gaussian"
    itemsize: int = 8

    @staticmethod
    def of(form: LowRankForm, values: Array) -> "_Size":
        """The size of a sum that is known to be one of features."""
        (sources, dimension), itemsize = form.keys.shape, form.keys.dtype.itemsize
        curve = max(form.kernel.curves, key=lambda each: cost_of_pair(1, 1, each))
        return _Size(len(form.queries), sources, dimension, values.shape[1], curve, itemsize)

    def cost(self, method: str, rank: int) -> float:
        """In native pairs of three dimensions: two sums over R places, and the other work of a method."""
        points = self.sources + self.queries
        if method == "nystrom":
            sums = cost_of_pair(self.dimension, self.columns, self.curve) * rank * points
            cached = CANDIDATES_A_LANDMARK * rank**2 * self.itemsize <= _CACHED_BYTES
            cubed = (_PAIRS_A_LANDMARK_CUBED if cached else _PAIRS_BEYOND_CACHE) * self.itemsize / 8
            return sums + cubed * rank**3 + _PAIRS_A_LANDMARK * rank + _PAIRS_A_SOURCE * self.sources
        precision = self.itemsize / 8
        if method == "positive":
            sums = cost_of_pair(self.dimension, self.columns, None) * rank * points
            return precision * (_POSITIVE_TIME * sums + _POSITIVE_PAIRS_A_POINT * points)
        return precision * (_WAVE_TIME + _WAVE_TIME_A_COLUMN * (self.dimension + self.columns)) * rank * points


def _is_worth_a_look(prepared: PreparedSum) -> bool:
    """Whether points are known, there are enough of them, and the kernel has features."""
    many = prepared.queries.points.shape[0] * prepared.measure.count >= _FEWEST_PAIRS
    return many and prepared.is_known and obstacle(prepared.kernel, prepared.measure.dimension) is None


def _cost_from(rank: int, prepared: PreparedSum, tolerance: float) -> float:
    """A lower bound of the cost of features of this rank, or of a larger one."""
    measure, queries = prepared.measure, prepared.queries.points.shape[0]
    size = _Size(
        queries, measure.count, measure.dimension, value_columns(measure).shape[1], itemsize=_itemsize(measure)
    )
    allowed = (tolerance / standard_deviations(size.queries)) ** 2
    drawn = max(rank, int(min(_SLACK * _SMALL_VARIANCE / allowed, 1e9)))
    return min(size.cost("nystrom", rank), size.cost("positive", drawn))


def _itemsize(measure: Measure) -> int:
    """The bytes of a coordinate."""
    return np.dtype(measure.points.dtype).itemsize


def _rounding(values: Array) -> float:
    """The rounding error of a sum by features, in the precision of the values."""
    return FEATURE_SUM_ULPS * float(np.finfo(values.dtype).eps)


def _least_rank(prepared: PreparedSum, tolerance: float) -> int:
    """The numerical rank of a sample of the weights, rounded up to a power of two."""
    needed = numerical_rank(prepared.kernel, prepared.measure, prepared.queries, tolerance)
    return max(_FEWEST_LANDMARKS, 2 ** int(np.ceil(np.log2(max(1, needed)))))


@eqx.filter_jit  # a loop outside `jit` would be compiled again at every call
def _moments(how: Features, kernel: AbstractKernel, measure: Measure, queries: Sites, values: Array) -> Moments:
    form = LowRankForm.of(kernel, measure, queries)
    dtype, orthogonal = values.dtype, how.orthogonal is not False
    if how.method == "nystrom":
        return nystrom_moments(form, values, chosen_landmarks(how.seed, form, measure.log_weights, how.rank))
    waves = how.rank // 2 if how.method == "fourier" else how.rank
    drawn = frequencies(how.seed, form.kernel, waves, orthogonal, dtype)
    if how.method == "fourier":
        return trigonometric_moments(form, values, drawn)
    if how.method == "phase":
        return trigonometric_moments(form, values, drawn, phases(how.seed, waves, dtype))
    if not form.kernel.is_gaussian:
        raise ArgumentError(
            "Positive features (method 'positive') are known for bilinear kernels and Gaussians, but the kernel holds "
            f"another curve ({', '.join(form.kernel.curves)}); use method 'fourier', 'phase' or 'nystrom'."
        )
    return positive_moments(form, values, drawn)
