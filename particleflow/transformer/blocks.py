"""Transformer blocks from the nouns that are there: attention, then feed-forward, each with its layer norm.

    post-norm    x ← N₁(x + A(x)),       x ← N₂(x + F(x))         BERT
    pre-norm     y ← y + A(N₁(y)),       y ← y + F(N₂(y))         GPT-2
    none         x ← x + A(x),           x ← x + F(x)

A is multi-head attention, F a feed-forward layer; a decoder that reads an encoder has cross attention between them. A
block is a drift, a stack of them is `Layers`, and with explicit steps of size 1 their flow is the network itself.

Pre-norm layers of size h tend to the flow ẏ = A(N₁(y)) + F(N₂(y)). Post-norm layers with gains have no such limit:
N(x + h A(x)) tends to N(x), which is x only if gain and bias are neutral and x is normalised already; so the smaller
the steps, the more often a gain g is applied, and after time 1 it has become g^{1/h}.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from particleflow.drifts.base import AbstractDrift
from particleflow.drifts.heads import MultiHead
from particleflow.drifts.layers import Block, Layers
from particleflow.drifts.plain import FeedForward
from particleflow.errors import ArgumentError
from particleflow.flow import Flow
from particleflow.geometry import AbstractGeometry, Euclidean, LayerNorm, PostNorm, ResidualStream
from particleflow.kernels.positional import Causal
from particleflow.measure import Measure
from particleflow.summation.dense import Dense
from particleflow.summation.native import Native

Placement = Literal["pre", "post", "none"]
Part = Literal["attention", "cross", "feed_forward"]
PARTS: tuple[Part, ...] = ("attention", "cross", "feed_forward")


class LayerParts(NamedTuple):
    """What one layer is made of: attention, feed-forward and, in a decoder, cross attention, each with its norm."""

    attention: MultiHead
    feed_forward: FeedForward
    attention_norm: LayerNorm
    feed_forward_norm: LayerNorm
    cross: MultiHead | None = None
    cross_norm: LayerNorm | None = None

    def looking_at(self, memory: Measure) -> "LayerParts":
        """The layer whose cross attention looks at a measure."""
        if self.cross is None:
            raise ArgumentError("This layer has no cross attention to look at another measure with.")
        # Native sums without a mask have one bound for all queries, so that a later token would change last bits of
        # earlier ones; rows of a whole matrix know nothing of each other.
        cross = MultiHead(self.cross.each, self.cross.bias, memory).resummed(0.0, lambda _: Dense())
        return self._replace(cross=cross)

    def block(self, placement: Placement, parts: Sequence[Part] = PARTS) -> Block:
        """The layer as a drift: those of its `parts` that it has, in their order, with their norms placed."""
        present: list[tuple[AbstractDrift, AbstractGeometry]] = [
            (getattr(self, part), scheme(placement, getattr(self, f"{part}_norm")))
            for part in PARTS
            if part in parts and getattr(self, part) is not None
        ]
        if not present:
            raise ArgumentError(f"Argument `parts` must name at least one of {', '.join(PARTS)}, but names none.")
        drifts, geometries = zip(*present, strict=True)
        return Block(drifts, geometries)


def seeing(causal: bool) -> dict[str, Any]:
    """Whom the heads of a layer see, and how, as arguments of theirs: everybody, or nobody of the future.

    In single precision scores are as exact as those that networks are trained with. Exact sums keep the future out to
    the last bit (see `particleflow.summation.base`), and all else in a layer is done token by token: no number of a
    token depends on what comes after it.
    """
    return {"summation": Native(widen=False), "positional": Causal() if causal else None}


def scheme(placement: Placement, norm: LayerNorm | None = None) -> AbstractGeometry:
    """Where a norm stands, as a geometry."""
    if placement not in ("pre", "post", "none"):
        raise ArgumentError(f"Argument `placement` must be 'pre', 'post' or 'none', but is {placement!r}.")
    if placement == "none":
        return Euclidean()
    return ResidualStream(norm) if placement == "pre" else PostNorm(norm)


def taking_turns(layers: Sequence[LayerParts], placement: Placement, parts: Sequence[Part] = PARTS) -> Layers:
    """Layers one after the other, each for one unit of time; the last one, or a single one (ALBERT), goes on."""
    return Layers([layer.block(placement, parts) for layer in layers])


def stacked(layers: Sequence[LayerParts], placement: Placement) -> Flow:
    """Whole layers as a flow, whose explicit steps of size 1 are the network."""
    return Flow(taking_turns(layers, placement), scheme(placement))
