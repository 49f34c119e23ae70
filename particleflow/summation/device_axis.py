"""Rows of particles on several devices: which of them a device works on, and how all devices get the results of all.

Inside `jax.shard_map` over the axis `PARTICLES` every device runs the same program on the same numbers, and shares only
what is worth it: an exact sum over all pairs is made by each device for some of the queries, over all sources in their
order, and its results are gathered. What is gathered is never added up, so no bit of a result depends on the number of
devices: rows begin at multiples of `ALIGNED`, where tiles of native code begin, too, and blocks of XLA have a size that
depends on the number of all queries alone. Outside of such a map there is one device, and nothing changes.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

PARTICLES = "particles"
ALIGNED = 192  # a multiple of the queries of every tile of native code: 6, 8, 12, 16, 24, 32, 64
_FEWEST = 64  # rows; fewer are not worth sharing
_BLOCKS, _BLOCK_MULTIPLE = 64, 8  # so many blocks of so many rows, or a multiple, are shared by XLA's sums


def device_count() -> int | None:
    """The number of devices that share the particles here; None outside of such a map."""
    try:
        return jax.lax.axis_size(PARTICLES)
    except NameError:
        return None


def rows_each(count: int, devices: int) -> int:
    """How many of `count` rows a device holds; the last devices may have fewer, or none."""
    return -(-count // (devices * ALIGNED)) * ALIGNED


def first_row(count: int) -> tuple[Array, int] | None:
    """The first row of this device among `count`, and how many it holds; None where rows are not shared."""
    devices = device_count()
    if devices is None or count < _FEWEST:
        return None
    size = rows_each(count, devices)
    return jax.lax.axis_index(PARTICLES) * size, size


def own_rows(tree: Any, size: int) -> Any:
    """This device's rows of every array, `size` of them, an even number; where there are no more, copies of the first.

    They are copied by a loop, which compilers do not join with the arithmetic before and after it. Otherwise they would
    round differently for different numbers of devices: where a product enters a sum, they round once if they join
    the two, and whether they do depends on whether rows are cut out in between.
    """
    devices = device_count()
    assert devices is not None

    def cut(rows: Array) -> Array:
        missing = max(0, devices * size - rows.shape[0])
        filled = jnp.concatenate([rows, jnp.broadcast_to(rows[:1], (missing, *rows.shape[1:]))]) if missing else rows
        first, half = jax.lax.axis_index(PARTICLES) * size, size // 2
        halves = jax.lax.map(
            lambda k: jax.lax.dynamic_slice_in_dim(filled, first + k * half, half), jnp.arange(2, dtype=jnp.int32)
        )
        return halves.reshape(size, *rows.shape[1:])

    return jax.tree_util.tree_map(cut, tree)


def all_rows(tree: Any, count: int) -> Any:
    """The `count` rows of all devices, on every device, from those that each holds."""
    return jax.tree_util.tree_map(lambda rows: jax.lax.all_gather(rows, PARTICLES, tiled=True)[:count], tree)


def shared_in_blocks(function: Callable[[Any], Any], rows: Any, count: int, most: int) -> Any:
    """A function of blocks of rows, each device for some of the blocks; its results for all rows, on every device.

    A block has `most` rows at most, and a size that depends on `count` alone. Each device has two blocks or more:
    compilers join a loop of one block with what is around it, and round otherwise.
    """
    devices = device_count()
    assert devices is not None
    size = min(most, -(-count // (_BLOCKS * _BLOCK_MULTIPLE)) * _BLOCK_MULTIPLE)
    blocks = max(2, -(-count // (size * devices)))
    mine = own_rows(rows, blocks * size)
    cut = jax.tree_util.tree_map(lambda leaf: leaf.reshape(blocks, size, *leaf.shape[1:]), mine)
    found = jax.lax.map(function, cut)
    joined = jax.tree_util.tree_map(lambda leaf: leaf.reshape(blocks * size, *leaf.shape[2:]), found)
    return all_rows(joined, count)


def is_shared(count: int) -> bool:
    """Whether so many queries are shared by devices here."""
    return device_count() is not None and count >= _FEWEST


def largest(number: Array) -> Array:
    """The largest of a number over all devices; NaN if there is one."""
    return number if device_count() is None else jnp.max(jax.lax.all_gather(number, PARTICLES))


def everywhere(condition: Array) -> Array:
    """Whether a condition holds on all devices."""
    return condition if device_count() is None else jnp.all(jax.lax.all_gather(condition, PARTICLES))
