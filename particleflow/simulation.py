"""Running a flow: `stream` yields window after window, `simulate` drains it into a trajectory.

With `store`, every window is on disk before the next one begins, together with a checkpoint from which the run can
go on; see `particleflow.recording`.
"""

import time as clock
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jaxtyping import Array

from particleflow.discretization import AbstractDiscretization, Particles
from particleflow.errors import RunError
from particleflow.events import AbstractEvent
from particleflow.flow import Flow
from particleflow.integrate import final_state
from particleflow.loop import Frames, run_plan
from particleflow.measure import Measure
from particleflow.observables import Observable
from particleflow.plan import as_start, check_interactions, make_method, make_numbers, make_plan
from particleflow.status import Status
from particleflow.stopping import heeding

if TYPE_CHECKING:
    from particleflow.trajectory import Trajectory


def stream(
    flow: Flow | Sequence[Flow],
    start: Any,
    times: Any,
    *,
    discretization: AbstractDiscretization | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    step: float | None = None,
    solver: str | None = None,
    observe: Sequence[Observable] = (),
    event: AbstractEvent | None = None,
    key: Array | None = None,
    window: int | None = None,
    max_steps: int = 200_000,
) -> Iterator[Frames]:
    """Run a flow and yield its frames window by window; memory is one window.

    Parameters: `flow`; for an ensemble a list of flows of one structure, or one made by `equinox.filter_vmap`.
    `start`, a measure or points (n, d); for an ensemble also points (runs, n, d) or a list of measures. Increasing
    `times` at which frames are saved, the first one being the start. `discretization` says how the measure is carried,
    by `Particles()` if left out. Steps are adaptive with `rtol` and `atol`, or
    fixed with `step`. `solver` is a diffrax solver by its snake-case name, or "map" for explicit layers
    x ← N(x + step · v). `observe` lists observables, `event` stops the run (maps and noisy runs look for it at the ends
    of their steps only), `key` drives the noise. `window` is the number of frames computed at once (if left
    out, first two, then more, up to what takes about two seconds), `max_steps` the number of steps that one window may
    take.
    """
    plan = make_plan(
        flow, start, times, discretization=discretization, rtol=rtol, atol=atol, step=step, solver=solver,
        observe=observe, event=event, key=key, window=window, max_steps=max_steps,
    )  # fmt: skip
    yield from run_plan(plan)


def simulate(
    flow: Flow | Sequence[Flow],
    start: Any,
    times: Any,
    *,
    discretization: AbstractDiscretization | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    step: float | None = None,
    solver: str | None = None,
    observe: Sequence[Observable] = (),
    event: AbstractEvent | None = None,
    key: Array | None = None,
    window: int | None = None,
    max_steps: int = 200_000,
    store: str | Path | None = None,
    resume: bool = False,
    storage: str | None = None,
    particles: Any = None,
    labels: Any = None,
    fsync: bool = True,
    provenance: dict[str, Any] | None = None,
    progress: Callable[[Frames], None] | None = None,
) -> "Trajectory":
    """Run a flow to its end and return the trajectory; the first parameters are those of `stream`.

    `store` is the file to stream the frames to, in precision `storage` ("float32" or "float64"; that of the run if
    left out), only the `particles` asked for. With `resume` a run that was cut short goes on where its last window
    ended, bit for bit. `labels` are kept with the particles, `provenance` with the file. `progress` is called after
    every window. A failure names time and particle; what was saved before it stays.
    """
    from particleflow.recording import Recorder

    began = clock.perf_counter()
    plan = make_plan(
        flow, start, times, discretization=discretization, rtol=rtol, atol=atol, step=step, solver=solver,
        observe=observe, event=event, key=key, window=window, max_steps=max_steps,
    )  # fmt: skip
    recorder = Recorder(
        plan, None if store is None else Path(store), resume=resume, storage=storage, particles=particles,
        labels=labels, fsync=fsync, provenance=provenance or {},
    )  # fmt: skip
    with recorder, heeding(active=store is not None) as interrupted:
        try:
            for frames in run_plan(plan, recorder.resumed):
                recorder.append(frames)
                if progress is not None:
                    progress(frames)
                if interrupted() and frames.progress.status == Status.RUNNING:
                    recorder.interrupt()
                    break
        except RunError as error:
            error.trajectory = recorder.finish(clock.perf_counter() - began) if store is None else None
            raise
        return recorder.finish(clock.perf_counter() - began)


def evolve(
    flow: Flow,
    start: Any,
    end: Any,
    *,
    discretization: AbstractDiscretization | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    step: float | None = None,
    solver: str | None = None,
    key: Array | None = None,
    begin: Any = 0.0,
    max_steps: int = 4096,
    adjoint: str = "recursive_checkpoint",
) -> Measure:
    """The measure at time `end`: one pure function of flow and start, to be differentiated, vmapped and jitted.

    What it returns can be handed on as a start: `evolve` to T₁ and from there (`begin` = T₁) to T₂ is `evolve` to T₂.
    With a fixed `step` the last one is shorter where `end` is not on the grid, its noise with it.
    `adjoint` chooses how derivatives are taken: "recursive_checkpoint" (reverse mode), "direct" (both modes),
    "forward" (forward mode), "backsolve" (the continuous adjoint).
    A run that blows up or needs more than `max_steps` steps is a `RunError` that says when; inside `jax.jit` or
    `jax.vmap` the same sentence comes as the error that JAX raises from a compiled program.
    """
    measure, how = as_start(start), discretization or Particles()
    how.check(flow, measure)
    dtype = measure.points.dtype
    method = make_method(flow, how, measure, rtol, atol, step, solver, max_steps, float("nan"), key)
    numbers = make_numbers(rtol, atol, step, begin, key, None)
    times = jnp.asarray(begin, float), jnp.asarray(end, float)
    begun = how.begin(flow, measure)
    check_interactions(flow, how, times[0].astype(dtype), begun)
    state = final_state(replace(method, adjoint=adjoint), flow, how, begun, *times, numbers)
    return how.measure(flow, times[1].astype(dtype), state)
