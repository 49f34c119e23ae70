"""How many modes and which accuracy keep a tolerance for points that can be looked at.

The error bound 2δ W/S(x) needs the smallest share S(x)/W that a query sees. A first sum, of masses alone and at an
accuracy well below the tolerance, measures it; accuracy and modes follow. Both come in buckets, so that a moving cloud
reuses compiled programs.
"""

from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.summation.base import value_columns
from particleflow.summation.spectral.convolution_form import Convolution, feature_dimension, profile_of
from particleflow.summation.spectral.nonuniform_fft import LARGEST_EPSILON, SMALLEST_EPSILON
from particleflow.summation.spectral.periodic_boxes import (
    Profile,
    circle_error,
    circle_torus,
    extents,
    gaussian_modes,
    sampled_modes,
)
from particleflow.summation.spectral.spectral_moments import ORIGINS, Domain, Setting, spectral_moments

_MARGIN = 1.2  # modes are for a cloud this much larger: points move on after the choice
_SLACK = 0.5  # the promised error is at most this part of the tolerance
_FIRST = 1e-4  # of the tolerance: the error of the first sum
_WORTH = 0.8  # the first setting is kept if the final one costs between this part of it and all of it
_LARGEST_EXPONENT = 32.0  # of a distance at which a pair still matters
_FEWEST_MODES = 8
# The cost of transforms in native pairs: of a call, of a point, of a coordinate of it, of a cell that it is spread
# over, and of a number on the fine grid times its logarithm (in up to two and in three dimensions, where most of the
# grid is zero), more for every doubling of a grid that no cache holds. Measured against native sums of 8,192 points,
# for 10⁴ to 10⁶ points and accuracies of 1e-4 to 1e-12 in one, two and three dimensions: right within 30 % (root mean
# square of the logarithm), and all within a factor of two.
_PAIRS_A_CALL, _PAIRS_A_POINT, _PAIRS_A_COORDINATE, _PAIRS_A_CELL = 1.8e6, 55.0, 50.0, 0.58
_PAIRS_A_MODE, _PAIRS_A_MODE_IN_SPACE = 3.7, 1.9
_CACHED_GRID, _SHARE_A_DOUBLING = 2.0**17, 0.5
# Transforms to an accuracy above this take a grid of 5/4 times the modes and wider spreading where that is faster
# (FINUFFT's choice), else of twice the modes.
_COARSE_GRIDS = 2e-9
_TOO_NARROW = "the kernel is too narrow, or not smooth enough, for a grid of modes that fits"
_MOST_BYTES = 2**30  # of the grids of a transform, for two columns, with twice the modes in each coordinate


class Settled(NamedTuple):
    """A setting, the error that it promises for these points, and what it costs in native pairs; or none, and why."""

    setting: Setting | None
    error: float = np.inf
    pairs: float = np.inf
    obstacle: str = ""


class _Worst(NamedTuple):
    """The smallest share that a query sees, the error of all shares, and the largest bound of a query."""

    least_share: float
    largest_error: float
    largest_bound: float


@eqx.filter_jit
def _worst(setting: Setting, kernel: AbstractKernel, measure: Measure, queries: Sites) -> tuple[Array, Array, Array]:
    nothing = jnp.zeros((measure.count, 1), measure.points.dtype)
    found = spectral_moments(setting, kernel, measure, queries, nothing)[1]
    return jnp.min(found.share), found.error, jnp.max(found.bound())


class _Problem(NamedTuple):
    """A kernel and clouds whose numbers are known, seen on some domain."""

    domain: Domain
    kernel: AbstractKernel
    measure: Measure
    queries: Sites
    extent: np.ndarray
    square: float
    profile: Profile | None

    def setting(self, error: float) -> Setting | None:
        """The setting that keeps periodic kernel and transforms below an error each, None if grids get too large."""
        most, dimension = _MARGIN * self.extent, self.extent.size
        if self.profile is None:
            needed = [gaussian_modes(float(each), dimension, error) for each in most]
        else:
            rounding = float(jnp.finfo(self.measure.points.dtype).eps)
            needed = [sampled_modes(self.profile, float(np.linalg.norm(most)), error, rounding)] * dimension
        if self.domain == "circle":
            needed = [_circle_modes(_MARGIN * self.square, error), *needed]
        epsilon = min(LARGEST_EPSILON, float(f"1e{int(np.floor(np.log10(error / 2)))}"))
        if not np.all(np.isfinite(needed)):
            return None
        modes = tuple(bucket(each) for each in needed)
        return Setting(self.domain, modes, epsilon) if _grid_bytes(modes[-dimension:]) <= _MOST_BYTES else None

    def rounding(self) -> float:
        """The error of an exponent by rounding of features and distances in the precision of the points."""
        exponent = 0.5 * float(np.sum(np.square(self.extent)))
        if self.kernel.radial() is not None:
            exponent = min(exponent, _LARGEST_EXPONENT)
        return float(jnp.finfo(self.measure.points.dtype).eps) * (4 + exponent)

    def pairs(self, setting: Setting) -> float:
        """The cost of both transforms, in native pairs."""
        return pairs_of(setting, self.measure, self.queries)

    def certainty(self, setting: Setting) -> "_Worst":
        """The error bounds of a sum of masses alone, from its own result."""
        return _Worst(*(float(each) for each in _worst(setting, self.kernel, self.measure, self.queries)))


def pairs_of(setting: Setting, measure: Measure, queries: Sites) -> float:
    """The cost of both transforms, in native pairs.

    Each point is spread over the cells around it, and the fine grid is transformed, for every two columns.
    """
    return _pairs(measure, queries, len(setting.grid), setting.epsilon, float(np.prod(setting.grid)))


def least_pairs(kernel: AbstractKernel, measure: Measure, queries: Sites, tolerance: float) -> float:
    """A lower bound of the cost of all settings: points that see all the weight, on a grid that costs nothing."""
    dimension = feature_dimension(kernel, measure)
    grids = 1 if dimension == 2 else dimension  # the plane may be a circle
    return _pairs(measure, queries, grids, min(LARGEST_EPSILON, tolerance / 16), 0.0)


def _pairs(measure: Measure, queries: Sites, dimension: int, epsilon: float, modes: float) -> float:
    points = measure.count + queries.points.shape[0]
    rows = (value_columns(measure).shape[1] + 2) // 2
    grids = [(2.0, 1 - np.log10(epsilon))]  # how much finer they are, and over how many cells points are spread
    if epsilon > _COARSE_GRIDS:
        grids.append((1.25, -np.log(epsilon) / (np.pi * np.sqrt(1 - 1 / 1.25))))

    def transforms(finer: float, width: float) -> float:
        each_point = _PAIRS_A_COORDINATE * dimension + _PAIRS_A_CELL * width**dimension
        return points * each_point + _grid_pairs(finer**dimension * modes, dimension)

    return float(_PAIRS_A_CALL + points * _PAIRS_A_POINT + rows * min(transforms(*grid) for grid in grids))


def _grid_pairs(size: float, dimension: int) -> float:
    """The cost of transforming so many numbers of a fine grid."""
    if size <= 1:
        return 0.0
    each = _PAIRS_A_MODE_IN_SPACE if dimension == 3 else _PAIRS_A_MODE
    return each * size * np.log2(size) * (1 + _SHARE_A_DOUBLING * max(0.0, np.log2(size / _CACHED_GRID)))


def settled(
    kernel: AbstractKernel, measure: Measure, queries: Sites, tolerance: float, most_pairs: float = np.inf
) -> Settled:
    """The first domain and setting that keep a tolerance and cost no more than so many pairs, or why there is none."""
    found = Settled(None)
    with jax.ensure_compile_time_eval():  # the numbers are known, even where `jit` is tracing others
        for problem in _problems(kernel, measure, queries, tolerance):
            found = _settled(problem, tolerance, most_pairs)
            if found.setting is not None:
                break
    return found


def _settled(problem: _Problem, tolerance: float, most_pairs: float) -> Settled:
    """The setting for one domain: the smallest share first, then the error δ = tolerance · share / 8 that it allows.

    The chosen setting is tried, too: its promise is the bound of its own result for these points.
    """
    hopeful = problem.setting(tolerance / 8)  # a query that sees everything would allow this error
    if hopeful is not None and problem.pairs(hopeful) > most_pairs:
        return Settled(None, obstacle="the exact sum is cheaper")
    least = _least_error(problem.measure)
    first, certainty = None, None
    for error in sorted({max(least, _FIRST * tolerance), least}, reverse=True):
        first = problem.setting(error)
        if first is None:
            return Settled(None, obstacle=_TOO_NARROW)
        certainty = problem.certainty(first)
        if certainty.least_share > 2 * certainty.largest_error:
            break
    assert first is not None
    assert certainty is not None
    share, error = certainty.least_share, certainty.largest_error
    seen = f"a query sees {max(share, 0.0):.1e} of the weight"
    if share <= 2 * error:
        return Settled(None, obstacle=f"{seen}, which is lost in an error of {error:.1e}")
    setting = problem.setting(max(least, tolerance * (share - error) / 8))
    if setting is None:
        return Settled(None, obstacle=_TOO_NARROW)
    if not _WORTH * problem.pairs(first) <= problem.pairs(setting) <= problem.pairs(first):
        certainty = problem.certainty(setting)
    else:
        setting = first
    promised = certainty.largest_bound + problem.rounding()
    if not promised <= _SLACK * tolerance:
        return Settled(None, obstacle=f"{seen}, which leaves an error of {promised:.1e}")
    return Settled(setting, promised, problem.pairs(setting))


def _problems(kernel: AbstractKernel, measure: Measure, queries: Sites, tolerance: float) -> Iterator[_Problem]:
    """The domains to try: a circle that all points lie on, one box, a box for each cloud where features allow it."""
    dtype = jnp.float64 if jax.config.read("jax_enable_x64") else measure.points.dtype
    domains: list[Domain] = ["box"] if kernel.radial() is not None else ["box", "apart"]
    profile = profile_of(kernel, feature_dimension(kernel, measure), measure.points.dtype, dtype)
    if profile is None and feature_dimension(kernel, measure) == 2:
        domains = ["circle", *domains]
    for domain in domains:
        size = _sizes(kernel, measure, queries, domain, np.dtype(dtype).name)
        if domain != "circle" or float(size.deviation) < 0.1 * _SLACK * tolerance:
            extent = np.asarray(size.extent, np.float64)
            yield _Problem(domain, kernel, measure, queries, extent, float(size.square), profile)


class _Sizes(NamedTuple):
    """How large clouds are: extents, the largest square, and the error of taking them for a circle."""

    extent: Array
    square: Array
    deviation: Array


@eqx.filter_jit  # one program; operation by operation there would be thirty
def _sizes(kernel: AbstractKernel, measure: Measure, queries: Sites, domain: Domain, dtype: str) -> _Sizes:
    parts = Convolution.of(kernel, measure, queries, jnp.dtype(dtype), ORIGINS[domain])
    square = jnp.max(jnp.sum(jnp.square(parts.sources), axis=1))
    deviation = jnp.zeros_like(square)
    if domain == "circle":
        deviation += circle_torus(parts.queries, parts.sources, (_FEWEST_MODES,)).relative_error
    return _Sizes(extents(parts.queries, parts.sources), square, deviation)


def _least_error(measure: Measure) -> float:
    """The smallest error of a sum that transforms can reach, for few modes."""
    dtype = jnp.float64 if jax.config.read("jax_enable_x64") else measure.points.dtype
    return 2 * SMALLEST_EPSILON[np.dtype(dtype)]


def _circle_modes(square: float, error: float) -> float:
    """How many modes of the series of a circle of some squared radius keep an error, in buckets."""
    count = _FEWEST_MODES
    while float(circle_error(square, count)) > error:
        count = bucket(count + 1)
    return count


def bucket(needed: float) -> int:
    """The smallest even number of modes that is enough and 2^k, 5/4 · 2^k or 3/2 · 2^k: fast to transform, and few."""
    power = 2 ** max(3, int(np.ceil(np.log2(max(needed, 1)))) - 1)
    return next(count for count in (power, 5 * power // 4, 3 * power // 2, 2 * power) if count >= needed)


def _grid_bytes(modes: tuple[int, ...]) -> float:
    """The bytes of two columns of double complex numbers on the fine grid of a transform."""
    return 2 * 16 * float(np.prod([2.0 * each for each in modes]))
