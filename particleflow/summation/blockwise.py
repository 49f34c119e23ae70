"""Block after block: exact, at any size, without ever holding the matrix of all pairs."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow.errors import ArgumentError
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.moments import Moments, finite_maximum, shifted_sums
from particleflow.summation.base import AbstractSummation, as_query_sites, check_precision, logits_of, value_columns

# Points, log-weights and values, each cut into blocks along the first axis.
_Sources = tuple[Sites, Array, Array]
# A row whose mass exceeds the smallest normal number by this factor lost less than 1e-18 of it per source.
_UNDERFLOW_MARGIN = 1e18
# A row holding one exponent that was cut has a mass of e^cap up to rounding: half of it tells the two apart.
_OVERFLOW_MARGIN = 0.5


class Blockwise(AbstractSummation):
    """Blocks of queries against blocks of sources, merged as moments: memory O(query_block · source_block).

    The last blocks are filled up with copies of weight zero, so any number of points is fine. Derivatives
    recompute the blocks instead of storing them.
    """

    query_block: int = eqx.field(static=True, default=4096)
    source_block: int = eqx.field(static=True, default=256)

    def __check_init__(self):
        for name in ("query_block", "source_block"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ArgumentError(f"Argument `{name}` must be a positive integer, but is {getattr(self, name)!r}.")

    def moments(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Moments:
        """The moments of `measure` under `kernel`, seen from each query."""
        sites = as_query_sites(queries)
        check_precision(kernel, measure, sites)
        return _moments_by_blocks(self, kernel, measure, sites)

    def source_blocks(self, measure: Measure) -> _Sources:
        """The measure cut into blocks of sources."""
        size = min(self.source_block, measure.count)
        missing = -measure.count % size
        log_weights = jnp.pad(measure.log_weights, (0, missing), constant_values=-jnp.inf)
        values = _blocks(value_columns(measure), size)
        return _blocks(measure.sites, size), log_weights.reshape(-1, size), values


@eqx.filter_jit  # a loop outside `jit` would be compiled again at every call
def _moments_by_blocks(how: Blockwise, kernel: AbstractKernel, measure: Measure, queries: Sites) -> Moments:
    count = queries.points.shape[0]
    rows = _blocks(queries, max(1, min(how.query_block, count)))
    sources = how.source_blocks(measure)
    by_block = jax.lax.map(lambda block: _row_moments(kernel, block, sources), rows)
    return jax.tree_util.tree_map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], by_block)


def _row_moments(kernel: AbstractKernel, queries: Sites, sources: _Sources) -> Moments:
    """The moments of one block of queries.

    Taking a row maximum in every block costs as much as the exponentials, so all blocks are first summed
    with the maximum over the first block as their common shift. That loses nothing as long as the masses
    stay away from underflow and overflow; where one does not, the block is summed again with its own maxima.
    """
    limits = jnp.finfo(queries.points.dtype)
    cap = float(np.log(limits.max)) / 2
    shift, sums = _sums_with_common_shift(kernel, queries, sources, cap)
    mass = sums[:, -1]
    least, most = float(limits.tiny) * _UNDERFLOW_MARGIN, float(np.exp(cap)) * _OVERFLOW_MARGIN
    safe = jnp.all((mass > least) & (mass < most))
    return jax.lax.cond(safe, lambda: Moments.from_sums(sums, shift), lambda: _merged_moments(kernel, queries, sources))


def _sums_with_common_shift(
    kernel: AbstractKernel, queries: Sites, sources: _Sources, cap: float
) -> tuple[Array, Array]:
    points, log_weights, values = sources
    first = jax.tree_util.tree_map(lambda leaf: leaf[0], points)
    shift = finite_maximum(logits_of(kernel, queries, first, log_weights[0]))

    def add(so_far: Array, block: _Sources) -> tuple[Array, None]:
        logits = logits_of(kernel, queries, block[0], block[1])
        return so_far + shifted_sums(logits, shift, block[2], cap), None

    nothing = jnp.zeros((queries.points.shape[0], values.shape[-1] + 1), queries.points.dtype)
    return shift, jax.lax.scan(jax.checkpoint(add), nothing, sources)[0]


def _merged_moments(kernel: AbstractKernel, queries: Sites, sources: _Sources) -> Moments:
    """The merge of all blocks, each summed with the highest logit so far as its shift.

    Carrying sums and shift, not log-mass and mean, keeps the digits of large logits: a log-mass of 4000 is rounded
    to 2e-4 in float32, the difference of two logits is not.
    """

    def fold(so_far: tuple[Array, Array], block: _Sources) -> tuple[tuple[Array, Array], None]:
        highest, sums = so_far
        logits = logits_of(kernel, queries, block[0], block[1])
        new_highest = jnp.maximum(highest, jax.lax.stop_gradient(jnp.max(logits, axis=-1)))
        shift = jnp.where(jnp.isneginf(new_highest), 0.0, new_highest)
        sums = jnp.exp(highest - shift)[:, None] * sums + shifted_sums(logits, shift, block[2])
        return (new_highest, sums), None

    count, dtype = queries.points.shape[0], queries.points.dtype
    nothing = jnp.full(count, -jnp.inf, dtype), jnp.zeros((count, sources[2].shape[-1] + 1), dtype)
    highest, sums = jax.lax.scan(jax.checkpoint(fold), nothing, sources)[0]
    return Moments.from_sums(sums, jnp.where(jnp.isneginf(highest), 0.0, highest))


def _blocks(tree: Any, size: int) -> Any:
    """Every leaf cut into blocks of `size` rows, the last one filled up with copies of the first row."""

    def cut(leaf: Array) -> Array:
        missing = -leaf.shape[0] % size
        filler = jnp.broadcast_to(leaf[:1], (missing, *leaf.shape[1:]))
        return jnp.concatenate([leaf, filler]).reshape(-1, size, *leaf.shape[1:])

    return jax.tree_util.tree_map(cut, tree)
