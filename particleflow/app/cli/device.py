"""The device that JAX computes on, as the command line's options say."""

import os

from particleflow._support.default_device import default_device
from particleflow._support.text import plural
from particleflow.errors import UserError


def prepare(device: str | None = None, native: str = "on", devices: int | None = None) -> str:
    """Choose the device that JAX computes on and return its description; native sums may be turned "off".

    With `devices` the run is shared by so many devices of one kind, the first ones.
    """
    if native == "off":
        os.environ["PARTICLEFLOW_NATIVE"] = "0"
    import jax

    from particleflow.simulation.plan import local_devices

    known = _platforms()
    if device is not None:
        kind, _, number = device.partition(":")
        if devices is not None and number:
            raise UserError(
                f"Option --device {device} names one device, but --devices {devices} shares a run by the first ones of "
                f"a kind: write --device {kind}, or leave one of them out."
            )
        try:
            jax.config.update("jax_default_device", jax.devices(kind)[int(number or 0)])
        except (RuntimeError, ValueError, IndexError) as error:
            raise UserError(f"There is no device {device!r}; available here: {known}.") from error
    chosen = default_device()
    if devices is not None:
        return plural(len(local_devices(devices) or ()), f"{chosen.platform} device")
    return f"{chosen.platform}:{chosen.id} ({chosen.device_kind})"


def _platforms() -> str:
    """The kinds of devices that JAX finds, or an error that names the missing one in JAX_PLATFORMS."""
    import jax

    try:
        return ", ".join(sorted({each.platform for each in jax.devices()}))
    except (RuntimeError, AssertionError) as error:  # JAX asserts that the platforms in JAX_PLATFORMS exist
        wish = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
        raise UserError(
            f"JAX finds no device of the kind {wish!r}, which JAX_PLATFORMS requests. "
            "Set it to cpu or leave it out, or install JAX for that device."
        ) from error
