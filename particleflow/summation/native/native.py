"""Exact sums by native code, or by XLA where there is none."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int

from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.summation.base import NATIVE_TIME, Choice, Limits, as_query_sites, cost_of_pairs, value_columns
from particleflow.summation.candidates import Candidate
from particleflow.summation.exact.blockwise import Blockwise
from particleflow.summation.exact.dense import Dense, pairs_and_bytes
from particleflow.summation.moments import Moments
from particleflow.summation.native.near_boxes import COMPACT
from particleflow.summation.native.operands import operands_of
from particleflow.summation.native.primitive import native_moments
from particleflow.summation.native.xla_reference import log_curve
from particleflow.summation.prepared import PreparedSum, prepare
from particleflow.summation.sampling import DrawsPoints

_FEWEST_QUERIES = 4  # fewer fill too little of a vector
_DENSE_BYTES = 16 * 2**20
_NARROW = 12  # single-precision scores that spread over more than this are summed in double precision (`moments.h`)
_SINGLE_TIME = 0.44  # that of a pair in single precision, relative to double


class Native(Candidate, DrawsPoints):
    """Lanes of queries against blocks of sources, in C++ for this processor: memory O(n), exact.

    Kernels: products of inner products, of one curve of a distance (several Gaussians count as one), and of bands of
    positions. For others, and where there is no library, it is the exact sum of XLA, and `select` tells the reason.

    Parameters: `widen`, whether single-precision sums whose scores spread over more than 12 are made in double
    precision, so that means are right to 3e-7 at any β. Without it weights are as right as scores in single precision
    are, to about 1e-7 times the largest |score|, which trained networks bear, in half of the time.
    """

    widen: bool = eqx.field(static=True)

    def __init__(self, widen: bool = True):
        self.widen = widen

    def summed(self, prepared: PreparedSum, values: Any = None) -> Moments:
        """The moments by native code, or by XLA where it cannot sum this kernel, or is not there."""
        measure, queries = prepared.measure, prepared.queries
        if prepared.parts is None or prepared.library.path is None:
            return _by_xla(measure, queries).summed(prepared, values)
        form, arrays = operands_of(prepared, value_columns(measure, values))
        found = native_moments(form._replace(widen=self.widen), arrays)
        return Moments(found.log_mass + prepared.parts.query_offsets(queries), found.mean)

    def choices(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Iterator[Choice]:
        """Itself, or what sums in its place, and why."""
        prepared = prepare(kernel, measure, queries)
        obstacle, sites = self.obstacle(prepared), prepared.queries
        if obstacle is None:
            yield Choice(self, "as asked", cost=_cost(prepared))
        else:
            yield Choice(_by_xla(measure, sites), f"in place of Native: {obstacle}", cost=cost_of_pairs(measure, sites))

    def promise(self, prepared: PreparedSum, limits: Limits) -> Choice | None:
        """Exact, for kernels of the parts above and enough queries to fill vectors."""
        measure, queries = prepared.measure, prepared.queries
        if queries.points.shape[0] < _FEWEST_QUERIES or self.obstacle(prepared) is not None:
            return None
        pairs, _ = pairs_and_bytes(measure, queries)
        return Choice(self, f"{pairs.split(' need ')[0]} in native code", cost=_cost(prepared))

    def cost_of_known(self, prepared: PreparedSum) -> float:
        """The cost for points that can be looked at."""
        return _cost(prepared) * self.share_of_cost(prepared)

    def share_of_cost(self, prepared: PreparedSum) -> float:
        """The share of its cost that a sum over known points takes: half if single precision need not be widened."""
        single = prepared.measure.points.dtype == jnp.float32 and self.obstacle(prepared) is None
        narrow = single and (not self.widen or float(_spread_of_scores(prepared)) <= _NARROW)
        return _SINGLE_TIME if narrow else 1.0

    def draw(
        self, key: Array, kernel: AbstractKernel, measure: Measure, queries: Any, draws: int
    ) -> Int[Array, "m draws"]:
        """Indices of points drawn ∝ K(x, y) dμ(y); drawn by XLA, with the same draws as every exact summation."""
        return _by_xla(measure, as_query_sites(queries)).draw(key, kernel, measure, queries, draws)

    def obstacle(self, prepared: PreparedSum) -> str | None:
        """Why native code cannot sum this on this machine: an unknown factor, or no library. None if it can."""
        if prepared.parts is None:
            return "the kernel has a factor that native code does not know"
        found = prepared.library
        return None if found.path is not None else f"no native sum: {found.reason}"


def _cost(prepared: PreparedSum) -> float:
    """The cost of all pairs in double precision."""
    curve = None if prepared.parts is None else prepared.parts.curve
    return cost_of_pairs(prepared.measure, prepared.queries, NATIVE_TIME, curve)


@eqx.filter_jit
def _spread_of_scores(prepared: PreparedSum) -> Array:
    """The bound of the spread of all scores from which native code tells whether to widen them."""
    form, arrays = operands_of(prepared, value_columns(prepared.measure))
    inner, outer = (
        [_longest(side[:, part]) for side in (arrays.queries, arrays.keys)]
        for part in (slice(None, form.inner), slice(form.inner, None))
    )
    weights = jnp.where(jnp.isfinite(arrays.offsets), arrays.offsets, jnp.nan)
    spread = 2 * inner[0] * inner[1] + jnp.nanmax(weights) - jnp.nanmin(weights)
    if form.curve in COMPACT or form.curve is None:
        return spread
    power, scale = arrays.numbers[0], arrays.numbers[-1]
    return spread - log_curve(form.curve, jnp.square(scale * (outer[0] + outer[1])), power)


def _longest(rows: Array) -> Array:
    """The largest length of a row; 0 of rows without columns."""
    return jnp.sqrt(jnp.max(jnp.sum(jnp.square(rows), axis=1), initial=0.0))


def _by_xla(measure: Measure, queries: Sites) -> Dense | Blockwise:
    """The exact sum of XLA that fits into memory."""
    return Dense() if pairs_and_bytes(measure, queries)[1] <= _DENSE_BYTES else Blockwise()
