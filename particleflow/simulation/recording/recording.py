"""What is kept of a run, and where: the arguments of `simulate` that do not change what is computed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Recording:
    """What the user wants to keep of a run; in memory where `store` is None.

    Parameters: `store`, the file; `resume` its run, or `overwrite` it; `storage`, its precision; `particles`, indices
    of those that are stored, all if None; `labels`, one whole number a particle; `words`, one text a particle; `title`,
    of the run; `fsync`, whether every window survives a power cut; `provenance`, plain values by name.
    """

    store: Path | None = None
    resume: bool = False
    overwrite: bool = False
    storage: str | None = None
    particles: Any = None
    labels: Any = None
    words: Any = None
    title: str = ""
    fsync: bool = True
    provenance: Mapping[str, Any] = field(default_factory=dict)
