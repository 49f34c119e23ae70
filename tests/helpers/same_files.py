"""Comparing the trajectory files of two runs to the bit."""

from pathlib import Path

import h5py
import numpy as np


def datasets(path: Path) -> dict[str, bytes]:
    """The bytes of every dataset of a file, by name, with their shape and type; not the times in its metadata."""
    found: dict[str, bytes] = {}

    def look(name: str, node: object) -> None:
        if isinstance(node, h5py.Dataset) and name not in ("particleflow/provenance", "particleflow/status"):
            values = np.asarray(node[()])
            found[f"{name} {values.shape} {values.dtype}"] = values.tobytes()

    with h5py.File(path, "r") as file:
        file.visititems(look)
    return found
