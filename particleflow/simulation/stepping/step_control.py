"""Parts that diffrax does not provide: steps on a grid, steps carried over windows, maps, noise, bisection.

Solvers pass further results to the controller together with the error estimate, as nested tuples that controllers
unpack one by one: `Watched` (the time at which to end the step, for an event), `BoundedError` (the longest step that
keeps a density positive), `CountedError` (the number of evaluations of Newton's method).
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Float

from particleflow.discretization import AbstractDiscretization
from particleflow.discretization.base import split
from particleflow.discretization.discretization_capabilities import BoundedSteps
from particleflow.dynamics.flow import Flow
from particleflow.simulation.stepping.event_search import unwatched
from particleflow.simulation.stepping.implicit import uncounted
from particleflow.simulation.stepping.positive_steps import unbounded, within
from particleflow.summation.device_axis import all_rows, device_count, everywhere, largest, own_rows, rows_each

_FIELD_ROUNDING = 4.0  # the rounding error of a field, in units of eps · max |y|
# A step that ends where the field jumps uses the field before the jump, and the next one the field after it. So fields
# are evaluated `_EARLIER` rounding units before their time, and the step after a jump begins `_LATER` units after it.
# Layers change within 8 units of their times: 12 and 24 − 12 are more than that.
_EARLIER, _LATER = 12.0, 24.0
_UNCUT = 0.999  # a step of at least this share of the proposed one was not cut short
_ON_GRID = 1e-3  # share of a step; a time so near to a grid point counts as that point


class Numbers(NamedTuple):
    """The numbers of a method, which may change without compiling again."""

    rtol: Array
    atol: Array
    step: Array
    origin: Array
    key: Array | None


class GridNoise(diffrax.AbstractPath):
    """Brownian increments over the cells of the time grid, each from the key folded with the cell's index.

    The path is a function of the key and the grid alone: it does not depend on saved times or windows. A step that ends
    inside a cell, at the share a of it, has the increment of the Brownian bridge, aΔW + √(a(1 − a) h) Z with a normal Z
    of its own: the variance is ah, and the path on the grid is unchanged. With `whole_cells` no step ends there.
    """

    key: Array
    numbers: Numbers
    size: tuple[int, ...] = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)
    whole_cells: bool = eqx.field(static=True)
    t0: ClassVar[float] = -float("inf")  # pyright: ignore[reportIncompatibleVariableOverride]
    t1: ClassVar[float] = float("inf")  # pyright: ignore[reportIncompatibleVariableOverride]

    def evaluate(self, t0: Any, t1: Any = None, left: bool = True, use_levy: bool = False) -> Array:
        """The increment from t0, the beginning of a cell, to t1, its end or that of a run that ends inside it."""
        cell = jnp.round((t0 - self.numbers.origin) / self.numbers.step).astype(jnp.uint32)
        key = jax.random.fold_in(self.key, cell)
        whole = jax.random.normal(key, self.size, self.dtype)
        size = jnp.sqrt(self.numbers.step).astype(self.dtype)
        if self.whole_cells:
            return whole * size
        part = jnp.clip((t1 - t0) / self.numbers.step, 0.0, 1.0)
        part = jnp.where(part > 1 - _ON_GRID, 1.0, part).astype(self.dtype)
        bridge = jnp.sqrt(part * (1 - part)) * jax.random.normal(jax.random.fold_in(key, 0), self.size, self.dtype)
        return (part * whole + bridge) * size


class FlowSystem(eqx.Module):
    """A flow as an ODE for the moving leaves of a state; `fixed` holds the others.

    A module and not a closure, so that every adjoint sees the arrays it depends on. With `jumps` the flow is evaluated
    a little earlier than at the time it is given, so that a step that ends on a jump uses the field before it
    (`after_jumps`). Time, and the sums of steps with it, are in 64 bits whatever the `precision` of the state: single
    precision cannot tell 8192 from 8192.0001. The flow is evaluated in its own precision.

    With `rows`, the number of rows of every moving leaf, a device holds some of them (`summation.device_axis`): it
    gathers all, evaluates the flow as one device would, and keeps its rows of what comes out.
    """

    flow: Flow
    discretization: AbstractDiscretization
    fixed: Any
    jumps: bool = eqx.field(static=True)
    precision: Any = eqx.field(static=True)
    rows: int | None = eqx.field(static=True, default=None)

    def whole(self, moving: Any) -> Any:
        """The state with these moving leaves, in its precision; of all devices where each holds some rows."""
        moving = cast(moving, self.precision)
        return eqx.combine(moving if self.rows is None else all_rows(moving, self.rows), self.fixed)

    def held(self, moving: Any) -> Any:
        """The state with these moving leaves, in its precision, as this device holds it."""
        return eqx.combine(cast(moving, self.precision), self.fixed)

    def own(self, change: Any) -> Any:
        """What this device holds of moving leaves or their rates."""
        return change if self.rows is None else own_part(change)

    def __call__(self, t: Any, y: Any, args: Any) -> Any:
        """d y/dt."""
        rate = self.discretization.velocity(self.flow, self._asked(t), self.whole(y))
        return cast(self.own(rate), t.dtype)

    def bounded(self, t: Any, y: Any) -> tuple[Any, Array]:
        """d y/dt, and the longest Euler step along it."""
        how, state = self.discretization, self.whole(y)
        if isinstance(how, BoundedSteps):
            rate, bound = how.bounded_velocity(self.flow, self._asked(t), state)
        else:
            rate, bound = how.velocity(self.flow, self._asked(t), state), jnp.inf
        return cast(rate, t.dtype), jnp.asarray(bound).astype(t.dtype)

    def _asked(self, t: Any) -> Array:
        """The time at which the flow is evaluated, in its precision."""
        asked = t - _EARLIER * float(jnp.finfo(self.precision).eps) * jnp.abs(t) if self.jumps else t
        return asked.astype(self.precision)

    def step(self, t: Any, y: Any, size: Any) -> Any:
        """The moving leaves after one explicit layer of this size."""
        time, length = t.astype(self.precision), size.astype(self.precision)
        moved = self.discretization.step(self.flow, time, self.whole(y), length)
        return cast(self.own(split(moved, y)[0]), t.dtype)


def own_part(leaves: Any) -> Any:
    """The rows that this device holds, of arrays of rows."""
    devices = device_count()
    assert devices is not None
    return jax.tree.map(lambda rows: own_rows(rows, rows_each(rows.shape[0], devices)), leaves)


def cast(tree: Any, dtype: Any) -> Any:
    """A tree of numbers in another precision."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype), tree)


def after_jumps(time: Any, jumps: Float[Array, " k"] | None, precision: Any) -> tuple[Array, Any]:
    """The beginning of a step at this time, moved a little later if it lies on a jump, and whether it does.

    `precision` is that of the field, in which the two times must differ.
    """
    if jumps is None:
        return time, False
    unit = float(jnp.finfo(precision).eps) * jnp.abs(time)
    on_jump = jnp.any(jnp.abs(jumps - time) <= 4 * unit)
    return jnp.where(on_jump, time + _LATER * unit, time), on_jump


class ExplicitMap(diffrax.AbstractSolver):
    """A map as a solver: y₁ is one explicit layer."""

    system: FlowSystem
    term_structure: ClassVar = diffrax.AbstractTerm
    interpolation_cls: ClassVar = diffrax.LocalLinearInterpolation

    def order(self, terms: Any) -> int:
        """Maps are exact; as an approximation of the flow they have order one."""
        return 1

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> None:
        """A map carries no state between steps."""
        return

    def step(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any, solver_state: Any, made_jump: Any) -> tuple:
        """Apply the map once."""
        y1 = self.system.step(t0, y0, t1 - t0)
        return y1, None, {"y0": y0, "y1": y1}, None, diffrax.RESULTS.successful

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        """The field that the map is a step of."""
        return terms.vf(t0, y0, args)


def all_finite(state: Any) -> Array:
    """Whether every number of a state is finite."""
    return everywhere(jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(state)])))


class _Carried(eqx.Module):
    """The state of a controller: that of the `inner` one, the step `proposed` next, field evaluations so far."""

    inner: Any
    proposed: Array
    evaluations: Array


class OnGrid(diffrax.AbstractStepSizeController):
    """Steps from grid point to grid point, origin + k · step, without accumulating rounding."""

    origin: Array
    step: Array
    jumps: Float[Array, " k"] | None
    precision: Any = eqx.field(static=True)

    def wrap(self, direction: Any) -> "OnGrid":
        """The controller itself: time runs forwards."""
        return self

    def _next(self, time: Any) -> Array:
        """The grid point after this time, which is one itself unless a step was cut short."""
        cells = (time - self.origin) / self.step
        nearest = jnp.round(cells)
        before = jnp.where(jnp.abs(cells - nearest) <= _ON_GRID, nearest, jnp.floor(cells))
        return self.origin + (before + 1) * self.step

    def init(self, terms, t0, t1, y0, dt0, args, func, error_order):
        """The first grid point after t0."""
        return self._next(t0), _Carried(None, self.step, jnp.zeros((), int))

    def adapt_step_size(self, t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state):
        """Step to the next grid point, or to an event before it.

        If the new state is not finite, or the step longer than its bound, the run ends before this step.
        """
        y_error, cut, resolved = unwatched(y_error, t1)
        y_error, bound = unbounded(y_error)
        carried = _Carried(None, self.step, controller_state.evaluations + uncounted(y_error)[1])
        begin, jumped = after_jumps(t1, self.jumps, self.precision)
        finite = all_finite(y1_candidate) & ~(t1 - t0 > bound)
        keep = finite & ((cut >= t1) | ~resolved)
        result = diffrax.RESULTS.where(finite, diffrax.RESULTS.successful, diffrax.RESULTS.dt_min_reached)
        return keep, jnp.where(keep, begin, t0), jnp.where(keep, self._next(t1), cut), jumped, carried, result


class Carrying(diffrax.AbstractAdaptiveStepSizeController):
    """An error controller that remembers the step it wants next, so that the next window can begin with it.

    With `bounded` steps the first one of a run is tried over the whole window: its bound then gives the length.

    With `passing`, the solve ends with the step that reaches this time, as diffrax ends it for an event.

    A step cut short by the end of a window, by one of the times `stops`, or by one of the `jumps` of the field, does
    not show which step the error allows; the step proposed before the cut is kept.
    """

    pid: diffrax.PIDController
    rtol: Any
    atol: Any
    norm: Callable
    stops: Float[Array, " k"] | None
    jumps: Float[Array, " k"] | None
    precision: Any = eqx.field(static=True)
    bounded: bool = eqx.field(static=True, default=False)
    passing: Float[Array, ""] | None = None

    def wrap(self, direction: Any) -> "Carrying":
        """The controller itself: time runs forwards."""
        return self

    def init(self, terms, t0, t1, y0, dt0, args, func, error_order):
        """Begin with the carried step, or with an estimate when there is none."""
        whole = t1 - t0 if self.bounded else None
        estimate, inner = self.pid.init(terms, t0, t1, y0, whole, args, func, error_order)
        first: Any = estimate - t0 if dt0 is None else jnp.where(dt0 > 0, dt0, estimate - t0)
        return self._cut(t0, t0 + first), _Carried(inner, first, jnp.zeros((), int))

    def adapt_step_size(self, t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state):
        """Apply the error controller to the error less the rounding of the field, which would limit steps to tol/eps.

        A step that is longer than its bound is repeated within it, and the next one is limited by it, too. A step with
        an event is repeated up to the event; the step that the error allows is kept.
        """
        y_error, limits, evaluations = _limits_of(y_error, t0, t1)
        rounding = float(jnp.finfo(self.precision).eps) * (t1 - t0)
        y_error = jax.tree_util.tree_map(lambda error, y: _above_rounding(error, y, rounding), y_error, y0)
        keep, next_t0, next_t1, jump, inner, result = self.pid.adapt_step_size(
            t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state.inner
        )
        wished = _wish(keep, t1 - t0, next_t1 - next_t0, controller_state.proposed)
        wished, next_t1 = jnp.minimum(wished, limits.allowed), jnp.minimum(next_t1, next_t0 + limits.allowed)
        again = keep & (limits.cut < t1)
        keep, next_t0, next_t1 = keep & ~again, jnp.where(again, t0, next_t0), jnp.where(again, limits.cut, next_t1)
        shown: Any = jnp.where(limits.resolved, controller_state.proposed, limits.cut - t0)
        wish: Any = jnp.where(again, shown, wished)
        inner = jax.tree.map(lambda new, old: jnp.where(again, old, new), inner, controller_state.inner)
        carried = _Carried(inner, wish, controller_state.evaluations + evaluations)
        if self.jumps is not None:
            begin, on_jump = after_jumps(next_t0, self.jumps, self.precision)
            next_t0, next_t1 = jnp.where(keep, begin, next_t0), jnp.where(keep, next_t1 + (begin - next_t0), next_t1)
            jump = jump | (keep & on_jump)
        if self.passing is not None:
            passed = keep & (next_t0 >= self.passing) & (result == diffrax.RESULTS.successful)
            result = diffrax.RESULTS.where(passed, diffrax.RESULTS.event_occurred, result)
        return keep, next_t0, self._cut(next_t0, next_t1), jump, carried, result

    def _cut(self, begin: Any, end: Any) -> Any:
        """The end of a step, no later than the next stop or jump."""
        for stops in (self.stops, self.jumps):
            if stops is not None:
                end = jnp.minimum(end, jnp.min(jnp.where(stops > begin, stops, jnp.inf)))
        return end


class _Limits(NamedTuple):
    """Limits of steps: this one ends at `cut`, the next is at most `allowed` long.

    `resolved` is false where the cut is not for an event, but for the bound or because the level is not resolved.
    """

    cut: Array
    resolved: Array
    allowed: Any


def _limits_of(y_error: Any, t0: Any, t1: Any) -> tuple[Any, _Limits, Array]:
    """Unpack an error estimate: the estimate itself, the limits by events and bounds, and the field evaluations."""
    y_error, cut, resolved = unwatched(y_error, t1)
    y_error, bound = unbounded(y_error)
    y_error, evaluations = uncounted(y_error)
    allowed, too_long = within(bound), t1 - t0 > bound
    cut, resolved = jnp.where(too_long, jnp.minimum(cut, t0 + allowed), cut), resolved & ~too_long
    return y_error, _Limits(cut, resolved, allowed), evaluations


def _wish(keep: Any, size: Any, following: Any, before: Any) -> Any:
    """The step to propose after one of this `size`: the `following` one, or that from `before` if a stop cut it."""
    was_cut = keep & (size < _UNCUT * before)
    return jnp.where(was_cut, jnp.maximum(following, before), following)


def _above_rounding(error: Array, y: Array, rounding: Any) -> Array:
    """An error estimate less what the rounding of the field alone may cause."""
    caused = _FIELD_ROUNDING * rounding * largest(jnp.max(jnp.abs(y)))
    return jnp.sign(error) * jnp.maximum(jnp.abs(error) - caused, 0.0)


def error_controller(begin: Array, end: Array, numbers: Numbers) -> diffrax.PIDController:
    """diffrax's controller for the tolerances in `numbers`, with the smallest step that 64 bits of time can tell apart.

    A solve that would need a smaller one fails.
    """
    # Not a whole number of rounding units of time: diffrax accepts every step of exactly the smallest size.
    smallest = 7.9 * jnp.finfo(begin.dtype).eps * jnp.maximum(jnp.abs(begin), 1e-6 * (end - begin))
    return diffrax.PIDController(
        rtol=numbers.rtol, atol=numbers.atol, norm=_worst_row, dtmin=smallest, force_dtmin=False
    )


def _worst_row(scaled_error: Any) -> Float[Array, ""]:
    """max_i √(mean_a e_ia²), the root mean square over coordinates of the particle with the largest error.

    A norm over all particles would average the error of one away. Of any other leaf, the same over its last axis; the
    derivatives that the continuous adjoint integrates for every parameter count as one more particle each.
    """
    squares = [
        jnp.max(jnp.mean(jnp.square(leaf), axis=-1)) for leaf in map(jnp.atleast_1d, jax.tree.leaves(scaled_error))
    ]
    worst = jnp.max(jnp.stack(squares))
    positive = worst > 0
    norm = jnp.where(positive, jnp.sqrt(jnp.where(positive, worst, 1.0)), 0.0)
    norm = jnp.where(jnp.isnan(worst), jnp.inf, norm)  # a step to a state that is not finite is repeated, shorter
    return largest(norm)


class Bisection(optx.Bisection):
    """Bisection that does not require a change of sign: in an ensemble it also runs where no event has happened.

    It ends when the time is accurate, not when the level is small, which a steep one, or one in single precision, may
    never be.
    """

    def init(self, fn: Any, y: Any, args: Any, options: Any, f_struct: Any, aux_struct: Any, tags: Any) -> Any:
        """The state of the whole interval; `flip` where the function decreases on it."""
        decreasing = fn(options["lower"], args)[0] > fn(options["upper"], args)[0]
        plain = optx.Bisection(self.rtol, self.atol, flip=False)
        state = plain.init(fn, y, args, options, f_struct, aux_struct, tags)
        return eqx.tree_at(lambda s: s.flip, state, decreasing)

    def terminate(self, fn: Any, y: Any, args: Any, options: Any, state: Any, tags: Any) -> tuple[Array, optx.RESULTS]:
        """Whether the interval is small enough."""
        return jnp.abs(state.upper - state.lower) < self.atol + self.rtol * jnp.abs(y), optx.RESULTS.successful
