"""Random frequencies: Bochner's theorem read from right to left.

    κ(u, v) = E e^{i⟨w, u − v⟩}    for w of the law whose Fourier transform κ is

Gaussian e^{−ρ²/2}: standard normal. Exponential e^{−ρ}: the multivariate Cauchy law, z/|g|. Power (1 + ρ²)^{−p}: the
Laplace-type law √(2G) z with G of the law Gamma(p), which is Laplace's own for p = 1. All are normal vectors z times a
number, so one draw serves them all. Sources: Rahimi and Recht, Random features for large-scale kernel machines (2007);
orthogonal rows of the same lengths as independent ones, which lower the variance: Yu et al., Orthogonal random features
(2016).

A draw is a function of the seed, the number and the dimension only. It is made while a program is compiled and is a
constant of it; the powers p, which may have a derivative, enter later.
"""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow.summation.features.positive_definite import Curves


def frequencies(seed: int, kernel: Curves, rank: int, orthogonal: bool, dtype: Any) -> Float[Array, "rank k"]:
    """Frequencies w of the law of κ: for each of its curves some columns, independent of those of the others."""
    columns = []
    for place, (curve, power, width) in enumerate(zip(kernel.curves, kernel.powers, kernel.widths, strict=True)):
        normal = jnp.asarray(_drawn_normals(seed, place, rank, width, orthogonal, np.dtype(dtype).name))
        key = jax.random.fold_in(jax.random.key(seed), 2 * place + 1)
        columns.append(normal * lengths(key, curve, power, rank, dtype)[:, None])
    return jnp.concatenate(columns, axis=1)


def lengths(key: Array, curve: str, power: Array | float, rank: int, dtype: Any) -> Float[Array, " rank"]:
    """What normal vectors are multiplied by to have the law of a curve."""
    if curve == "gaussian":
        return jnp.ones(rank, dtype)
    if curve == "exponential":
        return 1 / jnp.abs(jax.random.normal(key, (rank,), dtype))
    return jnp.sqrt(2 * jax.random.gamma(key, jnp.asarray(power, dtype), (rank,), dtype))


def normals(key: Array, rank: int, width: int, orthogonal: bool, dtype: Any) -> Float[Array, "rank width"]:
    """Standard normal rows, independent, or in groups of `width` rows that are orthogonal to each other.

    Rows of a Haar-distributed orthogonal matrix (QR of a normal one, with the signs of R's diagonal put back), each
    with the length of a normal vector of its own: every single row is still standard normal.
    """
    if not orthogonal:
        return jax.random.normal(key, (rank, width), dtype)
    for_rows, for_lengths = jax.random.split(key)
    groups = -(-rank // width)
    turned, upper = jnp.linalg.qr(jax.random.normal(for_rows, (groups, width, width), dtype))
    signs = jnp.where(jnp.diagonal(upper, axis1=1, axis2=2) < 0, -1.0, 1.0).astype(dtype)
    rows = (turned * signs[:, None, :]).swapaxes(1, 2).reshape(-1, width)[:rank]
    sizes = jnp.linalg.norm(jax.random.normal(for_lengths, (rank, width), dtype), axis=1)
    return rows * sizes[:, None]


def phases(seed: int, rank: int, dtype: Any) -> Float[Array, " rank"]:
    """Random phases, uniform in [0, 2π), of a seed."""
    key = jax.random.fold_in(jax.random.key(seed), 2**20)
    return jax.random.uniform(key, (rank,), dtype, 0.0, 2 * np.pi)


@lru_cache(maxsize=64)
def _drawn_normals(seed: int, place: int, rank: int, width: int, orthogonal: bool, dtype: str) -> np.ndarray:
    """The draw as plain numbers, also where everything else is being traced."""
    with jax.ensure_compile_time_eval():
        key = jax.random.fold_in(jax.random.key(seed), 2 * place)
        return np.asarray(normals(key, rank, width, orthogonal, jnp.dtype(dtype)))
