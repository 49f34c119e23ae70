"""Running a flow: `stream` yields window after window, `simulate` drains it into a trajectory.

`simulate` is `make_plan` and then `record`, the one driver of every run: the command line, scenarios and sweeps make
their plan first, look at what it will cost, and hand it to `record`. With `store`, every window is on disk before the
next one begins, together with a checkpoint from which the run can go on (`particleflow.simulation.recording`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jaxtyping import Array

from particleflow._support.progress import TimeLeft, reporting
from particleflow._support.signals import heeding
from particleflow.discretization import AbstractDiscretization, Particles, Present
from particleflow.discretization.discretization_capabilities import SpecialisesSums, resolution_of
from particleflow.dynamics.flow import Flow
from particleflow.errors import ArgumentError, RunError
from particleflow.measure import Measure
from particleflow.simulation.events import AbstractEvent
from particleflow.simulation.observables import Observable
from particleflow.simulation.plan import (
    Plan,
    Stepping,
    as_start,
    check_arguments,
    check_flow,
    check_interactions,
    laid_out,
    make_method,
    make_numbers,
    make_plan,
)
from particleflow.simulation.processes import any_process, progress_of_first
from particleflow.simulation.recording.recording import Recording
from particleflow.simulation.stepping import final_state
from particleflow.simulation.window_loop import Frames, run_plan
from particleflow.trajectory.status import Status

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory


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
    devices: int | None = None,
) -> Iterator[Frames]:
    """Run a flow and yield its frames window by window; memory is one window.

    Parameters: `flow`; for an ensemble a list of flows of one structure, or one made by `equinox.filter_vmap`.
    `start`, a measure or points (n, d); for an ensemble also points (runs, n, d) or a list of measures. Increasing
    `times` at which frames are saved, the first one being the start. `discretization` says how the measure is carried,
    by `Particles()` if left out. Steps are adaptive with `rtol` and `atol` (see `simulate`), or fixed with `step`.
    `solver` is a diffrax solver by its snake-case name, or "map" for explicit layers x ← N(x + step · v). `observe`
    lists observables. `event` stops the run; maps and noisy runs check it at the ends of their steps only. `key` drives
    the noise. `window` is the number of frames computed at once, with a step that ends at the last of them; if left
    out, first two, then more, up to 32, or for large clouds those that the steps of about two seconds pass. `max_steps`
    is the most steps that one window may take. `devices` as for `simulate`.
    """
    plan = make_plan(
        flow, start, times, Stepping(rtol, atol, step, solver, max_steps), discretization=discretization,
        observe=observe, event=event, key=key, window=window, devices=devices,
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
    devices: int | None = None,
    store: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    storage: str | None = None,
    particles: Any = None,
    labels: Any = None,
    words: Any = None,
    title: str = "",
    fsync: bool = True,
    provenance: dict[str, Any] | None = None,
    progress: bool | Callable[[Frames], None] | None = None,
) -> "Trajectory":
    """Run a flow to its end and return the trajectory, in memory or in a file.

    What moves:
        flow            a `Flow`; for an ensemble a list of flows of one structure, or one by `equinox.filter_vmap`
        start           points (n, d) or a `Measure`; for an ensemble also points (runs, n, d) or a list of measures;
                        for a discretization that carries a density also an initial kind of known density
        times           increasing times at which frames are saved; the run begins at the first one
        discretization  how the measure is carried; by `Particles()` if left out
        key             a random key that drives the noise of a flow with temperature
    How time is stepped:
        rtol, atol      tolerances of adaptive steps; if left out rtol is 1e-6, in single precision 1e-4, and atol a
                        hundredth of rtol, as in scenario files, and both are reported as chosen
        step            the size of fixed steps, instead of tolerances; noise and "map" need it
        solver          a diffrax solver by its snake-case name, or "map" for explicit layers x ← N(x + step · v);
                        chosen from tolerances, noise and length of the run if left out, and reported as chosen; long
                        runs go from explicit to implicit steps in windows that would take many
        event           what stops the run, see `events`; maps and noisy runs check it at the ends of steps only
        window          the number of frames computed, shown and stored at once, with a step that ends at the last of
                        them; if left out, first two, then more, up to 32, or for large clouds those that the steps
                        of about two seconds pass, so that more frames do not make more steps
        max_steps       the most steps that one window may take
        devices         how many devices of this machine share the particles, or the runs of an ensemble; no stored
                        number depends on how many; one of JAX's choice if left out
    What is kept:
        observe         observables, each a function of the present, stored for every frame
        store           the file that frames are streamed to; folders above it are made; in memory if left out
        overwrite       whether a file of that name is replaced; without it such a file is an error
        resume          whether the run in that file goes on where its last window ended, bit for bit
        storage         the precision of the file, "float32" or "float64"; that of the run if left out
        particles       the indices of those that are stored; all if left out
        labels          whole numbers, one a particle, kept with the particles
        words           texts, one a particle (for an ensemble also a row for each run); figures, movie, page and
                        summary name the words that merge; up to 200 bytes of UTF-8 are kept of each
        title           a line of text, kept with the run; figures, movie and page have it as their title
        provenance      plain values by name, kept with the run
        fsync           whether every window survives a power cut
        progress        true for a bar on the terminal, or a function that is called with every window

    A failure is a `RunError` that names time and particle; what was saved before it stays.
    """
    plan = make_plan(
        flow, start, times, Stepping(rtol, atol, step, solver, max_steps), discretization=discretization,
        observe=observe, event=event, key=key, window=window, devices=devices,
    )  # fmt: skip
    kept = Recording(
        None if store is None else Path(store), resume, overwrite, storage, particles, labels, words, title, fsync,
        provenance or {},
    )  # fmt: skip
    return record(plan, kept, progress)


def record(plan: Plan, recording: Recording, progress: bool | Callable[[Frames], None] | None = None) -> "Trajectory":
    """Run a plan to its end, or on from where `recording` resumes it, and return the trajectory.

    Parameters: `progress`, true for a bar on the terminal, or a function that is called with every window. A signal to
    stop ends a stored run after its window, as interrupted. A failure is a `RunError`; of a run in memory it carries
    the trajectory so far.
    """
    from particleflow.simulation.recording.recorder import Recorder

    stored = recording.store is not None
    end = float(plan.times[-1])
    time_left = TimeLeft(end)

    def told(frames: Frames) -> tuple[int, str]:
        now = frames.progress.time
        return frames.progress.frames, f"t = {now:.4g} of {end:.4g}  {time_left.text(now)}"

    bar = reporting(progress, "simulating", len(plan.times), told, remaining=False)
    recorder = Recorder(plan, recording)
    resumed = progress_of_first(plan, recorder.resumed)
    with recorder, heeding(active=stored) as interrupted, bar as report:
        try:
            for frames in run_plan(plan, resumed):
                recorder.append(frames)
                report(frames)
                if any_process(plan, interrupted()) and frames.progress.status == Status.RUNNING:
                    recorder.interrupt()
                    break
        except RunError as error:
            error.trajectory = None if stored else recorder.finish()
            raise
        return recorder.finish()


def run_unrecorded(plan: Plan, progress: Callable[[Frames], None]) -> None:
    """Run a plan without recording it, which process 0 does, until it ends or a process is asked to stop.

    Parameters: `progress` is called with every window, whose frames only process 0 has.
    """
    resumed = progress_of_first(plan, None)
    with heeding(active=True) as interrupted:
        for frames in run_plan(plan, resumed):
            progress(frames)
            if any_process(plan, interrupted()) and frames.progress.status == Status.RUNNING:
                break


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

    Parameters: `flow`, `start`, `discretization`, `rtol` and `atol` or `step`, `solver` and `key` as for `simulate`;
    the time of the start, `begin`, and the `end`; `max_steps` that may be taken in all; `adjoint`, see below.
    What it returns can be handed on as a start: `evolve` to T₁ and from there (`begin` = T₁) to T₂ is `evolve` to T₂.
    With a fixed `step` the last step is shorter where `end` is not on the grid, and so is its noise increment.
    `adjoint` chooses how derivatives are taken: "recursive_checkpoint" (reverse mode), "direct" (both modes),
    "forward" (forward mode), "backsolve" (the continuous adjoint).
    A run that blows up or needs more than `max_steps` steps is a `RunError` that says when; inside `jax.jit` or
    `jax.vmap` the same sentence comes as the error that JAX raises from a compiled program.
    """
    check_flow(flow)
    check_arguments(discretization, (), None)
    how = discretization or Particles()
    measure = as_start(laid_out(how, flow, None, start))
    how.check(flow, measure)
    if isinstance(how, SpecialisesSums):
        flow = how.specialise_sums(flow, measure)
    if resolution_of(how) > 0:
        raise ArgumentError(
            "Particles are merged between the windows of a run, and `evolve` has no windows; use `simulate`."
        )
    dtype = measure.points.dtype
    stepping = Stepping(rtol, atol, step, solver, max_steps).with_tolerances(dtype)
    method = make_method(flow, how, measure, stepping, float("nan"), key)
    numbers = make_numbers(stepping, begin, key, None)
    times = jnp.asarray(begin, float), jnp.asarray(end, float)
    begun = how.begin(flow, measure)
    check_interactions(Present(flow, how, times[0].astype(dtype), begun))
    state = final_state(replace(method, adjoint=adjoint), flow, how, begun, *times, numbers)
    return how.measure(flow, times[1].astype(dtype), state)
