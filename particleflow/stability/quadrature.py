"""Integrals over angles, of many functions at once, of kernels that may be narrow or jump.

An interval is integrated by Gauss and Legendre's rule, as a whole and as two halves; where the two differ it is halved,
until nothing that is left matters. Every round asks for all of its angles together. The first intervals halve towards
θ = 0, so that a narrow kernel, which lives there, is not overlooked.
"""

from collections.abc import Callable

import numpy as np

from particleflow.errors import ArgumentError

_NODES = 24
_HALVINGS = 30  # of π: no narrower kernel is looked for
_ROUNDS = 60
_RELATIVE = 1e-14


def integral_over_angles(function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """∫_0^π f(θ) dθ of a function that maps angles (n,) to values (n, k).

    The error is estimated to be within 1e-14 of ∫ |f|, of the largest of the k functions, or else refused. A jump that
    happens to lie between an end of an interval and its first node is not seen there: then 1e-10 is what one gets.
    """
    ends = np.concatenate([[0.0], np.pi * 0.5 ** np.arange(_HALVINGS, -1, -1.0)])
    low, high = ends[:-1], ends[1:]
    total, size = 0.0, 0.0
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        parts, sizes = _by_interval(function, np.concatenate([low, low, middle]), np.concatenate([high, middle, high]))
        whole, left, right = np.split(parts, 3)
        error = np.max(np.abs(left + right - whole), axis=1)
        size = max(size, float(np.sum(np.split(sizes, 3)[0])))
        again = error > _RELATIVE * size / _HALVINGS
        again &= (middle > low) & (middle < high)  # two neighbouring numbers have nothing in between
        total = total + np.sum((left + right)[~again], axis=0)
        if not again.any():
            return np.asarray(total)
        low, high = np.concatenate([low[again], middle[again]]), np.concatenate([middle[again], high[again]])
    raise ArgumentError("The kernel cannot be integrated over the sphere: its coefficients do not settle.")


def _by_interval(
    function: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """∫ f over every interval (m, k), and the largest ∫ |f| over every interval (m,)."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    half = (high - low)[:, None] / 2
    angles = (low + high)[:, None] / 2 + half * nodes
    values = function(angles.ravel()).reshape(*angles.shape, -1)
    weighted = (half * weights)[:, :, None] * values
    return np.sum(weighted, axis=1), np.max(np.sum(np.abs(weighted), axis=1), axis=1)
