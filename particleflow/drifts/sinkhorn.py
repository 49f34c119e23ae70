"""Doubly stochastic attention: a tilt of the measure that makes every column of weights sum to one, too."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.kernels.algebra import Transposed
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure
from particleflow.summation.base import AbstractSummation

_MAXIMUM_ITERATIONS = 2000
_TOLERANCE_UNITS = 8.0  # in units of rounding


class _Potentials(NamedTuple):
    row: Float[Array, " n"]
    column: Float[Array, " n"]
    change: Float[Array, ""]


def sinkhorn_tilt(kernel: AbstractKernel, measure: Measure, summation: AbstractSummation) -> Measure:
    """The tilted measure e^{g} μ under which softmax weights are doubly stochastic.

    The potentials solve  f(x) = −log ∫ e^{g(y)} K(x, y) dμ(y),  g(y) = −log ∫ e^{f(x)} K(x, y) dμ(x).  Both are
    moved half of the way at a time: for a symmetric positive definite kernel the error then halves at least with
    every sweep, at any β, where plain alternation slows down like 1 − O(1/β). Sweeps end when the potentials stand
    still to rounding.
    """
    tolerance = _TOLERANCE_UNITS * float(jnp.finfo(measure.points.dtype).eps)
    transposed = Transposed(kernel)

    def sweep(now: _Potentials) -> _Potentials:
        row_target = -summation.moments(kernel, measure.tilted(now.column), measure.sites).log_mass
        column_target = -summation.moments(transposed, measure.tilted(now.row), measure.sites).log_mass
        row, column = 0.5 * (now.row + row_target), 0.5 * (now.column + column_target)
        scale = 1 + jnp.max(jnp.abs(row))
        change = jnp.maximum(jnp.max(jnp.abs(row - now.row)), jnp.max(jnp.abs(column - now.column))) / scale
        return _Potentials(row, column, jax.lax.stop_gradient(change))

    def sweep_if_needed(now: _Potentials, _: None) -> tuple[_Potentials, None]:
        return jax.lax.cond(now.change > tolerance, sweep, lambda same: same, now), None

    zeros = jnp.zeros(measure.count, measure.points.dtype)
    start = _Potentials(zeros, zeros, jnp.asarray(jnp.inf, measure.points.dtype))
    end, _ = jax.lax.scan(sweep_if_needed, start, None, length=_MAXIMUM_ITERATIONS)
    return measure.tilted(end.column)
