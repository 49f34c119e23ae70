"""A transformer: an embedding, a flow of layers, and an unembedding.

The flow stepped with explicit steps of size 1 is the network itself, and its states at the times 0, 1, 2, … are the
hidden states. `pf.simulate(model.flow, model.measure(ids), times, solver="map", step=1.0)` simulates the tokens of a
text through the layers, as any other flow.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.representation import shown
from particleflow.dynamics.drifts.layers import Layers
from particleflow.dynamics.flow import Flow
from particleflow.dynamics.geometry import LayerNorm
from particleflow.errors import ArgumentError
from particleflow.measure import Measure
from particleflow.transformer.ablations import as_ablation
from particleflow.transformer.embedding import Embedding, Unembedding
from particleflow.transformer.layer_blocks import LayerParts, Part, Placement, in_succession, norm_geometry, stacked
from particleflow.transformer.tokenizer import Tokenizer


class Transformer(eqx.Module):
    """An encoder, or with causal attention a decoder: an embedding, `depth` layers as a flow, an unembedding.

    Parameters: `embedding`; `layers`, one for each depth, or a single one with shared weights (ALBERT); `placement` of
    the norms; `depth`, the number of layers if left out; `final_norm` after the last layer; `unembedding` and
    `tokenizer`, None where the network has none.
    """

    embedding: Embedding
    layers: tuple[LayerParts, ...]
    final_norm: LayerNorm | None
    unembedding: Unembedding | None
    depth: int = eqx.field(static=True)
    placement: Placement = eqx.field(static=True)
    tokenizer: Tokenizer | None = eqx.field(static=True)

    def __init__(
        self,
        embedding: Embedding,
        layers: Sequence[LayerParts],
        placement: Placement,
        depth: int | None = None,
        final_norm: LayerNorm | None = None,
        unembedding: Unembedding | None = None,
        tokenizer: Tokenizer | None = None,
    ):
        self.embedding = embedding
        self.layers = tuple(layers)
        self.placement = placement
        self.depth = len(layers) if depth is None else depth
        self.final_norm = final_norm
        self.unembedding = unembedding
        self.tokenizer = tokenizer

        if not layers or len(layers) not in (1, self.depth):
            raise ArgumentError(
                f"Argument `layers` must hold one for each of {self.depth} depths, or one for all, but holds "
                f"{len(layers)}."
            )

    @property
    def flow(self) -> Flow:
        """The layers in succession as a flow, whose explicit steps of size 1 are the network."""
        return stacked(self.layers, self.placement)

    def layers_of(
        self,
        parts: Sequence[Part],
        placement: Placement | None = None,
        layer: int | None = None,
        without: Sequence[str] = (),
    ) -> Layers:
        """A drift of some `parts` of all layers, or of one `layer` repeated, with another `placement` of the norms.

        `without` names what is switched off, such as "heads.3" or "causal_mask", see `as_ablation`.
        """
        ablation = as_ablation(without)
        layers = tuple(ablation.applied(self.layers))
        if layer is not None and not 0 <= layer < len(layers):
            raise ArgumentError(f"Argument `layer` must be a number from 0 to {len(layers) - 1}, but is {layer}.")
        chosen = layers if layer is None else layers[layer : layer + 1]
        return in_succession(chosen, placement or self.placement, parts, ablation.norms)

    def tokenize(self, text: str) -> np.ndarray:
        """The token ids of a text, with the special tokens of its beginning and end."""
        return self._tokenizer().ids(text)

    def words(self, ids: Any) -> list[str]:
        """The words, or pieces of words, of some token ids."""
        return self._tokenizer().words(ids)

    def number_of(self, word: str) -> int:
        """The id of a word that is one token; refused where it is none or several."""
        return self._tokenizer().number_of(word)

    def measure(self, ids: Any, types: Any = None, mask: Any = None) -> Measure:
        """The embedded tokens, from which the flow starts; parameters as for `Embedding.measure`."""
        return self.embedding.measure(ids, types, mask)

    def stream(self, ids: Any, types: Any = None, mask: Any = None) -> list[Float[Array, "n d"]]:
        """The states of the flow: embeddings, then the output of every layer, without the final norm."""
        return _stepped(self.layers, self.placement, self.measure(ids, types, mask), self.depth)

    def hidden_states(self, ids: Any, types: Any = None, mask: Any = None) -> list[Float[Array, "n d"]]:
        """Embeddings, then the output of every layer (depth + 1 arrays), the last one after the final norm if any.

        Parameters: `ids` of the tokens (n,); `types`, all 0 if left out; `mask`, 0 for padded tokens, which get no
        attention.
        """
        return _stepped(self.layers, self.placement, self.measure(ids, types, mask), self.depth, self.final_norm)

    def next_token(self, ids: Any, types: Any = None, mask: Any = None) -> Float[Array, "n v"]:
        """The distribution over the next word at every token (in a masked model: over the word in its place)."""
        return self.head.distribution(self.hidden_states(ids, types, mask)[-1])

    def logits(self, ids: Any, types: Any = None, mask: Any = None) -> Float[Array, "n v"]:
        """The logarithms of `next_token`, up to a constant a row."""
        return self.head.logits(self.hidden_states(ids, types, mask)[-1])

    def logit_lens(self, ids: Any, types: Any = None, mask: Any = None) -> list[Float[Array, "n v"]]:
        """The distributions of `next_token` computed from the hidden states at every depth.

        Source: nostalgebraist, Interpreting GPT: the logit lens (2020).
        """
        head = self.head
        norm = self.final_norm
        states = (state if norm is None else norm.normalise(state) for state in self.stream(ids, types, mask))
        return [head.distribution(state) for state in states]

    def sentence(self, text: str) -> Float[Array, " d"]:
        """The mean of the last hidden states as a unit vector, by which texts are compared (Sentence-BERT)."""
        mean = jnp.mean(self.hidden_states(self.tokenize(text))[-1], axis=0)
        return mean / jnp.linalg.norm(mean)

    def _tokenizer(self) -> Tokenizer:
        """The tokenizer, or an error where the network has none."""
        if self.tokenizer is None:
            raise ArgumentError("This transformer has no tokenizer; give token ids instead of text.")
        return self.tokenizer

    @property
    def head(self) -> Unembedding:
        """The unembedding, or an error where the network has none."""
        if self.unembedding is None:
            raise ArgumentError(
                "This transformer has no unembedding, since it was not trained to predict words; "
                "`Unembedding(model.embedding.table)` would compare its states with the words themselves."
            )
        return self.unembedding

    def __repr__(self) -> str:
        return shown(self)


class EncoderDecoder(eqx.Module):
    """A decoder whose cross attention is on the last hidden states of an encoder (Vaswani et al. 2017).

    Parameters: `encoder`; `decoder`, a transformer whose layers have cross attention.
    """

    encoder: Transformer
    decoder: Transformer

    def memory(self, source: Any, mask: Any = None) -> Measure:
        """The encoder's last hidden states of a text, the measure of the decoder's cross attention."""
        start = self.encoder.measure(source, mask=mask)
        return start.with_points(self.encoder.hidden_states(source, mask=mask)[-1])

    def flow(self, memory: Measure) -> Flow:
        """The layers of the decoder, with cross attention on a memory."""
        return self._reading(memory).flow

    def hidden_states(self, source: Any, target: Any, mask: Any = None) -> list[Float[Array, "n d"]]:
        """The hidden states of the decoder: embeddings of the target, then the output of every layer."""
        return self._reading(self.memory(source, mask)).hidden_states(target)

    def next_token(self, source: Any, target: Any, mask: Any = None) -> Float[Array, "n v"]:
        """The distribution over the next word at every token of the target, given the source."""
        return self.decoder.head.distribution(self.hidden_states(source, target, mask)[-1])

    def _reading(self, memory: Measure) -> Transformer:
        """The decoder with its cross attention on a memory."""
        layers = tuple(layer.attending_to(memory) for layer in self.decoder.layers)
        return eqx.tree_at(lambda decoder: decoder.layers, self.decoder, layers)

    def __repr__(self) -> str:
        return shown(self)


@eqx.filter_jit
def _stepped(
    layers: tuple[LayerParts, ...],
    placement: Placement,
    start: Measure,
    depth: int,
    final_norm: LayerNorm | None = None,
) -> list[Float[Array, "n d"]]:
    """The states after 0, 1, …, depth layers, the last one after the final norm.

    Layers are separate arguments: indexing a stack of them, as in a flow, would copy their weights at every step.
    """
    states = [start.points]
    for place in range(depth):
        states.append(_after(layers[min(place, len(layers) - 1)], placement, states[-1], start))
    *others, last = states
    return [*others, last if final_norm is None else final_norm.normalise(last)]


@eqx.filter_jit
def _after(layer: LayerParts, placement: Placement, state: Array, start: Measure) -> Float[Array, "n d"]:
    """The output of one layer, an explicit step of size 1 of its flow; traced once for all layers of one structure."""
    origin, size = jnp.zeros((), state.dtype), jnp.ones((), state.dtype)
    return Flow(layer.block(placement), norm_geometry(placement)).step(origin, state, start, size)
