"""Files that appear whole or not at all.

What is written goes to a hidden file beside the target, which is renamed onto it at the very end: whatever stops the
writing, the target is either the old file or the complete new one. What a killed process left behind is removed by the
next one.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """A hidden path beside the target that becomes the target if the block succeeds and is removed if it does not."""
    _sweep(target)
    partial = target.with_name(f".{target.stem}.partial-{os.getpid()}{target.suffix}")
    try:
        yield partial
        with partial.open("rb+") as written:
            os.fsync(written.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _sweep(target: Path) -> None:
    """Remove partial files of processes that no longer run."""
    pattern = re.compile(rf"\.{re.escape(target.stem)}\.partial-(\d+){re.escape(target.suffix)}")
    for entry in target.parent.iterdir():
        match = pattern.fullmatch(entry.name)
        if match and not _alive(int(match[1])):
            with contextlib.suppress(OSError):
                entry.unlink()


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
