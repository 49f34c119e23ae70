"""Draws on the unit sphere: uniform, and von Mises–Fisher."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import default_dtype


def sample_uniform_sphere(key: Array, dimension: int, count: int, dtype=None) -> Float[Array, "count d"]:
    """Independent uniform points on S^{d−1}: normalised Gaussian vectors."""
    normal = jax.random.normal(key, (count, dimension), dtype or default_dtype())
    return normal / jnp.linalg.norm(normal, axis=1, keepdims=True)


def sample_von_mises_fisher(key: Array, parameter: Float[Array, " d"], count: int) -> Float[Array, "count d"]:
    """Independent draws with density ∝ e^{⟨θ, x⟩} on S^{d−1}.

    The projection on θ/|θ| is drawn by Wood's rejection from a transformed beta variable; the rest is a uniform
    direction in the orthogonal complement.
    """
    dimension = parameter.shape[0]
    concentration = jnp.linalg.norm(parameter)
    first = jnp.zeros(dimension, parameter.dtype).at[0].set(1.0)
    axis = jnp.where(concentration > 0, parameter / jnp.maximum(concentration, jnp.finfo(parameter.dtype).tiny), first)
    key_projection, key_direction = jax.random.split(key)
    projection = _sample_projection(key_projection, concentration, dimension, count)
    around = jax.random.normal(key_direction, (count, dimension), parameter.dtype)
    around = around - (around @ axis)[:, None] * axis[None, :]
    around = around / jnp.linalg.norm(around, axis=1, keepdims=True)
    height = jnp.sqrt(jnp.maximum(1 - jnp.square(projection), 0.0))
    return projection[:, None] * axis[None, :] + height[:, None] * around


def _sample_projection(key: Array, concentration: Array, dimension: int, count: int) -> Float[Array, " count"]:
    """Draws of t with density ∝ e^{κt} (1 − t²)^{(d−3)/2} on [−1, 1]."""
    rest = dimension - 1.0
    slope = rest / (2 * concentration + jnp.sqrt(4 * jnp.square(concentration) + rest**2))
    peak = (1 - slope) / (1 + slope)
    level = concentration * peak + rest * jnp.log1p(-jnp.square(peak))

    def propose(key: Array) -> tuple[Array, Array]:
        key_beta, key_accept = jax.random.split(key)
        beta = jax.random.beta(key_beta, rest / 2, rest / 2, dtype=concentration.dtype)
        draw = (1 - (1 + slope) * beta) / (1 - (1 - slope) * beta)
        log_ratio = concentration * draw + rest * jnp.log1p(-peak * draw) - level
        return draw, log_ratio >= jnp.log(jax.random.uniform(key_accept, dtype=concentration.dtype))

    def one(key: Array) -> Array:
        def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            key, key_now = jax.random.split(state[0])
            draw, accepted = propose(key_now)
            return key, draw, accepted

        key, key_now = jax.random.split(key)
        draw, accepted = propose(key_now)
        return jax.lax.while_loop(lambda state: ~state[2], step, (key, draw, accepted))[1]

    return jax.vmap(one)(jax.random.split(key, count))
