"""What a user hands over, as one flow, one measure and one list of times: a run, or a leading axis of runs."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow._arrays import as_float_array, progression
from particleflow.discretization import AbstractDiscretization
from particleflow.drifts import AbstractDrift
from particleflow.errors import ArgumentError, KindError, ShapeError, check_kind
from particleflow.flow import Flow
from particleflow.geometry import retracted
from particleflow.initial.base import AbstractInitial
from particleflow.measure import Measure

_STEP_UNITS = 64.0  # a step must be at least so many units of rounding of the time it is added to


def as_start(start: Any) -> Measure:
    """A measure with positions 0, 1, 2, …, unless it has its own."""
    measure = start if isinstance(start, Measure) else Measure.uniform(start)
    if measure.positions is not None:
        return measure
    return measure.with_positions(progression(0.0, 1.0, measure.count, measure.points.dtype))


def as_flows(flow: Flow | Sequence[Flow]) -> tuple[Flow, int | None]:
    """One flow to look at, and how many there are: None for a single one that serves every run."""
    if isinstance(flow, Flow):
        if flow.temperature.ndim == 0:
            return flow, None
        return leaf_of(flow, 0), len(flow.temperature)
    flows = list(flow) if isinstance(flow, Iterable) else [flow]
    if not flows:
        raise ArgumentError("Argument `flow` must be a flow or a list of flows, but is an empty list.")
    for each in flows:
        check_flow(each)
    return flows[0], len(flows)


def check_flow(flow: Any) -> None:
    """Raise unless it is a flow; a drift alone does not say where its particles live."""
    if isinstance(flow, AbstractDrift):
        raise KindError("Argument `flow` must be a flow, but is a drift: write Flow(drift), or Flow(drift, geometry).")
    check_kind(flow, Flow, "flow", "a flow or a list of flows")


def joined_flows(flow: Flow | Sequence[Flow], dtype: Any) -> Flow:
    """The flows of an ensemble as one whose arrays have a leading axis; one made by `vmap` is that already."""
    if not isinstance(flow, Flow):
        return stack(list(flow), "flow", dtype)
    return jax.tree_util.tree_map(lambda leaf: leaf.astype(dtype) if getattr(leaf, "weak_type", False) else leaf, flow)


def stack(trees: Sequence[Any], name: str, dtype: Any) -> Any:
    """Objects of one structure as one object whose arrays have a leading axis; plain numbers take on `dtype`."""
    parts = [eqx.partition(tree, eqx.is_array) for tree in trees]
    structures = {jax.tree_util.tree_structure(arrays) for arrays, _ in parts}
    same_rest = all(eqx.tree_equal(parts[0][1], rest) is True for _, rest in parts)
    if len(structures) > 1 or not same_rest:
        raise ArgumentError(f"The runs of an ensemble must differ in numbers only, but their {name}s differ in kind.")

    def joined(*leaves: Array) -> Array:
        if len({leaf.shape for leaf in leaves}) > 1:
            raise ShapeError(f"The runs of an ensemble must have equal shapes, but a {name} has {leaves[0].shape}.")
        return jnp.asarray(np.stack(leaves), dtype if leaves[0].weak_type else leaves[0].dtype)

    arrays = jax.tree_util.tree_map(joined, *(arrays for arrays, _ in parts))
    return eqx.combine(arrays, parts[0][1])


def each_flow(flow: Flow | Sequence[Flow], runs: int | None) -> list[Flow]:
    """The flows of all runs, one for all if there is only one."""
    if not isinstance(flow, Flow):
        return list(flow)
    return [flow] if runs is None else [leaf_of(flow, run) for run in range(runs)]


def laid_out(how: AbstractDiscretization, flow: Flow | Sequence[Flow], runs: int | None, start: Any) -> Any:
    """The start on points that can carry it, each run's by its own flow; particles begin where they are."""
    if how.atoms:
        return start
    several = isinstance(start, list | tuple) or len(getattr(start, "shape", ())) == 3
    starts, flows = list(start) if several else [start], each_flow(flow, runs)
    if len(starts) > 1 and len(flows) > 1 and len(starts) != len(flows):
        raise ShapeError(f"There are {len(flows)} flows, but {len(starts)} starts.")
    count = max(len(starts), len(flows))
    found = [how.laid_out(flows[run % len(flows)], starts[run % len(starts)]) for run in range(count)]
    return found if several or runs is not None else found[0]


def as_starts(start: Any, runs: int | None) -> tuple[Measure, int | None]:
    if isinstance(start, Measure):
        measure = as_start(start)
        if runs is None:
            return measure, None
        return jax.tree_util.tree_map(lambda leaf: jnp.broadcast_to(leaf, (runs, *leaf.shape)), measure), runs
    if isinstance(start, list | tuple) and all(isinstance(each, Measure) for each in start):
        measure, found = _stacked_starts([as_start(each) for each in start]), len(start)
    else:
        points = as_float_array(start, "start")
        if points.ndim == 2:
            positions = progression(0.0, 1.0, points.shape[0], points.dtype)
            return as_starts(Measure.uniform(points, positions=positions), runs)
        if points.ndim != 3 or 0 in points.shape:
            raise ShapeError(f"Argument `start` must have shape (n, d) or (runs, n, d), but has {points.shape}.")
        measure, found = jax.vmap(as_start)(points), points.shape[0]
    if runs is not None and found != runs:
        raise ShapeError(f"There are {runs} flows, but {found} starts.")
    return measure, found


class Draws(NamedTuple):
    """How guesses are drawn from an initial kind: how many particles each has, how many there are, and by which key."""

    particles: int | None = None
    draws: int = 1
    key: Array | None = None


def as_guesses(guesses: Any, how: AbstractDiscretization, flow: Flow, drawn: Draws) -> list[Measure]:
    """One measure or several, as a list; they need not have equal shapes.

    An initial kind is drawn from and brought onto the geometry; where densities are carried, and no `count` is given,
    it is its density.
    """
    if isinstance(guesses, AbstractInitial):
        return [as_start(each) for each in _drawn(guesses, how, flow, drawn)]
    if drawn != Draws():
        raise ArgumentError("Arguments `count`, `draws` and `key` are for guesses that are an initial kind.")
    guesses = laid_out(how, flow, None, guesses)
    if isinstance(guesses, Measure):
        return [as_start(guesses)]
    if isinstance(guesses, list | tuple) and guesses and all(isinstance(each, Measure) for each in guesses):
        return [as_start(each) for each in guesses]
    points = as_float_array(guesses, "guesses")
    if points.ndim not in (2, 3) or 0 in points.shape:
        raise ShapeError(f"Argument `guesses` must have shape (n, d) or (guesses, n, d), but has {points.shape}.")
    return [as_start(each) for each in (points[None] if points.ndim == 2 else points)]


def _drawn(initial: AbstractInitial, how: AbstractDiscretization, flow: Flow, drawn: Draws) -> list[Measure]:
    if isinstance(drawn.draws, bool) or not isinstance(drawn.draws, int) or drawn.draws < 1:
        raise ArgumentError(f"Argument `draws` must be a positive integer, but is {drawn.draws!r}.")
    if not how.atoms and drawn.particles is None:
        return [how.laid_out(flow, initial)]
    keys = jax.random.split(jax.random.key(0) if drawn.key is None else drawn.key, drawn.draws)
    found = []
    for key in keys:
        measure = initial.start(key, drawn.particles).measure
        points = retracted(flow.geometry.given(measure.log_weights), measure.points)
        placed = how.knowing(flow, measure.with_points(points), measure.points, initial.density(key))
        found.append(how.laid_out(flow, placed))
    return found


def _stacked_starts(measures: list[Measure]) -> Measure:
    if len({measure.points.dtype for measure in measures}) > 1:
        raise ArgumentError("The starts of an ensemble must have one precision, but have several.")
    return stack(measures, "start", measures[0].points.dtype)


def leaf_of(tree: Any, run: int) -> Any:
    """One run of objects whose arrays have a leading axis of runs."""
    return jax.tree_util.tree_map(lambda leaf: leaf[run] if eqx.is_array(leaf) else leaf, tree)


def as_times(times: Any) -> np.ndarray:
    """Increasing times, in 64 bits whatever the precision of the run, unless JAX has been told to know none."""
    given = np.asarray(times, dtype=float)
    if given.ndim != 1 or given.size == 0:
        raise ShapeError(f"Argument `times` must be a list of times, but has shape {given.shape}.")
    if not np.isfinite(given).all():
        raise ArgumentError("Argument `times` must be finite, but is not.")
    rounded = given.astype(jax.dtypes.canonicalize_dtype(float))
    bad = np.flatnonzero(np.diff(rounded) <= 0)
    if bad.size:
        raise ArgumentError(
            f"Argument `times` must increase, but goes from {rounded[bad[0]]} "
            f"to {rounded[bad[0] + 1]} at index {bad[0]}."
        )
    return rounded


def on_grid(times: np.ndarray, step: float) -> np.ndarray:
    cells = (times.astype(float) - float(times[0])) / step
    off = np.abs(cells - np.round(cells))
    if (off > 1e-6 * np.maximum(1.0, np.abs(cells))).any():
        worst = int(np.argmax(off))
        raise ArgumentError(
            f"With a fixed `step` of {step} every saved time must be a multiple of it, "
            f"but times[{worst}] is {times[worst]}."
        )
    latest = float(np.max(np.abs(times)))
    if step < _STEP_UNITS * float(np.finfo(times.dtype).eps) * latest:
        raise ArgumentError(
            f"Argument `step` is {step}, too small beside a time of {latest:g} in {times.dtype}, but must be at least "
            f"{_STEP_UNITS:g} units of its rounding; let JAX use 64 bits, or take larger steps."
        )
    return (float(times[0]) + np.round(cells) * step).astype(times.dtype)
