"""Energies of the interaction, what dissipates them, and how fast the points move."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.discretization import Present
from particleflow.simulation.observables.base import observable, shares_of


@observable
def energy(present: Present) -> Float[Array, ""]:
    """E = (1/2β) ∬ K dμ dμ of the first kernel that acts (β = 1/width² for a Gaussian).

    For a kernel of fixed data ν each pair counts once, E = (1/β) ∬ K dμ dν. In both cases dE/dt = `dissipation`.
    At consensus on the unit sphere, E = exp(β)/2β overflows from β ≈ 717 on (in single precision 94). Where a run
    is not known to stay below that, it records `log_energy` beside E by itself, which is shown where E overflowed.
    """
    return jnp.exp(_log_pairs(present)) / _pair_factor(present)


@observable
def log_energy(present: Present) -> Float[Array, ""]:
    """log E, computed without E, so that it is finite at any β."""
    return _log_pairs(present) - jnp.log(_pair_factor(present))


@observable
def dissipation(present: Present) -> Float[Array, ""]:
    """∫ Z |ẋ|² dμ, Z = ∫ K dν for row-normalised attention and 1 otherwise.

    This is dE/dt where the drift is the gradient flow of E: Q = K = V = 1 on the unit sphere, MeanShift in R^d.
    """
    present = present.reduced
    interaction, weights = present.interaction, present.measure.log_weights
    by_rows = interaction.normalization == "row"
    log_factor = interaction.log_mass(present.observed) if by_rows else jnp.zeros_like(weights)
    return jnp.sum(jnp.exp(weights + log_factor) * jnp.sum(jnp.square(present.velocity), axis=1))


@observable
def speed(present: Present) -> Float[Array, ""]:
    """The root mean square √(∫ |ẋ|² dμ) of the velocity of the stored points."""
    present = present.reduced
    squares = shares_of(present.measure) @ jnp.sum(jnp.square(present.velocity), axis=1)
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1.0)), 0.0)


def _log_pairs(present: Present) -> Float[Array, ""]:
    """log ∬ K dμ dν for the measure ν that the first kernel is summed over."""
    seen = present.reduced.observed
    return jax.nn.logsumexp(seen.log_weights + present.interaction.log_mass(seen))


def _pair_factor(present: Present) -> Array:
    """2β for the attention of particles to each other, β for that to fixed data; β = 1 for kernels without one."""
    interaction = present.interaction
    inverse = interaction.kernel.inverse_temperature()
    beta = jnp.asarray(1.0) if inverse is None else jnp.where(inverse == 0, 1.0, inverse)
    return beta if interaction.data is not None else 2 * beta
