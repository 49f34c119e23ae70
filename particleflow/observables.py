"""What is measured while a measure moves.

An observable is any function of the `Present` of a run (time, state, measure, velocity, …) that returns an array; its
name in the trajectory is its `__name__` (or `name`; those with parameters take one, so that two of a kind can be stored
side by side). It is evaluated at the saved state, inside the compiled run.
A function of three arguments is asked with (flow, time, measure) instead, and those below can be asked so outside of a
run: `energy(flow, 0.0, measure)`. Sums over all pairs go through the same summation as the drift; only quantities that
need the whole Gram matrix hold it, and say so.

Everything is weighted: means are over the weights normalised to Σ w_i = 1, pairs i ≠ j weigh w_i w_j, and points of
weight zero do not count. Energies and dissipation are integrals over μ as it is, whatever its mass.

Of a density, whose points are places and no particles, pairs are pairs of independent draws: a place is paired with
itself, too. What counts particles (a diameter, rows of attention) is refused.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._arrays import as_float_array
from particleflow._shown import shown
from particleflow.discretization import Present
from particleflow.errors import ArgumentError
from particleflow.geometry import directions
from particleflow.kernels.base import inner_products, squared_distances
from particleflow.measure import Measure

__all__ = [
    "Observable",
    "PairFraction",
    "SimilarityQuantiles",
    "attention_entropy",
    "attention_rank",
    "centre",
    "covariance",
    "diameter",
    "dissipation",
    "effective_rank",
    "energy",
    "entropy",
    "log_energy",
    "mean_similarity",
    "measured",
    "name_of",
    "observable",
    "order_parameter",
    "speed",
]

Observable = Callable[..., Any]


def name_of(observable: Any) -> str:
    """The name under which an observable is stored."""
    name = getattr(observable, "name", None) or getattr(observable, "__name__", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ArgumentError(f"An observable needs a name that is an identifier, but {observable!r} has {name!r}.")
    return name


def measured(observable: Observable, present: Present) -> Array:
    """The value of an observable at present."""
    try:
        required = [
            each
            for each in inspect.signature(observable).parameters.values()
            if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) and each.default is each.empty
        ]
    except (TypeError, ValueError):  # a built-in tells nothing of its arguments
        required = [None]
    if len(required) == 1:
        return jnp.asarray(observable(present))
    if len(required) == 3:
        return jnp.asarray(observable(present.flow, present.time, present.measure))
    raise ArgumentError(
        f"The observable {name_of(observable)} must be a function of the present, or of flow, time and measure, "
        f"but takes {len(required)} arguments."
    )


def observable(function: Callable[[Present], Array]) -> Callable[..., Array]:
    """A function of the present that can also be asked of particles by themselves: f(flow, time, measure)."""

    @wraps(function)
    def asked(*given: Any) -> Array:
        if len(given) == 1:
            return function(given[0])
        flow, time, measure = given
        return function(Present.of(flow, measure, time))

    return asked


@observable
def energy(present: Present) -> Float[Array, ""]:
    """E = (1/2β) ∬ K dμ dμ of the first kernel that acts (β = 1/width² for a Gaussian).

    A kernel that looks at fixed data ν counts each pair once: E = (1/β) ∬ K dμ dν. Then dE/dt = `dissipation` in both.
    """
    return jnp.exp(_log_pairs(present)) / _pair_factor(present)


@observable
def log_energy(present: Present) -> Float[Array, ""]:
    """log E, which does not overflow at large β."""
    return _log_pairs(present) - jnp.log(_pair_factor(present))


@observable
def dissipation(present: Present) -> Float[Array, ""]:
    """∫ Z |ẋ|² dμ, Z = ∫ K dν for row-normalised attention and 1 otherwise.

    This is dE/dt where the drift is the gradient flow of E: Q = K = V = 1 on the unit sphere, MeanShift in R^d.
    """
    present = present.condensed
    interaction, weights = present.interaction, present.measure.log_weights
    log_factor = interaction.log_mass(present.seen) if interaction.normalization == "row" else jnp.zeros_like(weights)
    return jnp.sum(jnp.exp(weights + log_factor) * jnp.sum(jnp.square(present.velocity), axis=1))


@observable
def order_parameter(present: Present) -> Float[Array, ""]:
    """|∫ x/|x| dμ|: 0 for a balanced cloud, 1 at consensus."""
    measure = present.measure
    return jnp.linalg.norm(_shares(measure) @ directions(measure.points))


@observable
def centre(present: Present) -> Float[Array, " d"]:
    """The mean ∫ x dμ; its path is the drift of the centre."""
    return _shares(present.measure) @ present.measure.points


@observable
def covariance(present: Present) -> Float[Array, "d d"]:
    """∫ (x − c)(x − c)ᵀ dμ about the centre c."""
    measure = present.measure
    weights = _shares(measure)
    centred = measure.points - (weights @ measure.points)[None, :]
    return centred.T @ (weights[:, None] * centred)


@observable
def mean_similarity(present: Present) -> Float[Array, ""]:
    """The mean of ⟨x, y⟩/(|x||y|) over pairs of different particles, without forming the pairs.

    Σ_{i≠j} w_i w_j ⟨u_i, u_j⟩ / Σ_{i≠j} w_i w_j = (|Σ w_i u_i|² − Σ w_i² |u_i|²) / (1 − Σ w_i²), u = x/|x|; 0 for one.
    """
    measure = present.measure
    weights, units = _shares(measure), directions(measure.points)
    if not present.discretization.atoms:
        return jnp.sum(jnp.square(weights @ units))
    alone = jnp.sum(jnp.square(weights[:, None] * units))
    return _over_pairs(jnp.sum(jnp.square(weights @ units)) - alone, weights)


@observable
def diameter(present: Present) -> Float[Array, ""]:
    """The largest distance between two particles that have weight; 0 at consensus."""
    present.of_particles("The diameter is that of particles, and a density is nowhere quite zero")
    measure = present.condensed.measure
    counts = measure.log_weights > -jnp.inf

    def farthest(row: tuple[Array, Array]) -> Array:
        squares = squared_distances(row[0][None, :], measure.points)[0]
        return jnp.max(jnp.where(counts & row[1], squares, 0.0))

    squares = jnp.max(jax.lax.map(farthest, (measure.points, counts), batch_size=64))
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1.0)), 0.0)


@observable
def entropy(present: Present) -> Float[Array, ""]:
    """−∫ log(dμ/dx) dμ, x the length, area or volume of the space; for discretizations that know the density."""
    logs = present.discretization.log_density(present.flow, present.time, present.state)
    if logs is None:
        raise ArgumentError(
            "The entropy needs a density, which particles have not; use a discretization that carries one, such as "
            "finite_volumes."
        )
    weights = _shares(present.measure)
    return -jnp.sum(jnp.where(weights > 0, weights * jnp.where(weights > 0, logs, 0.0), 0.0))


@observable
def speed(present: Present) -> Float[Array, ""]:
    """The root mean square √(∫ |ẋ|² dμ) of the velocity of the stored points."""
    present = present.condensed
    squares = _shares(present.measure) @ jnp.sum(jnp.square(present.velocity), axis=1)
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1.0)), 0.0)


@observable
def effective_rank(present: Present) -> Float[Array, ""]:
    """exp of the entropy of the normalised spectrum of ∫ x xᵀ dμ: the number of directions in use."""
    measure = present.measure
    spectrum = jnp.linalg.eigvalsh(measure.points.T @ (_shares(measure)[:, None] * measure.points))
    return jnp.exp(_entropy(jnp.maximum(spectrum, 0.0) / jnp.sum(jnp.maximum(spectrum, 0.0))))


@observable
def attention_entropy(present: Present) -> Float[Array, ""]:
    """The mean entropy −Σ_j A_ij log A_ij of the attention rows, in nats (forms the n×n matrix)."""
    present.of_particles("The entropy of attention grows with the number of particles that share it")
    rows = jax.vmap(_entropy)(present.interaction.attention(present.seen))
    return _shares(present.measure) @ rows


@observable
def attention_rank(present: Present) -> Float[Array, ""]:
    """The numerical rank of the attention matrix: singular values above 1e-6 of the largest (forms the n×n matrix).

    Rows and columns of particles without weight do not count.
    """
    present.of_particles("The rank of attention is that of a matrix of particles")
    rows = present.interaction.attention(present.seen)
    counts = present.measure.log_weights > -jnp.inf
    singular = jnp.linalg.svd(jnp.where(counts[:, None], rows, 0.0), compute_uv=False)
    return jnp.sum(singular > 1e-6 * singular[0]).astype(rows.dtype)


class SimilarityQuantiles(eqx.Module):
    """Quantiles of ⟨x, y⟩/(|x||y|) over pairs of different particles (forms the n×n matrix).

    With equal weights these are the linearly interpolated sample quantiles; in general the quantile at level p
    interpolates the pairs, in order, at the places (Σ_{k<l} m_k)/(1 − m_l), m the share of each pair's weight. Without
    a pair, where fewer than two particles have weight, they are NaN.
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
        units, weights = directions(measure.points), _shares(measure)
        first, second = jnp.triu_indices(measure.count, 1 if present.discretization.atoms else 0)
        pairs = inner_products(units, units)[first, second]
        twice = jnp.where(first == second, 0.5, 1.0).astype(pairs.dtype)  # of two places each is the first one once
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
        measure, atoms = present.measure, present.discretization.atoms
        units, weights = directions(measure.points), _shares(measure)

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


def _log_pairs(present: Present) -> Float[Array, ""]:
    """log ∬ K dμ dν for the measure ν that the first kernel looks at."""
    seen = present.condensed.seen
    return jax.nn.logsumexp(seen.log_weights + present.interaction.log_mass(seen))


def _pair_factor(present: Present) -> Array:
    """2β where particles look at each other, β where they look at fixed data; kernels without a β have 1."""
    interaction = present.interaction
    inverse = interaction.kernel.inverse_temperature()
    beta = jnp.asarray(1.0) if inverse is None else jnp.where(inverse == 0, 1.0, inverse)
    return beta if interaction.data is not None else 2 * beta


def _shares(measure: Measure) -> Float[Array, " n"]:
    """The weights, normalised to sum to one."""
    return jnp.exp(measure.log_weights - measure.log_mass)


def _over_pairs(total: Array, weights: Array) -> Array:
    """A weighted sum over pairs i ≠ j as their mean; 0 where there is no pair."""
    pairs = 1 - jnp.sum(jnp.square(weights))
    some = pairs > 4 * jnp.finfo(pairs.dtype).eps
    return jnp.where(some, total / jnp.where(some, pairs, 1.0), 0.0)


def _entropy(shares: Float[Array, " n"]) -> Float[Array, ""]:
    return -jnp.sum(jnp.where(shares > 0, shares * jnp.log(jnp.where(shares > 0, shares, 1.0)), 0.0))


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


def __dir__() -> list[str]:
    return __all__
