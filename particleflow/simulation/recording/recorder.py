"""The recorder of a run: frames in memory, or in a file with checkpoints beside it.

The order of writes is guaranteed: a window's frames are in the file before its checkpoint, and a checkpoint is complete
or absent. So whatever stops a run, it resumes from a checkpoint whose frames are all in the file; frames after it, if
there are any, are computed again, to the same bits.
"""

import contextlib
import time
import warnings
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from particleflow._support.files import own_folder, refuse_link
from particleflow.discretization.base import POINTS
from particleflow.discretization.discretization_capabilities import HasStatistics
from particleflow.errors import ArgumentError, ComputedAgain, ResumedElsewhere, StoreError
from particleflow.simulation.plan import Plan
from particleflow.simulation.recording.fingerprint import brings_code, code_fingerprints, differences, fingerprints
from particleflow.simulation.recording.provenance import (
    RUN_FORMAT,
    SURROUNDINGS,
    changed_surroundings,
    constant_points,
    describe,
    frame_shapes,
    particle_constants,
    surroundings,
)
from particleflow.simulation.recording.recording import Recording
from particleflow.simulation.summation_choice import Summed, told
from particleflow.simulation.window_loop import Frames, RunProgress
from particleflow.trajectory.status import Status
from particleflow.trajectory.store import (
    Checkpoint,
    StoredRun,
    TrajectoryWriter,
    checkpoint_folder,
    load_checkpoint,
    save_checkpoint,
)
from particleflow.trajectory.trajectory import Trajectory
from particleflow.trajectory.words import as_words, to_bytes

if TYPE_CHECKING:
    from types import TracebackType


_CHECKPOINTED = ("proposed", "accepted", "rejected", "evaluations", "ended", "failed")
_STATE = "state."
_LATER = ("words",)  # arguments that older files have no hash of: such runs are resumed without comparing them


class Recorder:
    """Keeps the windows of a run, in memory or in a file; as a context manager it marks a run that raises as failed.

    `resumed` is the progress from which the run goes on, None at its start; `append` keeps a window; `finish` returns
    the trajectory.
    """

    def __init__(self, plan: Plan, recording: Recording):
        self._began, self._seconds_before = time.perf_counter(), 0.0
        count = plan.start.points.shape[-2]
        self.plan, self.recording, self.path = plan, recording, recording.store
        self.labels = recording.labels
        self.words = as_words(recording.words, count, plan.runs)
        self.particles = None if recording.particles is None else _as_particles(recording.particles, count)
        self.storage = recording.storage or str(np.dtype(plan.dtype))
        recorded = {
            "storage": self.storage,
            "particles": self.particles,
            "labels": _as_labels(self.labels),
            "words": None if self.words is None else to_bytes(self.words),
        }
        _check_recording(recording)
        about = {"title": recording.title} if recording.title else {}
        self._describe = partial(_provenance, plan, recorded, about | dict(recording.provenance))
        if brings_code(plan):  # a user's function may refer to objects that change later: describe it now
            self._describe = partial(dict, self._describe())
        self.resumed: RunProgress | None = None
        self._windows: list[Frames] = []
        self._changes: str | None = None
        self._progress: RunProgress | None = None
        self._writer: TrajectoryWriter | None = None
        if self.path is not None:
            refuse_link(checkpoint_folder(self.path))
            self._writer = self._reopen(self.path) if recording.resume else self._create(self.path)

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Metadata that does not change during the run: versions and machine, settings, and its fingerprint."""
        return self._describe()

    def append(self, frames: Frames) -> None:
        """Keep a window; with a file, return when the window and its checkpoint are on disk."""
        self._progress = frames.progress
        if self._writer is None:
            self._windows.append(frames)
            return
        steps = frames.first + np.arange(len(frames.times))
        axis = 1 if self.plan.runs is None else 2
        fields = {name: self._chosen(values, axis) for name, values in frames.fields.items()}
        if len(frames.times):
            points = fields.pop(POINTS, None)
            self._writer.append(frames.times, steps, points, frames.observables, fields)
        if frames.progress.status == Status.RUNNING:
            self._save_checkpoint(frames.progress)

    def interrupt(self) -> None:
        """Mark the run as interrupted: it can be resumed."""
        assert self._progress is not None
        self._progress = self._progress._replace(status=Status.INTERRUPTED, message="stopped by a signal")

    def finish(self) -> Trajectory:
        """Close the run and return its trajectory."""
        progress = self._progress or self.resumed
        assert progress is not None
        status = Status.INTERRUPTED if progress.status == Status.RUNNING else progress.status
        statistics = self._statistics(progress)
        if self._writer is None:
            outcome = {"status": status, "message": progress.message, "statistics": statistics}
            describe = self._describe  # lazily: it takes longer than a short run of a few particles, and is rarely read
            return _in_memory(
                self.plan, self._windows, lambda: {**describe(), **outcome}, labels=self.labels, words=self.words
            )
        self._writer.set_status(status, progress.message, statistics)
        self._writer.close()
        assert self.path is not None
        return Trajectory.open(self.path)

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None"
    ) -> None:
        if error is None or self._writer is None:
            return
        with contextlib.suppress(StoreError):
            stopped = isinstance(error, KeyboardInterrupt | GeneratorExit)
            progress = self._progress or self.resumed
            statistics = self._statistics(progress) if progress is not None else {}
            self._writer.set_status(Status.INTERRUPTED if stopped else Status.FAILED, str(error)[:500], statistics)
            self._writer.close()

    def _seconds(self) -> float:
        """The seconds that the run has taken in all sessions, but for those that a killed one lost."""
        return round(self._seconds_before + time.perf_counter() - self._began, 3)

    def _statistics(self, progress: RunProgress) -> dict[str, Any]:
        """The metadata of a run at its end: steps, evaluations, time, and the solver and sums that were chosen."""
        accepted, rejected = int(np.sum(progress.accepted)), int(np.sum(progress.rejected))
        how = self.plan.discretization
        held = self.plan.window * self.plan.start.points.size * self.plan.start.points.dtype.itemsize
        return {
            "accepted steps": accepted,
            "rejected steps": rejected,
            "field evaluations": int(np.sum(progress.evaluations)),
            "wall seconds": self._seconds(),
            "window bytes": held,
            "end time": progress.time,
            **({} if progress.step_error is None else {"error of a step": progress.step_error}),
            "resumed elsewhere": self._changes,
            **(how.statistics(progress.state) if isinstance(how, HasStatistics) else {}),
            **{f"chosen {name}": choice for name, choice in self.plan.choices.items()},
            **({"chosen solver": _told_solvers(progress)} if len(progress.solvers) > 1 else {}),
            **({"chosen summation": told(progress.sums)} if progress.sums else {}),
        }

    def _chosen(self, values: np.ndarray, axis: int) -> np.ndarray:
        """The values of the particles that are stored."""
        return values if self.particles is None else np.take(values, self.particles, axis=axis)

    def _create(self, path: Path) -> TrajectoryWriter:
        """Begin a new file; an existing one is replaced only with `overwrite`."""
        plan = self.plan
        fields, observables = frame_shapes(plan)
        count, dimension = plan.start.points.shape[-2:]
        constants: dict[str, Any] = {
            name: self._chosen(values, 1 if plan.runs is not None and values.shape[:2] == (plan.runs, count) else 0)
            for name, values in particle_constants(plan).items()
        }
        writer = TrajectoryWriter.create(
            path,
            count=count if self.particles is None else len(self.particles),
            dimension=dimension,
            runs=plan.runs,
            dtype=self.storage,
            observables=observables,
            fields={name: shape[1:] for name, shape in fields.items() if name != POINTS},
            points=None if POINTS in fields else self._chosen(constant_points(plan), -2),
            provenance=self.provenance,
            labels=None if self.labels is None else self._chosen(np.asarray(self.labels), 0),
            words=None if self.words is None else self._chosen(self.words, -1),
            particles=self.particles,
            expected_frames=len(plan.times),
            overwrite=self.recording.overwrite,
            fsync=self.recording.fsync,
            **constants,
        )
        # Only after the file was created: where it is refused, the checkpoints of the existing run must stay.
        for old in checkpoint_folder(path).glob("checkpoint-*.npz"):
            old.unlink()
        return writer

    def _reopen(self, path: Path) -> TrajectoryWriter:
        """Open the file of the run that is resumed, cut back to the frames before its checkpoint."""
        return TrajectoryWriter.reopen(path, frames=self._go_on, fsync=self.recording.fsync)

    def _go_on(self, stored: StoredRun) -> int:
        """Restore the state from the last checkpoint, and return the number of frames before it."""
        self._check_same(stored.provenance)
        self._check_code(stored.provenance)
        checkpoint = self._checkpoint(stored.path, stored.frames)
        self._check_same(checkpoint.info if checkpoint else stored.provenance)
        self._compare_surroundings(checkpoint.info if checkpoint else stored.provenance)
        if checkpoint is None:
            return 0
        told = (stored.record.get("statistics") or {}, checkpoint.info)  # not the same after an interrupt, or a kill
        self._seconds_before = max(float(each.get("wall seconds", 0.0)) for each in told)
        arrays, info = checkpoint.arrays, checkpoint.info
        structure = jax.tree_util.tree_structure(self.plan.begin())
        state = [arrays[f"{_STATE}{index}"] for index in range(structure.num_leaves)]
        self.resumed = RunProgress(
            state=jax.tree_util.tree_unflatten(structure, state),
            **{name: arrays[name] for name in _CHECKPOINTED}, frames=info["frames"], time=info["time"],
            status=Status.RUNNING, message=info.get("message"),
            sums=tuple(Summed(*each) for each in info.get("sums", ())),
            solvers=tuple((name, count) for name, count in info.get("solvers", ())), step_error=info.get("step error"),
        )  # fmt: skip
        return info["frames"]

    def _checkpoint(self, path: Path, frames: int) -> Checkpoint | None:
        """The newest checkpoint whose frames are all stored, or None for a run that has at most its first window."""

        def unusable(info: dict[str, Any]) -> str | None:
            if info.get("run format") == RUN_FORMAT and self._differences(info):
                return "belongs to another run"
            return f"needs {info['frames']} frames, but {frames} are there" if info["frames"] > frames else None

        found, reasons, folder = None, [], checkpoint_folder(path)
        if folder.is_dir():
            try:
                found = load_checkpoint(folder, unusable)
                reasons += found.skipped
            except StoreError as error:
                reasons.append(str(error).removesuffix(". Run the scenario again from the start."))
        reason = "; ".join(reasons) or "There are no checkpoints beside it"
        if found is None and frames > self.plan.window_length(0):
            raise StoreError(
                f"The run in {path} holds {frames} frames, but no checkpoint to go on from. {reason}. Nothing was "
                "changed, and its frames can be read. To go on, begin a new run from its last frame, stored elsewhere; "
                "or delete the file and run it again."
            )
        again = frames - (found.info["frames"] if found else 0)
        if again and (reasons or not found):
            warnings.warn(f"{reason}. {again} frames of {path} are computed again.", ComputedAgain, stacklevel=2)
        return found

    def _check_same(self, info: dict[str, Any]) -> None:
        """Raise unless a file or a checkpoint is of this format and was made with the same arguments."""
        if info.get("run format", 1) != RUN_FORMAT:
            raise ArgumentError(
                f"The run in {self.path} was begun by another version of particleflow, which kept the state of a run "
                "in another form, so it cannot be resumed. Its frames can be read; to go on, begin a new run from its "
                "last frame, or run it again."
            )
        others = self._differences(info)
        if others:
            raise ArgumentError(
                f"The run in {self.path} was made with other settings, so it cannot be resumed with these: "
                f"{' and '.join(f'`{name}`' for name in others)} {'differs' if len(others) == 1 else 'differ'}. "
                "Use the settings it began with, or store the new run elsewhere."
            )

    def _differences(self, info: dict[str, Any]) -> list[str]:
        """The arguments whose hashes differ from those in a file or checkpoint, which may lack those of `_LATER`."""
        before, now = info.get("fingerprint", {}), self.provenance["fingerprint"]
        return differences(before, {name: now[name] for name in now if name in before or name not in _LATER})

    def _check_code(self, info: dict[str, Any]) -> None:
        """Raise if a function of the user's own has changed; warn under another Python, where that is not known."""
        before, now = info.get("code", {}), self.provenance["code"]
        others = differences(before, now) if before.get("python") == now["python"] else []
        if others:
            raise ArgumentError(
                f"The run in {self.path} was made with other code, so it cannot be resumed with this: a function of "
                f"{' and '.join(f'`{name}`' for name in others)} has changed. Use the code it began with, or store the "
                "new run elsewhere."
            )
        if before and before["python"] != now["python"] and len(now) > 1:
            warnings.warn(
                f"The run began under another Python ({before['python']}, this is {now['python']}), so it cannot be "
                "checked whether your own functions are unchanged. The run goes on.",
                ResumedElsewhere,
                stacklevel=2,
            )

    def _compare_surroundings(self, info: dict[str, Any]) -> None:
        """Warn if versions or machine differ from those before: then the last digits may differ, too."""
        changes = changed_surroundings(info, self.provenance)
        if changes:
            self._changes = ", ".join(changes)
            warnings.warn(
                f"The run began elsewhere ({self._changes}). It goes on, but its numbers may differ from those of an "
                "uninterrupted run in the last digits.",
                ResumedElsewhere,
                stacklevel=2,
            )

    def _save_checkpoint(self, progress: RunProgress) -> None:
        """Write the state from which the run can go on, with the fingerprint of the run, beside the file."""
        assert self.path is not None
        folder = own_folder(checkpoint_folder(self.path))
        arrays = {name: getattr(progress, name) for name in _CHECKPOINTED}
        arrays |= {f"{_STATE}{index}": leaf for index, leaf in enumerate(jax.tree_util.tree_leaves(progress.state))}
        info = {
            "frames": progress.frames,
            "time": progress.time,
            "message": progress.message,
            "sums": progress.sums,
            "solvers": progress.solvers,
            "step error": progress.step_error,
            "wall seconds": self._seconds(),
            "run format": RUN_FORMAT,
            "fingerprint": self.provenance["fingerprint"],
            **{name: self.provenance[name] for name in SURROUNDINGS},
        }
        save_checkpoint(folder, arrays, info)


def _check_recording(recording: Recording) -> None:
    """Raise where arguments for a file are given without `store`, contradict each other, or the title is no text."""
    resume, overwrite = recording.resume, recording.overwrite
    about_files = resume or overwrite or recording.storage or recording.particles is not None
    if recording.store is None and about_files:
        raise ArgumentError(
            "Arguments `resume`, `overwrite`, `storage` and `particles` go with `store`, which is not given."
        )
    if resume and overwrite:
        raise ArgumentError("Arguments `resume` and `overwrite` must not both be true: go on, or begin anew.")
    if not isinstance(recording.title, str):
        raise ArgumentError(f"Argument `title` must be a text, but is {recording.title!r}."[:300])
    if recording.title and "title" in recording.provenance:
        raise ArgumentError("The title is given twice, as `title` and in `provenance`: leave one of them out.")


def _provenance(plan: Plan, recorded: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a run, in words and as hashes; a plan never changes, so this may be computed at any time."""
    identity = {"fingerprint": fingerprints(plan, **recorded), "code": code_fingerprints(plan)}
    (device,) = plan.numbers.step.devices()  # states begin as NumPy arrays, so that programs run where numbers are
    # How many devices share the particles changes no bit; that they do may change the last ones.
    sharing = "particles among devices" if plan.devices is not None and plan.runs is None else None
    shared = {} if plan.devices is None else {"devices": len(plan.devices)}
    return {**surroundings(device, sharing=sharing), **shared, **describe(plan), **identity, **given}


def _told_solvers(progress: RunProgress) -> str:
    """The solvers of a run in words, and why there are several."""
    counted = [f"{name} in {count} window{'' if count == 1 else 's'}" for name, count in progress.solvers]
    return f"{', '.join(counted)}: implicit where few points are left or explicit steps would be many"


def _in_memory(
    plan: Plan, windows: list[Frames], metadata: Callable[[], dict[str, Any]], **particles: Any
) -> Trajectory:
    """The windows as one trajectory; its metadata are computed when they are first read."""
    times = np.concatenate([w.times for w in windows])
    fields, observables = (
        {name: np.concatenate([getattr(w, kind)[name] for w in windows]) for name in getattr(windows[0], kind)}
        for kind in ("fields", "observables")
    )
    points = fields.pop(POINTS, None)
    if points is None:
        fixed = constant_points(plan)
        points = np.broadcast_to(fixed, (len(times), *fixed.shape))
    constants: dict[str, Any] = particle_constants(plan)
    return Trajectory.from_arrays(
        times, points, observables=observables, fields=fields, metadata=metadata, **particles, **constants
    )


def _as_particles(particles: Any, count: int) -> np.ndarray:
    """The indices of the particles that are stored, checked."""
    indices = np.asarray(particles)
    fits = indices.ndim == 1 and indices.size > 0 and indices.dtype.kind in "iu" and indices.min() >= 0
    if not fits or indices.max() >= count or np.unique(indices).size < indices.size:
        raise ArgumentError(
            f"Argument `particles` must hold different indices from 0 to {count - 1}, but is {particles!r}."[:300]
        )
    return indices.astype(np.int64)


def _as_labels(labels: Any) -> np.ndarray | None:
    """Labels as they are stored, in 64 bits; the store checks whether they fit the particles."""
    given = None if labels is None else np.asarray(labels)
    return given.astype(np.int64) if given is not None and given.dtype.kind in "iu" else given
