"""Where the measure is, how wide it is, and how far from a normal law."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow.discretization import Present
from particleflow.discretization.discretization_capabilities import HasLogDensity
from particleflow.dynamics.geometry import NormalisesTheSet, directions
from particleflow.dynamics.normal_law import first_moments, spd_power
from particleflow.errors import ArgumentError
from particleflow.measure import Measure
from particleflow.simulation.observables.base import entropy_of, observable, shares_of

_SLICES = 64


@observable
def order_parameter(present: Present) -> Float[Array, ""]:
    """|∫ x/|x| dμ|: 0 for a balanced cloud, 1 at consensus."""
    measure = present.measure
    return jnp.linalg.norm(shares_of(measure) @ directions(measure.points))


@observable
def centre(present: Present) -> Float[Array, " d"]:
    """The mean ∫ x dμ; its path is the drift of the centre."""
    return shares_of(present.measure) @ present.measure.points


@observable
def covariance(present: Present) -> Float[Array, "d d"]:
    """∫ (x − c)(x − c)ᵀ dμ about the centre c."""
    measure = present.measure
    weights = shares_of(measure)
    centred = measure.points - (weights @ measure.points)[None, :]
    return centred.T @ (weights[:, None] * centred)


@observable
def largest_variance(present: Present) -> Float[Array, ""]:
    """The largest eigenvalue λ of the covariance."""
    return jnp.linalg.eigvalsh(covariance(present))[-1]


@observable
def blow_up_time(present: Present) -> Float[Array, ""]:
    """t + λ/λ̇ for the largest variance λ: the pole t* if λ = c/(t* − t); a value before t means that λ shrinks.

    This is exact for a Gaussian on the line under softmax attention, and tends to the time of every simple pole. It is
    ∞ where the geometry keeps the covariance constant, λ̇ = 0.
    """
    measure = present.measure
    space = present.flow.geometry
    # Where the covariance is constant, λ̇ from velocities would be rounding alone.
    if isinstance(space, NormalisesTheSet) and space.holds_covariance(measure.dimension):
        return jnp.full_like(present.time, jnp.inf)
    velocity = present.velocity
    weights = shares_of(measure)
    values, axes = jnp.linalg.eigh(covariance(present))
    along = (measure.points - (weights @ measure.points)[None, :]) @ axes[:, -1]
    growth = 2 * weights @ (along * (velocity @ axes[:, -1]))
    return present.time + values[-1] / growth


@observable
def entropy(present: Present) -> Float[Array, ""]:
    """−∫ log(dμ/dx) dμ, x the length, area or volume of the space; for discretizations that have a density."""
    how = present.discretization
    if not isinstance(how, HasLogDensity):
        raise ArgumentError(
            "The entropy needs a density, which particles do not have; use a discretization that carries one, such as "
            "finite_volumes, spectral, gaussian or characteristics."
        )
    logs = how.log_density(present.flow, present.time, present.state)
    weights = shares_of(present.measure)
    return -jnp.sum(jnp.where(weights > 0, weights * jnp.where(weights > 0, logs, 0.0), 0.0))


@observable
def excess_kurtosis(present: Present) -> Float[Array, ""]:
    """E|z|⁴ − d(d + 2) of the standardised points z = S^{−½}(x − c) (Mardia 1970): 0 for a Gaussian, −2 for two atoms.

    In d dimensions it is at least −2d, where all points have the same |z|.
    """
    standard, weights = _standardised(present.measure)
    dimension = standard.shape[1]
    return weights @ jnp.square(jnp.sum(jnp.square(standard), axis=1)) - dimension * (dimension + 2)


@observable
def gaussian_distance(present: Present) -> Float[Array, ""]:
    """W₂ of the standardised points to the standard normal law, on the line; in R^d of their projections, sliced.

    W₂² = 2 − 2 Σ_j z_(j) (φ(q_{j−1}) − φ(q_j)) with q_j = Φ^{−1}(w_1 + … + w_j) for sorted z: exact for atoms against a
    continuous law. In R^d it is the root mean square over 64 directions that are always the same.
    """
    standard, weights = _standardised(present.measure)
    if standard.shape[1] == 1:
        ways = np.ones((1, 1))
    else:  # the same in every precision
        ways = np.random.default_rng(0).normal(size=(_SLICES, standard.shape[1]))
        ways /= np.linalg.norm(ways, axis=1, keepdims=True)
    slices = jnp.asarray(ways, standard.dtype)
    squares = jax.lax.map(lambda way: _squared_distance_to_normal(standard @ way, weights), slices)
    return jnp.sqrt(jnp.maximum(jnp.mean(squares), 0.0))


@observable
def effective_rank(present: Present) -> Float[Array, ""]:
    """exp of the entropy of the normalised spectrum of ∫ x xᵀ dμ: the number of directions in use.

    It is 1 where all points are on one line through the origin, and 0 where all are at the origin.
    """
    measure = present.measure
    spectrum = jnp.linalg.eigvalsh(measure.points.T @ (shares_of(measure)[:, None] * measure.points))
    spectrum = jnp.maximum(spectrum, 0.0)
    whole = jnp.sum(spectrum)
    return jnp.where(whole > 0, jnp.exp(entropy_of(spectrum / jnp.where(whole > 0, whole, 1.0))), 0.0)


def _standardised(measure: Measure) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
    """S^{−½}(x − c), and the shares."""
    weights = shares_of(measure)
    mean, spread = first_moments(measure.points, weights)
    return (measure.points - mean[None, :]) @ spd_power(spread, -0.5), weights


def _squared_distance_to_normal(numbers: Float[Array, " n"], weights: Float[Array, " n"]) -> Float[Array, ""]:
    """W₂² of weighted numbers to N(0, 1)."""
    order = jnp.argsort(numbers)
    numbers, weights = numbers[order], weights[order]
    levels = jnp.clip(jnp.cumsum(weights), 0.0, 1.0).at[-1].set(1.0)
    heights = jax.scipy.stats.norm.pdf(jax.scipy.special.ndtri(levels))
    before = jnp.concatenate([jnp.zeros_like(heights[:1]), heights[:-1]])
    return 1 + weights @ jnp.square(numbers) - 2 * jnp.sum(numbers * (before - heights))
