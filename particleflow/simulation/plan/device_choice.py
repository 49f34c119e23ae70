"""The devices that share one run: the first ones of the machine's, of the kind that JAX computes on."""

from typing import Any

import jax

from particleflow.errors import ArgumentError, whole_number


def local_devices(count: Any) -> tuple[Any, ...] | None:
    """So many devices of this machine; None for None, which leaves the choice of one device to JAX."""
    if count is None:
        return None
    wanted = whole_number(count, "devices")
    default = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    there = jax.local_devices(backend=None if default is None else default.platform)
    if wanted > len(there):
        kind, are = there[0].platform, "is 1" if len(there) == 1 else f"are {len(there)}"
        advice = f"; with XLA_FLAGS=--xla_force_host_platform_device_count={wanted} the processor counts as so many"
        raise ArgumentError(
            f"Argument `devices` is {wanted}, but there {are} of the kind {kind}{advice if kind == 'cpu' else ''}."
        )
    return tuple(there[:wanted])
