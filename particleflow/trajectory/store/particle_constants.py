"""What every particle keeps over a whole run: checked before it is written, and read back.

Numbers are kept as they are, words as UTF-8 of one length (see `file_layout`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from particleflow.errors import ShapeError
from particleflow.trajectory.frame import fits_particles
from particleflow.trajectory.store import file_guard
from particleflow.trajectory.store.file_layout import CONSTANTS, WORDS, FileLayout, Node
from particleflow.trajectory.words import as_words, from_bytes

_WHOLE = ("labels", "particles")


def check_constants(given: Mapping[str, Any], layout: FileLayout) -> dict[str, np.ndarray]:
    """Check the arrays that hold one entry per particle; weights, positions and words may have a row for every run."""
    constants = {}
    for name, value in given.items():
        if value is None:
            continue
        if name == WORDS:
            constants[name] = as_words(value, layout.count, layout.runs)
            continue
        whole = name in _WHOLE
        array = np.asarray(value)
        fits = fits_particles(name, array.shape, layout.count, layout.runs)
        if not fits or array.dtype.kind not in ("iu" if whole else "iuf"):
            raise ShapeError(
                f"Argument `{name}` must hold one {'integer' if whole else 'number'} for each of the {layout.count}"
                f" particles, but has shape {array.shape} and type {array.dtype}."
            )
        constants[name] = array.astype("<i8" if whole else "<f8")
    return constants


def check_fixed_points(points: Any, layout: FileLayout) -> np.ndarray:
    """Return points that never move, checked and repeated for every run of an ensemble.

    Parameters: `points` (N, d) or (R, N, d); the `layout` of the file, whose precision they take.
    """
    array = np.asarray(points, dtype=layout.dtype_of("position"))
    if array.shape not in (layout.frame_shape, layout.frame_shape[-2:]):
        raise ShapeError(f"Argument `points` must have shape {layout.frame_shape}, but has {array.shape}.")
    return np.broadcast_to(array, layout.frame_shape)


def read_constants(ours: Node, layout: FileLayout, size: int, path: Path) -> dict[str, np.ndarray]:
    """The constants of a file of `size` bytes, each with one entry per particle."""
    names = [name for name in CONSTANTS if file_guard.has(ours, name)]
    found = {name: (file_guard.words if name == WORDS else file_guard.numbers)(ours, name, path) for name in names}
    file_guard.check_shapes(layout, {name: each.shape for name, each in found.items()}, size, path)
    read = {name: file_guard.read_whole(dataset, size, path) for name, dataset in found.items()}
    return {name: from_bytes(array) if name == WORDS else array for name, array in read.items()}
