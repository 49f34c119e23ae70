"""Compiled programs that outlive their process: JAX's persistent cache, the same for the command line and for Python.

A program that has been compiled once, for the same shapes, solver and versions, is read from disk the next time.
"""

import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

_decided: list[bool] = []  # whether somebody has said by now what this process keeps
_VERBOSITY = "TF_CPP_MIN_LOG_LEVEL"
_FATAL = 3  # the level at which XLA says only why it dies


def silence_compiler() -> None:
    """Let XLA keep its notes on every program that it reads back to itself: a page each on some processors.

    A level that the user has chosen stays. (1 is what JAX itself sets, and what a process started from one that uses
    JAX finds.) Once JAX is loaded its level is no longer read from the environment.
    """
    if os.environ.get(_VERBOSITY, "1") != "1":
        return
    if "jaxlib" not in sys.modules:
        os.environ[_VERBOSITY] = str(_FATAL)
        return
    with suppress(ImportError, AttributeError):  # private: where it is gone, XLA is heard
        import_module("jaxlib.utils").absl_set_min_log_level(_FATAL)


def use_cache(folder: str | Path | bool = True) -> Path | None:
    """Keep what JAX compiles from now on, for the next process with the same shapes; returns the folder in use.

    particleflow does so by itself when it first uses JAX, unless JAX has been given a cache of its own by then
    (`jax_compilation_cache_dir`) or told to use none.

    Parameters: `folder`, true for `particleflow/jax` in the platform's cache folder, false to keep nothing in this
    process (None is then returned, as it is where the folder cannot be made), or a folder of your own.
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    _decided.append(True)
    compilation_cache.reset_cache()  # JAX stays with the folder that it has begun to use
    if folder is False:
        jax.config.update("jax_compilation_cache_dir", None)
        jax.config.update("jax_enable_compilation_cache", False)
        return None
    place = cache_folder() if folder is True else _made(Path(folder))
    write_whole_entries()
    if place is not None:
        jax.config.update("jax_enable_compilation_cache", True)
        jax.config.update("jax_compilation_cache_dir", str(place))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return place


def use_cache_unless_decided() -> None:
    """Use the cache, unless the user has decided about JAX's own in any way: what happens when JAX is first used.

    Programs that are compiled in a hurry (`jax_disable_most_optimizations`) are not worth keeping.
    """
    import jax

    write_whole_entries()  # in a cache of the user's own, too
    if _decided:
        return
    settings = jax.config.values
    wishes = settings["jax_compilation_cache_dir"], settings["jax_disable_most_optimizations"]
    if settings["jax_enable_compilation_cache"] and not any(wishes):
        use_cache()


def write_whole_entries() -> None:
    """Let JAX write an entry of its cache beside its place and rename it when it is whole.

    JAX writes in place, and never again where there is a file. So another process may read half an entry, and one whose
    writer was killed or found the disk full is half for ever: it is compiled again every time, with a warning.
    """
    with suppress(ImportError, AttributeError):  # private: where it is gone, JAX writes as it does
        kind = import_module("jax._src.lru_cache").LRUCache
        if kind.put is not _put:
            _put_in_place.append(kind.put)
            kind.put = _put


_put_in_place: list[Any] = []  # JAX's own way to write an entry, once it has been replaced


def _put(cache: Any, key: str, value: bytes) -> None:
    if cache.eviction_enabled:  # a cache of bounded size has a lock
        _put_in_place[0](cache, key, value)
        return
    target = Path(str(cache.path)) / f"{key}-cache"
    if target.exists():
        return
    partial = target.with_name(f"{key}-{os.getpid()}-{threading.get_ident()}.partial")
    try:
        partial.write_bytes(value)
        partial.replace(target)
    except OSError:
        partial.unlink(missing_ok=True)
        raise  # JAX says what happened and goes on with what it has compiled


@contextmanager
def without_callbacks(*, active: bool = True) -> Iterator[None]:
    """While active, checks inside what is traced show as NaN instead of calling back into Python.

    A program that calls back cannot be kept. What diffrax checks in ours has been checked before, and a run that is not
    finite ends with an error of its own. The switch is equinox's EQX_ON_ERROR, which can be set in the environment
    only, and for everything; a user's choice of anything but its default stays.
    """
    settings: dict[str, object] = {}
    with suppress(ImportError):  # a later equinox may keep it elsewhere: then there is nothing to switch
        settings = vars(import_module("equinox._errors"))
    if not active or settings.get("EQX_ON_ERROR") != "raise":
        yield
        return
    settings["EQX_ON_ERROR"] = "nan"
    try:
        yield
    finally:
        settings["EQX_ON_ERROR"] = "raise"


@contextmanager
def collector_at_rest(*, active: bool = True) -> Iterator[None]:
    """While active, Python does not look for cycles among objects that nobody holds.

    Loading JAX's libraries and tracing a program make hundreds of thousands of objects that stay: to look through them
    again and again takes a twelfth of the time to a first frame, and finds nothing. So they count as old at the end,
    to be looked at when everything is.
    """
    if not active or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if gc.get_freeze_count() == 0:  # else somebody has put objects aside, who stay there
            gc.freeze()
            gc.unfreeze()
        gc.enable()


def cache_folder() -> Path | None:
    """Where compiled code is kept between runs: the platform's cache folder; None if it cannot be made."""
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
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder
