"""Making JAX ready: quiet, with its compilation cache on disk, on the device that was asked for."""

import os
import sys
import warnings

from particleflow.compilation_cache import use_cache
from particleflow.errors import UserError


def prepare(device: str | None = None, native: str = "on") -> str:
    """Set JAX up before it is used and return a description of the device in use; native sums may be turned "off".

    A program that has imported JAX already has set it up to its own liking, and keeps that.
    """
    if native == "off":
        os.environ["PARTICLEFLOW_NATIVE"] = "0"
    fresh = "jax" not in sys.modules
    # Checks inside compiled code call back into Python, which keeps the code out of the cache; ours are made before.
    os.environ.setdefault("EQX_ON_ERROR", "nan")
    # ffmpeg is started by fork and exec at once, which is safe beside JAX's threads.
    warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
    import jax

    known = _platforms()
    if fresh and jax.config.values["jax_enable_compilation_cache"]:
        use_cache()
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
