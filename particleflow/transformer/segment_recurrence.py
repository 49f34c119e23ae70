"""Segment recurrence: a long sequence goes through layers a segment at a time, and sees what it remembers of the past.

A stage of a layer moves the tokens of the present segment under the measure of these tokens and of the last `memory`
states that entered the same stage before them, which no gradient enters,

    x⁽ˡ⁺¹⁾_τ = x⁽ˡ⁾_τ + size · v(x⁽ˡ⁾_τ; memory of x⁽ˡ⁾_{τ−1} ∪ x⁽ˡ⁾_τ),

so the drift is cross attention of a segment to a measure of past and present. Kernels must be causal, and see positions
by their differences alone, as `Causal() * Alibi(slope)` does: positions go on through all segments. What comes out is
the network on the whole sequence, layer by layer, where token i attends to token j ≤ i if j is not before the memory of
the segment of i. Under a window that reaches back `memory` places it is the network with that window. Through each
layer a token sees up to `memory` tokens further back: depth × memory in all. Source: Dai et al., Transformer-XL:
attentive language models beyond a fixed-length context (2019).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.dynamics.flow import Flow
from particleflow.errors import ArgumentError, check_kind, whole_number
from particleflow.measure import Measure, Sites

Caches = list[list[Float[Array, "k d"]]]  # the remembered states of every stage of every layer


def in_segments(
    flow: Flow, measure: Measure, depth: int, segment: int, memory: int | None = None, size: float = 1.0
) -> list[Float[Array, "n d"]]:
    """The states of a sequence at every depth (depth + 1 arrays), computed segment by segment with a memory.

    Parameters: `flow`, whose explicit layers are the network, such as that of a causal `Transformer`; `measure`, tokens
    with their positions, in this order; `depth`, the number of layers; the length of a `segment`; `memory`, how many
    past states every stage keeps, `segment` if left out; `size` of an explicit layer.
    """
    check_kind(flow, Flow, "flow", "a flow")
    whole_number(depth, "depth")
    whole_number(segment, "segment")
    kept = segment if memory is None else whole_number(memory, "memory", 0)
    if measure.positions is None or measure.values is not None:
        raise ArgumentError(
            "Segments need tokens with positions that carry themselves: give the measure positions, and no values."
        )
    caches: Caches = [[] for _ in range(depth)]
    found = []
    for first in range(0, measure.count, segment):
        last = min(first + segment, measure.count)
        past = slice(max(0, first - kept), last)
        states, caches = _segment(flow, _part(measure, past), measure.points[first:last], caches, kept, size)
        found.append(states)
    return [jnp.concatenate(parts) for parts in zip(*found, strict=True)]


@eqx.filter_jit
def _segment(
    flow: Flow, seen: Measure, state: Float[Array, "s d"], caches: Caches, kept: int, size: float
) -> tuple[list[Array], Caches]:
    """The states of one segment at every depth, and the caches for the next one.

    Parameters: `seen`, remembered and present tokens, whose points are replaced by the states of each stage.
    """
    states, after = [state], []
    for layer, cache in enumerate(caches):
        state, remembered = _layer(flow, seen, state, cache, jnp.asarray(layer * size, state.dtype), size)
        after.append([jax.lax.stop_gradient(each[max(0, len(each) - kept) :]) for each in remembered])
        states.append(state)
    return states, after


def _layer(
    flow: Flow, seen: Measure, state: Float[Array, "s d"], cache: list[Array], time: Array, size: float
) -> tuple[Array, list[Array]]:
    """One explicit layer of a segment, and what entered each of its stages, remembered and present."""
    count, remembered = len(state), []
    for stage, (drift, own) in enumerate(flow.drift.stages(time)):
        geometry = own or flow.geometry
        whole = jnp.concatenate([cache[stage], state]) if cache else state
        remembered.append(whole)
        observed = seen.with_points(geometry.observe(whole, time))
        present = Sites(observed.points[-count:], seen.sites.positions[-count:])  # type: ignore[index]
        state = geometry.advance(state, drift(time, present, observed), size, time)
    return state, remembered


def _part(measure: Measure, chosen: slice) -> Measure:
    """Some tokens of a sequence, with their own weights and positions."""
    return jax.tree_util.tree_map(lambda leaf: leaf[chosen], measure.with_fields({}))


def visible(count: int, segment: int, memory: Any = None) -> Float[Array, "n n"]:
    """Which tokens j a token i can attend to in one layer, 1 or 0: j ≤ i and j ≥ start of its segment − memory."""
    kept = segment if memory is None else whole_number(memory, "memory", 0)
    token = jnp.arange(whole_number(count, "count"))
    oldest = token // whole_number(segment, "segment") * segment - kept
    return ((token[None, :] <= token[:, None]) & (token[None, :] >= oldest[:, None])).astype(float)
