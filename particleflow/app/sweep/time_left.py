"""How long a sweep will still take, from the log of its groups."""

from datetime import datetime

import numpy as np

from particleflow.app.sweep.manifest import DONE, FAILED, Manifest


def seconds_left(manifest: Manifest, workers: int) -> float | None:
    """The seconds until a sweep has ended: groups to run × median seconds of a group / workers; None if unknown.

    Parameters: the number of `workers`, of which each is taken to go on.
    """
    took = _seconds_of_groups(manifest)
    left = len(manifest.groups_to_run()) + len(manifest.workers())
    if not took or not left or not workers:
        return None
    return float(np.ceil(left / workers) * np.median(took))


def _seconds_of_groups(manifest: Manifest) -> list[float]:
    """The seconds of every group that has ended, from the two rows of the worker that ended it."""
    begun: dict[tuple[int, str], datetime] = {}
    took: list[float] = []
    for row in manifest.log:
        try:
            key, when = (row["group"], row["worker"]), datetime.fromisoformat(row["time"])
        except (KeyError, TypeError, ValueError):  # of a file that something else has written
            continue
        if row.get("state") == "begun":
            begun[key] = when
        elif row.get("state") in (DONE, FAILED) and key in begun:
            took.append((when - begun[key]).total_seconds())
    return took
