"""Near pairs exactly, far ones not at all: for kernels that are narrow, or zero beyond a radius.

Points are sorted into boxes, and a tile of queries sums boxes of sources in the order of what they can add to its
masses, until all others together can add less than the tolerance allows (see `native.near`). So the tolerance is kept
for whatever points there are, clusters, outliers and weights of any size included; only the cost depends on them. It is
the cell list of molecular dynamics for any dimension and any distance, without a cut-off chosen beforehand.

With S the mass that is left out of a query and M the mass that is summed, S ≤ ½ tolerance · M, so that

    G − G' = log(1 + S/M) ≤ S/M,    |m − m'| = S/(M + S) · |m_S − m_M| ≤ 2 max |z| · S/M

Cost: near pairs, and O((m + n) log n) for the order. Where everything is near (wide kernels, heavy tails, many
dimensions) it is the exact sum, and a little more; a query that is far from everything makes its tile sum everything.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow.errors import ArgumentError, whole_number
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure
from particleflow.summation.base import NATIVE_TIME, XLA_TIME, Choice, Limits, cost_of_pairs, value_columns
from particleflow.summation.candidates import Approximation
from particleflow.summation.kernel_parts import KernelParts
from particleflow.summation.moments import Moments
from particleflow.summation.native.near_boxes import COMPACT, ScoreCoordinates, log_bound, moments_by_xla
from particleflow.summation.native.operands import operands_of
from particleflow.summation.native.primitive import Arrays, Form, native_moments
from particleflow.summation.prepared import PreparedSum, prepare

_SAMPLED_QUERIES, _SAMPLED_SOURCES = 16, 2**15
_PAIRS_A_POINT = 300.0  # the cost of sorting a point, in native pairs
_NEAR_TIME = 1.2  # that of a near pair, in double precision, relative to one of all


class NearFar(Approximation):
    """Sum boxes of sources from the largest bound of their mass down, and leave out those that add next to nothing.

    At most ½ tolerance of any mass is left out, so that the log-mass lacks less than ½ tolerance, and the mean is off
    by less than tolerance · max |z|; kernels that are zero beyond a radius (ball, Epanechnikov, triangle) are summed
    exactly. Derivatives are those of the pairs that are summed.

    Kernels: products of inner products, of one curve of a distance (several Gaussians count as one), and of bands of
    positions, as for `Native`; others are refused. A band of positions is a mask, and saves nothing. Where there is no
    library, XLA does the same, more slowly.

    Parameters: `tolerance`; `block`, the most sources that one box holds; native code takes what suits the processor.
    """

    tolerance: float = eqx.field(static=True, default=1e-8)
    block: int = eqx.field(static=True, default=12)

    def __check_init__(self):
        given = self.tolerance
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if not (is_number and 0 < given < 1):
            raise ArgumentError(f"Argument `tolerance` must be a number between 0 and 1, but is {given!r}.")
        whole_number(self.block, "block", 4)

    def summed(self, prepared: PreparedSum, values: Any = None) -> Moments:
        """The moments of near pairs, by native code or, without a library, by XLA."""
        parts = _parts_of(prepared)
        form, arrays = self._operands(prepared, value_columns(prepared.measure, values))
        found = _moments_by_xla(form, arrays) if prepared.library.path is None else native_moments(form, arrays)
        return Moments(found.log_mass + parts.query_offsets(prepared.queries), found.mean)

    def choices(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Iterator[Choice]:
        """Itself, and whether it is native code, at the cost of all pairs; a kernel it cannot sum is refused."""
        prepared = prepare(kernel, measure, queries)
        _parts_of(prepared)
        if prepared.library.path is None:
            reason, time = f"as asked, by XLA: no native sum: {prepared.library.reason}", XLA_TIME
        else:
            reason, time = "as asked", NATIVE_TIME
        yield Choice(self, reason, cost=cost_of_pairs(measure, prepared.queries, time))

    def promise(self, prepared: PreparedSum, limits: Limits) -> Choice | None:
        """The cost of the near pairs, estimated from a sample of points; None for bands, and where there is no library.

        The tolerance is kept for any points, those that they will have moved to, too; only the cost may change.
        """
        measure, queries, parts = prepared.measure, prepared.queries, prepared.parts
        if limits.tolerance is None or parts is None or parts.band is not None or prepared.library.path is None:
            return None
        if 0 in queries.points.shape or not prepared.is_known:
            return None
        settled = NearFar(min(float(limits.tolerance), 0.5), self.block)
        near = _share_of_near_pairs(settled, prepared)
        points = queries.points.shape[0] + measure.count
        near_pairs = near * cost_of_pairs(measure, queries, NATIVE_TIME, parts.curve)
        cost = _NEAR_TIME * near_pairs + _PAIRS_A_POINT * points
        error = 0.0 if parts.curve in COMPACT else settled.tolerance
        counts = f"{queries.points.shape[0]} × {measure.count}"
        return Choice(settled, f"about {100 * near:.2g} % of {counts} pairs are near", error, cost)

    def cost_bounds(self, prepared: PreparedSum, limits: Limits) -> Iterator[float]:
        """The cost of sorting the points: that of a sum without any near pair."""
        yield _PAIRS_A_POINT * (prepared.queries.points.shape[0] + prepared.measure.count)

    def _operands(self, prepared: PreparedSum, values: Array) -> tuple[Form, Arrays]:
        form, arrays = operands_of(prepared, values)
        return form._replace(tolerance=float(self.tolerance), block=self.block), arrays


def _parts_of(prepared: PreparedSum) -> KernelParts:
    """The parts of the kernel; a kernel without them is refused."""
    if prepared.parts is None:
        raise ArgumentError(
            "The summation NearFar needs a kernel whose factors are inner products, one curve of a distance, or "
            f"bands of positions, but {type(prepared.kernel).__name__} has another one; use `Auto`."
        )
    return prepared.parts


_moments_by_xla = jax.jit(moments_by_xla, static_argnums=0)  # loops outside `jit` are compiled again at every call


def _share_of_near_pairs(how: NearFar, prepared: PreparedSum) -> float:
    """The part of all pairs that some queries would sum, with boxes as wide as their neighbourhoods.

    What a box can add is what its points would, were they closer by the widths of both boxes; the least of these,
    together at most ½ tolerance of the mass, are left out. Some hundredths of a second for any number of points.
    """
    some = _sampled(how, prepared)
    ours, theirs = prepared.queries.points.shape[0], prepared.measure.count
    queries, others, keys = (np.asarray(each) for each in (some.queries, some.others, some.keys))
    wide = _reach(queries, others, how.block, ours) + _reach(queries, keys, how.block, theirs)
    scores, bounds, compact = _scores_and_bounds(how, prepared, some, jnp.asarray(wide))
    bounds = np.asarray(bounds)
    if compact:
        return float(np.mean(bounds > -np.inf))
    top = np.max(bounds, axis=1, keepdims=True)
    mass = np.exp(scores - top).sum(axis=1)
    left = np.cumsum(np.sort(np.exp(bounds - top), axis=1), axis=1)
    return float(np.mean(left > 0.5 * how.tolerance * mass[:, None]))


class _Sampled(NamedTuple):
    """The coordinates of some queries, of more of them, and of some sources with their offsets."""

    queries: Array
    others: Array
    keys: Array
    key_offsets: Array


@eqx.filter_jit  # one program; operation by operation there would be thirty
def _sampled(how: NearFar, prepared: PreparedSum) -> _Sampled:
    """A sample of both sides, spread evenly over their order."""
    found = ScoreCoordinates.of(*how._operands(prepared, value_columns(prepared.measure)))
    ours, theirs = len(found.queries), len(found.keys)
    chosen, sources = _spread(ours, _SAMPLED_QUERIES), _spread(theirs, _SAMPLED_SOURCES)
    others = found.queries[_spread(ours, _SAMPLED_SOURCES)]
    return _Sampled(found.queries[chosen], others, found.keys[sources], found.key_offsets[sources])


@eqx.filter_jit
def _scores_and_bounds(how: NearFar, prepared: PreparedSum, some: _Sampled, wide: Array) -> tuple[Array, Array, bool]:
    """Scores of some queries and sources, bounds of boxes around both, so wide, and whether the kernel ends."""
    form, arrays = how._operands(prepared, value_columns(prepared.measure))
    squares = jnp.square(some.queries[:, None] - some.keys[None])
    inner, outer = jnp.sum(squares[..., : form.inner], axis=-1), jnp.sum(squares[..., form.inner :], axis=-1)
    distance = jnp.sqrt(inner + outer)
    closer = jnp.square(jnp.maximum(distance - wide[:, None], 0) / jnp.where(distance > 0, distance, 1))
    scores, bounds = (
        log_bound(form, arrays.numbers, factor * inner, factor * outer) + some.key_offsets[None]
        for factor in (jnp.ones_like(closer), closer)
    )
    return scores, bounds, form.curve in COMPACT


def _spread(count: int, most: int) -> np.ndarray:
    """At most so many of the numbers 0, …, count − 1, evenly spread."""
    return np.linspace(0, count - 1, min(count, most)).astype(int)


def _reach(points: np.ndarray, others: np.ndarray, block: int, count: int) -> np.ndarray:
    """How far the neighbourhood of a point reaches that holds a block of `count` points, of which some are known."""
    nearest = min(len(others) - 1, max(1, round(block * len(others) / count)))
    squares = np.square(points[:, None] - others[None]).sum(-1)
    return np.sqrt(np.partition(squares, nearest, axis=1)[:, nearest])
