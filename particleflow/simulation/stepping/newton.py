"""Newton's method with a matrix that is kept while it serves.

Most of the cost of an implicit step of many unknowns is the derivative of the field: with m unknowns it takes as long
as many hundreds of fields, where a solve with the factored matrix takes a few. So all stages of a step share one
matrix, I − hγJ, and another one is computed where corrections shrink too slowly: while particles merge J changes over
distances of 1/β, while clusters stand still it does not change at all.

Unknowns are increments of the state, so that the tolerances of the steps apply to them as they are. Source: Hairer and
Wanner, Solving Ordinary Differential Equations II (1996), section IV.8.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Float

_SLOW = 0.2  # corrections that shrink by less than this from one to the next have another matrix computed
_ACCURACY = 0.01  # the error of a solution, in units of the tolerances of the steps
_NOT_TRANSPOSED = (ValueError, TypeError, NotImplementedError)  # what JAX raises for such a function

Factors = tuple[Array, Array]


class _Corrections(NamedTuple):
    """The factored matrix, the sizes of the last two corrections, the largest number of the last, and their number."""

    factors: Factors
    size: Array
    before: Array
    largest: Array
    made: Array


class KeptNewton(optx.AbstractRootFinder):
    """Corrections A⁻¹ r(z) with a factored A, until those that would follow are below a hundredth of the tolerances.

    Options: the `factors` of a matrix to begin with, whether they are `known` or still to be computed, and the
    `rounding` of r, below which no correction gets. The factors in the last state serve the next equations.
    """

    rtol: Any
    atol: Any
    norm: Callable[[Any], Array] = optx.max_norm

    def init(self, fn: Any, y: Any, args: Any, options: Any, f_struct: Any, aux_struct: Any, tags: Any) -> _Corrections:
        """No corrections so far."""
        none = jnp.asarray(jnp.inf, y.dtype)
        return _Corrections(options["factors"], none, none, none, jnp.zeros((), int))

    def step(
        self, fn: Any, y: Array, args: Any, options: Any, state: _Corrections, tags: Any
    ) -> tuple[Array, _Corrections, Any]:
        """One correction; first another matrix if there is none, or if the last corrections shrank too slowly."""
        slow = (state.made >= 2) & ~(state.size <= _SLOW * state.before) & ~_is_over(state, options["rounding"])
        missing = (state.made == 0) & ~options["known"]
        factors = jax.lax.cond(
            _anywhere(slow | missing), lambda: factored(lambda z: fn(z, args)[0], y), lambda: state.factors
        )
        residual, aux = fn(y, args)
        correction = jax.scipy.linalg.lu_solve(factors, residual)
        found = y - correction
        size = self.norm(correction / (self.atol + self.rtol * jnp.abs(found)))
        largest = jnp.max(jnp.abs(correction))
        return found, _Corrections(factors, size, state.size, largest, state.made + 1), aux

    def terminate(
        self, fn: Any, y: Any, args: Any, options: Any, state: _Corrections, tags: Any
    ) -> tuple[Array, optx.RESULTS]:
        """Whether the solution is accurate, or lost: then a correction is not finite."""
        lost = (state.made > 0) & ~jnp.isfinite(state.largest)
        result = optx.RESULTS.where(lost, optx.RESULTS.nonlinear_divergence, optx.RESULTS.successful)
        return _is_over(state, options["rounding"]), result

    def postprocess(
        self, fn: Any, y: Any, aux: Any, args: Any, options: Any, state: Any, tags: Any, result: Any
    ) -> tuple[Any, Any, dict[str, Any]]:
        """The solution as it is."""
        return y, aux, {}


def _is_over(state: _Corrections, rounding: Array) -> Array:
    """Whether the corrections that would follow, size · (r + r² + …) at the rate r, are small, or not finite."""
    rate = state.size / state.before
    follows = state.size * rate / (1 - rate)
    small = (state.made >= 2) & (rate < 1) & (follows <= _ACCURACY)
    return (state.made > 0) & (small | (state.largest <= rounding) | ~jnp.isfinite(state.largest))


@jax.custom_batching.custom_vmap
def _anywhere(flag: Array) -> Array:
    """Whether it holds for any run of a batch.

    Runs compute matrices together: where each decided for itself, a batch would compute one for every correction.
    """
    return flag


@_anywhere.def_vmap
def _anywhere_in_batch(size: int, batched: list[bool], flag: Array) -> tuple[Array, bool]:
    """One answer for all runs."""
    return jnp.any(flag), False


def no_factors(like: Float[Array, " m"]) -> Factors:
    """The shapes of factors of a matrix for so many numbers, before there are any."""
    return jnp.zeros((like.size, like.size), like.dtype), jnp.zeros(like.size, jnp.int32)


def factored(function: Callable[[Array], Array], at: Float[Array, " m"]) -> Factors:
    """The derivative of a function of m numbers, as factors L and U and the order of the rows."""
    return jax.scipy.linalg.lu_factor(_derivative(function, at))


def _derivative(function: Callable[[Array], Array], at: Float[Array, " m"]) -> Float[Array, "m m"]:
    """The derivative row by row, or column by column where the function cannot be transposed (loops of unknown length).

    Rows of sums over all pairs are summed natively, and take a sixth of the time of columns for 200 particles.
    """
    try:
        return jax.jacrev(function)(at)
    except _NOT_TRANSPOSED:
        return jax.jacfwd(function)(at)


def newton_to_rounding(dtype: Any) -> KeptNewton:
    """Newton's method for fixed steps, which have no tolerances of their own: to 100 units of rounding."""
    tolerance = 100 / _ACCURACY * float(jnp.finfo(dtype).eps)
    return KeptNewton(tolerance, tolerance)
