"""Running a sweep: runs of one structure go as one compiled ensemble, the others one by one.

    plan = plan_sweep(scenario)                    the [sweep] table, read once
    plan, manifest = start_sweep(plan, folder)     frozen on disk, with the groups that run together
    run_sweep(plan, manifest)                      group by group; the manifest is saved after each

A group's results are a file that is there whole or not, and the manifest is replaced after it: a sweep that is killed
goes on with the groups that are not done.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow._support import toml
from particleflow._support.files import own_folder
from particleflow._support.text import kind_of
from particleflow._support.user_code import blamed
from particleflow.app.runs.run_folder import SCENARIO_FILE, freeze
from particleflow.app.sweep.groups import GROUPS_FOLDER, group_path, load_group, save_group, trajectories_beside
from particleflow.app.sweep.manifest import DONE, RUNNING, WAITING, Manifest
from particleflow.app.sweep.member_builder import MemberBuilder
from particleflow.app.sweep.sweep_plan import SweepPlan, plan_sweep
from particleflow.errors import ParticleflowError, StoreError, UserError
from particleflow.trajectory.status import Status

if TYPE_CHECKING:
    from particleflow.app.scenario.scenario import Setup
    from particleflow.simulation.plan import Plan
    from particleflow.trajectory.trajectory import Trajectory

_MOST_RUNS = 256  # of a group
_MOST_BYTES = 2**28  # of the points of a group in a window of 32 frames
_EXPLAINED = 4  # failed runs of a group that are run alone to find out why

# Errors that say nothing about the runs themselves: a full, failing or read-only disk, too little memory.
_TRANSIENT = (StoreError, OSError, MemoryError)

Report = Callable[[int, int, str], None]


def plan_groups(plan: SweepPlan, report: Report | None = None) -> list[list[int]]:
    """The runs of a sweep, by number, in groups that run together; refused unless at least one of them can begin.

    Parameters: `report(done, total, text)`, called after each run that has been built.
    """
    by_structure: dict[Any, list[int]] = {}
    for number, values in enumerate(plan.runs):
        by_structure.setdefault(plan.builder.signature(values), []).append(number)
        if report is not None:
            report(number + 1, len(plan.runs), "")
    _check_one_begins(plan, [numbers[0] for numbers in by_structure.values()])
    return sorted(part for numbers in by_structure.values() for part in _parts(plan, numbers))


def _check_one_begins(plan: SweepPlan, numbers: list[int]) -> None:
    """Raise the error of the first of these runs if all are refused; other errors show when the runs are run."""
    refusals: list[UserError] = []
    for number in numbers:
        try:
            plan.builder.setup(plan.runs[number]).cost()
        except UserError as error:
            refusals.append(error)
        except Exception:  # perhaps from the user's code; it is reported when the run is run
            return
        else:
            return
    name = f"{plan.scenario.name}: "  # errors of reading a scenario begin with it, those of planning do not
    raise UserError(name + str(refusals[0]).removeprefix(name)) from refusals[0]


def _parts(plan: SweepPlan, numbers: list[int]) -> list[list[int]]:
    """A structure's runs in equally large groups that fit into memory, so that one compilation serves all of them.

    Runs that cannot be built are one group, which fails when it is run.
    """
    try:
        setup = plan.builder.setup(plan.runs[numbers[0]])
    except UserError:
        return [numbers]
    window = 32 * setup.start.points.size * setup.start.points.dtype.itemsize
    most = int(max(1, min(_MOST_RUNS, _MOST_BYTES // window)))
    count = -(-len(numbers) // most)
    size = -(-len(numbers) // count)
    return [numbers[first : first + size] for first in range(0, len(numbers), size)]


def start_sweep(plan: SweepPlan, folder: Path, groups: list[list[int]] | None = None) -> tuple[SweepPlan, Manifest]:
    """Freeze a sweep into its folder: the scenario, the values of every run, and the groups that run together.

    Returns the manifest, and the plan to run: the same one, unless files are swept over, which have other names in the
    folder. Parameters: `groups`, those of `plan_groups` if they are known already.
    """
    from particleflow.app.scenario.scenario import load

    scenario = plan.scenario
    groups = plan_groups(plan) if groups is None else groups
    frozen = toml.loads(freeze(scenario, folder, swept=True), SCENARIO_FILE)
    if frozen["sweep"] != scenario.raw["sweep"]:
        plan = plan_sweep(load(folder / SCENARIO_FILE, allow_code=scenario.allow_code))
    return plan, Manifest.create(folder, scenario.title, list(plan.keys), plan.runs, groups)


def run_sweep(
    plan: SweepPlan,
    manifest: Manifest,
    report: Report | None = None,
    *,
    retry_failed: bool = False,
    note: Callable[[str], None] | None = None,
) -> None:
    """Run every group that waits or was stopped by the disk; a run that fails is noted and the others go on.

    A disk that fails stops the sweep, since it would stop the next group, too.

    Parameters: `report(done, total, text)` receives the progress, `note` a line for each group that is run again since
    its file is damaged; `retry_failed` runs those runs again that failed for a reason of their own.
    """
    say = report or (lambda *_: None)
    with manifest.locked():
        own_folder(manifest.folder / GROUPS_FOLDER)
        _requeue_damaged(manifest, note or (lambda _: None))
        for place, index in enumerate(manifest.groups_to_run(retry_failed=retry_failed)):
            say(_finished(manifest), len(manifest.runs), "next group" if place else "compiling, then the first window")
            _run_and_mark(plan, manifest, index, say)


def _finished(manifest: Manifest) -> int:
    """Count the runs that have ended, done or failed."""
    return sum(run["state"] not in (WAITING, RUNNING) for run in manifest.runs)


def _run_and_mark(plan: SweepPlan, manifest: Manifest, index: int, say: Report) -> None:
    """Run a group and keep its states in the manifest, whatever happens."""
    numbers, path = manifest.groups[index], group_path(manifest.folder, index)
    store = path.with_suffix(".h5") if plan.table.keep == "trajectories" else None
    before = [dict(manifest.runs[number]) for number in numbers]
    manifest.mark(numbers, RUNNING)
    finished = _finished(manifest)
    values = [each["values"] for each in before]
    try:
        report_share = _reporter(say, finished, len(numbers), len(manifest.runs))
        failed = _run_group(plan.builder, values, path, store, report_share)
    except KeyboardInterrupt:
        manifest.restore(numbers, before)
        raise
    except _TRANSIENT as error:
        raise _stopped(manifest, numbers, before, error) from error
    manifest.mark(numbers, DONE, {numbers[place]: message for place, message in failed.items()})


def _stopped(manifest: Manifest, numbers: list[int], before: list[dict[str, Any]], error: Exception) -> Exception:
    """Note in the manifest that the disk stopped a group; results that were there before are still there."""
    message = str(error)[:500] or type(error).__name__
    unfinished = [number for number, run in zip(numbers, before, strict=True) if run["state"] != DONE]
    with contextlib.suppress(StoreError):  # on the same disk; the manifest then says "running", and resume runs them
        manifest.restore(numbers, before)
        manifest.mark(unfinished, DONE, dict.fromkeys(unfinished, message), transient=True)
    if getattr(error, "hard_exit", False):
        return error
    done = manifest.states()[DONE]
    return StoreError(
        f"{message.rstrip('.')}. The sweep stops with {done} of {len(manifest.runs)} runs done; "
        f"`particleflow resume {manifest.folder}` goes on once that is fixed."
    )


def _requeue_damaged(manifest: Manifest, note: Callable[[str], None]) -> None:
    """Set runs back to waiting if the results of their group cannot be read."""
    for index, numbers in enumerate(manifest.groups):
        finished = [number for number in numbers if manifest.runs[number]["state"] == DONE]
        if not finished:
            continue
        try:
            load_group(group_path(manifest.folder, index), len(numbers))
        except StoreError as error:
            note(str(error))
            manifest.mark(finished, WAITING)


def _reporter(say: Report, before: int, size: int, total: int) -> Callable[[float, str], None]:
    """Convert the finished share of a group of `size` runs into a number of finished runs of all."""
    return lambda share, text: say(before + int(share * size), total, text)


def _run_group(
    builder: MemberBuilder,
    values: list[dict[str, Any]],
    path: Path,
    store: Path | None,
    say: Callable[[float, str], None],
) -> dict[int, str]:
    """Run a group and save its results; returns the place in the group and the reason of every run that failed."""
    try:
        setups = [builder.setup(each) for each in values]
        result = _simulated(setups, store, say)
    except StoreError:
        raise
    except ParticleflowError as error:
        return {place: str(error)[:500] for place in range(len(values))}
    except _TRANSIENT:
        raise
    except Exception as error:
        if said := blamed(error):  # an error of the user's code; runs of other groups may not raise it
            return dict.fromkeys(range(len(values)), said)
        raise
    save_group(path, result)
    broken = np.flatnonzero(result.pop("failed"))
    return {int(place): _reason(setups[place], index < _EXPLAINED) for index, place in enumerate(broken)}


def _simulated(setups: list["Setup"], store: Path | None, say: Callable[[float, str], None]) -> dict[str, np.ndarray]:
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
