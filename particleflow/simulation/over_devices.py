"""Windows of a single run on several devices, which share its particles.

It is one program that all devices run together (`jax.shard_map`). Each holds some rows of what moves and of
the stages of a step, gathers all rows to evaluate the flow, makes its part of the exact sums over all pairs and gathers
them (`summation.device_axis`). What is not worth sharing, every device computes in full: sums that are linear in the
number of particles, observables, events. Where all particles are solved for at once (implicit methods), or the state is
no list of particles (densities), every device has the whole state and exact sums alone are shared.

Ensembles are shared by their runs (`ensemble`).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from particleflow.discretization.discretization_capabilities import MovesRows
from particleflow.simulation.plan import Plan, WindowTimes
from particleflow.simulation.stepping import Method, SolvedWindow, shares_rows, solve_window
from particleflow.summation.device_axis import PARTICLES, all_rows, rows_each

_ALL, _ROWS, _FRAME_ROWS = PartitionSpec(), PartitionSpec(PARTICLES), PartitionSpec(None, PARTICLES)


def solve_over_devices(
    plan: Plan, method: Method, begin: np.ndarray, asked: WindowTimes, state: Any, proposed: np.ndarray
) -> SolvedWindow:
    """One window of a single run, on all devices of its plan.

    Parameters: the `state` of the run and the step that is `proposed`, without an axis of runs.
    """
    assert plan.devices is not None
    mesh, how = Mesh(np.asarray(plan.devices), (PARTICLES,)), plan.discretization
    count = how.moving_rows(state).shape[0] if isinstance(how, MovesRows) and shares_rows(method) else None
    if count is not None:
        state = eqx.tree_at(how.moving_rows, state, _sharded(how.moving_rows(state), mesh))
    window = _solve(
        mesh, count, method, plan.observe, plan.event, plan.flow, how, state, begin, asked.times, proposed,
        plan.numbers, asked.passing,
    )  # fmt: skip
    if count is None:
        return jax.tree_util.tree_map(np.asarray, window)
    fields = {name: _frames(values, plan.start.count, mesh) for name, values in window.fields.items()}
    rows = _one_frame(mesh)(how.moving_rows(window.state)[None], np.asarray(0))
    ended = eqx.tree_at(how.moving_rows, window.state, np.asarray(rows)[:count])
    return jax.tree_util.tree_map(np.asarray, replace(window, fields=fields, state=ended))


def _frames(values: jax.Array, count: int, mesh: Mesh) -> Any:
    """The frames of all particles on this machine; of a run by several processes, on the first of them."""
    if values.is_fully_addressable:
        return np.asarray(values)[:, :count]
    return _frames_at_first(values, count, _one_frame(mesh))


def _frames_at_first(values: jax.Array, count: int, replicate: Callable[[jax.Array, Any], jax.Array]) -> np.ndarray:
    """Frames whose rows lie on many devices, as an array on process 0; elsewhere each is 0, or NaN if not finite.

    Parameters: `values`, (frames, rows, …); `count`, the rows that stand for particles; `replicate(values, index)`,
    one frame on every device. No process but the first holds more than one frame.
    """
    shape = (values.shape[0], count, *values.shape[2:])
    first = jax.process_index() == 0
    kept = np.empty(shape if first else shape[:1], values.dtype)
    for index in range(len(kept)):
        frame = np.asarray(replicate(values, np.asarray(index)))[:count]
        kept[index] = frame if first else np.sum(0 * frame)
    return kept if first else np.broadcast_to(kept.reshape(-1, *(1,) * (len(shape) - 1)), shape)


@cache
def _one_frame(mesh: Mesh) -> Callable[[jax.Array, Any], jax.Array]:
    """A compiled function of frames and an index: that frame, whole on every device."""
    return jax.jit(lambda frames, index: frames[index], out_shardings=NamedSharding(mesh, _ALL))


def _sharded(rows: np.ndarray, mesh: Mesh) -> jax.Array:
    """Rows as an array of which each device holds some; those that the last devices lack are copies of the first."""
    size = rows_each(len(rows), mesh.size)
    shape, sharding = (size * mesh.size, *rows.shape[1:]), NamedSharding(mesh, _ROWS)

    def part(index: tuple[slice, ...]) -> np.ndarray:
        places = np.arange(*index[0].indices(shape[0]))
        return rows[np.where(places < len(rows), places, 0)]

    return jax.make_array_from_callback(shape, sharding, part)


@eqx.filter_jit
def _solve(
    mesh, count, method, observe, event, flow, discretization, state, begin, times, proposed, numbers, passing
) -> SolvedWindow:
    """`solve_window` as one program of all devices; with `count`, so many rows move, and each device holds some."""
    operands = (observe, event, flow, discretization, state, begin, times, proposed, numbers, passing)
    arrays, rest = eqx.partition(operands, eqx.is_array)
    held = jax.tree_util.tree_map(lambda _: _ALL, arrays[4])
    if count is not None:
        held = eqx.tree_at(discretization.moving_rows, held, _ROWS, is_leaf=_is_spec)

    def one(arrays: Any) -> SolvedWindow:
        observe, event, flow, how, state, begin, times, proposed, numbers, passing = eqx.combine(arrays, rest)
        if count is not None:
            state = eqx.tree_at(how.moving_rows, state, all_rows(how.moving_rows(state), count))
        return solve_window(
            method, observe, event, flow, how, state, begin, times, proposed, numbers, passing, rows=count
        )

    given = (*(_ALL,) * 4, held, *(_ALL,) * 5)
    results = SolvedWindow(
        times=_ALL, fields=_ALL if count is None else _FRAME_ROWS, observables=_ALL, end_time=_ALL, state=held,
        proposed=_ALL, accepted=_ALL, rejected=_ALL, evaluations=_ALL, succeeded=_ALL, stopped_by_event=_ALL,
        ran_out_of_steps=_ALL,
    )  # fmt: skip
    # Native calls have no rule for which values are equal on all devices, so nothing is checked about it.
    return jax.shard_map(one, mesh=mesh, in_specs=(given,), out_specs=results, check_vma=False)(arrays)


def _is_spec(leaf: Any) -> bool:
    return isinstance(leaf, PartitionSpec)
