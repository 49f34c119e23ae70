"""Depth: layers that take turns in time, and the sub-layers of one block.

With explicit steps of size `duration` a stack of layers is a transformer: the weights θ_t are piecewise constant,

    ẋ = drift_k(x, μ)    while    k · duration ≤ t < (k + 1) · duration.
"""

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import Nonnegative, as_positive
from particleflow.dynamics.drifts.base import (
    AbstractDrift,
    AbstractSum,
    Chooser,
    Interaction,
    acts_at_once,
    check_drifts,
    structure_of,
)
from particleflow.dynamics.geometry import AbstractGeometry
from particleflow.dynamics.normal_law import Affine, Normal
from particleflow.errors import ArgumentError
from particleflow.measure import Measure, Sites

# A time that is this many rounding units below a boundary belongs to the layer that begins there: k · step is rounded,
# and so is 0.3.
_TIME_ROUNDING = 8.0


class HasDepth(eqx.Module):
    """A capability of drifts: they are the layers of a network, after whose last one nothing is known."""

    @abc.abstractmethod
    def depth(self) -> float | None:
        """The time at which the last layer ends; None where a single layer is repeated for as long as a run goes on."""


Stages = tuple[tuple[AbstractDrift, AbstractGeometry | None], ...]


class Layers(AbstractDrift):
    """Drifts that take turns, each for `duration`: piecewise constant parameters θ_t; the last one stays.

    Layers of one structure are kept as one drift whose arrays have a leading axis, and the current one is picked by
    its index: twelve layers compile like one, and in an ensemble every run computes its own layer only. Only layers
    of different structure (attention and feed-forward in turn) need a branch each.
    """

    stacks: tuple[AbstractDrift, ...]
    duration: Nonnegative
    stack_of: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, drifts: Sequence[AbstractDrift], duration: Any = 1.0):
        check_drifts(tuple(drifts))
        structures = [structure_of(drift) for drift in drifts]
        distinct = list(dict.fromkeys(structures))
        self.stack_of = tuple(distinct.index(structure) for structure in structures)
        members = [[drift for drift, s in zip(drifts, structures, strict=True) if s == kind] for kind in distinct]
        self.stacks = tuple(jax.tree_util.tree_map(lambda *leaves: jnp.stack(leaves), *group) for group in members)
        self.duration = as_positive(duration, "duration")

    def __check_init__(self):
        if len(self.stacks) > 1 and not all(map(acts_at_once, self.stacks)):
            raise ArgumentError("Argument `drifts`: layers that are blocks must all have one structure, but differ.")

    @property
    def drifts(self) -> tuple[AbstractDrift, ...]:
        """The layers, one by one."""
        numbers = [self.stack_of[:layer].count(stack) for layer, stack in enumerate(self.stack_of)]
        return tuple(
            jax.tree_util.tree_map(lambda leaf, place=place: leaf[place], self.stacks[stack])
            for stack, place in zip(self.stack_of, numbers, strict=True)
        )

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """The velocity of the current layer."""
        branches = [lambda *a, s=stack: self._current(s, time)(*a) for stack in range(len(self.stacks))]
        if len(branches) == 1:
            return branches[0](time, queries, measure)
        return jax.lax.switch(self._kind(time), branches, time, queries, measure)

    def affine(self, time: Any, law: Normal) -> Affine:
        """The field of the current layer."""
        branches = [lambda *a, s=stack: self._current(s, time).affine(*a) for stack in range(len(self.stacks))]
        return branches[0](time, law) if len(branches) == 1 else jax.lax.switch(self._kind(time), branches, time, law)

    def interactions(self, time: Any) -> tuple[Interaction, ...]:
        """Those of the current layer; of several structures, those of the current or last layer of each."""
        return tuple(
            each for stack in range(len(self.stacks)) for each in self._current(stack, time).interactions(time)
        )

    def stages(self, time: Any) -> Stages:
        """Those of the current layer."""
        return self._current(0, time).stages(time) if len(self.stacks) == 1 else ((self, None),)

    def changes(self) -> tuple[Float[Array, " k"], ...]:
        """k · duration; jumps inside of a layer are those of all layers."""
        inner = tuple(jnp.ravel(times) for stack in self.stacks for times in jax.vmap(lambda s: s.changes())(stack))
        return (boundaries(self.duration, len(self.stack_of)), *inner)

    def _index(self, time: Any) -> Array:
        return layer_index(time, self.duration, len(self.stack_of))

    def _kind(self, time: Any) -> Array:
        """The structure of the current layer."""
        return jnp.asarray(self.stack_of)[self._index(time)]

    def _current(self, stack: int, time: Any) -> AbstractDrift:
        """The layer of a stack that acts now, or acted last (the first one before any did)."""
        places = np.maximum(np.cumsum(np.asarray(self.stack_of) == stack) - 1, 0)
        place = jnp.asarray(places)[self._index(time)]
        return jax.tree_util.tree_map(lambda leaf: leaf[place], self.stacks[stack])


class Block(AbstractSum):
    """Sub-layers of one layer: attention, then feed-forward, each with its own normalisation.

    An explicit step applies the drifts one after the other, each to what the one before has left; as a velocity, which
    is the limit of small steps, they add up. `geometries` gives each its own place of normalisation, such as
    PreNorm(LayerNorm(gain, bias, epsilon)); left out, all use the geometry of the flow, which also decides what is
    saved.
    """

    drifts: tuple[AbstractDrift, ...]
    geometries: tuple[AbstractGeometry, ...] | None

    def __init__(
        self,
        drifts: Sequence[AbstractDrift],
        geometries: Sequence[AbstractGeometry] | None = None,
    ):
        self.drifts = tuple(drifts)
        self.geometries = None if geometries is None else tuple(geometries)

    def __check_init__(self):
        check_drifts(self.drifts)
        if self.geometries is not None and len(self.geometries) != len(self.drifts):
            raise ArgumentError(
                f"Argument `geometries` must hold one for each of the {len(self.drifts)} drifts, "
                f"but holds {len(self.geometries)}."
            )

    def stages(self, time: Any) -> Stages:
        """The sub-layers in turn, blocks among them unfolded."""
        geometries = self.geometries or (None,) * len(self.drifts)
        pairs = zip(self.drifts, geometries, strict=True)
        return tuple((stage, own or outer) for drift, outer in pairs for stage, own in drift.stages(time))

    def resummed(self, time: Any, choose: Chooser) -> "Block":
        """The same block of sub-layers with the summations that `choose` names."""
        return Block([drift.resummed(time, choose) for drift in self.drifts], self.geometries)


def boundaries(duration: Array, count: int) -> Float[Array, " k"]:
    """The times duration · k at which one of `count` pieces gives way to the next."""
    return duration * jnp.arange(1, count).astype(duration.dtype)


def layer_index(time: Any, duration: Array, count: int) -> Array:
    """⌊t/duration⌋, at most count − 1; times a few rounding units below a boundary belong to the next layer."""
    part = jnp.asarray(time / duration)
    slack = _TIME_ROUNDING * float(jnp.finfo(part.dtype).eps)
    return jnp.clip(jnp.floor(part * (1 + slack)), 0, count - 1).astype(jnp.int32)
