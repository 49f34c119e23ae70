"""Any flow as a network: an embedding before it, explicit steps of it as layers, a read-out after it.

    x(0) = embedding(ids),    x ← flow.step(x)  depth times,    logits = unembedding(N(x_L))

A `Transformer` is the special case of attention and feed-forward layers.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from particleflow._support.arrays import as_positive
from particleflow._support.representation import shown
from particleflow.dynamics.flow import Flow
from particleflow.dynamics.geometry import LayerNorm
from particleflow.errors import ArgumentError, check_kind, whole_number
from particleflow.measure import Measure
from particleflow.transformer.embedding import Embedding, Unembedding


class TokenFlow(eqx.Module):
    """A network whose layers are explicit steps of a flow, of any drift and geometry without noise.

    Parameters: `embedding`; `flow`; `depth`, the number of steps; `step`, their size; `unembedding`, the read-out of
    the last states: words, or one row a class; `final_norm` before it, None for none.
    """

    embedding: Embedding
    flow: Flow
    unembedding: Unembedding
    final_norm: LayerNorm | None
    step: Float[Array, ""]
    depth: int = eqx.field(static=True)

    def __init__(
        self,
        embedding: Embedding,
        flow: Flow,
        depth: int,
        unembedding: Unembedding,
        step: Any = 1.0,
        final_norm: LayerNorm | None = None,
    ):
        self.embedding, self.flow, self.unembedding = embedding, flow, unembedding
        self.depth = whole_number(depth, "depth")
        self.step = as_positive(step, "step")
        self.final_norm = final_norm

    def __check_init__(self):
        check_kind(self.embedding, Embedding, "embedding", "an embedding")
        check_kind(self.flow, Flow, "flow", "a flow")
        check_kind(self.unembedding, Unembedding, "unembedding", "an unembedding")
        if self.flow.is_noisy:
            raise ArgumentError("Argument `flow` has noise, but the layers of a network are the same at every call.")

    @property
    def head(self) -> Unembedding:
        """The read-out of the last states."""
        return self.unembedding

    def measure(self, ids: Any) -> Measure:
        """The embedded tokens, from which the flow starts."""
        return self.embedding.measure(ids)

    def stream(self, ids: Any) -> list[Float[Array, "n d"]]:
        """The states after 0, 1, …, depth steps, without the final norm."""
        start = self.measure(ids)
        states = [start.points]
        for place in range(self.depth):
            time = jnp.asarray(place, start.points.dtype) * self.step.astype(start.points.dtype)
            states.append(self.flow.step(time, states[-1], start, self.step))
        return states

    def hidden_states(self, ids: Any) -> list[Float[Array, "n d"]]:
        """The states after 0, 1, …, depth steps, the last one after the final norm if there is one."""
        *others, last = self.stream(ids)
        return [*others, last if self.final_norm is None else self.final_norm.normalise(last)]

    def logits(self, ids: Any) -> Float[Array, "n v"]:
        """The logits of every row of the read-out at every token."""
        return self.head.logits(self.hidden_states(ids)[-1])

    def __repr__(self) -> str:
        return shown(self)
