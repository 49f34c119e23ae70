"""Sums of kernels that are inner products of features: exact, and linear in the number of tokens.

    K(x, y) = ⟨φ(x), ψ(y)⟩,    Σ_j w_j K(x, y_j)(z_j, 1) = φ(x)ᵀ M,    M = Σ_j w_j ψ(y_j) ⊗ (z_j, 1)

Under a causal mask M is a sum over the past. Sources are put in the order of their positions and cut into blocks; M is
kept at the beginning of every block, and a query adds to it the visible sources of its own block: a block's worth of
pairs a query, whatever the number of sources. Positions may be anything, equal ones too, and queries need not be
sources. Nothing that a query does not see enters its sum, not even as a rounding error: earlier blocks are added up in
their order, and what is masked is a zero in a product. Source: Katharopoulos et al., Transformers are RNNs (2020),
where the past is a state that is carried along.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.errors import ArgumentError
from particleflow.kernels.base import AbstractKernel, positions_of
from particleflow.kernels.forms import Band, Separable
from particleflow.measure import Measure, Sites
from particleflow.summation.base import NATIVE_TIME, Choice, Limits, as_query_sites, cost_of_pairs, value_columns
from particleflow.summation.candidates import Candidate
from particleflow.summation.exact.blocks import Sources, blocks
from particleflow.summation.moments import Moments, Sums
from particleflow.summation.prepared import PreparedSum

_BLOCK = 64  # sources of a block; M is kept at the beginning of each
_BLOCKS_TOGETHER = 16  # blocks that are summed at once, and fit into the cache


class Separated(Candidate):
    """Features first, then sources, then queries: O((m + n) r) for r features, exact up to rounding.

    Kernels: one that offers features (`separable`), alone or times a causal mask, strict or not. Others are refused.
    """

    def summed(self, prepared: PreparedSum, values: Any = None) -> Moments:
        """φ(x)ᵀ M with the M of all sources, or of the past under a causal mask."""
        measure, queries = prepared.measure, prepared.queries
        form, mask = _features_and_mask(prepared.kernel)
        if form is None:
            raise ArgumentError(
                "The summation Separated cannot sum this kernel: it is no inner product of features, alone or times "
                "one causal mask."
            )
        # Weights may be as small as e^{−1000}: the largest is taken out of them, and goes back into the log-mass.
        shift = jax.lax.stop_gradient(jnp.max(measure.log_weights))
        sources = (measure.sites, measure.log_weights - shift, value_columns(measure, values))

        def read(sums: Array) -> Moments:
            return Sums(jnp.full(len(sums), shift), sums).moments()

        if mask is None:
            return _of_all(form, queries, sources, read)
        return _of_past(form, queries, sources, read, strict=bool(mask.least == 0))

    def choices(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Iterator[Choice]:
        """Itself, whose cost is that of a block's worth of pairs a query."""
        yield Choice(self, "as asked", cost=_cost(measure, as_query_sites(queries)))

    def promise(self, prepared: PreparedSum, limits: Limits) -> Choice | None:
        """Exact, for kernels of positive features, where there are more tokens than a block holds."""
        form, _ = _features_and_mask(prepared.kernel)
        positive = not any(factor.vanishes() for factor in prepared.kernel.factors() if factor.band() is None)
        if form is None or not positive or prepared.measure.count <= _BLOCK:
            return None
        cost = _cost(prepared.measure, prepared.queries)
        return Choice(self, "features of the kernel, summed first", cost=cost)


def _cost(measure: Measure, queries: Sites) -> float:
    """The cost of a block's worth of native pairs for each query, whatever the number of sources."""
    return cost_of_pairs(measure, queries, NATIVE_TIME) * _BLOCK / measure.count


def _features_and_mask(kernel: AbstractKernel) -> tuple[Separable | None, Band | None]:
    """The features of a kernel, and its causal mask where it has one; no features where it is anything else."""
    factors = [(factor, factor.band()) for factor in kernel.factors()]
    masks = [band for _, band in factors if band is not None]
    others = [factor for factor, band in factors if band is None]
    fits = len(others) == 1 and len(masks) <= 1 and all(map(_is_causal, masks))
    return (others[0].separable() if fits else None), (masks[0] if masks else None)


def _is_causal(mask: Band) -> bool:
    """Whether a band is known to let all of the past pass, alike, and nothing of the future."""
    plain = all(isinstance(number, float) for number in mask)
    return plain and mask[1:] == (jnp.inf, 0.0, 0.0) and -1e-30 < float(mask.least) <= 0


Reader = Callable[[Array], Moments]  # how sums are read as moments


def _features(form: Separable, sources: Sources) -> tuple[Float[Array, "n r"], Float[Array, "n k"]]:
    """Rows w_j ψ(y_j) and (z_j, 1), one a source."""
    sites, log_weights, values = sources
    return jnp.exp(log_weights)[:, None] * form.key_map(sites), jnp.pad(values, ((0, 0), (0, 1)), constant_values=1.0)


def _stretches(sources: Sources, size: int) -> Sources:
    """Sources cut into stretches, whose features fit into the cache; fillers weigh nothing."""
    log_weights = jnp.pad(sources[1], (0, -len(sources[1]) % size), constant_values=-jnp.inf)
    return blocks(sources[0], size), log_weights.reshape(-1, size), blocks(sources[2], size)


def _nothing(form: Separable, sources: Sources) -> Float[Array, "r k"]:
    """The memory M of no source: zeros."""
    features, columns = jax.eval_shape(lambda: _features(form, sources))
    return jnp.zeros((features.shape[1], columns.shape[1]), columns.dtype)


def _of_all(form: Separable, queries: Sites, sources: Sources, read: Reader) -> Moments:
    """φ(x)ᵀ M, stretch by stretch: features of all are never held."""

    def add(memory: Array, stretch: Sources) -> tuple[Array, None]:
        keys, columns = _features(form, stretch)
        return memory + keys.T @ columns, None

    size = min(_BLOCK * _BLOCKS_TOGETHER, max(len(sources[1]), len(queries.points)))
    memory = jax.lax.scan(jax.checkpoint(add), _nothing(form, sources), _stretches(sources, size))[0]
    found = jax.lax.map(lambda sites: read(form.query_map(sites) @ memory), blocks(queries, size))
    return _joined(found, len(queries.points))


def _joined(stretches: Moments, count: int) -> Moments:
    """The moments of stretches, one after the other, without those of fillers."""
    return jax.tree_util.tree_map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], stretches)


def _of_past(form: Separable, queries: Sites, sources: Sources, read: Reader, strict: bool) -> Moments:
    """Σ_{j: s_j ≤ t_i} ⟨φ(x_i), w_j ψ(y_j)⟩ (z_j, 1), or s_j < t_i where it is strict.

    Where queries are the sources, in the order of their positions, no search is needed for a query's block.
    """
    times, positions = positions_of(queries, "query"), positions_of(sources[0], "measure")

    def search() -> Moments:
        return read(_searched_sums(form.query_map(queries), *_features(form, sources), times, positions, strict))

    if times.shape != positions.shape:
        return search()
    in_order = jnp.all(times == positions) & jnp.all(positions[1:] > positions[:-1])
    return jax.lax.cond(in_order, lambda: _in_order(form, queries, sources, read, strict), search)


def _in_order(form: Separable, queries: Sites, sources: Sources, read: Reader, strict: bool) -> Moments:
    """The sums of a sequence over its own past; M is carried from block to block, so that it is read once."""
    count = len(queries.points)
    together = min(_BLOCKS_TOGETHER, -(-count // _BLOCK))
    seen = jnp.tril(jnp.ones((_BLOCK, _BLOCK), bool), -1 if strict else 0)

    def stretch(past: Array, both: tuple[Sites, Sources]) -> tuple[Array, Moments]:
        """The sums over earlier blocks, and over earlier sources of the same block."""
        rows, keys, columns = (
            each.reshape(together, _BLOCK, -1) for each in (form.query_map(both[0]), *_features(form, both[1]))
        )
        after = past[None] + jnp.cumsum(jnp.einsum("bjr,bjk->brk", keys, columns), axis=0)
        before = jnp.concatenate([past[None], after[:-1]])
        pairs = jnp.where(seen[None], jnp.einsum("bir,bjr->bij", rows, keys), 0.0)
        sums = jnp.einsum("bir,brk->bik", rows, before) + jnp.einsum("bij,bjk->bik", pairs, columns)
        return after[-1], read(sums.reshape(-1, sums.shape[-1]))

    cut = blocks(queries, together * _BLOCK), _stretches(sources, together * _BLOCK)
    found = jax.lax.scan(jax.checkpoint(stretch), _nothing(form, sources), cut)[1]
    return _joined(found, count)


def _searched_sums(
    queries: Array, keys: Array, columns: Array, times: Array, positions: Array, strict: bool
) -> Float[Array, "m k"]:
    """The sums of any queries over sources in any order: features of both, (z_j, 1), and positions."""
    order = jnp.argsort(positions)
    rows, columns, positions = _in_blocks(keys[order]), _in_blocks(columns[order]), positions[order]
    totals = jnp.einsum("bjr,bjk->brk", rows, columns)
    before = jnp.pad(jnp.cumsum(totals[:-1], axis=0), ((1, 0), (0, 0), (0, 0)))  # of earlier blocks alone, to the bit
    visible = jnp.searchsorted(positions, times, side="left" if strict else "right")
    block = jnp.minimum(visible // _BLOCK, len(rows) - 1)
    within = jnp.arange(_BLOCK, dtype=visible.dtype)

    def one(query: tuple[Array, Array, Array]) -> Array:
        """The sum over earlier blocks, and over the visible sources of the query's own block."""
        features, place, seen = query
        pairs = rows[place] @ features
        pairs = jnp.where(place * _BLOCK + within < seen, pairs, 0.0)
        return features @ before[place] + pairs @ columns[place]

    return jax.lax.map(one, (queries, block, visible), batch_size=_BLOCK)


def _in_blocks(rows: Float[Array, "n c"]) -> Float[Array, "b s c"]:
    """Rows cut into blocks, the last one filled up with zeros."""
    padded = jnp.pad(rows, ((0, -len(rows) % _BLOCK), (0, 0)))
    return padded.reshape(-1, _BLOCK, rows.shape[1])
