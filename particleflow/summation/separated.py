"""Sums of kernels that are inner products of features: exact, and linear in the number of tokens.

    K(x, y) = ⟨φ(x), ψ(y)⟩,    Σ_j w_j K(x, y_j)(z_j, 1) = φ(x)ᵀ M,    M = Σ_j w_j ψ(y_j) ⊗ (z_j, 1)

Under a causal mask M is a sum over the past. Sources are put in the order of their positions and cut into blocks; M is
kept at the beginning of every block, and a query adds to it those of its own block that it may see: a block's worth of
pairs a query, whatever the number of sources. Positions may be anything, equal ones too, and queries need not be
sources. Nothing that a query does not see enters its sum, not even as a rounding error: earlier blocks are added up in
their order, and what is masked is a zero in a product. Source: Katharopoulos et al., Transformers are RNNs (2020),
where the past is a state that is carried along.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.errors import ArgumentError
from particleflow.kernels.base import AbstractKernel, positions_of
from particleflow.kernels.forms import Band, Separable
from particleflow.measure import Measure, Sites
from particleflow.moments import Moments, Sums
from particleflow.summation.base import (
    AbstractSummation,
    Choice,
    Limits,
    as_query_sites,
    check_precision,
    value_columns,
)

_BLOCK = 64  # sources between two places where the past is kept
_TOGETHER = 16  # blocks of a sequence that are summed at once: they fit into the cache


class Separated(AbstractSummation):
    """Features first, then sources, then queries: O((m + n) r) for r features, exact up to rounding.

    Kernels: one that offers features (`separable`), alone or times a causal mask, strict or not. Others are refused.
    """

    relative_time: ClassVar[float] = 1.0

    def moments(self, kernel: AbstractKernel, measure: Measure, queries: Any, values: Any = None) -> Moments:
        """The moments of `measure` under `kernel`, seen from each query."""
        sites = as_query_sites(queries)
        check_precision(kernel, measure, sites)
        form, mask = _parts(kernel)
        if form is None:
            raise ArgumentError(
                "The summation Separated cannot sum this kernel: it is no inner product of features, alone or times "
                "one causal mask."
            )
        # Weights may be as small as e^{−1000}: the largest is taken out of them, and goes back into the log-mass.
        shift = jax.lax.stop_gradient(jnp.max(measure.log_weights))
        weights = jnp.exp(measure.log_weights - shift)
        summed = jnp.pad(value_columns(measure, values), ((0, 0), (0, 1)), constant_values=1.0)
        asked, known = form.query_map(sites), weights[:, None] * form.key_map(measure.sites)
        if mask is None:
            sums = asked @ (known.T @ summed)
        else:
            times = positions_of(sites, "query"), positions_of(measure.sites, "measure")
            sums = _past_sums(asked, known, summed, *times, strict=bool(mask.least == 0))
        return Sums(jnp.full(len(asked), shift), sums).moments()

    def choices(self, kernel: AbstractKernel, measure: Measure, queries: Any) -> Iterator[Choice]:
        """Itself."""
        yield Choice(self, "as asked", cost=self._cost(measure, as_query_sites(queries)))

    def promise(self, kernel: AbstractKernel, measure: Measure, queries: Sites, limits: Limits) -> Choice | None:
        """Exact, for kernels of positive features, where there are more tokens than a block holds."""
        form, _ = _parts(kernel)
        positive = not any(factor.vanishes() for factor in kernel.factors() if factor.band() is None)
        if form is None or not positive or measure.count <= _BLOCK:
            return None
        return Choice(self, "features of the kernel, summed first", cost=self._cost(measure, queries))

    def _cost(self, measure: Measure, queries: Sites) -> float:
        return self.pairs(measure, queries) * _BLOCK / measure.count


def _parts(kernel: AbstractKernel) -> tuple[Separable | None, Band | None]:
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


def _past_sums(
    asked: Float[Array, "m r"],
    known: Float[Array, "n r"],
    summed: Float[Array, "n k"],
    times: Float[Array, " m"],
    positions: Float[Array, " n"],
    strict: bool,
) -> Float[Array, "m k"]:
    """Σ_{j: s_j ≤ t_i} ⟨asked_i, known_j⟩ summed_j, or s_j < t_i where it is strict.

    A sequence that looks at itself, in its order, needs no search: a query's block is that of its own place.
    """

    def search() -> Array:
        return _sought_sums(asked, known, summed, times, positions, strict)

    if times.shape != positions.shape:
        return search()
    in_order = jnp.all(times == positions) & jnp.all(positions[1:] > positions[:-1])
    return jax.lax.cond(in_order, lambda: _sums_in_order(asked, known, summed, strict), search)


def _sums_in_order(asked: Array, known: Array, summed: Array, strict: bool) -> Array:
    """The sums of a sequence over its own past, which is carried along: memory is read once, whatever its length."""
    together = min(_TOGETHER, -(-len(asked) // _BLOCK))
    rows = [_in_blocks(each, together * _BLOCK) for each in (asked, known, summed)]
    stretches = tuple(each.reshape(-1, together, _BLOCK, each.shape[-1]) for each in rows)
    seen = jnp.tril(jnp.ones((_BLOCK, _BLOCK), bool), -1 if strict else 0)

    def stretch(past: Array, blocks: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        """What earlier blocks hold, and what is earlier within each block."""
        queries, keys, columns = blocks
        after = past[None] + jnp.cumsum(jnp.einsum("bjr,bjk->brk", keys, columns), axis=0)
        before = jnp.concatenate([past[None], after[:-1]])
        pairs = jnp.where(seen[None], jnp.einsum("bir,bjr->bij", queries, keys), 0.0)
        return after[-1], jnp.einsum("bir,brk->bik", queries, before) + jnp.einsum("bij,bjk->bik", pairs, columns)

    nothing = jnp.zeros((known.shape[1], summed.shape[1]), summed.dtype)
    found = jax.lax.scan(jax.checkpoint(stretch), nothing, stretches)[1]
    return found.reshape(-1, found.shape[-1])[: len(asked)]


def _sought_sums(
    asked: Array, known: Array, summed: Array, times: Array, positions: Array, strict: bool
) -> Float[Array, "m k"]:
    """The sums of any queries over sources in any order."""
    order = jnp.argsort(positions)
    blocks, columns, positions = _in_blocks(known[order]), _in_blocks(summed[order]), positions[order]
    totals = jnp.einsum("bjr,bjk->brk", blocks, columns)
    before = jnp.pad(jnp.cumsum(totals[:-1], axis=0), ((1, 0), (0, 0), (0, 0)))  # of earlier blocks alone, to the bit
    visible = jnp.searchsorted(positions, times, side="left" if strict else "right")
    block = jnp.minimum(visible // _BLOCK, len(blocks) - 1)
    within = jnp.arange(_BLOCK, dtype=visible.dtype)

    def one(query: tuple[Array, Array, Array]) -> Array:
        """What earlier blocks hold, and those of the query's own block that it sees."""
        features, place, seen = query
        pairs = blocks[place] @ features
        pairs = jnp.where(place * _BLOCK + within < seen, pairs, 0.0)
        return features @ before[place] + pairs @ columns[place]

    return jax.lax.map(one, (asked, block, visible), batch_size=_BLOCK)


def _in_blocks(rows: Float[Array, "n c"], size: int = _BLOCK) -> Float[Array, "b s c"]:
    """Rows cut into blocks, the last one filled up with zeros."""
    padded = jnp.pad(rows, ((0, -len(rows) % size), (0, 0)))
    return padded.reshape(-1, size, rows.shape[1])
