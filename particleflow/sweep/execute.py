"""Running a sweep: runs of one structure go as one compiled ensemble, the others one by one."""

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow import _toml
from particleflow._files import own_folder
from particleflow.errors import ParticleflowError, StoreError, UserError
from particleflow.run_folder import SCENARIO_FILE, freeze
from particleflow.status import Status
from particleflow.sweep.expand import read_plan
from particleflow.sweep.groups import GROUPS_FOLDER, group_path, load_group, save_group, trajectories_beside
from particleflow.sweep.manifest import DONE, RUNNING, WAITING, Manifest
from particleflow.user_code import blamed

if TYPE_CHECKING:
    from particleflow.scenario import Scenario, Setup

_MOST_RUNS = 256
_MOST_BYTES = 2**28
_EXPLAINED = 4

# What says nothing about the runs themselves: a full, failing or read-only disk, too little memory.
_TRANSIENT = (StoreError, OSError, MemoryError)

Report = Callable[[int, int, str], None]


def plan_groups(scenario: "Scenario", report: Report | None = None) -> list[list[int]]:
    """The runs of a sweep, by number, in the groups in which they go; refused unless one of them at least can begin.

    Parameters: `report(done, total, text)` is told how many runs have been looked at.
    """
    plan, builder = read_plan(scenario), _Builder(scenario)
    by_structure: dict[Any, list[int]] = {}
    for number, values in enumerate(plan.runs):
        by_structure.setdefault(builder.signature(values), []).append(number)
        if report is not None:
            report(number + 1, len(plan.runs), "")
    setups = {structure: builder.setup(plan.runs[numbers[0]]) for structure, numbers in by_structure.items()}
    _check_one_begins(scenario, list(setups.values()))
    return sorted(part for structure, numbers in by_structure.items() for part in _parts(numbers, setups[structure]))


def _check_one_begins(scenario: "Scenario", setups: list["Setup"]) -> None:
    """Raise what the planner says of the first run if it refuses them all; whatever else is wrong shows in the runs."""
    refusals: list[UserError] = []
    for setup in setups:
        try:
            setup.cost()
        except UserError as error:
            refusals.append(error)
        except Exception:  # code of the user, perhaps, which is blamed where it is run
            return
        else:
            return
    raise UserError(f"{scenario.name}: {refusals[0]}") from refusals[0]


def start_sweep(scenario: "Scenario", folder: Path, groups: list[list[int]] | None = None) -> Manifest:
    """Freeze a sweep into its folder: the scenario, every run and the groups in which they go.

    Parameters: `groups`, those of `plan_groups` if they are known already.
    """
    from particleflow.scenario import load

    groups = plan_groups(scenario) if groups is None else groups
    plan = read_plan(scenario)
    if freeze(scenario, folder, swept=True) != scenario.text:  # files that were swept over have other names now
        scenario = load(folder / SCENARIO_FILE, allow_code=scenario.allow_code)
        plan = read_plan(scenario)
    return Manifest.create(folder, scenario.title, list(plan.keys), plan.runs, groups)


def run_sweep(
    scenario: "Scenario",
    manifest: Manifest,
    report: Report | None = None,
    *,
    retry_failed: bool = False,
    note: Callable[[str], None] | None = None,
) -> None:
    """Run every group that waits or was stopped by the disk; a run that fails is noted and the others go on.

    A disk that fails stops the sweep, since it would stop the next group, too.

    Parameters: `report(done, total, text)` is told how far it is, `note` in words what is done again; `retry_failed`
    runs those that failed by themselves once more.
    """
    store = read_plan(scenario).table.keep == "trajectories"
    builder = _Builder(scenario)
    say = report or (lambda *_: None)
    with manifest.locked():
        own_folder(manifest.folder / GROUPS_FOLDER)
        _requeue_damaged(manifest, note or (lambda _: None))
        for place, index in enumerate(manifest.groups_to_run(retry_failed=retry_failed)):
            say(_finished(manifest), len(manifest.runs), "next group" if place else "compiling, then the first window")
            _continue(builder, manifest, index, store, say)


def _finished(manifest: Manifest) -> int:
    """How many runs have come to an end, good or bad."""
    return sum(run["state"] not in (WAITING, RUNNING) for run in manifest.runs)


def _continue(builder: "_Builder", manifest: Manifest, index: int, store: bool, say: Report) -> None:
    """Run a group and keep its states in the manifest, whatever happens."""
    numbers, path = manifest.groups[index], group_path(manifest.folder, index)
    before = [dict(manifest.runs[number]) for number in numbers]
    manifest.mark(numbers, RUNNING)
    finished = _finished(manifest)
    values = [each["values"] for each in before]
    try:
        report_share = _reporter(say, finished, len(numbers), len(manifest.runs))
        failed = _run_group(builder, values, path, path.with_suffix(".h5") if store else None, report_share)
    except KeyboardInterrupt:
        manifest.restore(numbers, before)
        raise
    except _TRANSIENT as error:
        raise _stopped(manifest, numbers, before, error) from error
    manifest.mark(numbers, DONE, {numbers[place]: message for place, message in failed.items()})


def _stopped(manifest: Manifest, numbers: list[int], before: list[dict[str, Any]], error: Exception) -> Exception:
    """Note that the disk stopped a group, of which results that were there before are still there."""
    message = str(error)[:500] or type(error).__name__
    unfinished = [number for number, run in zip(numbers, before, strict=True) if run["state"] != DONE]
    with contextlib.suppress(StoreError):  # the same disk: then the manifest says that they run, which is as good
        manifest.restore(numbers, before)
        manifest.mark(unfinished, DONE, dict.fromkeys(unfinished, message), transient=True)
    if getattr(error, "hard_exit", False):
        return error
    done = manifest.states()[DONE]
    return StoreError(
        f"{message.rstrip('.')}. The sweep stops with {done} of {len(manifest.runs)} runs done; "
        f"`particleflow resume {manifest.folder}` goes on when that is mended."
    )


def _requeue_damaged(manifest: Manifest, note: Callable[[str], None]) -> None:
    """Let runs wait again whose results cannot be read."""
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
    return lambda share, text: say(before + int(share * size), total, text)


class _Builder:
    """Builds the runs of a sweep; what runs share (a flow for all seeds, a start for all β) is made once."""

    def __init__(self, scenario: "Scenario"):
        self.scenario = scenario
        self._documents: dict[str, Any] = {}
        self._flows: dict[str, Any] = {}
        self._starts: dict[str, Any] = {}

    def setup(self, values: dict[str, Any]) -> "Setup":
        """The run with these values."""
        from particleflow.scenario import from_document, make_flow, make_setup, make_start

        raw = self.scenario.raw
        for path, value in values.items():
            raw = _toml.with_value(raw, _toml.parse_path(path), value)
        seed = raw.get("seed", 0)
        rest = {name: value for name, value in raw.items() if name not in ("seed", "sweep")}
        key = _text(rest)
        if key not in self._documents:
            scenario = self.scenario
            self._documents[key] = from_document(
                rest, scenario.name, scenario.folder, allow_code=scenario.allow_code
            ).document
        document = replace(self._documents[key], seed=seed)
        drawn = seed if any(spec.draws for spec in document.flow_calls()) else None
        common = [rest.get(name) for name in ("geometry", "precision")]
        flow_key = _text([rest["drift"], rest.get("temperature"), rest.get("common_temperature"), drawn, common])
        if flow_key not in self._flows:
            self._flows[flow_key] = make_flow(document)
        flow = self._flows[flow_key]
        start_key = _text([rest["initial"], seed, common])
        if start_key not in self._starts:
            self._starts[start_key] = make_start(document, flow)
        return make_setup(document, flow, self._starts[start_key])

    def signature(self, values: dict[str, Any]) -> Any:
        """What must be equal for two runs to go as one ensemble: structure, shapes, times, method."""
        from particleflow.fingerprint import described

        try:
            setup = self.setup(values)
        except UserError as error:
            return ("wrong", str(error))
        method = [setup.arguments[name] for name in ("rtol", "atol", "step", "solver", "window", "max_steps")]
        # Observables, events and discretizations are shared by the runs of an ensemble, numbers and all.
        shared = tuple(described([setup.arguments[name] for name in ("observe", "event", "discretization")]))
        structure = _structure((setup.flow, setup.start))
        return (structure, setup.times.tobytes(), repr(method), setup.flow.is_noisy, shared)


def _structure(tree: Any) -> Any:
    import equinox as eqx
    import jax

    leaves, structure = jax.tree_util.tree_flatten(tree)
    shown = tuple((leaf.shape, str(leaf.dtype)) if eqx.is_array(leaf) else repr(leaf) for leaf in leaves)
    return structure, shown


def _parts(numbers: list[int], setup: "Setup") -> list[list[int]]:
    """A structure's runs in equally large groups that fit into memory, so that one compilation serves all of them."""
    window = 32 * setup.start.points.size * setup.start.points.dtype.itemsize
    most = int(max(1, min(_MOST_RUNS, _MOST_BYTES // window)))
    count = -(-len(numbers) // most)
    size = -(-len(numbers) // count)
    return [numbers[first : first + size] for first in range(0, len(numbers), size)]


def _run_group(
    builder: _Builder, values: list[dict[str, Any]], path: Path, store: Path | None, say: Callable[[float, str], None]
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
        if said := blamed(error):  # the runs of other groups may not go that way
            return dict.fromkeys(range(len(values)), said)
        raise
    save_group(path, result)
    broken = np.flatnonzero(result.pop("failed"))
    return {int(place): _reason(setups[place], index < _EXPLAINED) for index, place in enumerate(broken)}


def _simulated(setups: list["Setup"], store: Path | None, say: Callable[[float, str], None]) -> dict[str, np.ndarray]:
    from particleflow.simulation import simulate, stream

    first = setups[0]
    flow = first.flow if len(setups) == 1 else [setup.flow for setup in setups]
    start = first.start if len(setups) == 1 else [setup.start for setup in setups]
    arguments = {**first.arguments, "key": _keys(setups)}
    kept: list[Any] = []

    def take(frames: Any) -> None:
        last = frames.points[-1:] if frames.points is not None and len(frames.points) else None
        kept.append((frames.times, frames.observables, last, frames.progress))
        say(frames.progress.frames / len(first.times), f"t = {frames.progress.time:.4g}")

    if store is None:
        for frames in stream(flow, start, first.times, **arguments):
            take(frames)
    else:
        with (
            trajectories_beside(store) as place,
            simulate(
                flow, start, first.times, store=place, progress=take, words=_words(setups), **arguments, **first.storing
            ) as run,
        ):
            if run.status == Status.INTERRUPTED:  # `simulate` brings its file in order and returns
                raise KeyboardInterrupt
    return {
        **_collected(kept, len(setups) == 1),
        "thresholds": np.asarray([_threshold(setup) for setup in setups]),
        "log_weights": np.asarray([np.asarray(setup.start.log_weights, float) for setup in setups]),
    }


def _words(setups: list["Setup"]) -> Any:
    """The words of all runs, one row each; those of a single run by themselves; None where a run has none."""
    words = [setup.words for setup in setups if setup.words is not None]
    if len(words) < len(setups):
        return None
    return words[0] if len(words) == 1 else np.stack(words)


def _threshold(setup: "Setup") -> float:
    """The linking distance of clusters, as the analysis of a single run would choose it."""
    from particleflow.analysis import choose_threshold
    from particleflow.trajectory import Trajectory

    space = setup.flow.geometry.facts(setup.start.dimension).description()
    event = setup.arguments["event"]
    first = Trajectory.from_arrays(
        [0.0],
        np.asarray(setup.start.points)[None],
        log_weights=np.asarray(setup.start.log_weights),
        metadata={"space": space, "linking distance": None if event is None else event.linking_distance()},
    )
    return choose_threshold(first).value


def _keys(setups: list["Setup"]) -> Any:
    """One key for the noise of every run, each that of its own seed."""
    import jax.numpy as jnp

    keys = [setup.arguments["key"] for setup in setups]
    if keys[0] is None or len(keys) == 1:
        return keys[0]
    return jnp.stack(keys)


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


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
