"""The files of a group of runs: its results (.npz) and, on request, its trajectories (.h5), each there whole or not."""

import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from particleflow._support.files import reason_of, replace, written
from particleflow.errors import RunError, StoreError
from particleflow.trajectory.store import checkpoint_folder

GROUPS_FOLDER = "groups"
_DAMAGE = (OSError, ValueError, KeyError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)


def group_path(folder: Path, index: int) -> Path:
    """The results of a group of the sweep in `folder`."""
    return folder / GROUPS_FOLDER / f"{index:05d}.npz"


def lease_path(folder: Path, index: int) -> Path:
    """The lease of the worker that runs a group of the sweep in `folder`."""
    return group_path(folder, index).with_suffix(".lease")


def leased(folder: Path) -> list[int]:
    """The groups of the sweep in `folder` that have a lease, whether its worker lives or not."""
    found = (folder / GROUPS_FOLDER).glob("*.lease")
    return sorted(int(path.stem) for path in found if path.stem.isdecimal())


def save_group(path: Path, arrays: dict[str, np.ndarray], before_naming: Callable[[], object] = lambda: None) -> None:
    """Write the results of a group; they are on disk when this returns.

    Parameters: `before_naming` is called when all is written, before the file takes its name; it may raise.
    """
    with written(path) as partial:
        np.savez(partial, **arrays)  # pyright: ignore[reportArgumentType]
        before_naming()


def load_group(path: Path, runs: int) -> dict[str, np.ndarray]:
    """The results of a group of so many runs; a file that does not hold all of them is a `StoreError`."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive}
        for name, values in arrays.items():
            if name != "times" and values.shape[:1] != (runs,):
                raise ValueError(f"{name} has the shape {values.shape}, but there are {runs} runs")
        if not {"times", "end_times"} <= arrays.keys():
            raise ValueError("it has no times")
    except _DAMAGE as error:
        raise StoreError(
            f"{path} is damaged ({reason_of(error)}). `particleflow resume` computes its runs again."
        ) from error
    return arrays


@contextmanager
def trajectories_beside(target: Path) -> Iterator[Path]:
    """A path for trajectories that replace `target` when the runs have ended.

    After a `RunError` the frames before it are kept, too; any other exception leaves the old file. Partial files of
    processes that no longer run the group are removed; the caller has the lease of it.
    """
    partial = target.with_name(f".{target.stem}.partial-{os.getpid()}{target.suffix}")
    for old in {*target.parent.glob(f".{target.stem}.partial*{target.suffix}*"), partial}:
        _discard(old)
    try:
        yield partial
        replace(partial, target)
    except RunError:
        if partial.exists():
            replace(partial, target)
        raise
    finally:
        _discard(partial)


def _discard(partial: Path) -> None:
    """Remove a partial trajectory with its lock and its checkpoints, which are of no use without it."""
    if partial.is_dir() and not partial.is_symlink():
        shutil.rmtree(partial, ignore_errors=True)
        return
    partial.unlink(missing_ok=True)
    partial.with_name(f"{partial.name}.lock").unlink(missing_ok=True)
    shutil.rmtree(checkpoint_folder(partial), ignore_errors=True)
