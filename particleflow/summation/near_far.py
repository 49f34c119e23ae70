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

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow._arrays import is_concrete
from particleflow.errors import ArgumentError
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.moments import Moments
from particleflow.summation.base import (
    AbstractSummation,
    Choice,
    Limits,
    as_query_sites,
    check_precision,
    value_columns,
)
from particleflow.summation.native.build import library
from particleflow.summation.native.form import KernelParts
from particleflow.summation.native.near import COMPACT, Places, log_bound, moments_by_xla
from particleflow.summation.native.operator import Arrays, Form, native_moments

_SAMPLED_QUERIES, _SAMPLED_SOURCES = 16, 2**15
_POINT = 300.0  # what sorting a point costs, in native pairs


class NearFar(AbstractSummation):
    """Boxes of points: what they can add to a mass at most decides whether they are summed.

    At most ½ tolerance of any mass is left out, so that the log-mass lacks less than ½ tolerance, and the mean is off
    by less than tolerance · max |z|; kernels that are zero beyond a radius (ball, Epanechnikov, triangle) are summed
    exactly. Derivatives are those of the pairs that are summed.

    Kernels: those that native code knows, see `KernelParts`; others are refused. A band of positions is a mask, and
    saves nothing. Where there is no library, XLA does the same, more slowly.

    Parameters: `tolerance`; `block`, the most sources that one box holds; native code takes what suits the processor.
    """

    relative_time: ClassVar[float] = 1.0
    tolerance: float = eqx.field(static=True, default=1e-8)
    block: int = eqx.field(static=True, default=12)

    def __check_init__(self):
        given = self.tolerance
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if not (is_number and 0 < given < 1):
            raise ArgumentError(f"Argument `tolerance` must be a number between 0 and 1, but is {given!r}.")
        if not isinstance(self.block, int) or isinstance(self.block, bool) or self.block < 4:
            raise ArgumentError(f"Argument `block` must be a whole number, at least 4, but is {self.block!r}.")

    def moments(self, kernel: AbstractKernel, measure: Measure, queries: Any, values: Any = None) -> Moments:
        """The moments of `measure` under `kernel`, seen from each query."""
        sites = as_query_sites(queries)
        parts = self._parts(kernel, measure)
        check_precision(kernel, measure, sites)
        form, arrays = self._arrays(parts, measure, sites, value_columns(measure, values))
        summed = _moments_by_xla(form, arrays) if library().path is None else native_moments(form, arrays)
        return Moments(summed.log_mass + parts.query_offsets(sites), summed.mean)

    def select(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Choice:
        """Itself, and whether it is native code."""
        self._parts(kernel, measure)
        found = library()
        return Choice(
            self, "as asked" if found.path is not None else f"as asked, by XLA: no native sum: {found.reason}"
        )

    def promise(self, kernel: AbstractKernel, measure: Measure, queries: Sites, limits: Limits) -> Choice | None:
        """What is near, estimated from a sample of the points; nothing for bands, and where there is no library.

        The tolerance is kept for any points, those that they will have moved to, too; only the cost may change.
        """
        parts = KernelParts.of(kernel, measure.dimension)
        leaves = jax.tree_util.tree_leaves((kernel, measure, queries))
        if limits.tolerance is None or parts is None or parts.band is not None or library().path is None:
            return None
        if 0 in queries.points.shape or not all(is_concrete(leaf) for leaf in leaves):
            return None
        settled = NearFar(min(float(limits.tolerance), 0.5), self.block)
        near = _share_of_near_pairs(settled, kernel, measure, queries)
        points = queries.points.shape[0] + measure.count
        cost = near * self.pairs(measure, queries) + _POINT * points
        error = 0.0 if parts.curve in COMPACT else settled.tolerance
        counts = f"{queries.points.shape[0]} × {measure.count}"
        return Choice(settled, f"about {100 * near:.2g} % of {counts} pairs are near", error, cost)

    def least_cost(self, kernel: AbstractKernel, measure: Measure, queries: Sites, limits: Limits) -> float:
        """What sorting costs, were no pair near."""
        return _POINT * (queries.points.shape[0] + measure.count)

    def _parts(self, kernel: AbstractKernel, measure: Measure) -> KernelParts:
        parts = KernelParts.of(kernel, measure.dimension)
        if parts is None:
            raise ArgumentError(
                "The summation NearFar needs a kernel whose factors are inner products, one curve of a distance, or "
                f"bands of positions, but {type(kernel).__name__} has another one; use `Auto`."
            )
        return parts

    def _arrays(self, parts: KernelParts, measure: Measure, queries: Sites, values: Array) -> tuple[Form, Arrays]:
        form, arrays = parts.arrays(measure, queries, values)
        return form._replace(tolerance=float(self.tolerance), block=self.block), arrays


_moments_by_xla = jax.jit(moments_by_xla, static_argnums=0)  # loops outside `jit` are compiled again at every call


def _share_of_near_pairs(how: NearFar, kernel: AbstractKernel, measure: Measure, queries: Sites) -> float:
    """The part of all pairs that some queries would sum, with boxes as wide as their neighbourhoods.

    What a box can add is what its points would, were they closer by the widths of both boxes; the least of these,
    together at most ½ tolerance of the mass, are left out. Some hundredths of a second for any number of points.
    """
    some = _some(how, kernel, measure, queries)
    ours, theirs = queries.points.shape[0], measure.count
    queries_seen, others, keys = (np.asarray(each) for each in (some.queries, some.others, some.keys))
    wide = _reach(queries_seen, others, how.block, ours) + _reach(queries_seen, keys, how.block, theirs)
    scores, bounds, compact = _scores_and_bounds(how, kernel, measure, queries, some, jnp.asarray(wide))
    bounds = np.asarray(bounds)
    if compact:
        return float(np.mean(bounds > -np.inf))
    top = np.max(bounds, axis=1, keepdims=True)
    mass = np.exp(scores - top).sum(axis=1)
    left = np.cumsum(np.sort(np.exp(bounds - top), axis=1), axis=1)
    return float(np.mean(left > 0.5 * how.tolerance * mass[:, None]))


class _Some(NamedTuple):
    """The places of some queries, of more of them, and of some sources with their offsets."""

    queries: Array
    others: Array
    keys: Array
    key_offsets: Array


@eqx.filter_jit  # one program; operation by operation there would be thirty
def _some(how: NearFar, kernel: AbstractKernel, measure: Measure, queries: Sites) -> _Some:
    places = Places.of(*how._arrays(how._parts(kernel, measure), measure, queries, value_columns(measure)))
    ours, theirs = len(places.queries), len(places.keys)
    chosen, sources = _spread(ours, _SAMPLED_QUERIES), _spread(theirs, _SAMPLED_SOURCES)
    others = places.queries[_spread(ours, _SAMPLED_SOURCES)]
    return _Some(places.queries[chosen], others, places.keys[sources], places.key_offsets[sources])


@eqx.filter_jit
def _scores_and_bounds(
    how: NearFar, kernel: AbstractKernel, measure: Measure, queries: Sites, some: _Some, wide: Array
) -> tuple[Array, Array, bool]:
    """Scores of some queries and sources, bounds of boxes around both, so wide, and whether the kernel ends."""
    form, arrays = how._arrays(how._parts(kernel, measure), measure, queries, value_columns(measure))
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
    return np.linspace(0, count - 1, min(count, most)).astype(int)


def _reach(points: np.ndarray, others: np.ndarray, block: int, count: int) -> np.ndarray:
    """How far the neighbourhood of a point reaches that holds a block of `count` points, of which some are known."""
    nearest = min(len(others) - 1, max(1, round(block * len(others) / count)))
    squares = np.square(points[:, None] - others[None]).sum(-1)
    return np.sqrt(np.partition(squares, nearest, axis=1)[:, nearest])
