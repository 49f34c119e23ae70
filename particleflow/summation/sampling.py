"""Points drawn ∝ K(x, y) dμ(y) without ever normalising, by the Gumbel-max trick.

    argmax_j (log K(x, y_j) + log w_j + g_j)    with independent standard Gumbel noise g_j

is j with probability K(x, y_j) w_j / Σ_i K(x, y_i) w_i (Gumbel 1954; Maddison, Tarlow and Minka, A* sampling, 2014).
A maximum can be kept while blocks of sources go by. The noise of a source is a function of the key, the query and the
source's index alone, so that the draws do not depend on how the sources were cut. The cost is one random number a
query, source and draw.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from particleflow.errors import ArgumentError
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure, Sites
from particleflow.summation.base import AbstractSummation, lifted, logits_of
from particleflow.summation.exact.blocks import Sources, source_blocks


class DrawsPoints(AbstractSummation):
    """A summation that can draw points of the measure as well as sum over them."""

    @abc.abstractmethod
    def draw(
        self, key: Array, kernel: AbstractKernel, measure: Measure, queries: Any, draws: int
    ) -> Int[Array, "m draws"]:
        """Indices of points y drawn ∝ K(x, y) dμ(y), independently for each query; −1 where a query sees nothing.

        One key gives the same draws with every summation that draws.
        """


def check_draws(summation: AbstractSummation) -> DrawsPoints:
    """The summation, if it can draw points; else it is refused."""
    if not isinstance(summation, DrawsPoints):
        raise ArgumentError(
            f"The summation {type(summation).__name__} can only sum and cannot draw points; use `Dense` or `Blockwise`."
        )
    return summation


@eqx.filter_jit  # a loop outside `jit` would be compiled again at every call
def drawn_indices(
    key: Array, kernel: AbstractKernel, measure: Measure, queries: Sites, draws: int, source_block: int
) -> Int[Array, "m draws"]:
    """Indices of sources for every query, −1 where it sees nothing; memory O(source_block · draws)."""
    indices = jnp.arange(measure.count)
    # The fillers of the last block weigh nothing and are never drawn, whatever index they copy.
    sources = source_blocks(measure, indices, source_block)
    keys = jax.random.split(key, queries.points.shape[0])
    return jax.lax.map(lambda each: _drawn_by_one(each[0], kernel, each[1], sources, draws), (keys, queries))


def _drawn_by_one(key: Array, kernel: AbstractKernel, query: Sites, sources: Sources, draws: int) -> Int[Array, " d"]:
    """The source of the largest score, of each draw, kept while blocks of sources go by."""
    dtype = query.points.dtype

    def noise(index: Array) -> Array:
        return jax.random.gumbel(jax.random.fold_in(key, index), (draws,), dtype)

    def keep_best(so_far: tuple[Array, Array], block: Sources) -> tuple[tuple[Array, Array], None]:
        best, winner = so_far
        logits = logits_of(kernel, lifted(query), block[0], block[1])[0]
        scores = logits[:, None] + jax.vmap(noise)(block[2])
        row = jnp.argmax(scores, axis=0)
        score = jnp.take_along_axis(scores, row[None, :], axis=0)[0]
        better = score > best
        return (jnp.where(better, score, best), jnp.where(better, block[2][row], winner)), None

    no_source = jnp.full(draws, -jnp.inf, dtype), jnp.full(draws, -1, sources[2].dtype)
    return jax.lax.scan(keep_best, no_source, sources)[0][1]
