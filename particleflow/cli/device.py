"""Making JAX ready: quiet, with its compilation cache on disk, on the device that was asked for."""

import os
import sys
import warnings
from pathlib import Path

from particleflow.errors import UserError


def prepare(device: str | None = None, native: str = "on") -> str:
    """Set JAX up before it is used and return a description of the device in use; native sums may be turned "off".

    A program that has imported JAX already has set it up to its own liking, and keeps that.
    """
    if native == "off":
        os.environ["PARTICLEFLOW_NATIVE"] = "0"
    fresh = "jax" not in sys.modules
    # Complaints of the cache about its own machine-tuning flags are not for users. (1 is what JAX itself sets, and what
    # a process started from one that uses JAX finds.)
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") == "1":
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    # Checks inside compiled code call back into Python, which keeps the code out of the cache; ours are made before.
    os.environ.setdefault("EQX_ON_ERROR", "nan")
    # ffmpeg is started by fork and exec at once, which is safe beside JAX's threads.
    warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
    import jax

    known = _platforms()
    folder = cache_folder() if fresh else None
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    if device is not None:
        kind, _, number = device.partition(":")
        try:
            jax.config.update("jax_default_device", jax.devices(kind)[int(number or 0)])
        except (RuntimeError, ValueError, IndexError) as error:
            raise UserError(f"There is no device {device!r}; here is: {known}.") from error
    chosen = jax.config.jax_default_device or jax.devices()[0]  # pyright: ignore[reportAttributeAccessIssue]
    return f"{chosen.platform}:{chosen.id} ({chosen.device_kind})"


def _platforms() -> str:
    """The kinds of devices that JAX finds here, or an error that says what the environment asks for in vain."""
    import jax

    try:
        return ", ".join(sorted({each.platform for each in jax.devices()}))
    except (RuntimeError, AssertionError) as error:  # JAX asserts that what JAX_PLATFORMS names is there
        wish = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
        raise UserError(
            f"JAX finds no device of the kind {wish!r}, which JAX_PLATFORMS asks for. "
            "Set it to cpu or leave it out, or install JAX for that device."
        ) from error


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
    folder = root / "particleflow" / "jax"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder
