"""What pictures read off an analysis, whether it is a mapping, an object such as a `ClusterTrack`, or plain rows."""

from typing import Any

import numpy as np


def pick(analysis: Any, *names: str) -> Any:
    """The first of the named entries that a mapping or an object holds, else None."""
    for name in names:
        value = analysis.get(name) if hasattr(analysis, "get") else getattr(analysis, name, None)
        if value is not None:
            return value
    return None


def merge_rows(merges: Any) -> np.ndarray:
    """Merges as rows (a, b, time, size), as many as there are: of a `MergeTree`, or as they are given."""
    if hasattr(merges, "merges"):
        merges = [(merge.survivor, merge.absorbed, merge.time, merge.size) for merge in merges.merges]
    rows = np.asarray(merges, np.float64)
    return rows if rows.size else np.zeros((0, 4))
