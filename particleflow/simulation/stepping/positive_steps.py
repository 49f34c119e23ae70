"""Steps that keep a density positive: convex combinations of Euler steps, each within a bound of its own.

A scheme for cells keeps y ≥ 0 in an Euler step y + h f(y) while h ≤ τ(y). Other methods need not: most Runge–Kutta
methods have negative weights, and an error estimate does not detect a negative y. The strong-stability-preserving
method of Shu and Osher (1988) is made of Euler steps alone,

    y¹ = y + h f(y),    y² = ¾ y + ¼ (y¹ + h f(y¹)),    y⁺ = ⅓ y + ⅔ (y² + h f(y²)),

so that y⁺ ≥ 0 wherever h ≤ min(τ(y), τ(y¹), τ(y²)), in rounded numbers, too. That minimum is passed to the step-size
controller with the error estimate, y⁺ less Heun's ½ y + ½ (y¹ + h f(y¹)); a step that is longer is rejected. Between
the ends of a step the path is a straight line, which is positive as well.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
from jaxtyping import Array

SHU_OSHER = "ssprk3"
_SHARES, _NODES = (0.0, 0.75, 1 / 3), (0.0, 1.0, 0.5)  # weight of y in each stage; its time within the step
STAGES = len(_NODES)
_WITHIN = 0.85  # share of the last step's bound that the next step may take, whose own bound may be smaller


class BoundedError(NamedTuple):
    """The error estimate of a step, and the longest step that its stages allow."""

    error: Any
    bound: Array


def unbounded(error: Any) -> tuple[Any, Array | float]:
    """The error estimate alone, and the longest step that was allowed, infinite where the step has no bound."""
    return (error.error, error.bound) if isinstance(error, BoundedError) else (error, jnp.inf)


def within(bound: Any) -> Any:
    """The longest next step after one whose stages allowed steps up to `bound`."""
    return _WITHIN * bound


class ShuOsher(diffrax.AbstractAdaptiveSolver):
    """The method of Shu and Osher of order three; `bounded(time, y)` is f(y) with the longest Euler step τ(y)."""

    bounded: Callable[[Any, Any], tuple[Any, Array]]
    term_structure: ClassVar = diffrax.AbstractTerm
    interpolation_cls: ClassVar = diffrax.LocalLinearInterpolation

    def order(self, terms: Any) -> int:
        """The order of convergence, three."""
        return 3

    def error_order(self, terms: Any) -> float:
        """The order of the error of Heun's step, which is the estimate."""
        return 3.0

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> None:
        """The solver carries no state between steps."""
        return

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        """The field at a time and a state."""
        return terms.vf(t0, y0, args)

    def step(
        self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any, solver_state: Any, made_jump: Any
    ) -> tuple[Any, BoundedError, dict[str, Any], None, Any]:
        """One step: new state, error and bound, and what the interpolation needs."""
        size = t1 - t0

        def stage(y: Any, numbers: Any) -> tuple[Any, Any]:
            share, node = numbers
            time = jnp.where(node == 1, t1, t0 + node * size)
            rate, bound = self.bounded(time, y)
            stepped = jax.tree.map(lambda leaf, move: leaf + size * move, y, rate)
            return _mixed(share, y0, stepped), (stepped, bound)

        # A loop over the stages, so that the field is compiled once.
        shares, nodes = (jnp.asarray(each, size.dtype) for each in (_SHARES, _NODES))
        y1, (stepped, bounds) = jax.lax.scan(stage, y0, (shares, nodes))
        heun = _mixed(0.5, y0, jax.tree.map(lambda leaf: leaf[1], stepped))
        error = jax.tree.map(jnp.subtract, y1, heun)
        return y1, BoundedError(error, jnp.min(bounds)), {"y0": y0, "y1": y1}, None, diffrax.RESULTS.successful


def _mixed(share: Any, one: Any, other: Any) -> Any:
    """share · one + (1 − share) · other."""
    return jax.tree.map(lambda first, second: share * first + (1 - share) * second, one, other)
