"""What a picture was made of, as a line of text in its file: the number of frames, and the clusters' linking distance.

The line is the same plain text in every format (a comment of a PNG, GIF or MP4, the description of an SVG, the subject
of a PDF, the generator of a page), so one search finds it. A file may come from anywhere: what is read only decides
whether a picture is called older than its run, and drawn again.
"""

import mmap
import re
from collections.abc import Sized
from pathlib import Path
from typing import Any, NamedTuple

_LINE = re.compile(
    rb"made by particleflow, frames=(\d{1,18})(?:, threshold=(\d[\d.e+-]{0,30}))?(?:, figure=([A-Za-z0-9_]{1,60}))?"
)


class MadeOf(NamedTuple):
    """The number of frames that a picture shows, the linking distance, None where clusters do not matter, and its name.

    `figure` is the name that a figure was drawn under: a copy that a user has renamed is told apart by it.
    """

    frames: int
    threshold: float | None = None
    figure: str | None = None

    def __str__(self) -> str:
        """The line that is written into files."""
        linked = "" if self.threshold is None else f", threshold={float(self.threshold)!r}"
        named = "" if self.figure is None else f", figure={self.figure}"
        return f"made by particleflow, frames={self.frames}{linked}{named}"


def made_of(trajectory: Sized, threshold: Any = None) -> MadeOf:
    """What pictures of a trajectory are made of; `threshold` is a distance or a `Threshold`, if there is one."""
    value = getattr(threshold, "value", threshold)
    return MadeOf(len(trajectory), float(value) if isinstance(value, int | float) else None)


def read_made_of(path: Path) -> MadeOf | None:
    """What a file says that it was made of; None for one that says nothing, or cannot be read."""
    if not path.is_file():  # a pipe would be waited for
        return None
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = _LINE.search(content)
            return found and MadeOf(
                int(found[1]), float(found[2]) if found[2] else None, found[3].decode() if found[3] else None
            )
    except (OSError, ValueError):  # an empty file cannot be mapped
        return None
