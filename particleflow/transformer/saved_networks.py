"""Networks that were trained here, in one file: an npz archive of their numbers, with what they are inside.

The file holds the architecture and the seed of the random weights that training began with, so that the network before
training can be made again, and the numbers after training. It is written whole or not at all, with a SHA-256 inside;
names, shapes and types of all arrays are checked when it is read, and nothing in it is executed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from particleflow.errors import ArgumentError, check_kind, whole_number
from particleflow.trajectory.store import read_archive, write_archive
from particleflow.transformer.network import Transformer
from particleflow.transformer.random_networks import Architecture, random_classifier, random_transformer

_FORMAT = "particleflow network 1"


class SavedNetwork(NamedTuple):
    """A network from a file: the `model`; the `symbols` of its tokens, by their ids; what it is `about`, in words."""

    model: Transformer
    symbols: tuple[str, ...]
    about: str

    def ids(self, tokens: str | Sequence[str]) -> np.ndarray:
        """The token ids of a text, a letter or an item each; refused where the network has no such token."""
        unknown = next((token for token in tokens if token not in self.symbols), None)
        if unknown is not None or not tokens:
            known = " ".join(self.symbols)[:200]
            raise ArgumentError(f"The tokens of this network are {known}; {str(unknown or 'no token')[:20]!r} is none.")
        return np.asarray([self.symbols.index(token) for token in tokens])


def save_network(
    model: Transformer,
    path: str | Path,
    architecture: Architecture,
    seed: int,
    *,
    symbols: Sequence[str] = (),
    labels: int | None = None,
    about: str = "",
) -> Path:
    """Write a network that was trained from `random_transformer(jax.random.key(seed), architecture)`; returns its path.

    Parameters: `model`; `path`, ending in .npz; its `architecture` and `seed`; the `symbols` of its tokens, in the
    order of their ids; `labels` of its read-out, if it was trained from `random_classifier(…, labels)`; `about`, how it
    was made, in words.
    """
    check_kind(model, Transformer, "model", "a transformer")
    target = Path(path)
    if target.suffix != ".npz":
        raise ArgumentError(f"Argument `path` must end in .npz, but is {str(path)!r}.")
    if symbols and len(symbols) != architecture.vocabulary:
        raise ArgumentError(f"There must be {architecture.vocabulary} symbols, but there are {len(symbols)}.")
    begun = _begun(architecture, seed, labels)
    numbers = _numbers(model)
    if _shapes(numbers) != _shapes(_numbers(begun)):
        raise ArgumentError("Argument `model` has other arrays than a network of this architecture.")
    info = {
        "format": _FORMAT, "architecture": architecture._asdict(), "seed": seed, "labels": labels,
        "symbols": list(symbols), "about": about,
    }  # fmt: skip
    write_archive(target, numbers, info)
    return target


def load_network(path: str | Path, trained: bool = True) -> SavedNetwork:
    """Read a network by `save_network`.

    Parameters: `path`; `trained`, false for the random weights that training began with.
    """
    place = Path(path)
    if not place.is_file():
        raise ArgumentError(f"{place} is needed, but is no file.")
    try:
        arrays, info = read_archive(place)
        if info["format"] != _FORMAT:
            raise ValueError("it is no network")
        architecture = Architecture(**info["architecture"])
        symbols, about = tuple(map(str, info["symbols"])), str(info["about"])
        begun = _begun(architecture, info["seed"], info["labels"])
    except Exception as error:  # a damaged archive fails in a dozen ways, and all mean the same here
        raise ArgumentError(
            f"{place} holds no network by `save_network`: {str(error)[:200] or type(error).__name__}."
        ) from error
    if not trained:
        return SavedNetwork(begun, symbols, about)
    if _shapes(arrays) != _shapes(_numbers(begun)):
        raise ArgumentError(f"{place} holds other arrays than a network of its architecture.")
    leaves, structure = jax.tree_util.tree_flatten_with_path(begun)
    filled = [jax.device_put(arrays[_name(where)]) if _is_kept(leaf) else leaf for where, leaf in leaves]
    return SavedNetwork(jax.tree_util.tree_unflatten(structure, filled), symbols, about)


def _begun(architecture: Architecture, seed: int, labels: int | None) -> Transformer:
    """The network before training."""
    key = jax.random.key(whole_number(seed, "seed", 0))
    if labels is None:
        return random_transformer(key, architecture)
    return random_classifier(key, architecture, labels)


def _numbers(model: Any) -> dict[str, np.ndarray]:
    """The arrays of a network by their dotted paths."""
    leaves = jax.tree_util.tree_leaves_with_path(model)
    return {_name(where): np.asarray(leaf) for where, leaf in leaves if _is_kept(leaf)}


def _is_kept(leaf: Any) -> bool:
    """Whether a leaf is an array that training may change; numbers of every precision are of the architecture."""
    return eqx.is_inexact_array(leaf) and leaf.ndim > 0 and not leaf.weak_type


def _name(where: Any) -> str:
    """The dotted path of a leaf."""
    return jax.tree_util.keystr(where, simple=True, separator=".")


def _shapes(arrays: dict[str, np.ndarray]) -> dict[str, tuple[Any, ...]]:
    """The types and shapes of arrays by name."""
    return {name: (str(array.dtype), array.shape) for name, array in arrays.items()}
