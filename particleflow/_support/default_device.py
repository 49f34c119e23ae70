"""The device that JAX computes on where nothing else is said."""

from typing import Any


def default_device() -> Any:
    """The device of `jax.default_device`, or else the first one that JAX finds."""
    import jax

    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    return jax.devices(chosen)[0] if chosen is None or isinstance(chosen, str) else chosen


def computing_platform() -> str:
    """Its platform, as JAX's compiler names it: "cpu", "cuda", "rocm" or "tpu"."""
    device = default_device()
    if device.platform != "gpu":
        return device.platform
    return "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"
