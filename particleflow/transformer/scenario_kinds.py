"""Transformers in scenarios: an embedded text through the layers of a trained network, or of a random one.

    initial = { kind = "embedded_text", model = "minilm", text = "..." }      the words as the network embeds them
    drift   = { kind = "trained_layers", model = "minilm" }                   its layers, one of them, or their parts
    drift   = { kind = "random_layers", width = 16, depth = 6, heads = 2 }    layers with random weights by a seed
    initial = { kind = "saved_tokens", path = "data/first_marked.npz", text = "abAb" }      as a network trained here
    drift   = { kind = "saved_layers", path = "data/first_marked.npz", trained = false }    and before it was trained

Use explicit layers, `solver = "map"` with `step = 1.0`, and the geometry that places the norms: "post_norm" (BERT),
"residual_stream" (GPT-2), or "euclidean" without norms. The states are those before the final norm of a network.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import default_dtype
from particleflow.dynamics.drifts.base import AbstractDrift, Chooser, Interaction
from particleflow.dynamics.drifts.layers import HasDepth, Layers, Stages
from particleflow.dynamics.drifts.pointwise import Activation
from particleflow.dynamics.initial.base import AbstractInitial, Start, check_own_count
from particleflow.errors import ArgumentError
from particleflow.measure import Measure, Sites
from particleflow.trajectory.words import as_words
from particleflow.transformer.ablations import as_ablation
from particleflow.transformer.layer_blocks import PARTS, Part, Placement, in_succession
from particleflow.transformer.loading import load
from particleflow.transformer.network import Transformer
from particleflow.transformer.random_networks import Architecture, in_precision, random_transformer
from particleflow.transformer.saved_networks import SavedNetwork, load_network

Parts = Literal["all", "attention", "feed_forward"]


@lru_cache(maxsize=2)
def _loaded(model: str, precision: str) -> Transformer:
    """A loaded network, cached because the start and the flow of a scenario both need it."""
    return load(model, precision)


def _network(model: str) -> Transformer:
    """A loaded network in the default precision."""
    return _loaded(model, np.dtype(default_dtype()).name)


def _saved(path: Path, trained: bool) -> SavedNetwork:
    """A network that was trained here, in the default precision."""
    saved = load_network(path, trained)
    return saved._replace(model=in_precision(saved.model, np.dtype(default_dtype()).name))


class EmbeddedText(AbstractInitial):
    """The words of a text as a trained network embeds them, special tokens of beginning and end included.

    Parameters: `model`, a folder with a trained transformer, or "minilm" for that of the extra `transformer`; `text`;
    `layer`, the number of layers after which the tokens are taken, 0 for their embeddings.
    """

    counted: ClassVar[bool] = False
    model: str = eqx.field(static=True)
    text: str = eqx.field(static=True)
    layer: int = eqx.field(static=True)

    def __init__(self, model: str, text: str, layer: int = 0):
        self.model = model
        self.text = text
        self.layer = layer

    def __check_init__(self):
        if not 0 <= self.layer <= _network(self.model).depth:
            raise ArgumentError(
                f"Argument `layer` must be from 0 to {_network(self.model).depth}, but is {self.layer}."
            )

    def start(self, key: Array, count: int | None = None) -> Start:
        """The tokens as a measure with positions 0, 1, …, with their words; equal words have equal labels."""
        network = _network(self.model)
        ids = network.tokenize(self.text)
        check_own_count(count, len(ids))
        measure = network.measure(ids)
        if self.layer > 0:
            measure = measure.with_points(network.stream(ids)[self.layer])
        labels = np.unique(ids, return_inverse=True)[1]
        return Start(measure, labels, words=as_words(network.words(ids), len(ids)))


class AbstractNetwork(AbstractDrift, HasDepth):
    """A drift by the layers of a network that its constructor loads or draws: a scenario holds no matrices."""

    layers: eqx.AbstractVar[Layers]

    def __call__(self, time: Any, queries: Sites, measure: Measure) -> Float[Array, "m d"]:
        """The velocity of the current layer."""
        return self.layers(time, queries, measure)

    def interactions(self, time: Any) -> tuple[Interaction, ...]:
        """The heads of the current layer."""
        return self.layers.interactions(time)

    def stages(self, time: Any) -> Stages:
        """The sub-layers of the current layer."""
        return self.layers.stages(time)

    def changes(self) -> tuple[Float[Array, " k"], ...]:
        """The times at which one layer follows another."""
        return self.layers.changes()

    def depth(self) -> float | None:
        """The number of layers, one unit of time each; None of a single layer, which was asked for by name."""
        count = len(self.layers.stack_of)
        return None if count == 1 else count * float(self.layers.duration)

    def resummed(self, time: Any, choose: Chooser) -> AbstractDrift:
        """The drift unchanged: the summations of layers in succession are fixed."""
        return self


class TrainedLayers(AbstractNetwork):
    """The layers of a trained network, one unit of time each; explicit steps of size 1 are the network itself.

    Parameters: `model`, a folder or "minilm"; `parts`, all or one kind of sub-layer; `layer`, the index, from 0, of a
    single layer to repeat; `placement` of the norms, as they were trained if left out; `without`, names of what is
    switched off: "heads.3" in every layer, "layers.2.heads.3" in one, all from 0, "causal_mask", "attention_norm" and
    "feed_forward_norm".
    """

    layers: Layers

    def __init__(
        self,
        model: str,
        parts: Parts = "all",
        layer: int | None = None,
        placement: Placement | None = None,
        without: Sequence[str] = (),
    ):
        self.layers = _network(model).layers_of(_parts(parts), placement, layer, without)


class RandomLayers(AbstractNetwork):
    """The layers of a transformer with random weights, one unit of time each.

    Parameters: `width`, `depth`, `heads`, `hidden`, `placement`, `activation`, `causal`, `shared` and `spread` of the
    architecture; `seed` of the weights; `parts`, all or one kind of sub-layer; `data`, a measure
    for cross attention after the self-attention, as a decoder has it on the output of an encoder; `without`, names of
    what is switched off, as of `TrainedLayers`.
    """

    layers: Layers

    def __init__(
        self,
        width: int,
        depth: int = 6,
        heads: int = 1,
        hidden: int | None = None,
        placement: Placement = "pre",
        activation: Activation = "gelu_exact",
        causal: bool = False,
        shared: bool = False,
        spread: float | None = None,
        seed: int = 0,
        parts: Parts = "all",
        data: Measure | None = None,
        without: Sequence[str] = (),
    ):
        shape = Architecture(
            width, depth, heads, hidden, 1, "none", placement=placement if placement != "none" else "pre",
            activation=activation, causal=causal, shared=shared, spread=spread,
        )  # fmt: skip
        network = random_transformer(jax.random.key(seed), shape, cross=data is not None)
        layers = network.layers if data is None else [layer.attending_to(data) for layer in network.layers]
        ablation = as_ablation(without)
        self.layers = in_succession(ablation.applied(layers), placement, _parts(parts), ablation.norms)


class SavedTokens(AbstractInitial):
    """The tokens of a text as a network that was trained here, and kept by `save_network`, embeds them.

    Parameters: the `path` of its .npz file, relative to the scenario; `text`, of which each letter is a token of the
    network; `trained`, false for the embeddings before training.
    """

    counted: ClassVar[bool] = False
    path: Path = eqx.field(static=True)
    text: str = eqx.field(static=True)
    trained: bool = eqx.field(static=True)

    def __init__(self, path: Path, text: str, trained: bool = True):
        self.path, self.text, self.trained = Path(path), text, trained

    def start(self, key: Array, count: int | None = None) -> Start:
        """The tokens as a measure with positions 0, 1, …, with their letters; equal letters have equal labels."""
        saved = _saved(self.path, self.trained)
        ids = saved.ids(self.text)
        check_own_count(count, len(ids))
        labels = np.unique(ids, return_inverse=True)[1]
        return Start(saved.model.measure(ids), labels, words=as_words(list(self.text), len(ids)))


class SavedLayers(AbstractNetwork):
    """The layers of a network that was trained here, one unit of time each.

    Parameters: the `path` of its .npz file, relative to the scenario; `trained`, false for the random weights that
    training began with; `parts`, all or one kind of sub-layer.
    """

    layers: Layers

    def __init__(self, path: Path, trained: bool = True, parts: Parts = "all"):
        self.layers = _saved(path, trained).model.layers_of(_parts(parts))


def _parts(parts: Parts) -> tuple[Part, ...]:
    """The names of the sub-layers that are kept."""
    if parts not in ("all", "attention", "feed_forward"):
        raise ArgumentError(f'Argument `parts` must be "all", "attention" or "feed_forward", but is {parts!r}.')
    return PARTS if parts == "all" else (parts,)
