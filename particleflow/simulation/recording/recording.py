"""What is kept of a run, and where: the part of `simulate`'s arguments that does not change what is computed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Recording:
    """The wishes of a user for what is kept; in memory where `store` is None.

    Parameters: `store`, the file; `resume` its run, or `overwrite` it; `storage`, its precision; `particles`, indices
    of those that are stored, all if None; `labels`, one whole number a particle; `words`, one text a particle; `fsync`,
    whether every window survives a power cut; `provenance`, plain values by name.
    """

    store: Path | None = None
    resume: bool = False
    overwrite: bool = False
    storage: str | None = None
    particles: Any = None
    labels: Any = None
    words: Any = None
    fsync: bool = True
    provenance: Mapping[str, Any] = field(default_factory=dict)
