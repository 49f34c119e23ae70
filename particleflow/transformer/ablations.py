"""Layers of a network with something switched off: single heads, the causal mask, or one of the norms.

A head is switched off by its output, O_h = 0, so that all other heads, and biases, act as before. Whole sub-layers are
left out by `parts`, and all norms by `placement = "none"`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from particleflow.dynamics.drifts.heads import MultiHead
from particleflow.errors import ArgumentError
from particleflow.transformer.layer_blocks import PARTS, LayerParts

CAUSAL_MASK = "causal_mask"
_NORMS = tuple(f"{part}_norm" for part in PARTS)
_FORMS = 'must name "causal_mask", "heads.H", "layers.L.heads.H", "attention_norm" or "feed_forward_norm"'


class Ablation(NamedTuple):
    """What is switched off: `heads`, pairs (layer, head), the layer None for all; the mask; the norms by name."""

    heads: tuple[tuple[int | None, int], ...] = ()
    causal_mask: bool = False
    norms: tuple[str, ...] = ()

    def applied(self, layers: Sequence[LayerParts]) -> list[LayerParts]:
        """The layers without these heads, and without the mask; the norms are left out where blocks are made."""
        for layer, head in self.heads:
            chosen = layers if layer is None else layers[layer : layer + 1]
            counts = [len(each.heads.each) for each in chosen]
            if not counts or head >= min(counts):
                found = f"{len(layers)} layers" if not counts else f"{min(counts)} heads in a layer"
                raise ArgumentError(f"Argument `without` names {_name(layer, head)!r}, but there are {found}.")
        changed = [self._without_heads(each, place) for place, each in enumerate(layers)]
        return [_unmasked(each) for each in changed] if self.causal_mask else changed

    def _without_heads(self, parts: LayerParts, place: int) -> LayerParts:
        """One layer with zeros as the outputs of the heads that are switched off in it."""
        off = sorted({head for layer, head in self.heads if layer in (None, place)})
        if not off:
            return parts
        outputs = parts.heads.heads.output
        outputs = outputs.at[jnp.asarray(off)].set(0.0)
        return parts._replace(attention=eqx.tree_at(lambda drift: drift.heads.output, parts.heads, outputs))


def as_ablation(without: Sequence[str]) -> Ablation:
    """Read the names of what is switched off: "heads.3", "layers.2.heads.3", "causal_mask", "attention_norm", …"""
    heads: list[tuple[int | None, int]] = []
    norms: list[str] = []
    for name in without:
        words = name.split(".") if isinstance(name, str) else []
        numbers = [int(word) for word in words[1::2] if word.isascii() and word.isdigit()]
        if words[::2] == ["heads"] and len(words) == 2 and len(numbers) == 1:
            heads.append((None, numbers[0]))
        elif words[::2] == ["layers", "heads"] and len(words) == 4 and len(numbers) == 2:
            heads.append((numbers[0], numbers[1]))
        elif name in _NORMS:
            norms.append(name)
        elif name in PARTS:
            raise ArgumentError(
                f"Argument `without` {_FORMS}, but names {name!r}: use `parts` to leave out sub-layers."
            )
        elif name != CAUSAL_MASK:
            raise ArgumentError(f"Argument `without` {_FORMS}, but names {name!r}.")
    return Ablation(tuple(heads), CAUSAL_MASK in without, tuple(norms))


def _unmasked(parts: LayerParts) -> LayerParts:
    """One layer whose tokens see all others; refused where they do already."""
    heads = parts.heads.each
    if any(head.positional is None for head in heads):
        raise ArgumentError('Argument `without` names "causal_mask", but the attention of this network has none.')
    free = [eqx.tree_at(lambda head: head.positional, head, None) for head in heads]
    return parts._replace(attention=MultiHead(free, parts.heads.bias, parts.heads.data))


def _name(layer: int | None, head: int) -> str:
    """A head as `without` names it."""
    return f"heads.{head}" if layer is None else f"layers.{layer}.heads.{head}"
