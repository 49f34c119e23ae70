"""Kernels made periodic: boxes that follow the points, and the circle.

A sum over pairs depends on a kernel only at the differences r = u(x) − v(y) that occur, |r_a| ≤ E_a in each coordinate.
A periodic kernel that agrees with it there, to some error, sums the same; its Fourier coefficients are

    Gaussian e^{−r²/2}      Π_a √(2π)/P_a e^{−½(2πk_a/P_a)²}     on a box with sides P, by Poisson's formula,
    on a circle             e^{−x} I_k(x), x = |u||v|            since e^{x cos φ} = I_0 + 2 Σ_k I_k(x) cos kφ,
    any other profile       sampled, cut off smoothly beyond the largest distance, and transformed.

Boxes are taken from the points inside `jit`: they follow the cloud wherever it moves, and the error that the modes
leave for it is known there, too. Boxes have no derivative: sums do not depend on them, to within the error.
"""

from collections.abc import Callable
from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow.summation.spectral.nonuniform_fft import Torus, wavenumbers

Profile = Callable[[Array], Array]
_CUT = 1.75  # where profiles are cut off, in units of the largest distance
_FINE_SAMPLES = 8192  # of a profile along one coordinate, to see how its coefficients fall


def extents(queries: Float[Array, "m d"], sources: Float[Array, "n d"]) -> Float[Array, " d"]:
    """E_a = max |u_a − v_a| over all queries u and sources v, without derivative."""
    ours, theirs = (jax.lax.stop_gradient(each) for each in (queries, sources))
    return jnp.maximum(jnp.max(ours, axis=0) - jnp.min(theirs, axis=0), jnp.max(theirs, axis=0) - jnp.min(ours, axis=0))


def gaussian_torus(queries: Float[Array, "m d"], sources: Float[Array, "n d"], modes: tuple[int, ...]) -> Torus:
    """e^{−|u − v|²/2} on a box whose side makes images and modes left out equally small: P − E = πM/P =: g.

    Images of the kernel add at most 2e^{−g²/2} + 2e^{−2g²} + … in each coordinate, and modes left out e^{−g²/2}
    (2/(√(2π)g) + √(2π)/P·2).
    """
    extent, counts = extents(queries, sources), jnp.asarray(modes, queries.dtype)
    sides = 0.5 * (extent + jnp.sqrt(jnp.square(extent) + 4 * np.pi * counts))
    steps = 2 * np.pi / sides
    factors = [
        jnp.sqrt(0.5 / np.pi) * step * jnp.exp(-0.5 * jnp.square(step * wavenumbers(count, queries.dtype)))
        for step, count in zip(steps, modes, strict=True)
    ]
    error = 4 * jnp.sum(jnp.exp(-0.5 * jnp.square(sides - extent)))
    return Torus(*_angles(queries, sources, sides), _outer([_paired(each) for each in factors]), error)


def gaussian_modes(extent: float, dimension: int, error: float) -> float:
    """How many modes of a coordinate of some extent keep a Gaussian's error: M = g (E + g)/π, see `gaussian_torus`."""
    gap = np.sqrt(2 * np.log(4 * dimension / error))
    return gap * (extent + gap) / np.pi


def circle_torus(queries: Float[Array, "m 2"], sources: Float[Array, "n 2"], modes: tuple[int, ...]) -> Torus:
    """e^{−|u − v|²/2} = e^{−x} e^{x cos(φ − ψ)} for points of one circle about the origin, of squared radius x.

    Points off the circle are projected onto it: a deviation Δ from the radius changes an exponent by at most
    4√x Δ + 4Δ², which is the relative error. Derivatives along the radius are lost; see `spectral_moments`.
    """
    lengths = [jnp.linalg.norm(each, axis=1) for each in (queries, sources)]
    radius = 0.5 * (jnp.max(lengths[1]) + jnp.min(lengths[1]))
    deviation = jnp.maximum(*(jnp.max(jnp.abs(each - radius)) for each in lengths))
    square, count = jnp.square(radius), modes[0]
    turns = 2 * np.pi * np.arange(count) / count
    samples = jnp.exp(square * jnp.asarray(np.cos(turns) - 1, queries.dtype))
    coefficients = _paired(jnp.fft.fftshift(jnp.fft.fft(samples).real) / count)
    ours, theirs = (jnp.arctan2(each[:, 1], each[:, 0])[:, None] for each in (queries, sources))
    relative = 4 * deviation * (radius + deviation)
    return Torus(ours, theirs, coefficients, circle_error(square, count), relative)


def circle_error(square: Array | float, modes: int) -> Float[Array, ""]:
    """4 Σ_{k ≥ K} e^{−x} I_k(x) with K = M/2, for the modes left out and those aliased by the samples.

    Shifting the contour of I_k's integral by y bounds e^{−x} I_k(x) by e^{x (cosh y − 1) − ky}, smallest for
    sinh y = K/x, and its sum over k ≥ K is geometric.
    """
    half = modes // 2
    safe = jnp.maximum(square, 1e-30)
    shift = jnp.arcsinh(half / safe)
    growth = safe * (jnp.sqrt(1 + jnp.square(half / safe)) - 1)
    return 4 * jnp.exp(growth - half * shift) / -jnp.expm1(-shift)


def sampled_torus(
    queries: Float[Array, "m d"],
    sources: Float[Array, "n d"],
    modes: tuple[int, ...],
    profile: Profile,
    accuracy: float,
) -> Torus:
    """κ(r²) of any smooth profile with κ(0) = 1, cut off between the largest distance D that may occur and P/2 = 7D/4.

    So no image reaches the points. The error is measured where interpolation is worst, half way between samples, and
    doubled.
    """
    extent = extents(queries, sources)
    extent = jnp.where(jnp.max(extent) > 0, extent, 1.0)
    reach = jnp.linalg.norm(extent)
    sides = jnp.full_like(extent, 2 * _CUT) * reach
    grids = [side * jnp.asarray(np.fft.fftfreq(count), extent.dtype) for side, count in zip(sides, modes, strict=True)]
    coefficients = _sampled_coefficients(profile, grids, reach, accuracy)
    between, shifted = _half_way_between(coefficients, grids, sides)
    inside = _outer([(jnp.abs(each) <= most).astype(each.dtype) for each, most in zip(shifted, extent, strict=True)])
    error = 2 * jnp.max(inside * jnp.abs(between - profile(_squares(shifted))))
    return Torus(*_angles(queries, sources, sides), coefficients, jax.lax.stop_gradient(error))


def _sampled_coefficients(profile: Profile, grids: list[Array], reach: Array, accuracy: float) -> Float[Array, "..."]:
    """The Fourier coefficients of a profile, sampled on a grid and cut off beyond its reach."""
    samples = profile(_squares(grids)) * cut_off(jnp.sqrt(_squares(grids)) / reach, accuracy)
    spectrum = jnp.fft.fftshift(jnp.fft.fftn(samples).real) / samples.size
    return spectrum * _outer([_paired(jnp.ones_like(grid)) for grid in grids])


def _half_way_between(
    coefficients: Float[Array, "..."], grids: list[Array], sides: Float[Array, " d"]
) -> tuple[Float[Array, "..."], list[Array]]:
    """Σ_k κ̂_k e^{ikφ} half way between the points of a grid in every coordinate, and the coordinates there."""
    counts, dtype = coefficients.shape, coefficients.dtype
    angles = [np.pi / count * wavenumbers(count, dtype) for count in counts]
    turns = _outer([jax.lax.complex(jnp.cos(each), jnp.sin(each)) for each in angles])
    between = jnp.fft.ifftn(jnp.fft.ifftshift(coefficients.astype(turns.dtype) * turns)).real * coefficients.size
    shifted = [grid + 0.5 * side / count for grid, side, count in zip(grids, sides, counts, strict=True)]
    return between, shifted


def sampled_modes(profile: Profile, reach: float, error: float, rounding: float) -> float:
    """How many modes of a coordinate keep the error of a profile up to some distance, seen along that coordinate alone.

    Those beyond which the coefficients of a fine sample sum to a quarter of the error; ∞ if there are none, as for
    profiles with a kink or a jump, whose coefficients fall like a power. Coefficients below the rounding
    error of samples of a relative `rounding` do not count.
    """
    radii = 2 * _CUT * reach * np.abs(np.fft.fftfreq(_FINE_SAMPLES))
    samples = np.asarray(profile(jnp.square(radii))) * np.asarray(cut_off(radii / reach, error))
    sizes = np.abs(np.fft.rfft(samples)) / _FINE_SAMPLES
    sizes[sizes < 8 * rounding / np.sqrt(_FINE_SAMPLES)] = 0.0
    tails = 2 * np.cumsum(sizes[::-1])[::-1]
    enough = np.flatnonzero(tails <= 0.25 * error)
    return 2.0 * enough[0] if enough.size and enough[0] < _FINE_SAMPLES // 4 else np.inf


def cut_off(distances: Array | np.ndarray, accuracy: float) -> Array:
    """1 up to distance 1 and 0 from 7/4 on, to an accuracy: ½ erfc(τ (2r − 11/4)/(3/4)) with e^{−τ²} = accuracy."""
    sharpness = float(np.sqrt(np.log(1 / accuracy)))
    return 0.5 * jax.scipy.special.erfc(sharpness * (2 * distances - 1 - _CUT) / (_CUT - 1))


def _angles(queries: Array, sources: Array, sides: Array) -> tuple[Array, Array]:
    """Both as angles of a torus, between −π and π."""
    turns = (each / sides[None] for each in (queries, sources))
    ours, theirs = (2 * np.pi * (each - jax.lax.stop_gradient(jnp.round(each))) for each in turns)
    return ours, theirs


def _paired(coefficients: Float[Array, " modes"]) -> Float[Array, " modes"]:
    """The same without that of −M/2, which has no partner M/2: a real kernel stays real."""
    return coefficients.at[0].set(0.0)


def _outer(factors: list[Array]) -> Float[Array, "..."]:
    """Π_a f_a(k_a) on the grid of all (k_1, …, k_d)."""
    return reduce(lambda so_far, each: so_far[..., None] * _lifted(each, so_far.ndim), factors[1:], factors[0])


def _squares(coordinates: list[Array]) -> Float[Array, "..."]:
    """|r|² on the grid of all r = (r_1, …, r_d)."""
    squares = [jnp.square(each) for each in coordinates]
    return reduce(lambda so_far, each: so_far[..., None] + _lifted(each, so_far.ndim), squares[1:], squares[0])


def _lifted(numbers: Array, axes: int) -> Array:
    """A vector with `axes` leading axes of length 1."""
    return numbers.reshape((1,) * axes + numbers.shape)
