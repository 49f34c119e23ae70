"""The random batch method: every query sums over a few random sources, others whenever points have moved.

    G(x) ≈ log (n/p) Σ_{j ∈ B(x)} w_j K(x, y_j),    |B(x)| = p

Source: Jin, Li and Liu, Random batch methods for interacting particle systems (2020). Sources are shuffled and cut into
batches of p, queries into as many groups, and each group sees one batch: O(m p) pairs. A mass is right on average, and
so is the field of unnormalised attention; a local mean, as the quotient of two of them, is off by O(1/p) on average.
Errors of single evaluations are not small and nothing is promised of them: what converges are trajectories, as steps
become short, because errors of different steps cancel. So this is for explicit layers and fixed steps; step control
takes the noise for error and shrinks the steps to almost nothing.

A summation does not depend on time. Its batches are a function of the seed and of the bits of queries and points, so
that points that have moved are shuffled anew, and a resumed run has the same batches as one that was never stopped.
Points that do not move keep their batches.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, UInt

from particleflow.errors import whole_number
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.summation.base import (
    AbstractSummation,
    as_query_sites,
    check_precision,
    logits_of,
    value_columns,
)
from particleflow.summation.moments import Moments

_BATCHES_TOGETHER = 32  # summed at once


class RandomBatch(AbstractSummation):
    """Sums over a random batch of sources for every query: stochastic, O(m · batch), for any kernel.

    The error of one evaluation falls as batch^{−½} and is kept within no tolerance: what converges are trajectories, as
    fixed steps become short (random batch method, Jin, Li and Liu 2020). A query that sees nothing of its batch has no
    mass there (log-mass −∞, mean 0), though it may see other sources.

    Parameters: `batch`, the number of sources that a query sees; `seed`.
    """

    batch: int = eqx.field(static=True, default=64)
    seed: int = eqx.field(static=True, default=0)

    def __check_init__(self):
        for name, least in (("batch", 1), ("seed", 0)):
            given = getattr(self, name)
            whole_number(given, name, least)

    def moments(self, kernel: AbstractKernel, measure: Measure, queries: Any, values: Any = None) -> Moments:
        """The moments of a batch of `measure` for each query, masses scaled up to those of the whole."""
        sites = as_query_sites(queries)
        check_precision(kernel, measure, sites)
        columns = value_columns(measure, values)
        if sites.points.shape[0] == 0:
            return Moments.nothing(0, columns.shape[1], columns.dtype)
        return _moments(self, kernel, measure, sites, columns)


@eqx.filter_jit  # a loop outside `jit` would be compiled again at every call
def _moments(how: RandomBatch, kernel: AbstractKernel, measure: Measure, queries: Sites, values: Array) -> Moments:
    batches = -(-measure.count // how.batch)
    key = jax.random.key(how.seed)
    for points in (measure.points, queries.points):
        key = jax.random.fold_in(key, _fingerprint(points))
    for_sources, for_queries = jax.random.split(key)
    sources, in_batch = _cut(for_sources, measure.count, batches)
    rows, in_group = _cut(for_queries, queries.points.shape[0], batches)
    scale = jnp.log(measure.count / jnp.sum(in_batch, axis=1).astype(values.dtype))
    log_weights = jnp.where(in_batch, measure.log_weights[sources] + scale[:, None], -jnp.inf)

    def one(batch: tuple[Array, Array, Array]) -> Moments:
        row, source, log_weights = batch
        ours, theirs = (
            jax.tree_util.tree_map(lambda leaf: leaf[places], sites)  # noqa: B023
            for sites, places in ((queries, row), (measure.sites, source))
        )
        return Moments.from_logits(logits_of(kernel, ours, theirs, log_weights), values[source])

    found = jax.lax.map(one, (rows, sources, log_weights), batch_size=_BATCHES_TOGETHER)
    back = jnp.argsort(jnp.where(in_group, rows, queries.points.shape[0]).ravel())[: queries.points.shape[0]]
    return jax.tree_util.tree_map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[back], found)


def _cut(key: Array, count: int, pieces: int) -> tuple[Int[Array, "p s"], Bool[Array, "p s"]]:
    """Numbers 0 … count − 1, shuffled and cut into pieces of nearly one size; and which entries are no fillers."""
    places = jnp.arange(pieces)[:, None] + pieces * jnp.arange(-(-count // pieces))[None, :]
    return jax.random.permutation(key, count)[places % count], places < count


def _fingerprint(points: Array) -> UInt[Array, ""]:
    """A 32-bit hash of the bits of all points."""
    bits = jax.lax.bitcast_convert_type(jax.lax.stop_gradient(points), jnp.uint32).ravel()
    odd = 2 * jnp.arange(bits.shape[0], dtype=jnp.uint32) + 1
    mixed = (bits ^ (bits >> 15)) * jnp.uint32(0x85EBCA6B) * odd
    return jnp.sum(mixed ^ (mixed >> 13), dtype=jnp.uint32)
