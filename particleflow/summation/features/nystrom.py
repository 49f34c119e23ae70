"""Nyström's method: the kernel between all points, through its values at a few landmarks among them.

    κ̂(u, v) = κ(u, L) (κ(L, L) + λ)⁻¹ κ(L, v)

Landmarks are sources, chosen one after the other: each is the one that the kernel of those before explains worst, the
farthest from their span in the space of κ (a Cholesky factorisation with the largest pivot), among candidates drawn by
the seed without replacement and in proportion to their weights. λ, a few rounding units, keeps the factorisation
stable where landmarks nearly coincide. The residual κ − κ̂ is positive semi-definite, so

    |κ − κ̂|(u, v) ≤ (ρ(u) ρ(v))^{1/2},    ρ(v) = 1 − κ̂(v, v),

a deterministic bound. Masses can be negative where that bound exceeds them: NaN, as for trigonometric features.
Sources: Williams and Seeger, Using the Nyström method to speed up kernel machines (2001); Fine and Scheinberg,
Efficient SVM training using low-rank kernel representations (2001).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from particleflow.measure import Measure
from particleflow.summation.features.positive_definite import Curves, LowRankForm
from particleflow.summation.features.trigonometric import signed_moments
from particleflow.summation.moments import Moments, finite_maximum
from particleflow.summation.native.native import Native

CANDIDATES_A_LANDMARK = 4
REGULARISATION_ULPS = 10.0  # λ, in eps · number of landmarks
PIVOT_ULPS = 10  # a residual 1 − κ̂(v, v) below so many eps counts as 0


def nystrom_moments(form: LowRankForm, values: Float[Array, "n k"], landmarks: Float[Array, "r k"]) -> Moments:
    """The moments by two exact sums and one solve: O((m + n) R + R³)."""
    exact = Native()
    seen = exact.moments(form.kernel, Measure(form.keys, form.key_offsets, values), landmarks)
    shift = finite_maximum(seen.log_mass[None])[0]
    columns = jnp.concatenate([seen.mean, jnp.ones_like(seen.mean[:, :1])], axis=1)
    masses = jnp.exp(seen.log_mass - shift)[:, None] * columns
    coefficients = jax.scipy.linalg.cho_solve((factor(form.kernel, landmarks), True), masses)
    flat = jnp.zeros(len(landmarks), values.dtype)
    found = exact.moments(form.kernel, Measure(landmarks, flat, coefficients), form.queries)
    return signed_moments(form, shift + found.log_mass, found.mean)


@eqx.filter_jit
def factor(kernel: Curves, landmarks: Float[Array, "r k"]) -> Float[Array, "r r"]:
    """The lower Cholesky factor of κ(L, L) + λ for landmarks L."""
    rounding = REGULARISATION_ULPS * len(landmarks) * float(jnp.finfo(landmarks.dtype).eps)
    inner = jnp.exp(kernel.log_matrix(landmarks, landmarks))
    return jnp.linalg.cholesky(inner + rounding * jnp.eye(len(landmarks), dtype=inner.dtype))


@eqx.filter_jit
def chosen_landmarks(seed: int, form: LowRankForm, log_weights: Float[Array, " n"], rank: int) -> Array:
    """The places of R sources, or of all where there are fewer; which ones they are has no derivative."""
    count = len(form.keys)
    pool = min(count, CANDIDATES_A_LANDMARK * rank)
    noise = jax.random.gumbel(jax.random.key(seed), (count,), form.keys.dtype)
    drawn = jax.lax.top_k(jax.lax.stop_gradient(log_weights) + noise, pool)[1]
    places = form.keys[drawn]
    kernel, still = jax.tree_util.tree_map(jax.lax.stop_gradient, (form.kernel, places))
    return places[pivots(kernel, still, min(rank, pool))]


def pivots(kernel: Curves, places: Float[Array, "n k"], rank: int) -> Int[Array, " rank"]:
    """Places in the order of a Cholesky factorisation that takes the largest diagonal entry left."""

    def step(index: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        rows, left, taken = state
        pivot = jnp.argmax(left).astype(jnp.int32)
        column = jnp.exp(kernel.log_matrix(places, places[pivot][None]))[:, 0] - rows @ rows[pivot]
        explained = left[pivot] < rounding  # all residuals are rounding: any other place does as well
        column = jnp.where(explained, 0.0, column / jnp.sqrt(jnp.where(explained, 1.0, left[pivot])))
        left = jnp.where(left < 0, left, jnp.maximum(left - jnp.square(column), 0.0)).at[pivot].set(-1.0)
        return rows.at[:, index].set(column), left, taken.at[index].set(pivot)

    count, rounding = len(places), PIVOT_ULPS * float(jnp.finfo(places.dtype).eps)
    start = jnp.zeros((count, rank), places.dtype), jnp.ones(count, places.dtype), jnp.zeros(rank, jnp.int32)
    return jax.lax.fori_loop(0, rank, step, start)[2]
