"""Clouds cut into blocks of equal size, for loops that never hold all pairs."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from particleflow.measure import Measure, Sites

# Sites, log-weights and values of sources, as they are or each cut into blocks along the first axis.
Sources = tuple[Sites, Array, Array]


def source_blocks(measure: Measure, values: Array, size: int) -> Sources:
    """The measure, and the values to be summed, in blocks of at most `size` sources; fillers weigh nothing."""
    size = min(size, measure.count)
    missing = -measure.count % size
    log_weights = jnp.pad(measure.log_weights, (0, missing), constant_values=-jnp.inf)
    return blocks(measure.sites, size), log_weights.reshape(-1, size), blocks(values, size)


def blocks(tree: Any, size: int) -> Any:
    """Every leaf cut into blocks of `size` rows, the last one filled up with copies of the first row.

    Copies, not zeros: a kernel may refuse a point that is not among those given (a letter outside its alphabet).
    """

    def cut(leaf: Array) -> Array:
        missing = -leaf.shape[0] % size
        if missing:  # whole blocks need no copy
            leaf = jnp.concatenate([leaf, jnp.broadcast_to(leaf[:1], (missing, *leaf.shape[1:]))])
        return leaf.reshape(-1, size, *leaf.shape[1:])

    return jax.tree_util.tree_map(cut, tree)
