"""Keep compiled programs on disk: JAX's persistent cache, in a folder of particleflow.

A program that has been compiled once, for the same shapes, solver and versions, is read from disk the next time. The
command line uses the cache for its own process (`own_process`); in Python it is used after `use_cache` is called.
"""

import os
import sys
from pathlib import Path

_XLA_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_FATAL_ONLY = "3"
# Settings of JAX to keep every program, however quickly it was compiled and however small it is.
KEEP_EVERY_PROGRAM = {"min_compile_time_secs": 0.0, "min_entry_size_bytes": -1}


def use_cache(folder: str | Path | bool = True) -> Path | None:
    """Keep what JAX compiles from now on, for the next process with the same shapes; returns the folder in use.

    This is a setting of JAX for the whole process, which only this call changes. A program with checks that call
    back into Python, as diffrax's are, cannot be kept; set EQX_ON_ERROR=nan in the environment before Python starts
    (as the command line does for its own process), and such a check gives NaN instead of an error. Where JAX is not
    loaded yet, XLA's log is set to fatal errors alone (TF_CPP_MIN_LOG_LEVEL), unless the environment says otherwise.

    Parameters: `folder`, true for `particleflow/jax` in the platform's cache folder, false to keep nothing in this
    process (None is then returned, as it is where the folder cannot be made), or a folder of your own.
    """
    if "jaxlib" not in sys.modules:
        silence_xla()
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    compilation_cache.reset_cache()  # else JAX keeps the folder that it has begun to use
    if folder is False:
        jax.config.update("jax_compilation_cache_dir", None)
        jax.config.update("jax_enable_compilation_cache", False)
        return None
    place = cache_folder() if folder is True else _made(Path(folder))
    if place is not None:
        jax.config.update("jax_enable_compilation_cache", True)
        jax.config.update("jax_compilation_cache_dir", str(place))
        for name, value in KEEP_EVERY_PROGRAM.items():
            jax.config.update(f"jax_persistent_cache_{name}", value)
    return place


def silence_xla() -> None:
    """Silence XLA's log output when cached programs are loaded: a page each on some processors.

    XLA reads its level from the environment when it is loaded. A level that the user has chosen stays; 1 is set by JAX
    itself, and inherited by processes that were started from one with JAX.
    """
    if os.environ.get(_XLA_LOG_LEVEL, "1") == "1":
        os.environ[_XLA_LOG_LEVEL] = _FATAL_ONLY


def cache_folder() -> Path | None:
    """The folder of compiled programs, in the platform's cache folder; None if it cannot be made.

    JAX_COMPILATION_CACHE_DIR in the environment names another one.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    if sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches"
    elif os.name == "nt":
        root = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return _made(root / "particleflow" / "jax")


def _made(folder: Path) -> Path | None:
    """The folder, made if it was not there; None if it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder
