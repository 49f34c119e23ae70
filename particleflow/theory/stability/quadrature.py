"""Adaptive integrals over angles, of many functions together, for kernels that may be narrow or jump.

An interval is integrated by Gauss and Legendre's rule, as a whole and as two halves; where the two differ it is halved,
until the remaining differences are below the tolerance. Each round evaluates the functions once, at the angles of all
its intervals. The first intervals halve towards θ = 0, so that a narrow kernel, which is concentrated there, is found.
"""

from collections.abc import Callable

import numpy as np

from particleflow.errors import ArgumentError

_NODES = 24  # of Gauss and Legendre's rule, an interval
_HALVINGS = 30  # the first intervals reach down to π/2³⁰, about the width of the narrowest kernel that is found
_ROUNDS = 60  # the most refinements
_RELATIVE = 1e-14  # allowed error, relative to ∫ |f|


def integral_over_angles(function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """∫_0^π f(θ) dθ of a function that maps angles (n,) to values (n, k).

    The error is estimated to be below 1e-14 of ∫ |f| of the largest of the k functions; where that is not reached the
    integral is refused. A jump between an end of an interval and its first node is not detected: then the error is
    about 1e-10.
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
        again &= (middle > low) & (middle < high)  # two neighbouring numbers have no number between them
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
