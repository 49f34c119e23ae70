"""The attention matrices of all heads of a layer."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow.discretization import Present
from particleflow.dynamics.drifts.base import Interaction
from particleflow.dynamics.flow import Flow
from particleflow.errors import ArgumentError
from particleflow.simulation.observables.base import observable


@observable
def head_attention(present: Present) -> Float[Array, "h n n"]:
    """The attention weights A_ij of every head of the layer that acts now, on what its own norm sees of the particles.

    Of a layer with sub-layers they are those of the first one that has heads. Rows sum to one; those of a head that is
    switched off, whose output O is zero, are NaN. A frame holds a matrix for every head, so that this is for few
    particles.
    """
    present.of_particles("A matrix of attention is one of particles")
    for drift, own in present.flow.drift.stages(present.time):
        heads = drift.interactions(present.time)
        if heads:
            seen = Flow(drift, own or present.flow.geometry)
            observed = present.discretization.observed(seen, present.time, present.state)
            return jnp.stack([_unless_off(head, head.attention(observed)) for head in heads])
    raise ArgumentError("This observable needs a drift with a kernel (attend, multi_head, …), but the flow has none.")


def _unless_off(head: Interaction, weights: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The weights of a head, NaN where it adds nothing."""
    return weights if head.output is None else jnp.where(jnp.any(head.output != 0), weights, jnp.nan)
