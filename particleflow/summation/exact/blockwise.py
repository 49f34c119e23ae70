"""Block after block: exact, at any size, without ever holding the matrix of all pairs.

The sums of blocks of sources merge, so a block of queries carries one `Sums` past all of them (Rabe and Staats,
Self-attention does not need O(n²) memory, 2021; Dao et al., FlashAttention, 2022). What is left is to choose the shift
that keeps exponentials in range, see `_row_moments`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from particleflow.errors import whole_number
from particleflow.kernels.base import AbstractKernel
from particleflow.kernels.capabilities import counts_points
from particleflow.measure import Measure, Sites
from particleflow.summation.base import (
    Choice,
    Limits,
    as_query_sites,
    check_precision,
    cost_of_pairs,
    logits_of,
    value_columns,
)
from particleflow.summation.candidates import Candidate
from particleflow.summation.device_axis import is_shared, shared_in_blocks
from particleflow.summation.exact.blocks import Sources, blocks, source_blocks
from particleflow.summation.exact.dense import pairs_and_bytes
from particleflow.summation.moments import Moments, Sums, finite_maximum, shifted_sums
from particleflow.summation.prepared import PreparedSum
from particleflow.summation.sampling import DrawsPoints, drawn_indices

# A row whose mass exceeds the smallest normal number by this factor lost less than 1e-18 of it per source.
_UNDERFLOW_MARGIN = 1e18
# A row in which an exponent was cut has a mass of at least e^cap, up to rounding: below half of that none was cut.
_OVERFLOW_MARGIN = 0.5


class Blockwise(Candidate, DrawsPoints):
    """Blocks of queries against blocks of sources, merged as sums: memory O(query_block · source_block), exact.

    The last blocks are filled up with copies of weight zero, so any number of points is fine. Derivatives
    recompute the blocks instead of storing them.
    """

    query_block: int = eqx.field(static=True, default=4096)
    source_block: int = eqx.field(static=True, default=256)

    def __check_init__(self):
        for name in ("query_block", "source_block"):
            whole_number(getattr(self, name), name)

    def summed(self, prepared: PreparedSum, values: Any = None) -> Moments:
        """The merge of all blocks of sources, for one block of queries after the other."""
        kernel, measure, queries = prepared.kernel, prepared.measure, prepared.queries
        columns, count = value_columns(measure, values), queries.points.shape[0]
        if not is_shared(count):
            return _moments_by_blocks(self, kernel, measure, queries, columns)
        sources = source_blocks(measure, columns, self.source_block)
        return shared_in_blocks(lambda rows: _row_moments(kernel, rows, sources), queries, count, self.query_block)

    def promise(self, prepared: PreparedSum, limits: Limits) -> Choice:
        """Exact, for any sum; blocks are as many whole rows as fit where the kernel counts points."""
        measure, queries = prepared.measure, prepared.queries
        pairs, needed = pairs_and_bytes(measure, queries)
        whole = counts_points(prepared.kernel) and needed > 0  # every block of queries looks at all points
        rows = max(1, limits.dense_bytes * queries.points.shape[0] // needed) if whole else 0
        how = Blockwise(rows, measure.count) if whole else self
        reason = f"{pairs}, more than the {limits.dense_bytes / 2**20:.3g} MiB allowed for a dense matrix"
        return Choice(how, reason, cost=cost_of_pairs(measure, queries))

    def draw(
        self, key: Array, kernel: AbstractKernel, measure: Measure, queries: Any, draws: int
    ) -> Int[Array, "m draws"]:
        """Indices of points drawn ∝ K(x, y) dμ(y), one query after the other, block after block of sources."""
        sites = as_query_sites(queries)
        check_precision(kernel, measure, sites)
        return drawn_indices(key, kernel, measure, sites, draws, self.source_block)


@eqx.filter_jit  # a loop outside `jit` would be compiled again at every call
def _moments_by_blocks(
    how: Blockwise, kernel: AbstractKernel, measure: Measure, queries: Sites, values: Array
) -> Moments:
    count = queries.points.shape[0]
    rows = blocks(queries, max(1, min(how.query_block, count)))
    sources = source_blocks(measure, values, how.source_block)
    by_block = jax.lax.map(lambda block: _row_moments(kernel, block, sources), rows)
    return jax.tree_util.tree_map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], by_block)


def _row_moments(kernel: AbstractKernel, queries: Sites, sources: Sources) -> Moments:
    """The moments of one block of queries.

    Taking a row maximum in every block costs as much as the exponentials, so all blocks are first summed
    with the maximum over the first block as their common shift. That loses nothing as long as the masses
    stay away from underflow and overflow; where some do not, the block is summed again with its own maxima,
    for these rows alone: what one row sees changes no bit of another.
    """
    limits = jnp.finfo(queries.points.dtype)
    cap = float(np.log(limits.max)) / 2
    common = _sums_with_common_shift(kernel, queries, sources, cap)
    mass = common.sums[:, -1]
    least, most = float(limits.tiny) * _UNDERFLOW_MARGIN, float(np.exp(cap)) * _OVERFLOW_MARGIN
    safe = (mass > least) & (mass < most)

    def again() -> Moments:
        own, found = _sums(kernel, queries, sources).moments(), common.moments()
        return Moments(jnp.where(safe, found.log_mass, own.log_mass), jnp.where(safe[:, None], found.mean, own.mean))

    return jax.lax.cond(jnp.all(safe), lambda: common.moments(), again)


def _sums_with_common_shift(kernel: AbstractKernel, queries: Sites, sources: Sources, cap: float) -> Sums:
    """The merge of all blocks, each with the first block's row maxima as its shift, exponents cut at `cap`."""
    points, log_weights, values = sources
    first = jax.tree_util.tree_map(lambda leaf: leaf[0], points)
    shift = finite_maximum(logits_of(kernel, queries, first, log_weights[0]))

    def fold(so_far: Array, block: Sources) -> tuple[Array, None]:
        logits = logits_of(kernel, queries, block[0], block[1])
        piece = Sums(shift, shifted_sums(logits, shift, block[2], cap))
        return Sums(shift, so_far).merge(piece).sums, None

    nothing = jnp.zeros((queries.points.shape[0], values.shape[-1] + 1), queries.points.dtype)
    return Sums(shift, jax.lax.scan(jax.checkpoint(fold), nothing, sources)[0])


def _sums(kernel: AbstractKernel, queries: Sites, sources: Sources) -> Sums:
    """The merge of all blocks, each with its own row maxima as its shift."""

    def fold(so_far: Sums, block: Sources) -> tuple[Sums, None]:
        logits = logits_of(kernel, queries, block[0], block[1])
        return so_far.merge(Sums.from_logits(logits, block[2])), None

    nothing = Sums.nothing(queries.points.shape[0], sources[2].shape[-1], queries.points.dtype)
    return jax.lax.scan(jax.checkpoint(fold), nothing, sources)[0]
