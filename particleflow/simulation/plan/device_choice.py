"""The devices that share one run: the first ones of every process, of the kind that JAX computes on."""

from typing import Any

import jax

from particleflow._support.default_device import default_device
from particleflow.errors import ArgumentError, whole_number


def devices_of_run(count: Any) -> tuple[Any, ...] | None:
    """The devices that share a run: so many of every process; None for None, which leaves the choice of one to JAX.

    Where JAX has connected several processes, None stands for all of their devices.
    """
    if jax.process_count() == 1:
        return local_devices(count)
    kind = jax.local_devices()[0].platform
    of_each = len(jax.local_devices(backend=kind) if count is None else local_devices(count) or ())
    places = [[each for each in jax.devices(kind) if each.process_index == k] for k in range(jax.process_count())]
    return tuple(device for devices in places for device in devices[:of_each])


def local_devices(count: Any) -> tuple[Any, ...] | None:
    """So many devices of this process; None for None."""
    if count is None:
        return None
    wanted = whole_number(count, "devices")
    there = jax.local_devices(backend=default_device().platform)
    if wanted > len(there):
        kind, are = there[0].platform, "is 1" if len(there) == 1 else f"are {len(there)}"
        advice = f"; with XLA_FLAGS=--xla_force_host_platform_device_count={wanted} the processor counts as so many"
        raise ArgumentError(
            f"Argument `devices` is {wanted}, but there {are} of the kind {kind}{advice if kind == 'cpu' else ''}."
        )
    return tuple(there[:wanted])
