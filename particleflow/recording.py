"""What a run leaves behind: frames in memory, or in a file with checkpoints beside it."""

import contextlib
import hashlib
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from particleflow.errors import ArgumentError, ResumedElsewhere, StoreError
from particleflow.plan import EVENT_TIME, Plan
from particleflow.store import TrajectoryWriter, load_checkpoint, save_checkpoint
from particleflow.trajectory import Trajectory

if TYPE_CHECKING:
    from types import TracebackType


class Progress(NamedTuple):
    """Where a run is after a window: what a checkpoint holds and what a progress bar shows."""

    state: np.ndarray
    proposed: np.ndarray
    frames: int
    accepted: np.ndarray
    rejected: np.ndarray
    evaluations: np.ndarray
    ended: np.ndarray
    time: float
    status: str
    message: str | None


_CHECKPOINTED = ("state", "proposed", "accepted", "rejected", "evaluations", "ended")


_SURROUNDINGS = ("versions", "device", "platform")


class Frames(NamedTuple):
    """The frames of one window, as NumPy arrays (time first), and how the run stands after it."""

    first: int
    times: np.ndarray
    points: np.ndarray
    observables: dict[str, np.ndarray]
    progress: Progress


class Recorder:
    """Takes the windows of a run, in memory or into `path`; as a context it marks a run that breaks off as failed."""

    def __init__(
        self,
        plan: Plan,
        path: Path | None,
        *,
        resume: bool,
        storage: str | None,
        particles: Any,
        labels: Any,
        fsync: bool,
        provenance: dict[str, Any],
    ):
        self.plan = plan
        self.path = path
        self.labels = labels
        self.provenance = {**describe(plan), **provenance}
        self.particles = None if particles is None else np.asarray(particles)
        self.resumed: Progress | None = None
        self._windows: list[Frames] = []
        self._changes: str | None = None
        self._progress: Progress | None = None
        self._writer: TrajectoryWriter | None = None
        if path is None and (resume or storage or particles is not None):
            raise ArgumentError("Arguments `resume`, `storage` and `particles` go with `store`, which is not given.")
        if path is not None:
            self._writer = self._reopen(path, fsync) if resume else self._create(path, storage, fsync)

    def append(self, frames: Frames) -> None:
        """Keep a window; with a file, return when it is safe there together with its checkpoint."""
        self._progress = frames.progress
        if self._writer is None:
            self._windows.append(frames)
            return
        steps = frames.first + np.arange(len(frames.times))
        points = frames.points if self.particles is None else frames.points[..., self.particles, :]
        if len(frames.times):
            self._writer.append(frames.times, steps, points, frames.observables)
        if frames.progress.status == "running":
            self._save_checkpoint(frames.progress)

    def interrupt(self) -> None:
        """Mark the run as interrupted: it can be resumed."""
        assert self._progress is not None
        self._progress = self._progress._replace(status="interrupted", message="stopped by a signal")

    def finish(self, seconds: float) -> Trajectory:
        """Close the run and return its trajectory."""
        progress = self._progress or self.resumed
        assert progress is not None
        status = "interrupted" if progress.status == "running" else progress.status
        statistics = self._statistics(progress, seconds)
        if self._writer is None:
            metadata = {**self.provenance, "status": status, "message": progress.message, "statistics": statistics}
            return _in_memory(self.plan, self._windows, metadata, self.labels)
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
            statistics = self._statistics(progress, 0.0) if progress is not None else {}
            self._writer.set_status("interrupted" if stopped else "failed", str(error)[:500], statistics)
            self._writer.close()

    def _statistics(self, progress: Progress, seconds: float) -> dict[str, Any]:
        accepted, rejected = int(np.sum(progress.accepted)), int(np.sum(progress.rejected))
        held = self.plan.window * self.plan.start.points.size * self.plan.start.points.dtype.itemsize
        return {
            "accepted steps": accepted,
            "rejected steps": rejected,
            "field evaluations": int(np.sum(progress.evaluations)),
            "wall seconds": round(seconds, 3),
            "window bytes": held,
            "end time": progress.time,
            "resumed elsewhere": self._changes,
            **{f"chosen {name}": choice for name, choice in self.plan.choices.items()},
        }

    def _create(self, path: Path, storage: str | None, fsync: bool) -> TrajectoryWriter:
        plan = self.plan
        single = plan.start if plan.runs is None else jax.tree_util.tree_map(lambda leaf: leaf[0], plan.start)
        count, dimension = single.points.shape
        for old in _checkpoint_folder(path).glob("checkpoint-*.npz"):
            old.unlink()
        chosen = slice(None) if self.particles is None else self.particles
        return TrajectoryWriter.create(
            path,
            count=count if self.particles is None else len(self.particles),
            dimension=dimension,
            runs=plan.runs,
            dtype=storage or str(np.dtype(single.points.dtype)),
            observables=_observable_shapes(plan),
            provenance=self.provenance,
            log_weights=np.asarray(single.log_weights, float)[chosen],
            positions=None if single.positions is None else np.asarray(single.positions, float)[chosen],
            labels=None if self.labels is None else np.asarray(self.labels)[chosen],
            particles=self.particles,
            expected_frames=len(plan.times),
            fsync=fsync,
        )

    def _reopen(self, path: Path, fsync: bool) -> TrajectoryWriter:
        folder = _checkpoint_folder(path)
        try:
            checkpoint = load_checkpoint(folder)
        except StoreError:
            # Killed before the first window was acknowledged: nothing is lost by beginning again.
            metadata = Trajectory.open(path).metadata
            self._check_same(metadata)
            self._compare_surroundings(metadata)
            return TrajectoryWriter.reopen(path, frames=0, fsync=fsync)
        self._check_same(checkpoint.info)
        self._compare_surroundings(checkpoint.info)
        arrays, info = checkpoint.arrays, checkpoint.info
        self.resumed = Progress(
            **{name: arrays[name] for name in _CHECKPOINTED}, frames=info["frames"], time=info["time"],
            status="running", message=None,
        )  # fmt: skip
        return TrajectoryWriter.reopen(path, frames=info["frames"], fsync=fsync)

    def _check_same(self, info: dict[str, Any]) -> None:
        if info.get("fingerprint") != self.provenance["fingerprint"]:
            raise ArgumentError(
                f"The run in {self.path} was made with other settings, so it cannot be resumed with these; "
                "use the settings it began with, or store the new run elsewhere."
            )

    def _compare_surroundings(self, info: dict[str, Any]) -> None:
        """Say so if versions or machine are others than before: then the last digits may be others, too."""
        before, now = ({name: each.get(name) for name in _SURROUNDINGS} for each in (info, self.provenance))
        versions, others = (each.pop("versions") or {} for each in (before, now))
        changes = [f"{name} {was} → {others.get(name)}" for name, was in versions.items() if others.get(name) != was]
        changes += [f"{name} {was} → {now[name]}" for name, was in before.items() if now[name] != was]
        if changes:
            self._changes = ", ".join(changes)
            warnings.warn(
                f"The run began elsewhere ({self._changes}). It goes on, but its numbers may differ from those of an "
                "uninterrupted run in the last digits.",
                ResumedElsewhere,
                stacklevel=2,
            )

    def _save_checkpoint(self, progress: Progress) -> None:
        assert self.path is not None
        folder = _checkpoint_folder(self.path)
        folder.mkdir(exist_ok=True)
        arrays = {name: getattr(progress, name) for name in _CHECKPOINTED}
        info = {
            "frames": progress.frames,
            "time": progress.time,
            "fingerprint": self.provenance["fingerprint"],
            **{name: self.provenance[name] for name in _SURROUNDINGS},
        }
        save_checkpoint(folder, arrays, info)


def describe(plan: Plan) -> dict[str, Any]:
    """Where a run comes from: settings and their fingerprint, versions, device, precision, geometry."""
    import platform
    from importlib.metadata import version

    device = jax.devices()[0]
    return {
        "geometry": _snake(type(plan.flow.geometry).__name__),
        "precision": str(np.dtype(plan.dtype)),
        "solver": plan.method.solver,
        "rtol": float(plan.numbers.rtol),
        "atol": float(plan.numbers.atol),
        "step": float(plan.numbers.step),
        "fingerprint": fingerprint(plan),
        "versions": {
            name: version(name) for name in ("particleflow", "jax", "jaxlib", "diffrax", "equinox", "numpy", "h5py")
        },
        "device": f"{device.platform} ({device.device_kind})",
        "platform": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
    }


def fingerprint(plan: Plan) -> str:
    """A hash of everything that decides the numbers of a run: start, flow, times, method, window."""
    digest = hashlib.sha256()
    plain = (plan.method, plan.window, plan.runs, [str(o) for o in map(_name, plan.observe)], plan.times.tolist())
    digest.update(repr(plain).encode())
    for tree in (plan.start, plan.flow, plan.event, plan.numbers):
        leaves, structure = jax.tree_util.tree_flatten(tree)
        digest.update(str([type(leaf).__name__ for leaf in leaves]).encode())
        digest.update(type(tree).__name__.encode() + str(structure.num_leaves).encode())
        for leaf in leaves:
            digest.update(_leaf_bytes(leaf))
    return digest.hexdigest()


def _leaf_bytes(leaf: Any) -> bytes:
    if eqx.is_array(leaf):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        return str((leaf.shape, leaf.dtype)).encode() + np.asarray(leaf).tobytes()
    return repr(
        leaf if isinstance(leaf, str | int | float | bool) else getattr(leaf, "__qualname__", type(leaf))
    ).encode()


def _name(observable: Any) -> str:
    from particleflow.observables import name_of

    return name_of(observable)


@contextlib.contextmanager
def interrupts(*, active: bool) -> Iterator[Callable[[], bool]]:
    """While active, SIGINT and SIGTERM only raise a flag, so that a run can end cleanly after its window.

    A second signal falls back to what was set before.
    """
    caught = threading.Event()
    if not active or threading.current_thread() is not threading.main_thread():
        yield caught.is_set
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: Any) -> None:
        caught.set()
        signal.signal(number, previous[signal.Signals(number)])

    for number in previous:
        signal.signal(number, note)
    try:
        yield caught.is_set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _in_memory(plan: Plan, windows: list[Frames], metadata: dict[str, Any], labels: Any) -> Trajectory:
    single = plan.start if plan.runs is None else jax.tree_util.tree_map(lambda leaf: leaf[0], plan.start)
    names = windows[0].observables
    return Trajectory.from_arrays(
        np.concatenate([w.times for w in windows]),
        np.concatenate([w.points for w in windows]),
        observables={name: np.concatenate([w.observables[name] for w in windows]) for name in names},
        log_weights=np.asarray(single.log_weights, float),
        positions=None if single.positions is None else np.asarray(single.positions, float),
        labels=labels,
        metadata=metadata,
    )


def _observable_shapes(plan: Plan) -> dict[str, tuple[int, ...]]:
    from particleflow.observables import name_of

    runs = () if plan.runs is None else (plan.runs,)
    flow, start = plan.flow, plan.start
    if plan.runs is not None:
        start = jax.tree_util.tree_map(lambda leaf: leaf[0], start)
    if plan.flow_per_run:
        flow = jax.tree_util.tree_map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, flow)
    time = jnp.zeros((), plan.dtype)
    shapes = {name_of(f): jax.eval_shape(lambda f=f: jnp.asarray(f(flow, time, start))).shape for f in plan.observe}
    if plan.event is not None and plan.runs is not None:
        shapes[EVENT_TIME] = ()
    return {name: runs + shape for name, shape in shapes.items()}


def _checkpoint_folder(path: Path) -> Path:
    return path.with_name(path.stem + ".checkpoints")


def _snake(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")
