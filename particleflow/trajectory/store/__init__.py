"""The trajectory store: streamed, crash-safe, resumable, and readable by other programs (H5MD 1.1).

Only NumPy is imported here, h5py when a file is opened, and JAX never. Exports lie above the store and are imported
when `export` is first used.
"""

from typing import TYPE_CHECKING, Any

from particleflow.trajectory.store.checkpoint import (
    Checkpoint,
    checkpoint_folder,
    load_checkpoint,
    read_archive,
    save_checkpoint,
    write_archive,
)
from particleflow.trajectory.store.file_access import BrokenWriterError, is_being_written, trajectory_path
from particleflow.trajectory.store.file_reader import StoredRun
from particleflow.trajectory.store.file_writer import TrajectoryWriter
from particleflow.trajectory.store.recovery import RecoveryReport, recover

if TYPE_CHECKING:
    from particleflow.trajectory.export.formats import export

__all__ = [
    "BrokenWriterError",
    "Checkpoint",
    "RecoveryReport",
    "StoredRun",
    "TrajectoryWriter",
    "checkpoint_folder",
    "export",
    "is_being_written",
    "load_checkpoint",
    "read_archive",
    "recover",
    "save_checkpoint",
    "trajectory_path",
    "write_archive",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name != "export":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from particleflow.trajectory.export.formats import export

    return export
