"""Flows, starts and times as a user hands them over, in the shapes that the rest of a run relies on.

Whatever is given becomes one flow, one measure and one array of times; the arrays of an ensemble have a leading axis of
runs, on the measure always, on the flow where runs differ in it.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow._support.arrays import as_float_array, progression
from particleflow.discretization import AbstractDiscretization
from particleflow.discretization.discretization_capabilities import CarriesDensity, StartsFromSamplingLaw
from particleflow.dynamics.drifts import AbstractDrift
from particleflow.dynamics.flow import Flow
from particleflow.dynamics.geometry import for_weights, retracted
from particleflow.dynamics.initial.base import AbstractInitial
from particleflow.errors import ArgumentError, KindError, ShapeError, check_kind, whole_number
from particleflow.measure import Measure

_OFF_GRID = 1e-6, 0.05  # how far a time may be off the grid: share of the number of steps; at most, in steps
_STEP_UNITS = 64.0  # a step must be at least so many units of rounding of the time it is added to


def as_start(start: Any) -> Measure:
    """A start as a measure: points (n, d) get equal weights, and positions 0, 1, 2, … unless there are some."""
    measure = start if isinstance(start, Measure) else Measure.uniform(start)
    if measure.positions is not None:
        return measure
    return measure.with_positions(progression(0.0, 1.0, measure.count, measure.points.dtype))


def as_flows(flow: Flow | Sequence[Flow]) -> tuple[Flow, int | None]:
    """The first flow, on which runs are checked, and the number of flows; None if one flow serves all runs."""
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
    """Raise unless `flow` is a flow; a drift alone lacks the geometry on which its particles live."""
    if isinstance(flow, AbstractDrift):
        raise KindError("Argument `flow` must be a flow, but is a drift: write Flow(drift), or Flow(drift, geometry).")
    check_kind(flow, Flow, "flow", "a flow or a list of flows")


def joined_flows(flow: Flow | Sequence[Flow], dtype: Any) -> Flow:
    """The flows of an ensemble as one flow whose arrays have a leading axis; one made by `vmap` has it already."""
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
    """The flows of all runs as a list, of length one if it serves all of them."""
    if not isinstance(flow, Flow):
        return list(flow)
    return [flow] if runs is None else [leaf_of(flow, run) for run in range(runs)]


def laid_out(how: AbstractDiscretization, flow: Flow | Sequence[Flow], runs: int | None, start: Any) -> Any:
    """Convert the start to measures on the points of a discretization of densities; for particles return it unchanged.

    Parameters: `how`, the discretization; `flow`, one or those of `runs` runs; `start`, one or a list.
    """
    if isinstance(start, list | tuple) and not len(start):
        raise ArgumentError("A run needs a start: points, a measure or a list of measures; but the list is empty.")
    if not isinstance(how, CarriesDensity):
        return start
    several = isinstance(start, list | tuple) or len(getattr(start, "shape", ())) == 3
    starts, flows = list(start) if several else [start], each_flow(flow, runs)
    if len(starts) > 1 and len(flows) > 1 and len(starts) != len(flows):
        raise ShapeError(f"There are {len(flows)} flows, but {len(starts)} starts.")
    count = max(len(starts), len(flows))
    found = [how.project(flows[run % len(flows)], starts[run % len(starts)]) for run in range(count)]
    return found if several or runs is not None else found[0]


def as_starts(start: Any, runs: int | None) -> tuple[Measure, int | None]:
    """The measure that all runs begin with, with a leading axis of runs, and their number; None for a single run.

    Parameters: `start`, a measure, points (n, d) or (runs, n, d), or a list of measures; `runs`, the number of flows,
    None for one, to which the starts must fit. One start serves all flows.
    """
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
    """How guesses are drawn from an initial kind: `particles` in each, how many `draws`, and the random `key`."""

    particles: int | None = None
    draws: int = 1
    key: Array | None = None


def as_guesses(guesses: Any, how: AbstractDiscretization, flow: Flow, drawn: Draws) -> list[Measure]:
    """One measure or several, as a list; they need not have equal shapes.

    An initial kind is sampled, and its points are brought onto the geometry; for a discretization of densities, unless
    `count` is given, the guess is the kind's own density.
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
    """Guesses drawn from an initial kind, on the geometry and on the discretization's own points."""
    whole_number(drawn.draws, "draws")
    if isinstance(how, CarriesDensity) and drawn.particles is None:
        return [how.project(flow, initial)]
    keys = jax.random.split(jax.random.key(0) if drawn.key is None else drawn.key, drawn.draws)
    found = []
    for key in keys:
        measure = initial.start(key, drawn.particles).measure
        points = retracted(for_weights(flow.geometry, measure.log_weights), measure.points)
        placed = measure.with_points(points)
        if isinstance(how, StartsFromSamplingLaw):
            placed = how.from_sampling_law(flow, placed, measure.points, initial.density(key))
        found.append(how.project(flow, placed) if isinstance(how, CarriesDensity) else placed)
    return found


def _stacked_starts(measures: list[Measure]) -> Measure:
    """Measures of one precision and one shape as one measure with a leading axis."""
    if len({measure.points.dtype for measure in measures}) > 1:
        raise ArgumentError("The starts of an ensemble must have one precision, but have several.")
    return stack(measures, "start", measures[0].points.dtype)


def leaf_of(tree: Any, run: int) -> Any:
    """One run of objects whose arrays have a leading axis of runs."""
    return jax.tree_util.tree_map(lambda leaf: leaf[run] if eqx.is_array(leaf) else leaf, tree)


def as_times(times: Any) -> np.ndarray:
    """Increasing times, in 64 bits whatever the precision of the run, unless 64 bits are switched off in JAX."""
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
    """Times rounded to t₀ + k · step; raise if one is off the grid.

    Rounded times may be off by 1e-6 steps or 1e-6 of the number of steps, but by no more than a twentieth of a step. A
    step must be 64 units of rounding of the latest time at least, so that adding it is exact enough.
    """
    cells = (times.astype(float) - float(times[0])) / step
    share, most = _OFF_GRID
    off = np.abs(cells - np.round(cells)) / np.minimum(share * np.maximum(1.0, np.abs(cells)), most)
    if (off > 1).any() or (np.diff(np.round(cells)) == 0).any():
        worst = int(np.argmax(off)) if (off > 1).any() else int(np.argmin(np.diff(np.round(cells)))) + 1
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
