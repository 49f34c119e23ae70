"""Windows of a single run on several devices, which share its particles.

It is one program that all devices run together (`jax.shard_map`). Each holds some rows of what moves and of the stages
of a step, gathers all rows to evaluate the flow, makes its part of the exact sums over all pairs and gathers them
(`summation.device_axis`). What is not worth sharing, every device computes in full: sums that are linear in the number
of particles, observables, events. Where all particles are solved for at once (implicit methods), or the state is no
list of particles (densities), every device has the whole state and exact sums alone are shared.

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
    if isinstance(how, MovesRows) and shares_rows(method):
        return _shared(plan, how, mesh, method, begin, asked, state, proposed)
    window = _solve(
        mesh, None, method, plan.observe, plan.event, plan.flow, how, state, begin, asked.times, proposed,
        plan.numbers, asked.passing,
    )  # fmt: skip
    return jax.tree_util.tree_map(np.asarray, window)


def _shared(
    plan: Plan, how: Any, mesh: Mesh, method: Method, begin: Any, asked: WindowTimes, state: Any, proposed: Any
) -> SolvedWindow:
    """One window in which every device holds some of the rows that move."""
    rows = np.asarray(how.moving_rows(state))
    state = eqx.tree_at(how.moving_rows, state, _sharded(rows, mesh))
    window = _solve(
        mesh, len(rows), method, plan.observe, plan.event, plan.flow, how, state, begin, asked.times, proposed,
        plan.numbers, asked.passing,
    )  # fmt: skip
    fields = {name: _frames(values, plan.start.count, mesh) for name, values in window.fields.items()}
    ended = np.asarray(_one_frame(mesh)(how.moving_rows(window.state)[None], np.asarray(0)))[: len(rows)]
    whole = replace(window, fields=fields, state=eqx.tree_at(how.moving_rows, window.state, ended))
    return jax.tree_util.tree_map(np.asarray, whole)


def _sharded(rows: np.ndarray, mesh: Mesh) -> jax.Array:
    """Rows as an array of which each device holds some; those that the last devices lack are copies of the first."""
    size = rows_each(len(rows), mesh.size)
    shape, sharding = (size * mesh.size, *rows.shape[1:]), NamedSharding(mesh, _ROWS)

    def part(index: Any) -> np.ndarray:
        places = np.arange(*index[0].indices(shape[0]))
        return rows[np.where(places < len(rows), places, 0)]

    return jax.make_array_from_callback(shape, sharding, part)


def _frames(values: Any, count: int, mesh: Mesh) -> Any:
    """The frames of all particles as an array; of a run by several processes, on the first of them.

    They come there one by one, so that no other process holds more than one. Elsewhere all numbers of a frame are 0, or
    NaN if one of them is not finite.
    """
    if values.is_fully_addressable:
        return np.asarray(values)[:, :count]
    shape, first = (values.shape[0], count, *values.shape[2:]), jax.process_index() == 0
    kept = np.empty(shape if first else shape[:1], values.dtype)
    for index in range(len(kept)):
        frame = np.asarray(_one_frame(mesh)(values, np.asarray(index)))[:count]
        kept[index] = frame if first else np.where(np.isfinite(frame).all(), 0.0, np.nan)
    return kept if first else np.broadcast_to(kept.reshape(-1, *(1,) * (len(shape) - 1)), shape)


@cache
def _one_frame(mesh: Mesh) -> Callable[[Any, Any], jax.Array]:
    """A compiled function of frames and an index: that frame, whole on every device."""
    return jax.jit(lambda frames, index: frames[index], out_shardings=NamedSharding(mesh, _ALL))


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
    specs: dict[str, Any] = dict.fromkeys(SolvedWindow.__dataclass_fields__, _ALL)
    specs |= {"fields": _ALL if count is None else _FRAME_ROWS, "state": held}
    # Native calls have no rule for which values are equal on all devices, so nothing is checked about it.
    return jax.shard_map(one, mesh=mesh, in_specs=(given,), out_specs=SolvedWindow(**specs), check_vma=False)(arrays)


def _is_spec(leaf: Any) -> bool:
    return isinstance(leaf, PartitionSpec)
