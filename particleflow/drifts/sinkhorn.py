"""Doubly stochastic attention: a tilt of the measure that makes every column of weights sum to one, too."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.kernels.algebra import Transposed
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure
from particleflow.summation.base import AbstractSummation

_MAXIMUM_ITERATIONS = 2000
_TOLERANCE_UNITS = 8.0  # in units of rounding
_FAILURE = 0.5  # potentials that still move by more than eps^_FAILURE after all sweeps are no potentials

Potentials = tuple[Float[Array, " n"], Float[Array, " n"]]


def sinkhorn_tilt(kernel: AbstractKernel, measure: Measure, summation: AbstractSummation) -> Measure:
    """The tilted measure e^{g} μ under which softmax weights are doubly stochastic.

    The potentials solve  f(x) = −log ∫ e^{g(y)} K(x, y) dμ(y),  g(y) = −log ∫ e^{f(x)} K(x, y) dμ(x).  Both are
    moved half of the way at a time: for a symmetric positive definite kernel the error then halves at least with
    every sweep, at any β, where plain alternation slows down like 1 − O(1/β). Sweeps end when the potentials stand
    still to rounding. Derivatives come from the equations, not from the sweeps: a start at which the potentials
    are right at once would otherwise leave their derivatives unfinished.

    Potentials exist if and only if every positive entry of K lies on a permutation of positive entries (total
    support; Sinkhorn and Knopp 1967): a causal mask never does. Where sweeps do not come to rest the result is NaN,
    so that a run fails instead of going on with weights that are not doubly stochastic.
    """
    transposed = Transposed(kernel)

    def defect(now: Potentials) -> Potentials:
        row, column = now
        row_mass = summation.moments(kernel, measure.tilted(column), measure.sites).log_mass
        column_mass = summation.moments(transposed, measure.tilted(row), measure.sites).log_mass
        return row + row_mass, column + column_mass

    def solve(function: Callable, start: Potentials) -> Potentials:
        nothing = jax.tree_util.tree_map(jnp.zeros_like, start)
        return _relax(function, start, nothing)

    def solve_linear(function: Callable, right: Potentials) -> Potentials:
        def iterate(apply: Callable, target: Potentials) -> Potentials:
            return _relax(apply, jax.tree_util.tree_map(jnp.zeros_like, target), target)

        return jax.lax.custom_linear_solve(function, right, iterate, iterate)

    zeros = jnp.zeros(measure.count, measure.points.dtype)
    return measure.tilted(jax.lax.custom_root(defect, (zeros, zeros), solve, solve_linear)[1])


def _relax(function: Callable, start: Potentials, target: Potentials) -> Potentials:
    """Solve function(p) = target by p ← p + ½(target − function(p)), until p stands still to rounding."""
    tolerance = _TOLERANCE_UNITS * float(jnp.finfo(start[0].dtype).eps)

    def go_on(state: tuple[Potentials, Array, Array]) -> Array:
        return (state[1] > tolerance) & (state[2] < _MAXIMUM_ITERATIONS)

    def sweep(state: tuple[Potentials, Array, Array]) -> tuple[Potentials, Array, Array]:
        now, _, count = state
        moves = [0.5 * (wanted - found) for wanted, found in zip(target, function(now), strict=True)]
        moved = (now[0] + moves[0], now[1] + moves[1])
        scale = 1 + jnp.max(jnp.abs(jnp.stack(moved)))
        return moved, jnp.max(jnp.abs(jnp.stack(moves))) / scale, count + 1

    unknown = jnp.asarray(jnp.inf, start[0].dtype)
    potentials, moved, _ = jax.lax.while_loop(go_on, sweep, (start, unknown, jnp.zeros((), jnp.int32)))
    came_to_rest = moved < float(jnp.finfo(moved.dtype).eps) ** _FAILURE
    return jax.tree_util.tree_map(lambda leaf: jnp.where(came_to_rest, leaf, jnp.nan), potentials)
