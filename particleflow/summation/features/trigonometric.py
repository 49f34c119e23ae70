"""Trigonometric features: waves that are in phase where two points are close.

    fourier   φ(u) = √(2/R) (cos⟨w_r, u⟩, sin⟨w_r, u⟩), r = 1, …, R/2      Var κ̂ = (½(1 + κ(2u, 2v)) − κ²) · 2/R
    phase     φ(u) = √(2/R) cos(⟨w_r, u⟩ + b_r), r = 1, …, R, b uniform     Var κ̂ = (1 + ½κ(2u, 2v) − κ²) / R

R counts the columns of φ in both. For Gaussians κ(2u, 2v) = κ⁴, so that the variances are (1 − κ²)²/R and
(1 − κ² + ½κ⁴)/R. Source: Rahimi and Recht (2007); Sutherland and Schneider, On the error of random Fourier features
(2015).

The waves have both signs, and so has their sum: where sources are far, a mass can come out negative. Such a query has
no log-mass and no mean; both are NaN there, so that it shows. A mass is off by about the whole mass times R^{−½}, and
one that is smaller than this is noise even where it is positive.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.summation.exact.blocks import blocks
from particleflow.summation.features.positive_definite import LowRankForm
from particleflow.summation.moments import Moments, Sums, finite_maximum

_BLOCK = 2**19  # so many entries of φ at once


def waves(
    places: Float[Array, "n k"], frequencies: Float[Array, "r k"], phases: Float[Array, " r"] | None
) -> Float[Array, "n R"]:
    """φ(u) of some places: a cosine and a sine for each frequency, or a cosine with its phase."""
    angles = jnp.matmul(places, frequencies.T, precision=jax.lax.Precision.HIGHEST)
    if phases is None:
        both = jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=1)
        return both / len(frequencies) ** 0.5
    return jnp.cos(angles + phases[None]) * (2 / len(frequencies)) ** 0.5


def trigonometric_moments(
    form: LowRankForm,
    values: Float[Array, "n k"],
    frequencies: Float[Array, "r k"],
    phases: Float[Array, " r"] | None = None,
) -> Moments:
    """The moments by Σ_j e^{B_j} φ(v_j) (z_j, 1), seen through φ(u): O((m + n) R), block after block."""
    shift = finite_maximum(form.key_offsets[None])[0]
    columns = jnp.concatenate([values, jnp.ones_like(values[:, :1])], axis=1)
    weighted = jnp.exp(form.key_offsets - shift)[:, None] * columns
    rank = len(frequencies) * (2 if phases is None else 1)
    rows = max(1, min(_BLOCK // rank, len(form.keys)))

    def add(so_far: Array, block: tuple[Array, Array]) -> tuple[Array, None]:
        piece = waves(block[0], frequencies, phases)
        return so_far + jnp.matmul(piece.T, block[1], precision=jax.lax.Precision.HIGHEST), None

    missing = -len(weighted) % rows
    pieces = blocks(form.keys, rows), jnp.pad(weighted, ((0, missing), (0, 0))).reshape(-1, rows, columns.shape[1])
    nothing = jnp.zeros((rank, columns.shape[1]), values.dtype)
    total = jax.lax.scan(jax.checkpoint(add), nothing, pieces)[0]

    def see(block: Array) -> Array:
        return jnp.matmul(waves(block, frequencies, phases), total, precision=jax.lax.Precision.HIGHEST)

    count = len(form.queries)
    found = jax.lax.map(jax.checkpoint(see), blocks(form.queries, max(1, min(_BLOCK // rank, count))))
    return signed_moments(form, shift, found.reshape(-1, columns.shape[1])[:count])


def signed_moments(form: LowRankForm, shift: Array, sums: Float[Array, "m k+1"]) -> Moments:
    """The moments of e^{A + shift} · sums, whose last column is a mass of either sign: NaN where it is not positive.

    Where all offsets are −∞ there is no mass to have a sign: the result is (−∞, 0), not NaN.
    """
    seen = jnp.any(form.key_offsets > -jnp.inf)
    wrong = seen & ~(sums[:, -1] > 0)
    return Sums(form.query_offsets + shift, jnp.where(wrong[:, None], jnp.nan, sums)).moments()
