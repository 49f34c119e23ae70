"""Steps that search for an event between their ends, too.

diffrax compares the sign of a level at the two ends of every step, and takes the time of the event from the step's
interpolation. So it misses a level that crosses zero and comes back within one step, and where the interpolation is
less accurate than the method (a cubic for implicit methods) so is the time. Here the level is evaluated within every
step, and a step in which it crosses is repeated up to the crossing: the event then lies at the end of a step, where the
interpolation is the solution itself.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

_PIECES = 4  # the level is evaluated at the ends of so many equal pieces of a step, and once more around each inner end
_UNRESOLVED = 0.2  # the error of a parabola through three values at a fourth that is allowed, of the level's range
FINEST = 2.0**-10  # steps shorter than this share of a window are not halved to resolve the level
_NEAR = 1e-3  # share of a step; so near to its ends the interpolation is as accurate as the step
_BISECTIONS = 24

Level = Callable[[Any, Any], Float[Array, ""]]


class Watched(NamedTuple):
    """The error estimate of a step, the time at which to `cut` it, and whether parabolas resolved the level."""

    error: Any
    cut: Array
    resolved: Array


def unwatched(error: Any, end: Any) -> tuple[Any, Array, Array]:
    """Unpack an error estimate, the time at which to cut the step (its `end` if none), and whether it was resolved."""
    if isinstance(error, Watched):
        return error.error, error.cut, error.resolved > 0
    return error, end, jnp.asarray(True)


class Watching(diffrax.AbstractAdaptiveSolver):
    """A solver that returns, with the error of a step, the time at which `level` first changes its sign in it.

    A step no longer than `indistinct` is not cut: over such a time rounding alone changes the sign of a level near
    zero, back and forth, and cutting steps for it would never end.
    """

    solver: Any
    level: Level
    shortest: Array
    indistinct: Array
    rounding: float
    term_structure: ClassVar = diffrax.AbstractTerm

    @property
    def interpolation_cls(self) -> Any:  # pyright: ignore
        """The interpolation of the wrapped solver."""
        return self.solver.interpolation_cls

    def order(self, terms: Any) -> int:
        """The order of the wrapped solver."""
        return self.solver.order(terms)

    def error_order(self, terms: Any) -> Any:
        """The error order of the wrapped solver."""
        return self.solver.error_order(terms)

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        """The field, as the wrapped solver evaluates it."""
        return self.solver.func(terms, t0, y0, args)

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> Any:
        """The initial state of the wrapped solver."""
        return self.solver.init(terms, t0, t1, y0, args)

    def step(
        self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any, solver_state: Any, made_jump: Any
    ) -> tuple[Any, Watched, Any, Any, Any]:
        """The step of the wrapped solver, with the time at which the level changes its sign in it."""
        y1, error, dense, state, result = self.solver.step(terms, t0, t1, y0, args, solver_state, made_jump)
        interpolation = self.interpolation_cls(t0=t0, t1=t1, **dense)

        def level(time: Array) -> Array:
            return self.level(time, interpolation.evaluate(time))

        times, values, resolved = _looks(level, t0, t1, self.rounding)
        resolved = resolved | (t1 - t0 <= self.shortest)
        cut = jnp.where(resolved, t1, t0 + 0.5 * (t1 - t0))
        crossed = (jnp.sign(values) != jnp.sign(values[0])) & (values[0] != 0) & ~jnp.isnan(values)
        found = _cut(level, times, values, crossed)
        clear = (resolved | jnp.any(crossed)).astype(t1.dtype)  # a number: diffrax checks errors for NaN
        asked = jnp.where((t1 - t0 > self.indistinct) & jnp.any(crossed), found, cut)
        watched = Watched(error, jnp.asarray(asked), clear)
        return y1, watched, dense, state, result


def _looks(level: Callable, t0: Array, t1: Array, rounding: float) -> tuple[Array, Array, Array]:
    """Times on a step and the level at each, in order, and whether parabolas through them resolve the level.

    Around each inner place the level is evaluated again at the extremum of the parabola through it and its neighbours,
    where a level that crosses and comes back is farthest beyond zero.
    """
    places = jnp.linspace(0.0, 1.0, _PIECES + 1).astype(t1.dtype)
    even = jnp.where(places == 1, t1, t0 + places * (t1 - t0))
    values = jax.lax.map(level, even)
    before, here, after = values[:-2], values[1:-1], values[2:]
    slope, bend = 0.5 * (after - before), after - 2 * here + before
    turn = jnp.clip(-slope / jnp.where(bend == 0, 1.0, bend), -0.5, 0.5)
    turn = jnp.where((bend == 0) | (jnp.abs(turn) < 0.05), jnp.where(turn < 0, -0.5, 0.5), turn)
    between = even[1:-1] + turn.astype(t1.dtype) * (t1 - t0) / _PIECES
    more = jax.lax.map(level, between)
    missed = jnp.max(jnp.abs(more - (here + turn * slope + 0.5 * turn**2 * bend)))
    everything = jnp.concatenate([values, more])
    spread = jnp.max(everything) - jnp.min(everything)
    resolved = ~(missed > _UNRESOLVED * spread + rounding * jnp.max(jnp.abs(everything)))
    times = jnp.concatenate([even, between])
    order = jnp.argsort(times)
    return times[order], everything[order], resolved


def _cut(level: Callable, times: Array, values: Array, crossed: Bool[Array, " k"]) -> Array:
    """The time at which a step with a crossing should end: just after the first, so that diffrax sees the new sign."""
    first, any_crossed = jnp.argmax(crossed), jnp.any(crossed)
    begin, end = times[0], times[-1]

    def halve(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        low, high, count = state
        middle = 0.5 * (low + high)
        after = jnp.sign(level(middle)) != jnp.sign(values[0])
        return jnp.where(after, low, middle), jnp.where(after, middle, high), count + 1

    start = times[jnp.maximum(first - 1, 0)], times[first], jnp.zeros((), int)
    _, root, _ = jax.lax.while_loop(lambda state: any_crossed & (state[2] < _BISECTIONS), halve, start)
    at_an_end = (root - begin <= _NEAR * (end - begin)) | (end - root <= _NEAR * (end - begin))
    return jnp.where(at_an_end, jnp.where(crossed[-1], end, times[first]), root)
