"""Similarities and distances of all pairs, and how attention is shared among them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array
from particleflow._support.representation import shown
from particleflow.discretization import Present
from particleflow.discretization.discretization_capabilities import CarriesDensity
from particleflow.dynamics.geometry import directions
from particleflow.kernels.base import inner_products, squared_distances
from particleflow.simulation.observables.base import entropy_of, name_of, observable, shares_of


@observable
def mean_similarity(present: Present) -> Float[Array, ""]:
    """The mean of ⟨x, y⟩/(|x||y|) over pairs of different particles, without forming the pairs.

    Σ_{i≠j} w_i w_j ⟨u_i, u_j⟩ / Σ_{i≠j} w_i w_j = (|Σ w_i u_i|² − Σ w_i² |u_i|²) / (1 − Σ w_i²), u = x/|x|; 0 if n = 1.
    """
    measure = present.measure
    weights, units = shares_of(measure), directions(measure.points)
    if isinstance(present.discretization, CarriesDensity):
        return jnp.sum(jnp.square(weights @ units))
    alone = jnp.sum(jnp.square(weights[:, None] * units))
    return _over_pairs(jnp.sum(jnp.square(weights @ units)) - alone, weights)


@observable
def diameter(present: Present) -> Float[Array, ""]:
    """The largest distance between two particles that have weight; 0 at consensus."""
    present.of_particles("The diameter is that of particles, and a density is nowhere quite zero")
    measure = present.reduced.measure
    counts = measure.log_weights > -jnp.inf

    def farthest(row: tuple[Array, Array]) -> Array:
        squares = squared_distances(row[0][None, :], measure.points)[0]
        return jnp.max(jnp.where(counts & row[1], squares, 0.0))

    squares = jnp.max(jax.lax.map(farthest, (measure.points, counts), batch_size=64))
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1.0)), 0.0)


@observable
def attention_entropy(present: Present) -> Float[Array, ""]:
    """The mean entropy −Σ_j A_ij log A_ij of the attention rows, in nats (forms the n×n matrix)."""
    present.of_particles("The entropy of attention grows with the number of particles that share it")
    rows = jax.vmap(entropy_of)(present.interaction.attention(present.observed))
    return shares_of(present.measure) @ rows


@observable
def attention_rank(present: Present) -> Float[Array, ""]:
    """The numerical rank of the attention matrix: singular values above 1e-6 of the largest (forms the n×n matrix).

    Rows and columns of particles without weight do not count.
    """
    present.of_particles("The rank of attention is that of a matrix of particles")
    rows = present.interaction.attention(present.observed)
    counts = present.measure.log_weights > -jnp.inf
    singular = jnp.linalg.svd(jnp.where(counts[:, None], rows, 0.0), compute_uv=False)
    return jnp.sum(singular > 1e-6 * singular[0]).astype(rows.dtype)


class SimilarityQuantiles(eqx.Module):
    """Quantiles of ⟨x, y⟩/(|x||y|) over pairs of different particles (forms the n×n matrix).

    With equal weights these are the linearly interpolated sample quantiles; in general the quantile at level p
    interpolates the sorted pairs at the places (Σ_{k<l} m_k)/(1 − m_l), m the share of each pair's weight; equal values
    are sorted by weight. Without a pair, where fewer than two particles have weight, they are NaN.
    """

    levels: Float[Array, " q"]
    name: str = eqx.field(static=True)

    def __init__(self, levels: Any = (0.05, 0.25, 0.5, 0.75, 0.95), name: str = "similarity_quantiles"):
        self.levels = as_float_array(levels, "levels")
        self.name = name

    def __check_init__(self):
        name_of(self)

    def __call__(self, present: Present) -> Float[Array, " q"]:
        """The quantiles at the given levels."""
        measure = present.measure
        if measure.count < 2:
            return jnp.full(self.levels.shape, jnp.nan, measure.points.dtype)
        units, weights = directions(measure.points), shares_of(measure)
        first, second = jnp.triu_indices(measure.count, 0 if isinstance(present.discretization, CarriesDensity) else 1)
        pairs = inner_products(units, units)[first, second]
        # Of all n² pairs of places (i, j) those with i ≠ j occur twice, (i, i) once.
        twice = jnp.where(first == second, 0.5, 1.0).astype(pairs.dtype)
        return _weighted_quantiles(pairs, twice * weights[first] * weights[second], self.levels.astype(pairs.dtype))

    def __repr__(self) -> str:
        return shown(self)


class PairFraction(eqx.Module):
    """The share of pairs of different particles with ⟨x, y⟩/(|x||y|) above `threshold`."""

    threshold: Float[Array, ""]
    name: str = eqx.field(static=True)

    def __init__(self, threshold: Any = 0.999, name: str = "pair_fraction"):
        self.threshold = jnp.asarray(float(threshold))
        self.name = name

    def __check_init__(self):
        name_of(self)

    def __call__(self, present: Present) -> Float[Array, ""]:
        """The share of close pairs."""
        measure, atoms = present.measure, not isinstance(present.discretization, CarriesDensity)
        units, weights = directions(measure.points), shares_of(measure)

        def close(row: tuple[Array, Array]) -> Array:
            near = inner_products(row[0][None, :], units)[0] > self.threshold
            return row[1] * (jnp.sum(jnp.where(near, weights, 0.0)) - (row[1] if atoms else 0.0))

        alone = jnp.sum(jnp.square(units), axis=1) <= self.threshold  # a zero vector is not close to itself
        total = jnp.sum(jax.lax.map(close, (units, weights), batch_size=256))
        if not atoms:
            return total
        return _over_pairs(total + jnp.sum(jnp.where(alone, jnp.square(weights), 0.0)), weights)

    def __repr__(self) -> str:
        return shown(self)


def _over_pairs(total: Array, weights: Array) -> Array:
    """A weighted sum over pairs i ≠ j as their mean; 0 where there is no pair."""
    pairs = 1 - jnp.sum(jnp.square(weights))
    some = pairs > 4 * jnp.finfo(pairs.dtype).eps
    return jnp.where(some, total / jnp.where(some, pairs, 1.0), 0.0)


def _weighted_quantiles(values: Array, weights: Array, levels: Array) -> Array:
    """Quantiles of weighted numbers, those of weight zero left out; interpolated as `numpy.quantile` does; NaN of none.

    Equal numbers are taken in the order of their weights, so that the order in which they are given does not matter.
    """
    order = jnp.lexsort((weights, jnp.where(weights > 0, values, jnp.inf)))
    total = jnp.sum(weights)
    values, shares = values[order], weights[order] / jnp.where(total > 0, total, 1.0)
    before = jnp.cumsum(shares) - shares
    places = jnp.where(shares > 0, before / jnp.where(shares < 1, 1 - shares, 1.0), 2.0)
    last = values[jnp.sum(shares > 0) - 1]
    found = jnp.interp(levels, places, jnp.where(shares > 0, values, last))
    return jnp.where(total > 0, found, jnp.nan)
