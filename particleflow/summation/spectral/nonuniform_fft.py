"""Sums over all pairs on a torus, by non-uniform fast Fourier transforms.

    Σ_j κ(φ_i − ψ_j) c_j = Σ_k κ̂_k e^{ikφ_i} Σ_j e^{−ikψ_j} c_j        κ(φ) = Σ_k κ̂_k e^{ikφ} over a grid of modes k

One transform of type 1 (points to modes), a product, one of type 2 (modes to points): O(n + m + modes) numbers instead
of m·n pairs (Dutt and Rokhlin 1993; Barnett, Magland and af Klinteberg, FINUFFT, 2019). Nothing here is an
approximation but the transforms themselves, whose error is a small multiple of `epsilon` times Σ_j |c_j|.

Since κ is real and even, two real columns travel as one complex column.
"""

import os
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

# All cores: a function of the machine alone, since transforms by another number of threads round otherwise.
_THREADS = os.cpu_count() or 1
# Both transforms together err by at most so many of their epsilons, for epsilons up to the largest, and by so many eps
# of rounding, beside that of an angle, which the highest mode multiplies: twice what was seen for clouds and tight
# clusters.
_EPSILONS, TRANSFORM_ULPS = 2.0, 10.0
LARGEST_EPSILON = 1e-4
# Transforms in single precision do not get below this.
SMALLEST_EPSILON = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-13}


def transform_noise(epsilon: float, modes: tuple[int, ...], dtype: Any) -> float:
    """The error of a convolution by transforms of some epsilon, relative to Σ_k |κ̂_k| Σ_j |c_j|."""
    return _EPSILONS * epsilon + float(jnp.finfo(dtype).eps) * (TRANSFORM_ULPS + max(modes))


@cache
def translated(platform: str) -> bool:
    """Whether the installed package has its transforms for a platform: those of its wheels are for processors only."""
    angles, strengths = jax.ShapeDtypeStruct((4, 1), jnp.float32), jax.ShapeDtypeStruct((1, 4), jnp.complex64)
    program = jax.jit(partial(_modes_of, (4,), LARGEST_EPSILON)).trace(angles, strengths)
    try:
        program.lower(lowering_platforms=(platform,))
    except NotImplementedError:
        return False
    return True


class Torus(NamedTuple):
    """Queries and sources as angles (m, d), (n, d), the Fourier coefficients κ̂ of a kernel (*modes), and its error.

    Coefficients are real, those of k and −k agree, and that of −modes/2, which has no partner, is 0. `error` is the
    largest difference between Σ_k κ̂_k e^{ikφ} and the exact kernel, at any pair of points, relative to κ(0);
    `relative_error` is one relative to the kernel at that pair.
    """

    queries: Float[Array, "m d"]
    sources: Float[Array, "n d"]
    coefficients: Float[Array, "..."]
    error: Float[Array, ""]
    relative_error: Float[Array, ""] | float = 0.0

    def convolved(self, columns: Float[Array, "n c"], epsilon: float) -> Float[Array, "m c"]:
        """Σ_j κ(φ_i − ψ_j) c_j for all columns c."""
        modes = _modes_of(self.coefficients.shape, epsilon, self.sources, _packed(columns))
        sums = _at_points(epsilon, self.queries, modes * self.coefficients[None].astype(modes.dtype))
        return jnp.concatenate([sums.real, sums.imag])[: columns.shape[1]].T


def wavenumbers(count: int, dtype: Any) -> Float[Array, " count"]:
    """−M/2, …, M/2 − 1, the order in which transforms take them."""
    return jnp.arange(-(count // 2), count - count // 2, dtype=dtype)


# The derivatives are written out, because those of jax_finufft mix precisions and fail in single precision.


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _modes_of(
    shape: tuple[int, ...], epsilon: float, points: Float[Array, "n d"], strengths: Complex[Array, "t n"]
) -> Complex[Array, "t ..."]:
    """f_k = Σ_j c_j e^{−ikψ_j}."""
    from jax_finufft import nufft1

    angles, known = _finite(points)
    shown = jnp.where(known[None], strengths, jnp.nan)
    return nufft1(shape, shown, *angles.T, iflag=-1, eps=epsilon, opts=_options(strengths.shape[0]))


@_modes_of.defjvp
def _change_of_modes(shape: tuple[int, ...], epsilon: float, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    """df_k = Σ_j (dc_j − i Σ_a k_a dψ_ja c_j) e^{−ikψ_j}, all terms in one transform."""
    (points, strengths), (moves, change) = primals, tangents
    moved = [strengths * move[None].astype(strengths.dtype) for move in moves.T]
    first, *others = jnp.split(_modes_of(shape, epsilon, points, jnp.concatenate([change, *moved])), 1 + len(moved))
    turns = [_turn(axis, shape, points.dtype) for axis in range(len(shape))]
    total = first - sum(turn * other for turn, other in zip(turns, others, strict=True))
    return _modes_of(shape, epsilon, points, strengths), total


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _at_points(epsilon: float, points: Float[Array, "m d"], modes: Complex[Array, "t ..."]) -> Complex[Array, "t m"]:
    """g_i = Σ_k f_k e^{ikφ_i}."""
    from jax_finufft import nufft2

    angles, known = _finite(points)
    sums = nufft2(modes, *angles.T, iflag=1, eps=epsilon, opts=_options(modes.shape[0]))
    return jnp.where(known[None], jnp.asarray(sums), jnp.nan)


@_at_points.defjvp
def _change_at_points(epsilon: float, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    """dg_i = Σ_k df_k e^{ikφ_i} + i Σ_a dφ_ia Σ_k k_a f_k e^{ikφ_i}."""
    (points, modes), (moves, change) = primals, tangents
    shape = modes.shape[1:]
    turned = [modes * _turn(axis, shape, points.dtype) for axis in range(len(shape))]
    slopes = jnp.split(_at_points(epsilon, points, jnp.concatenate(turned)), len(shape))
    moved = sum(move[None].astype(modes.dtype) * slope for move, slope in zip(moves.T, slopes, strict=True))
    return _at_points(epsilon, points, modes), _at_points(epsilon, points, change) + moved


def _finite(points: Float[Array, "n d"]) -> tuple[Float[Array, "n d"], Array]:
    """The points, with 0 in place of those that are not finite, and which are.

    For a point that is not finite FINUFFT writes outside of its grid, which may end the process.
    """
    known = jnp.all(jnp.isfinite(points), axis=1)
    return jnp.where(known[:, None], points, 0.0), known


def _turn(axis: int, shape: tuple[int, ...], dtype: Any) -> Array:
    """ik_a on the grid of all modes, with an axis before it for columns."""
    places = [1] * (1 + len(shape))
    places[1 + axis] = shape[axis]
    numbers = wavenumbers(shape[axis], dtype)
    return jax.lax.complex(jnp.zeros_like(numbers), numbers).reshape(places)


def _packed(columns: Float[Array, "n c"]) -> Array:
    """Columns as rows of complex numbers, the second half as imaginary parts; a few, or an even number, of rows."""
    count = columns.shape[1]
    rows = (count + 1) // 2
    rows += rows % 2 if rows > 3 else 0
    filled = jnp.pad(columns, ((0, 0), (0, 2 * rows - count))).T
    return jax.lax.complex(filled[:rows], filled[rows:])


def _options(rows: int) -> Any:
    """Options under which the same sums give the same bits whenever they are taken, forwards and backwards.

    Several threads that spread one transform add to the grid in whatever order they end. So each transform of a batch
    is spread by one thread, and no batch may be left with a single transform, which would get all threads: batches
    divide the number of rows, also where derivatives multiply it. Interpolation only reads the grid, by all threads.
    """
    from jax_finufft.options import NestedOpts, Opts, SpreadThread

    reading = Opts(nthreads=_THREADS)
    if rows == 1:
        return NestedOpts(type1=Opts(nthreads=1), type2=reading)
    batch = 3 if rows == 3 else 2
    spreading = Opts(nthreads=_THREADS, spread_thread=SpreadThread.Parallel, maxbatchsize=batch)
    return NestedOpts(type1=spreading, type2=reading)
