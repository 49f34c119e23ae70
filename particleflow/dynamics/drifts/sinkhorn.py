"""Doubly stochastic attention: a tilt of the measure that makes every column of weights sum to one, too."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import is_concrete
from particleflow.errors import ArgumentError
from particleflow.kernels.algebra import Transposed
from particleflow.kernels.base import AbstractKernel
from particleflow.measure import Measure
from particleflow.summation.base import AbstractSummation

_MAXIMUM_SWEEPS = 10_000
_MEMORY = 10  # earlier sweeps that are combined
_TOLERANCE_UNITS = 8.0  # the defect at which sweeps end, in eps
_PATIENCE = 30  # sweeps without improvement after which those below eps^_RESTED end, at rounding
_RESTED = 0.75
_LONG_PATIENCE = 1000  # the same up to eps^_FAILURE: combined sweeps may pause for long and then improve again
_WORSE = 1e2  # a sweep whose defect is so many times the least one is taken back
_FAILURE = 0.5  # what is neither near rounding nor solves its equations to eps^_FAILURE after all sweeps is no solution

# f and g as one vector: the adjoint transposes the linear solve, for which no part may be left out.
Potentials = Float[Array, " 2n"]


def sinkhorn_tilt(kernel: AbstractKernel, measure: Measure, summation: AbstractSummation) -> Measure:
    """The tilted measure e^{g} μ under which softmax weights are doubly stochastic.

    The potentials solve  f(x) = −log ∫ e^{g(y)} K(x, y) dμ(y),  g(y) = −log ∫ e^{f(x)} K(x, y) dμ(x).  Both are
    moved half of the way at a time: for a symmetric positive definite kernel the error then halves at least with
    every sweep, at any β, where plain alternation slows down like 1 − O(1/β). Where queries differ from keys it is
    slow, too, so the last sweeps are combined for the smallest defect (Anderson 1965): 10² sweeps in place of 10⁴. They
    end when the equations are met to rounding. Derivatives come from the equations, not from the sweeps: a start at
    which the potentials are right at once would otherwise leave their derivatives unfinished.

    Sweeps are combined for kernels without zeros only: where there are no potentials, combined sweeps would run off to
    infinity, at which weights are doubly stochastic to rounding but are not those of the kernel.

    Potentials exist if and only if every positive entry of K lies on a permutation of positive entries (total
    support; Sinkhorn and Knopp 1967): a causal mask never does. Where sweeps do not come to rest (the limit β → ∞ is an
    assignment, without potentials) the result is NaN, so that a run fails instead of going on with weights that are not
    doubly stochastic; outside of compiled programs it is refused, with the reason of `unbalanced`.
    """
    combined = not kernel.vanishes()

    def solve(function: Callable, start: Potentials) -> Potentials:
        found = _relax(function, start, jnp.zeros_like(start), combined)
        return jnp.where(_balanced(found), found.best, jnp.nan)

    def solve_linear(function: Callable, right: Potentials) -> Potentials:
        def iterate(apply: Callable, target: Potentials) -> Potentials:
            found = _relax(apply, jnp.zeros_like(target), target, combined)
            return jnp.where(found.least < _unit(target) ** _FAILURE, found.best, jnp.nan)

        return jax.lax.custom_linear_solve(function, right, iterate, iterate)

    zeros = jnp.zeros(2 * measure.count, measure.points.dtype)
    potentials = jax.lax.custom_root(_equations(kernel, measure, summation), zeros, solve, solve_linear)
    if is_concrete(potentials) and not jnp.isfinite(potentials).all():
        raise ArgumentError(unbalanced(kernel, measure, summation) or "The potentials of Sinkhorn are not finite.")
    return measure.tilted(potentials[measure.count :])


def unbalanced(kernel: AbstractKernel, measure: Measure, summation: AbstractSummation) -> str | None:
    """A sentence on how far from doubly stochastic all sweeps leave the weights; None where they come to rest."""

    @jax.jit
    def swept(points: Array) -> _Sweeps:
        start = jnp.zeros(2 * measure.count, points.dtype)
        equations = _equations(kernel, measure.with_points(points), summation)
        return _relax(equations, start, start, not kernel.vanishes())

    found = swept(measure.points)
    if _balanced(found):
        return None
    return (
        f"Sinkhorn normalisation has not converged: after {int(found.swept)} sweeps a row or column of weights sums to "
        f"1 only within {float(jnp.expm1(_excess(found))):.2g}. Lower the inverse temperature, or use normalization = "
        '"row".'
    )


def _equations(kernel: AbstractKernel, measure: Measure, summation: AbstractSummation) -> Callable:
    """(f, g) ↦ (f + log ∫ e^g K dμ, g + log ∫ e^f K dμ): zero where weights are doubly stochastic."""
    transposed = Transposed(kernel)

    def defect(now: Potentials) -> Potentials:
        row, column = jnp.split(now, 2)
        row_mass = summation.moments(kernel, measure.tilted(column), measure.sites).log_mass
        column_mass = summation.moments(transposed, measure.tilted(row), measure.sites).log_mass
        return now + jnp.concatenate([row_mass, column_mass])

    return defect


def _unit(like: Array) -> float:
    """The unit of rounding."""
    return float(jnp.finfo(like.dtype).eps)


class _Sweeps(NamedTuple):
    """The state of the sweeps: the place, its next move, the last changes of both, and the best place so far."""

    place: Array
    move: Array
    places: Array
    moves: Array
    best: Array
    best_move: Array
    least: Array
    swept: Array
    since_best: Array

    @staticmethod
    def begun(place: Array, move: Array) -> "_Sweeps":
        """No sweep yet."""
        none, zero = jnp.zeros((_MEMORY, place.size), place.dtype), jnp.zeros((), jnp.int32)
        return _Sweeps(place, move, none, none, place, move, _size(place, move), zero, zero)

    def combined(self) -> Array:
        """p + r − Σ_k γ_k Δ_k(p + r), Δ_k the changes from sweep to sweep, γ the least |r − Σ_k γ_k Δ_k r|.

        For a linear equation that is GMRES.
        """
        smallest = float(jnp.finfo(self.move.dtype).eps) ** 0.75
        weights = jnp.linalg.lstsq(self.moves.T, self.move, rcond=smallest)[0]
        return self.place + self.move - weights @ (self.places + self.moves)

    def after(self, place: Array, move: Array) -> "_Sweeps":
        """The state after one sweep; if its defect is far above the least, back to the best place, without memory."""
        least = _size(place, move)
        better, lost = least < self.least, ~(least < _WORSE * self.least)
        slot = self.swept % _MEMORY
        places, moves = self.places.at[slot].set(place - self.place), self.moves.at[slot].set(move - self.move)
        best, best_move = jnp.where(better, place, self.best), jnp.where(better, move, self.best_move)
        return _Sweeps(
            jnp.where(lost, best, place), jnp.where(lost, best_move, move),
            jnp.where(lost, 0.0, places), jnp.where(lost, 0.0, moves),
            best, best_move, jnp.where(better, least, self.least), self.swept + 1,
            jnp.where(better, 0, self.since_best + 1),
        )  # fmt: skip


def _size(place: Array, move: Array) -> Array:
    return jnp.max(jnp.abs(move)) / (1 + jnp.max(jnp.abs(place)))


def _excess(found: _Sweeps) -> Array:
    """The largest |log Σ| of a row or column of weights, whatever the size of the potentials."""
    return 2 * jnp.max(jnp.abs(found.best_move))


def _balanced(found: _Sweeps) -> Array:
    """Whether rows and columns of weights sum to one up to rounding, or within half of the digits."""
    unit = _unit(found.best)
    return (found.least < unit**_RESTED) | (_excess(found) < unit**_FAILURE)


def _relax(function: Callable, start: Potentials, target: Potentials, combined: bool) -> _Sweeps:
    """Solve function(p) = target by sweeps p ← p + r, r = ½(target − function(p)), until p stands still to rounding."""
    rounding = _unit(start)

    def move_at(place: Array) -> Array:
        return 0.5 * (target - function(place))

    def go_on(now: _Sweeps) -> Array:
        patience = jnp.where(now.least < rounding**_RESTED, _PATIENCE, _LONG_PATIENCE)
        stuck = (now.since_best >= patience) & (now.least < rounding**_FAILURE)
        return (now.least > _TOLERANCE_UNITS * rounding) & (now.swept < _MAXIMUM_SWEEPS) & ~stuck

    def sweep(now: _Sweeps) -> _Sweeps:
        place = now.combined() if combined else now.place + now.move
        return now.after(place, move_at(place))

    return jax.lax.while_loop(go_on, sweep, _Sweeps.begun(start, move_at(start)))
