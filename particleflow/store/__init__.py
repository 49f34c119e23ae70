"""The trajectory store: streamed, crash-safe, resumable, and readable by other programs (H5MD 1.1).

Only NumPy is imported here; h5py follows when a file is opened, and JAX never does.
"""

from particleflow.store.checkpoint import (
    Checkpoint,
    checkpoint_folder,
    load_checkpoint,
    old_checkpoint_folder,
    save_checkpoint,
)
from particleflow.store.files import BrokenWriterError, is_being_written, trajectory_path
from particleflow.store.formats import export
from particleflow.store.reader import StoredRun
from particleflow.store.recovery import RecoveryReport, recover
from particleflow.store.writer import TrajectoryWriter

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
    "old_checkpoint_folder",
    "recover",
    "save_checkpoint",
    "trajectory_path",
]


def __dir__() -> list[str]:
    return __all__
