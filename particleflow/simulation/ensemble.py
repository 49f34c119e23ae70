"""One window of all runs: each with its own steps, all with one compiled program.

A single run is compiled as it is: batching would compute both sides of every branch. Of an ensemble, an accelerator
takes all runs as one batch. On processors it is cut into groups of runs that share a cache, and the cores work on
different groups: a group waits for its slowest run only, and no core waits for another. Where several devices share an
ensemble, each takes groups of the same size. What a run computes does not depend on the runs beside it.
"""

import os
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array

from particleflow._support.arrays import signature
from particleflow.simulation.over_devices import solve_over_devices
from particleflow.simulation.plan import Plan, WindowTimes
from particleflow.simulation.stepping import Method, Numbers, SolvedWindow, solve_window

# The matrices of all pairs of the runs in one group fit into this: about the second-level cache of a core.
_GROUP_BYTES = 384 * 1024
_DEVICE_GROUPS = 16  # of an ensemble that several accelerators share
_RUNS = "runs"

_solve_one: Any = eqx.filter_jit(solve_window)
_compiled: set[Hashable] = set()  # signatures of programs that this process has


def solve_runs(
    plan: Plan, begin: float, asked: WindowTimes, state: Any, proposed: np.ndarray
) -> tuple[SolvedWindow, str]:
    """The window from time `begin`, from `state` and step sizes `proposed` (leading axis: runs), and its solver.

    A method that runs out of its steps is followed by the next one (`Plan.methods_for`); its steps count as rejected.
    """
    first, *others = plan.methods_for(state)
    window, solver = _solved_by(plan, first, begin, asked, state, proposed), first.solver
    for method in others:
        if np.asarray(window.ran_out_of_steps).any():
            lost = window
            window, solver = _solved_by(plan, method, begin, asked, state, proposed), method.solver
            window = replace(
                window,
                rejected=window.rejected + lost.accepted + lost.rejected,
                evaluations=window.evaluations + lost.evaluations,
            )
    return window, solver


def _solved_by(
    plan: Plan, method: Method, begin: float, asked: WindowTimes, state: Any, proposed: np.ndarray
) -> SolvedWindow:
    """The window by one method."""
    entered = np.asarray(begin, plan.times.dtype)
    if plan.runs is not None:
        return _solve_groups(plan, method, entered, asked.times, state, proposed)
    # A compiled program converts NumPy arrays when it is called, all at once; converting each before the call takes as
    # long as evaluating the field of a few particles.
    alone = jax.tree_util.tree_map(lambda leaf: np.asarray(leaf[0]), (state, proposed))
    if plan.devices is not None:
        window = solve_over_devices(plan, method, entered, asked, *alone)
    else:
        window = _solve_one(
            method, plan.observe, plan.event, plan.flow, plan.discretization, alone[0], entered, asked.times,
            alone[1], plan.numbers, asked.passing,
        )  # fmt: skip
    return jax.tree_util.tree_map(lambda leaf: np.asarray(leaf)[None], window)


def group_size(plan: Plan) -> int:
    """The number of runs in one batch, by the shapes of the ensemble alone: every machine makes the same groups."""
    assert plan.runs is not None
    _, count, dimension = plan.start.points.shape
    needed = count * max(count, dimension) * plan.start.points.dtype.itemsize
    groups = -(-plan.runs // max(1, _GROUP_BYTES // needed))
    return -(-plan.runs // groups)


def state_of_run(states: Any, run: int) -> Any:
    """The state of one run, from states with a leading axis of runs."""
    return jax.tree_util.tree_map(lambda leaf: leaf[run], states)


def _solve_groups(
    plan: Plan, method: Method, begin: np.ndarray, times: np.ndarray, state: Any, proposed: np.ndarray
) -> SolvedWindow:
    """One window of all runs, group by group."""
    runs = plan.runs
    assert runs is not None
    size = _batch_size(plan, runs)
    together = size * len(plan.devices or (None,))  # each device takes a group
    flow_arrays, flow_rest = eqx.partition(plan.flow, eqx.is_array)
    by_run = (flow_arrays if plan.flow_per_run else None, state, proposed, plan.numbers.key)
    settings = (plan.flow_per_run, method, plan.observe, plan.event, plan.discretization)
    shared = (begin, times, plan.numbers._replace(key=None))

    def solve(first: int) -> SolvedWindow:
        # The last group is filled up with copies of its last run, so that one compiled program serves all groups.
        chosen = np.minimum(np.arange(first, first + together), runs - 1)
        arrays, state, proposed, key = jax.tree_util.tree_map(lambda leaf: _rows(leaf, chosen), by_run)
        flow = eqx.combine(arrays if plan.flow_per_run else flow_arrays, flow_rest)
        if plan.devices is not None:
            mesh = Mesh(np.asarray(plan.devices), (_RUNS,))
            return _solve_on_each(mesh, *settings, flow, state, proposed, key, *shared)
        return _solve_group(*settings, flow, state, proposed, key, *shared)

    program = signature((settings, together, plan.devices, plan.flow, state, shared))
    return _joined(_on_all_cores(solve, range(0, runs, together), program), runs)


def _batch_size(plan: Plan, runs: int) -> int:
    """How many runs are one batch: by the shapes of the ensemble and the kind of device, never by their number."""
    if all(device.platform == "cpu" for device in plan.start.points.devices()):
        return group_size(plan)
    return runs if plan.devices is None else -(-runs // _DEVICE_GROUPS)


def _on_all_cores(solve: Callable[[int], SolvedWindow], firsts: range, program: Hashable | None) -> list[SolvedWindow]:
    """Solve the groups that begin with these runs, one on each core.

    Threads that begin together would each compile the program, so the first group of a new program is solved alone.
    """
    alone = [] if program in _compiled else [solve(firsts[0])]
    with ThreadPoolExecutor(os.cpu_count()) as cores:
        others = firsts[len(alone) :]
        groups = [*alone, *cores.map(lambda first: jax.block_until_ready(solve(first)), others)]
    if program is not None:
        _compiled.add(program)
    return groups


def _joined(groups: list[SolvedWindow], runs: int) -> SolvedWindow:
    """The windows of groups as one window of all runs, without the copies that filled up the last group."""
    leaves = zip(*map(jax.tree.leaves, groups), strict=True)
    joined = [np.concatenate([np.asarray(part) for part in parts]) for parts in leaves]
    return jax.tree.unflatten(jax.tree.structure(groups[0]), [leaf[:runs] for leaf in joined])


def _rows(leaf: Any, chosen: np.ndarray) -> Any:
    """The rows of some runs; random keys are arrays of JAX, which NumPy cannot index."""
    is_key = eqx.is_array(leaf) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return leaf[chosen] if is_key else np.asarray(leaf)[chosen]


def _group(flow_per_run, method, observe, event, discretization, flow, state, proposed, key, begin, times, numbers):
    """One group as one batch; the arrays of the flow have an axis of runs with `flow_per_run`, and else none."""
    arrays, rest = eqx.partition(flow, eqx.is_array)

    def one(arrays: Any, state: Any, proposed: Array, key: Array | None) -> SolvedWindow:
        mine = Numbers(numbers.rtol, numbers.atol, numbers.step, numbers.origin, key)
        flow = eqx.combine(arrays, rest)
        return solve_window(method, observe, event, flow, discretization, state, begin, times, proposed, mine)

    axes = (0 if flow_per_run else None, 0, 0, 0)
    return jax.vmap(one, in_axes=axes)(arrays, state, proposed, key)


_solve_group: Any = eqx.filter_jit(_group)


@eqx.filter_jit
def _solve_on_each(mesh, flow_per_run, *operands):
    """One group on each device of a mesh, as one program; parameters as for `_group`, with the runs of all groups."""
    arrays, rest = eqx.partition(operands, eqx.is_array)

    def one(arrays: Any) -> SolvedWindow:
        return _group(flow_per_run, *eqx.combine(arrays, rest))

    shared, by_run = PartitionSpec(), PartitionSpec(_RUNS)
    flow = by_run if flow_per_run else shared
    given = (*(shared,) * 4, flow, *(by_run,) * 3, *(shared,) * 3)
    return jax.shard_map(one, mesh=mesh, in_specs=(given,), out_specs=by_run, check_vma=False)(arrays)
