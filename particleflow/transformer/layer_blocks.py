"""Transformer blocks as drifts: attention, then feed-forward, each with its layer norm.

    post-norm    x ← N₁(x + A(x)),       x ← N₂(x + F(x))         BERT
    pre-norm     y ← y + A(N₁(y)),       y ← y + F(N₂(y))         GPT-2
    none         x ← x + A(x),           x ← x + F(x)

A is multi-head attention, F a feed-forward layer; a decoder with an encoder has cross attention between them. A block
is a drift, a stack of them is `Layers`, and with explicit steps of size 1 their flow is the network itself.

Pre-norm layers of size h tend to the flow ẏ = A(N₁(y)) + F(N₂(y)). Post-norm layers with gains have no such limit:
N(x + h A(x)) tends to N(x), which is x only if gain and bias are neutral and x is normalised already; so a
gain g is applied once a step, and after time 1 it has become g^{1/h}.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from particleflow._support.text import kind_of
from particleflow.dynamics.drifts.base import AbstractDrift
from particleflow.dynamics.drifts.heads import MultiHead
from particleflow.dynamics.drifts.layers import Block, Layers
from particleflow.dynamics.drifts.pointwise import FeedForward
from particleflow.dynamics.flow import Flow
from particleflow.dynamics.geometry import AbstractGeometry, Euclidean, LayerNorm, PostNorm, ResidualStream
from particleflow.errors import ArgumentError
from particleflow.kernels.positional import Causal
from particleflow.measure import Measure
from particleflow.summation.exact.dense import Dense
from particleflow.summation.native.native import Native

Placement = Literal["pre", "post", "none"]
Part = Literal["attention", "cross", "feed_forward"]
PARTS: tuple[Part, ...] = ("attention", "cross", "feed_forward")


class LayerParts(NamedTuple):
    """The parts of one layer: attention, feed-forward and, in a decoder, cross attention, each with its norm.

    Attention is several heads, or any drift of interactions, such as a blend of near field and far field.
    """

    attention: AbstractDrift
    feed_forward: FeedForward
    attention_norm: LayerNorm
    feed_forward_norm: LayerNorm
    cross: MultiHead | None = None
    cross_norm: LayerNorm | None = None

    def attending_to(self, memory: Measure) -> "LayerParts":
        """The layer with its cross attention on a measure, the encoder's output."""
        if self.cross is None:
            raise ArgumentError("This layer has no cross attention, so that it cannot attend to another measure.")
        # Native sums without a mask use one bound for all queries, so that a later token would change the last bits of
        # earlier ones; rows of a dense matrix are independent.
        cross = MultiHead(self.cross.each, self.cross.bias, memory).resummed(0.0, lambda _: Dense())
        return self._replace(cross=cross)

    def block(self, placement: Placement, parts: Sequence[Part] = PARTS, bare: Sequence[str] = ()) -> Block:
        """The layer as a drift of its `parts`, those that it has, in order, with norms by `placement`.

        `bare` are the norms that are left out, such as "attention_norm".
        """
        present: list[tuple[AbstractDrift, AbstractGeometry]] = [
            (getattr(self, part), norm_geometry("none" if f"{part}_norm" in bare else placement, self._norm_of(part)))
            for part in PARTS
            if part in parts and getattr(self, part) is not None
        ]
        if not present:
            raise ArgumentError(f"Argument `parts` must name at least one of {', '.join(PARTS)}, but names none.")
        drifts, geometries = zip(*present, strict=True)
        return Block(drifts, geometries)

    @property
    def heads(self) -> MultiHead:
        """The attention as heads; refused where it is another drift."""
        if not isinstance(self.attention, MultiHead):
            raise ArgumentError(
                f"The attention of this layer is {kind_of(type(self.attention))}, which has no single heads."
            )
        return self.attention

    def _norm_of(self, part: Part) -> LayerNorm | None:
        """The norm of a part."""
        return getattr(self, f"{part}_norm")


def attention_settings(causal: bool) -> dict[str, Any]:
    """Arguments of the heads of a layer: exact summation, and a causal mask where attention is `causal`.

    Sums are not widened: in single precision scores are as exact as those that networks are trained with. Exact sums
    exclude masked tokens to the last bit (see `particleflow.summation.base`), and all other operations act on single
    tokens: no number of a token depends on later tokens.
    """
    return {"summation": Native(widen=False), "positional": Causal() if causal else None}


def norm_geometry(placement: Placement, norm: LayerNorm | None = None) -> AbstractGeometry:
    """The geometry that places a norm: `ResidualStream` (pre), `PostNorm` (post) or `Euclidean` (none)."""
    if placement not in ("pre", "post", "none"):
        raise ArgumentError(f"Argument `placement` must be 'pre', 'post' or 'none', but is {placement!r}.")
    if placement == "none":
        return Euclidean()
    return ResidualStream(norm) if placement == "pre" else PostNorm(norm)


def in_succession(
    layers: Sequence[LayerParts], placement: Placement, parts: Sequence[Part] = PARTS, bare: Sequence[str] = ()
) -> Layers:
    """A drift of layers in succession, one unit of time each; the last one, or a single one (ALBERT), continues.

    `bare` are the norms that are left out in all of them.
    """
    return Layers([layer.block(placement, parts, bare) for layer in layers])


def stacked(layers: Sequence[LayerParts], placement: Placement) -> Flow:
    """The flow of layers, whose explicit steps of size 1 are the network."""
    return Flow(in_succession(layers, placement), norm_geometry(placement))
