"""The simulation of one group of runs, as one compiled ensemble or a single run by itself; its results are arrays."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow._support.text import kind_of
from particleflow._support.user_code import blamed
from particleflow.app.sweep.groups import trajectories_beside
from particleflow.app.sweep.member_builder import MemberBuilder
from particleflow.errors import ParticleflowError, StoreError
from particleflow.trajectory.status import Status

if TYPE_CHECKING:
    from particleflow.app.scenario.scenario import Setup
    from particleflow.simulation.plan import Plan
    from particleflow.trajectory.trajectory import Trajectory

_EXPLAINED = 4  # failed runs of a group that are run alone to find out why

# Errors that say nothing about the runs themselves: a full, failing or read-only disk, too little memory.
TRANSIENT = (StoreError, OSError, MemoryError)


def run_group(
    builder: MemberBuilder, values: list[dict[str, Any]], store: Path | None, say: Callable[[float, str], object]
) -> tuple[dict[str, np.ndarray] | None, dict[int, str]]:
    """Run a group: its results, None if it could not be run, and place and reason of every run that failed."""
    try:
        setups = [builder.setup(each) for each in values]
        result = _simulated(setups, store, say)
    except StoreError:
        raise
    except ParticleflowError as error:
        return None, {place: str(error)[:500] for place in range(len(values))}
    except TRANSIENT:
        raise
    except Exception as error:
        if said := blamed(error):  # an error of the user's code; runs of other groups may not raise it
            return None, dict.fromkeys(range(len(values)), said)
        raise
    broken = np.flatnonzero(result["failed"])
    return result, {int(place): _reason(setups[place], index < _EXPLAINED) for index, place in enumerate(broken)}


def _simulated(setups: list["Setup"], store: Path | None, say: Callable[[float, str], object]) -> dict[str, np.ndarray]:
    """Run the runs of a group as one ensemble, a single one by itself; with `store` its trajectories are kept there."""
    from particleflow.analysis import choose_threshold
    from particleflow.analysis.clusters.clusters import counts_directions
    from particleflow.simulation.recording.recording import Recording
    from particleflow.simulation.simulate import record
    from particleflow.simulation.window_loop import run_plan

    plan = _joint_plan(setups)
    kept: list[Any] = []

    def take(frames: Any) -> None:
        last = frames.points[-1:] if frames.points is not None and len(frames.points) else None
        kept.append((frames.times, frames.observables, last, frames.progress))
        say(frames.progress.frames / len(plan.times), f"t = {frames.progress.time:.4g}")

    if store is None:
        for frames in run_plan(plan):
            take(frames)
    else:
        with (
            trajectories_beside(store) as place,
            record(plan, Recording(place, words=_words(setups), **setups[0].storing), take) as run,
        ):
            if run.status == Status.INTERRUPTED:  # the recorder has closed its file properly and returned
                raise KeyboardInterrupt
    firsts = [_first_frame(setup) for setup in setups]
    return {
        **_collected(kept, len(setups) == 1),
        "thresholds": np.asarray([choose_threshold(first).value for first in firsts]),
        "directions": np.asarray([counts_directions(first) for first in firsts]),
        "log_weights": np.asarray([np.asarray(setup.start.log_weights, float) for setup in setups]),
    }


def _joint_plan(setups: list["Setup"]) -> "Plan":
    """One plan for runs that differ in numbers only; for a single run its own plan."""
    from particleflow.simulation.plan import make_plan

    first = setups[0]
    if len(setups) == 1:
        return first.plan
    flows, starts = [setup.flow for setup in setups], [setup.start for setup in setups]
    return make_plan(flows, starts, first.times, first.stepping, **{**first.options, "key": _keys(setups)})


def _words(setups: list["Setup"]) -> Any:
    """The words of all runs, one row each; those of a single run by themselves; None where a run has none."""
    words = [setup.words for setup in setups if setup.words is not None]
    if len(words) < len(setups):
        return None
    return words[0] if len(words) == 1 else np.stack(words)


def _first_frame(setup: "Setup") -> "Trajectory":
    """The first frame of a run, with the facts by which the analysis of a single run chooses its linking distance."""
    from particleflow.trajectory.trajectory import Trajectory

    space = setup.flow.geometry.facts(setup.start.dimension).description()
    event = setup.options["event"]
    linked = None if event is None else event.linking_distance()
    return Trajectory.from_arrays(
        [0.0],
        np.asarray(setup.start.points)[None],
        log_weights=np.asarray(setup.start.log_weights),
        metadata={"space": space, "linking distance": linked, "drift": kind_of(type(setup.flow.drift))},
    )


def _keys(setups: list["Setup"]) -> Any:
    """One key for the noise of every run, each that of its own seed; None where there is no noise."""
    import jax.numpy as jnp

    keys = [setup.options["key"] for setup in setups]
    return None if keys[0] is None else jnp.stack(keys)


def _collected(kept: list[Any], single: bool) -> dict[str, np.ndarray]:
    """The windows of a group as arrays: times (T,), every observable (R, T, …), the last points and the end times."""
    times = np.concatenate([window[0] for window in kept]).astype(float)
    result = {"times": times}
    for name in kept[0][1]:
        series = np.concatenate([window[1][name] for window in kept])
        result[f"observable.{name}"] = series[None] if single else np.swapaxes(series, 0, 1)
    last = [window[2] for window in kept if window[2] is not None]
    progress = kept[-1][3]
    result["failed"] = np.asarray(progress.failed)
    if last:  # otherwise the points never move
        result["last_points"] = np.asarray(last[-1]) if single else np.asarray(last[-1][0])
        result["failed"] = result["failed"] | ~np.isfinite(result["last_points"]).all(axis=(1, 2))
    ended = progress.ended.astype(float)
    result["end_times"] = np.where(np.isnan(ended), times[-1], ended)
    return result


def _reason(setup: "Setup", explain: bool) -> str:
    """Why a run of an ensemble is not finite at its end, found by running it alone."""
    if explain:
        try:
            _simulated([setup], None, lambda *_: None)
        except ParticleflowError as error:
            return str(error)[:500]
    return "the run is not finite at its end"
