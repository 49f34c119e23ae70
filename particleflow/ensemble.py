"""Many runs at once: each with its own steps, all with one compiled program.

On an accelerator the whole ensemble is one batch. On processors it is cut into groups of runs that share a cache,
and the cores work on different groups: a group waits for its slowest run only, and no core waits for another. What a
run computes does not depend on the runs beside it.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from particleflow.integrate import Numbers, Window, compiled_frame, solve_window
from particleflow.measure import Measure
from particleflow.plan import EVENT_TIME, Plan
from particleflow.recording import Frames, Progress

# The matrices of all pairs of one group fit into this: about the second-level cache of a core.
_GROUP_BYTES = 384 * 1024


def ensemble_window(plan: Plan, before: Progress, times: np.ndarray, wanted: int) -> Frames:
    """The frames of the next window of an ensemble, time first.

    A run that met its event stands still from then on, and the observable "event_time" says since when; one that
    failed is NaN. The other runs go on.
    """
    result = _solve(plan, before, times)
    saved_times = np.asarray(result.times)[:, :wanted]
    points = np.array(np.asarray(result.points)[:, :wanted])
    observables = {name: np.array(np.asarray(values)[:, :wanted]) for name, values in result.observables.items()}
    state, ended = np.array(result.state), np.array(before.ended)
    succeeded, stopped = np.asarray(result.succeeded), np.asarray(result.stopped_by_event)
    lost = ~succeeded & ~stopped & np.isnan(ended) & np.isfinite(before.state).all(axis=(1, 2))
    said = [] if before.message is None else [before.message]
    message = "; ".join(said + _explain_lost(result, lost)) or None
    for run in range(plan.runs or 0):
        held = not np.isnan(ended[run])
        if held:
            state[run] = before.state[run]
        elif stopped[run]:
            ended[run] = float(np.asarray(result.end_time)[run])
        elif not succeeded[run]:
            state[run] = np.nan
        if held or not succeeded[run]:
            _hold(plan, run, saved_times[run], ended[run], state[run], points[run], observables, held)
    kept = plan.times[before.frames : before.frames + wanted]
    if plan.event is not None:
        observables[EVENT_TIME] = np.where(kept >= ended[:, None], ended[:, None], np.nan)
    done = before.frames + wanted >= len(plan.times)
    progress = Progress(
        state=state, proposed=np.asarray(result.proposed), frames=before.frames + wanted,
        accepted=before.accepted + np.asarray(result.accepted), rejected=before.rejected + np.asarray(result.rejected),
        evaluations=before.evaluations + np.asarray(result.evaluations),
        ended=ended, time=float(kept[-1]),
        status="finished" if done else "running", message=message,
    )  # fmt: skip
    swapped = {name: np.swapaxes(values, 0, 1) for name, values in observables.items()}
    return Frames(before.frames, kept, np.swapaxes(points, 0, 1), swapped, progress)


def group_size(plan: Plan) -> int:
    """How many runs go as one batch: a function of the ensemble alone, so that every machine makes the same groups."""
    assert plan.runs is not None
    _, count, dimension = plan.start.points.shape
    needed = count * max(count, dimension) * plan.start.points.dtype.itemsize
    groups = -(-plan.runs // max(1, _GROUP_BYTES // needed))
    return -(-plan.runs // groups)


def _solve(plan: Plan, before: Progress, times: np.ndarray) -> Window:
    """One window of all runs, group by group."""
    runs = plan.runs
    assert runs is not None
    on_processors = all(device.platform == "cpu" for device in plan.start.points.devices())
    size = group_size(plan) if on_processors else runs
    flow_arrays, flow_rest = eqx.partition(plan.flow, eqx.is_array)
    by_run = (flow_arrays if plan.flow_per_run else None, plan.start, before.state, before.proposed, plan.numbers.key)
    settings = (plan.flow_per_run, plan.method, plan.observe, plan.event)
    shared = (plan.window_begin(before.frames), jnp.asarray(times, plan.dtype), plan.numbers._replace(key=None))

    def solve(first: int) -> Window:
        # The last group is filled up with copies of its last run, so that one compiled program serves all groups.
        chosen = np.minimum(np.arange(first, first + size), runs - 1)
        arrays, start, state, proposed, key = jax.tree_util.tree_map(lambda leaf: _rows(leaf, chosen), by_run)
        flow = eqx.combine(arrays if plan.flow_per_run else flow_arrays, flow_rest)
        return _solve_group(*settings, flow, start, state, proposed, key, *shared)

    firsts = range(0, runs, size)
    begun = solve(0)  # compiles here, once, and runs while the others begin
    with ThreadPoolExecutor(os.cpu_count()) as cores:
        groups = [begun, *cores.map(lambda first: jax.block_until_ready(solve(first)), firsts[1:])]
    leaves = zip(*map(jax.tree.leaves, groups), strict=True)
    joined = [np.concatenate([np.asarray(part) for part in parts]) for parts in leaves]
    return jax.tree.unflatten(jax.tree.structure(begun), [leaf[:runs] for leaf in joined])


def _rows(leaf: Any, chosen: np.ndarray) -> Any:
    is_key = eqx.is_array(leaf) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return leaf[chosen] if is_key else np.asarray(leaf)[chosen]


@eqx.filter_jit
def _solve_group(flow_per_run, method, observe, event, flow, start, state, proposed, key, begin, times, numbers):
    arrays, rest = eqx.partition(flow, eqx.is_array)

    def one(arrays: Any, start: Measure, state: Array, proposed: Array, key: Array | None) -> Window:
        mine = Numbers(numbers.rtol, numbers.atol, numbers.step, numbers.origin, key)
        return solve_window(
            method, observe, event, eqx.combine(arrays, rest), start, state, begin, times, proposed, mine
        )

    axes = (0 if flow_per_run else None, 0, 0, 0, 0)
    return jax.vmap(one, in_axes=axes)(arrays, start, state, proposed, key)


def _explain_lost(result: Window, lost: np.ndarray) -> list[str]:
    """Which runs of an ensemble failed in this window, and when."""
    times, out_of_steps = np.asarray(result.end_time), np.asarray(result.ran_out_of_steps)
    why = {True: "ran out of steps", False: "blew up"}
    return [f"run {run} {why[bool(out_of_steps[run])]} at t = {times[run]:.10g}" for run in np.flatnonzero(lost)]


def _hold(plan, run, times, ended, state, points, observables, held) -> None:
    """Fill the frames of one run after its end with the state it ended in (NaN after a failure)."""
    pick = jax.tree_util.tree_map(lambda leaf: leaf[run] if eqx.is_array(leaf) else leaf, plan.start)
    flow = jax.tree_util.tree_map(
        lambda leaf: leaf[run] if plan.flow_per_run and eqx.is_array(leaf) else leaf, plan.flow
    )
    time = jnp.asarray(0.0 if np.isnan(ended) else ended, plan.dtype)
    last = compiled_frame(plan.observe, flow, pick, jnp.asarray(state), time)
    after = np.full(len(times), True) if held else ~np.isfinite(times)
    points[after] = np.asarray(last["points"])
    for name, values in observables.items():
        values[run][after] = np.asarray(last[name])
