"""Electrostatics in a periodic box: charges and all their copies on a cubic lattice, by Ewald's splitting (1921).

    φ(x_i) = Σ_j Σ_n q_j / |x_i − y_j + L n|,    without the pair of a charge with itself at n = 0

The sum converges for a neutral box only conditionally; Ewald's is the one of a medium that conducts at infinity. With
1/r = erfc(α r)/r + erf(α r)/r the first part falls like a Gaussian in space, and the second is smooth, so that its
Fourier series does:

    φ_i = Σ_{j,n} q_j erfc(α r_ijn)/r_ijn + (4π/L³) Σ_{k≠0} e^{−k²/4α²}/k² Re(ρ̄_k e^{i⟨k, x_i⟩})
          − 2α q_i/√π − π Q/(α² L³)

with ρ_k = Σ_j q_j e^{i⟨k, y_j⟩} and Q = Σ q_j. The result does not depend on α. Of a box with a charge the last term is
that of a uniform background which makes it neutral. Cost: O(n² ) pairs times near copies, and O(n) a wave vector.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import as_float_array
from particleflow.errors import ArgumentError, ShapeError


class Periodic(NamedTuple):
    """The potential at every charge (n,), its gradient (n, 3), 0 for charges 0, and the energy ½ Σ q_i φ_i of a box."""

    potentials: Float[Array, " n"]
    gradients: Float[Array, "n 3"]
    energy: Float[Array, ""]


def ewald(
    points: Any,
    charges: Any,
    side: float,
    *,
    splitting: float | None = None,
    tolerance: float = 1e-12,
    background: bool = False,
) -> Periodic:
    """Potentials and fields of charges in a periodic cube, to a tolerance; forces are −q_i times the gradients.

    Parameters: `points` (n, 3), anywhere: only their places in the cube count; `charges` (n,), which must sum to 0
    unless a uniform `background` makes up for them; the `side` L of the cube; `splitting` α, which changes the cost
    alone, √π n^{1/6}/L if left out; `tolerance`, of the terms left out.
    """
    places, amounts = as_float_array(points, "points"), as_float_array(charges, "charges")
    if places.ndim != 2 or places.shape[1] != 3 or amounts.shape != (places.shape[0],):
        raise ShapeError(
            f"Arguments `points` and `charges` must have shapes (n, 3) and (n,), but have {places.shape} and "
            f"{amounts.shape}."
        )
    if not side > 0 or not 0 < tolerance < 1:
        raise ArgumentError(f"Arguments `side` and `tolerance` must be above 0, but are {side} and {tolerance}.")
    total, size = float(jnp.sum(amounts)), float(jnp.sum(jnp.abs(amounts)))
    if not background and abs(total) > 1e-9 * size:
        raise ArgumentError(
            f"Argument `charges` must sum to 0, because the sum over the copies of a charged box is infinite, but sums "
            f"to {total:.6g}; `background` adds a uniform charge that makes up for it."
        )
    alpha = float(np.sqrt(np.pi) * len(amounts) ** (1 / 6) / side) if splitting is None else float(splitting)
    if not alpha > 0:
        raise ArgumentError(f"Argument `splitting` must be positive, but is {alpha}.")
    copies, waves = (jnp.asarray(each, places.dtype) for each in near_and_waves(alpha * side, tolerance))
    operands = (places / side, amounts, alpha * side, copies, waves)

    def energy_of(places: Array) -> Array:
        return 0.5 * jnp.sum(amounts * _potentials(places, *operands[1:]))

    potentials = _potentials(*operands) / side
    slopes = jax.grad(energy_of)(operands[0]) / side**2
    charged = (amounts != 0)[:, None]  # fields at places without a charge are not computed
    slopes = jax.lax.select(jnp.broadcast_to(charged, slopes.shape), slopes, jnp.zeros_like(slopes))
    gradients = slopes / jnp.where(amounts == 0, 1.0, amounts)[:, None]
    return Periodic(potentials, gradients, 0.5 * jnp.sum(amounts * potentials))


def near_and_waves(splitting: float, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """The copies of a cube of side 1, and one of k and −k of the waves in it, that are not below the tolerance."""
    reach = float(np.sqrt(np.log(1 / tolerance)) + 1)  # erfc(reach) and e^{−reach²} are below the tolerance
    copies = _lattice(int(np.ceil(reach / splitting + 0.5)))
    gaps = np.linalg.norm(np.maximum(np.abs(copies) - 0.5, 0), axis=1)  # of places in the cube to their copies
    waves = _lattice(int(np.ceil(reach * splitting / np.pi)))
    waves = waves[np.lexsort(waves.T[::-1])][len(waves) // 2 + 1 :]
    return copies[gaps <= reach / splitting], waves[np.linalg.norm(waves, axis=1) <= reach * splitting / np.pi]


def ewald_gradients(
    queries: Float[Array, "m 3"],
    points: Float[Array, "n 3"],
    charges: Float[Array, " n"],
    side: float,
    splitting: float,
    tolerance: float,
) -> Float[Array, "m 3"]:
    """∇φ at any queries, in a background that makes the box neutral; a charge at a query itself exerts nothing.

    Parameters: as of `ewald`, with the `splitting` α L; the side and both others are plain numbers.
    """
    copies, waves = (jnp.asarray(each, points.dtype) for each in near_and_waves(splitting, tolerance))
    places, sources = queries / side, points / side
    steps = places[:, None] - sources[None]
    steps = steps - jax.lax.stop_gradient(jnp.round(steps))

    def near(so_far: Array, copy: Array) -> tuple[Array, None]:
        moved = steps + copy[None, None]
        squares = jnp.sum(jnp.square(moved), axis=-1)
        apart = squares > 0
        safe = jnp.where(apart, squares, 1.0)
        distances = jnp.sqrt(safe)
        whole = jax.scipy.special.erfc(splitting * distances) / (distances * safe)
        slope = whole + 2 * splitting / np.sqrt(np.pi) * jnp.exp(-(splitting**2) * safe) / safe
        return so_far - jnp.einsum("ij,ija->ia", jnp.where(apart, slope, 0.0) * charges[None], moved), None

    def far(so_far: Array, wave: Array) -> tuple[Array, None]:
        square = (2 * np.pi) ** 2 * jnp.sum(jnp.square(wave))
        ours, theirs = 2 * np.pi * (places @ wave), 2 * np.pi * (sources @ wave)
        factor = 16 * np.pi**2 * jnp.exp(-square / (4 * splitting**2)) / square
        sums = jnp.cos(ours) * (charges @ jnp.sin(theirs)) - jnp.sin(ours) * (charges @ jnp.cos(theirs))
        return so_far + factor * sums[:, None] * wave[None], None

    zeros = jnp.zeros_like(places)
    in_space, in_waves = (jax.lax.scan(part, zeros, over)[0] for part, over in ((near, copies), (far, waves)))
    return (in_space + in_waves) / side**2


def _lattice(most: int) -> np.ndarray:
    """All whole vectors with entries from −most to most."""
    line = np.arange(-most, most + 1)
    return np.stack(np.meshgrid(line, line, line, indexing="ij"), axis=-1).reshape(-1, 3)


@jax.jit
def _potentials(places: Array, charges: Array, alpha: Array, copies: Array, waves: Array) -> Float[Array, " n"]:
    """Potentials in a cube of side 1."""
    steps = places[:, None] - places[None]
    steps = steps - jax.lax.stop_gradient(jnp.round(steps))

    def near(so_far: Array, copy: Array) -> tuple[Array, None]:
        squares = jnp.sum(jnp.square(steps + copy[None, None]), axis=-1)
        apart = squares > 0
        distances = jnp.sqrt(jnp.where(apart, squares, 1.0))
        kernel = jnp.where(apart, jax.scipy.special.erfc(alpha * distances) / distances, 0.0)
        return so_far + kernel @ charges, None

    def far(so_far: Array, wave: Array) -> tuple[Array, None]:
        square = jnp.square(2 * np.pi) * jnp.sum(jnp.square(wave))
        phases = 2 * np.pi * (places @ wave)
        cosines, sines = jnp.cos(phases), jnp.sin(phases)
        factor = 8 * np.pi * jnp.exp(-square / (4 * jnp.square(alpha))) / square
        return so_far + factor * (cosines * (charges @ cosines) + sines * (charges @ sines)), None

    zeros = jnp.zeros_like(charges)
    in_space, in_waves = (jax.lax.scan(part, zeros, over)[0] for part, over in ((near, copies), (far, waves)))
    own = 2 * alpha / np.sqrt(np.pi) * charges + np.pi / jnp.square(alpha) * jnp.sum(charges)
    return in_space + in_waves - own
