"""How trained networks name and shape their tensors: BERT (MiniLM), DistilBERT and GPT-2.

A layout turns config.json into the shapes that tensors must have, by name, and tensors into a `Transformer`. Matrices
act on columns, y = W x + b, except in GPT-2, whose matrices are stored transposed, queries, keys and values side by
side.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from particleflow.dynamics.drifts.heads import MultiHead
from particleflow.dynamics.drifts.pointwise import Activation, FeedForward
from particleflow.dynamics.geometry import LayerNorm
from particleflow.errors import ArgumentError
from particleflow.kernels.positional import PositionTable
from particleflow.transformer.checkpoint_files import Tensors
from particleflow.transformer.embedding import Embedding, Unembedding
from particleflow.transformer.layer_blocks import LayerParts, attention_settings
from particleflow.transformer.network import Transformer
from particleflow.transformer.tokenizer import Tokenizer

_MOST = 2**31  # bound of every size, so that products of a few do not overflow
_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu_exact",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "tanh": "tanh",
}
Shapes = dict[str, tuple[int, ...]]
Numbers = Mapping[str, np.ndarray]


class Sizes(NamedTuple):
    """The sizes and choices of config.json, under names that all layouts share.

    Parameters: `width` d of tokens; `depth`, the number of layers; `heads` a layer; `hidden` dimension of feed-forward
    layers; `vocabulary`, the number of words; `longest` text in tokens; token `types`; `activation`; `epsilon` of layer
    norms; `causal`, whether attention is masked.
    """

    width: int
    depth: int
    heads: int
    hidden: int
    vocabulary: int
    longest: int
    types: int
    activation: Activation
    epsilon: float
    causal: bool = False


class CheckpointLayout(NamedTuple):
    """The names of a kind of network in config.json and among tensors; `{}` is the number of a layer.

    Parameters: `keys`, the name in config.json of each field of `Sizes`, and `defaults` where config.json may omit it;
    `prefixes` that tensor names may have; the tensors of the embedding (`table`, `positions`, `types`, `first_norm`),
    of every `layer`, of the `final_norm` and of the `head`; `transposed`, whether matrices are stored as y = x W + b.
    """

    keys: dict[str, str]
    defaults: dict[str, Any]
    prefixes: tuple[str, ...]
    table: str
    positions: str
    types: str | None
    first_norm: str | None
    final_norm: str | None
    layer: dict[str, str]
    head: dict[str, str]
    transposed: bool = False


BERT = CheckpointLayout(
    keys={
        "width": "hidden_size",
        "depth": "num_hidden_layers",
        "heads": "num_attention_heads",
        "hidden": "intermediate_size",
        "vocabulary": "vocab_size",
        "longest": "max_position_embeddings",
        "types": "type_vocab_size",
        "activation": "hidden_act",
        "epsilon": "layer_norm_eps",
    },
    defaults={"types": 2, "activation": "gelu", "epsilon": 1e-12, "longest": 512, "vocabulary": 30522},
    prefixes=("bert.", ""),
    table="embeddings.word_embeddings",
    positions="embeddings.position_embeddings",
    types="embeddings.token_type_embeddings",
    first_norm="embeddings.LayerNorm",
    final_norm=None,
    layer={
        "query": "encoder.layer.{}.attention.self.query",
        "key": "encoder.layer.{}.attention.self.key",
        "value": "encoder.layer.{}.attention.self.value",
        "output": "encoder.layer.{}.attention.output.dense",
        "attention_norm": "encoder.layer.{}.attention.output.LayerNorm",
        "inner": "encoder.layer.{}.intermediate.dense",
        "outer": "encoder.layer.{}.output.dense",
        "feed_forward_norm": "encoder.layer.{}.output.LayerNorm",
    },
    head={
        "transform": "cls.predictions.transform.dense",
        "norm": "cls.predictions.transform.LayerNorm",
        "bias": "cls.predictions",
    },
)
DISTILBERT = CheckpointLayout(
    keys={
        "width": "dim",
        "depth": "n_layers",
        "heads": "n_heads",
        "hidden": "hidden_dim",
        "vocabulary": "vocab_size",
        "longest": "max_position_embeddings",
        "activation": "activation",
    },
    defaults={"types": 0, "activation": "gelu", "epsilon": 1e-12, "longest": 512, "vocabulary": 30522},
    prefixes=("distilbert.", ""),
    table="embeddings.word_embeddings",
    positions="embeddings.position_embeddings",
    types=None,
    first_norm="embeddings.LayerNorm",
    final_norm=None,
    layer={
        "query": "transformer.layer.{}.attention.q_lin",
        "key": "transformer.layer.{}.attention.k_lin",
        "value": "transformer.layer.{}.attention.v_lin",
        "output": "transformer.layer.{}.attention.out_lin",
        "attention_norm": "transformer.layer.{}.sa_layer_norm",
        "inner": "transformer.layer.{}.ffn.lin1",
        "outer": "transformer.layer.{}.ffn.lin2",
        "feed_forward_norm": "transformer.layer.{}.output_layer_norm",
    },
    head={"transform": "vocab_transform", "norm": "vocab_layer_norm", "bias": "vocab_projector"},
)
GPT2 = CheckpointLayout(
    keys={
        "width": "n_embd",
        "depth": "n_layer",
        "heads": "n_head",
        "hidden": "n_inner",
        "vocabulary": "vocab_size",
        "longest": "n_positions",
        "activation": "activation_function",
        "epsilon": "layer_norm_epsilon",
    },
    defaults={"types": 0, "activation": "gelu_new", "epsilon": 1e-5, "longest": 1024, "vocabulary": 50257},
    prefixes=("transformer.", ""),
    table="wte",
    positions="wpe",
    types=None,
    first_norm=None,
    final_norm="ln_f",
    layer={
        "together": "h.{}.attn.c_attn",
        "output": "h.{}.attn.c_proj",
        "attention_norm": "h.{}.ln_1",
        "inner": "h.{}.mlp.c_fc",
        "outer": "h.{}.mlp.c_proj",
        "feed_forward_norm": "h.{}.ln_2",
    },
    head={},
    transposed=True,
)
LAYOUTS = {"bert": BERT, "distilbert": DISTILBERT, "gpt2": GPT2}
# Options of config.json beyond the layouts, with the only values that are supported.
_ONLY = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
    "scale_attn_weights": (True, None),
    "scale_attn_by_inverse_layer_idx": (False, None),
    "tie_word_embeddings": (True, None),
}


def layout_of(config: Mapping[str, Any], where: str) -> CheckpointLayout:
    """The layout of the model_type in config.json; unsupported options are refused. `where` names the file."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in LAYOUTS:
        raise ArgumentError(f"{where} must name a model_type of {', '.join(LAYOUTS)}, but names {str(kind)[:60]!r}.")
    for name, allowed in _ONLY.items():
        if config.get(name) not in allowed:
            raise ArgumentError(f"{where} sets {name} = {str(config[name])[:60]!r}, which is not supported.")
    return LAYOUTS[kind]


def sizes_of(layout: CheckpointLayout, config: Mapping[str, Any], where: str) -> Sizes:
    """The sizes of a network from config.json, checked to be whole numbers that fit each other."""
    found: dict[str, Any] = dict(layout.defaults)
    given = {field: config[name] for field, name in layout.keys.items() if config.get(name) is not None}
    found |= given
    if layout is GPT2 and "hidden" not in found and isinstance(found.get("width"), int):
        found["hidden"] = 4 * found["width"]
    for field in ("width", "depth", "heads", "hidden", "vocabulary", "longest", "types"):
        name, number = layout.keys.get(field, field), found.get(field)
        least = 0 if field == "types" else 1
        if not isinstance(number, int) or isinstance(number, bool) or not least <= number < _MOST:
            raise ArgumentError(f"{where} must give {name} as a positive whole number, but gives {str(number)[:60]!r}.")
    if found["width"] % found["heads"]:
        raise ArgumentError(
            f"{where} divides {found['width']} dimensions into {found['heads']} heads, which leaves some."
        )
    if not isinstance(found["activation"], str) or found["activation"] not in _ACTIVATIONS:
        known, named = ", ".join(_ACTIVATIONS), str(found["activation"])[:60]
        raise ArgumentError(f"{where} must name an activation of {known}, but names {named!r}.")
    epsilon = found["epsilon"]
    if not isinstance(epsilon, int | float) or not 0 <= epsilon < 1:
        raise ArgumentError(f"{where} must give a small number for layer norms, but gives {str(epsilon)[:60]!r}.")
    found["activation"] = _ACTIVATIONS[found["activation"]]
    return Sizes(**found, causal=layout is GPT2)


def shapes_of(layout: CheckpointLayout, sizes: Sizes, tensors: Tensors) -> Shapes:
    """The names of the tensors that a network needs, with the shapes that they must have."""
    if sizes.depth > len(tensors.entries):
        raise ArgumentError(f"config.json has {sizes.depth} layers, but {tensors.path} {len(tensors.entries)} tensors.")
    prefix = tensors.prefix(layout.prefixes, f"{layout.table}.weight")
    width = sizes.width
    shapes: Shapes = {
        f"{prefix}{layout.table}.weight": (sizes.vocabulary, width),
        f"{prefix}{layout.positions}.weight": (sizes.longest, width),
    }
    if layout.types is not None:
        shapes[f"{prefix}{layout.types}.weight"] = (sizes.types, width)
    for norm in (layout.first_norm, layout.final_norm):
        shapes |= {} if norm is None else _norm_shapes(prefix + norm, width)
    for layer in range(sizes.depth):
        for part, name in layout.layer.items():
            shapes |= _part_shapes(layout, sizes, part, prefix + name.format(layer))
    if _has_head(layout, tensors):
        shapes |= {f"{layout.head['transform']}.weight": (width, width), f"{layout.head['transform']}.bias": (width,)}
        shapes |= _norm_shapes(layout.head["norm"], width) | {f"{layout.head['bias']}.bias": (sizes.vocabulary,)}
    return shapes


def network(
    layout: CheckpointLayout, sizes: Sizes, tensors: Tensors, numbers: Numbers, tokenizer: Tokenizer | None
) -> Transformer:
    """Build the network from tensors of the right shapes.

    Parameters: its `layout` and `sizes`; `tensors`, the file; `numbers`, the arrays by tensor name; the `tokenizer`.
    """
    prefix = tensors.prefix(layout.prefixes, f"{layout.table}.weight")

    def norm(name: str | None) -> LayerNorm | None:
        return None if name is None else _norm(numbers, prefix + name, sizes.epsilon)

    table = numbers[f"{prefix}{layout.table}.weight"]
    types = None if layout.types is None else numbers[f"{prefix}{layout.types}.weight"]
    positions = PositionTable(numbers[f"{prefix}{layout.positions}.weight"])
    embedding = Embedding(table, positions, types, norm(layout.first_norm))
    unembedding = None
    if _has_head(layout, tensors):
        weight, bias = (numbers[f"{layout.head['transform']}.{each}"] for each in ("weight", "bias"))
        transform = FeedForward(weight, bias, activation=sizes.activation)
        head_norm = _norm(numbers, layout.head["norm"], sizes.epsilon)
        unembedding = Unembedding(table, numbers[f"{layout.head['bias']}.bias"], transform, head_norm)
    elif layout is GPT2:
        unembedding = Unembedding(table)
    layers = [_layer(layout, sizes, prefix, layer, numbers) for layer in range(sizes.depth)]
    placement = "pre" if layout is GPT2 else "post"
    return Transformer(embedding, layers, placement, None, norm(layout.final_norm), unembedding, tokenizer)


def _has_head(layout: CheckpointLayout, tensors: Tensors) -> bool:
    """Whether the file has the masked-language-model head of its layout."""
    return bool(layout.head) and f"{layout.head['transform']}.weight" in tensors.entries


def _layer(layout: CheckpointLayout, sizes: Sizes, prefix: str, layer: int, numbers: Numbers) -> LayerParts:
    """Attention, feed-forward and norms of one layer; GPT-2 stores query, key and value as one matrix."""

    def pair(part: str) -> tuple[np.ndarray, np.ndarray]:
        name = prefix + layout.layer[part].format(layer)
        weight = numbers[f"{name}.weight"]
        return (weight.T if layout.transposed else weight), numbers[f"{name}.bias"]

    def norm(part: str) -> LayerNorm:
        return _norm(numbers, prefix + layout.layer[part].format(layer), sizes.epsilon)

    if layout.transposed:
        weight, bias = pair("together")
        three = zip(np.split(weight, 3), np.split(bias, 3), strict=True)
    else:
        three = (pair(part) for part in ("query", "key", "value"))
    (query, query_bias), (key, key_bias), (value, value_bias) = three
    output, bias = pair("output")
    attention = MultiHead.of_matrices(
        sizes.heads, query, key, value, output, query_bias, key_bias, value_bias, bias,
        **attention_settings(sizes.causal),
    )  # fmt: skip
    inner, outer = pair("inner"), pair("outer")
    feed_forward = FeedForward(*inner, *outer, sizes.activation)
    return LayerParts(attention, feed_forward, norm("attention_norm"), norm("feed_forward_norm"))


def _norm(numbers: Numbers, name: str, epsilon: float) -> LayerNorm:
    """The layer norm with the gain and bias of a name."""
    return LayerNorm(numbers[f"{name}.weight"], numbers[f"{name}.bias"], epsilon)


def _norm_shapes(name: str, width: int) -> Shapes:
    """The shapes of gain and bias of a layer norm."""
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _part_shapes(layout: CheckpointLayout, sizes: Sizes, part: str, name: str) -> Shapes:
    """The shapes of weight and bias of one part of a layer: a matrix, or the gain of a norm."""
    width, hidden = sizes.width, sizes.hidden
    if part.endswith("norm"):
        return _norm_shapes(name, width)
    rows, columns = {"inner": (hidden, width), "outer": (width, hidden), "together": (3 * width, width)}.get(
        part, (width, width)
    )
    shape = (columns, rows) if layout.transposed else (rows, columns)
    return {f"{name}.weight": shape, f"{name}.bias": (rows,)}
