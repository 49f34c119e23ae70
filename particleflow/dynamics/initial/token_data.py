"""Clouds that stand for data: the words of a text, the patches of an image."""

import hashlib
import re
from pathlib import Path
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from particleflow._support.arrays import as_nonnegative, default_dtype
from particleflow._support.files import reason_of
from particleflow.dynamics.initial.base import AbstractInitial, Start, check_count, check_own_count
from particleflow.dynamics.initial.from_file import UTF8, check_path, read_cloud
from particleflow.errors import ArgumentError, ShapeError, whole_number
from particleflow.kernels.positional import Sinusoidal
from particleflow.measure import Measure
from particleflow.trajectory.words import as_words

_TOKEN = re.compile(r"\w+|[^\w\s]")


class TextTokens(AbstractInitial):
    """The words and marks of a text as unit vectors, with `position_scale` times a sinusoidal encoding added.

    Without a table every word has a Gaussian direction in R^dim drawn from a hash of its letters, the same in every
    text. `embedding` is a table: .npy with rows picked by hash, or .npz with `vectors` and their `tokens`. Positions
    are the places in the text; labels number the different words as they appear.
    """

    counted: ClassVar[bool] = False
    text: str | None
    path: Path | None
    dim: int
    embedding: Path | None
    position_scale: Float[Array, ""]

    def __init__(
        self,
        text: str | None = None,
        path: Path | None = None,
        dim: int = 64,
        embedding: Path | None = None,
        position_scale: Any = 0.0,
    ):
        self.text = text
        self.path = None if path is None else Path(path)
        self.dim = whole_number(dim, "dim")
        self.embedding = None if embedding is None else Path(embedding)
        self.position_scale = as_nonnegative(position_scale, "position_scale")

    def __check_init__(self):
        if (self.text is None) == (self.path is None):
            raise ArgumentError("Exactly one of `text` and `path` must be given, the text itself or where it is.")
        for name in ("path", "embedding"):
            if getattr(self, name) is not None:
                check_path(getattr(self, name), name)

    @property
    def tokens(self) -> list[str]:
        """The words and marks of the text, in order, in lower case."""
        if self.text is not None:
            found = _TOKEN.findall(self.text.lower())
        else:
            assert self.path is not None
            found = _TOKEN.findall(_read_text(self.path).lower())
        if not found:
            raise ArgumentError("The text holds no word, so there is no token.")
        return found

    def start(self, key: Array, count: int | None = None) -> Start:
        """The tokens as a measure with positions, labelled by word, with their words."""
        tokens = self.tokens
        check_own_count(count, len(tokens))
        words = list(dict.fromkeys(tokens))
        labels = np.asarray([words.index(token) for token in tokens])
        table = self._vectors(words)
        check_count(len(tokens), table.shape[1])
        positions = jnp.arange(len(tokens), dtype=default_dtype())
        encoded = Sinusoidal(self.position_scale).vectors(positions, table.shape[1])
        measure = Measure.uniform(jnp.asarray(table[labels]) + encoded, positions=positions)
        return Start(measure, labels, words=as_words(tokens, len(tokens)))

    def _vectors(self, words: list[str]) -> np.ndarray:
        if self.embedding is None:
            check_count(len(words), self.dim)
            vectors = np.stack([np.random.default_rng(_hash(word)).standard_normal(self.dim) for word in words])
        elif self.embedding.suffix.lower() == ".npz":
            vectors = _named_rows(self.embedding, words)
        else:
            table = read_cloud(self.embedding)["points"]
            vectors = table[[_hash(word) % len(table) for word in words]]
        if vectors.ndim != 2:
            raise ShapeError(f"The embedding table must be a matrix, but its rows have shape {vectors.shape[1:]}.")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return (vectors / np.where(lengths > 0, lengths, 1.0)).astype(default_dtype())


class ImagePatches(AbstractInitial):
    """The square patches of an image as vectors of brightness in [0, 1], in reading order; positions are their places.

    `path` is an .npy array (height, width) or (height, width, channels), or a picture; the sides are cut down to
    multiples of `patch`. Unsigned numbers of 8 and 16 bits are divided by the largest of their type, 255 and 65535; all
    other numbers are brightnesses as they are. The mean of all patches is subtracted if `centred`. With `place_scale` >
    0 the row and column of a patch, from −1 to 1, times this number, are two more coordinates.
    """

    counted: ClassVar[bool] = False
    path: Path
    patch: int
    centred: bool
    place_scale: Float[Array, ""]

    def __init__(self, path: Path, patch: int = 8, centred: bool = True, place_scale: Any = 0.0):
        self.path = Path(path)
        self.patch = whole_number(patch, "patch")
        self.centred = centred
        self.place_scale = as_nonnegative(place_scale, "place_scale")

    def __check_init__(self):
        check_path(self.path, "path")

    def start(self, key: Array, count: int | None = None) -> Start:
        """The patches as a measure with positions."""
        image, size = _read_image(self.path), self.patch
        rows, columns = image.shape[0] // size, image.shape[1] // size
        if rows * columns == 0:
            raise ArgumentError(f"Argument `patch` is {size}, but {self.path} has only {image.shape[:2]} pixels.")
        check_own_count(count, rows * columns)
        cut = image[: rows * size, : columns * size].reshape(rows, size, columns, size, -1)
        patches = cut.transpose(0, 2, 1, 3, 4).reshape(rows * columns, -1).astype(default_dtype())
        if self.centred:
            patches = patches - patches.mean(axis=0)
        if float(self.place_scale) > 0:
            place = np.meshgrid(np.linspace(-1, 1, rows), np.linspace(-1, 1, columns), indexing="ij")
            added = float(self.place_scale) * np.stack([axis.ravel() for axis in place], axis=1)
            patches = np.concatenate([patches, added.astype(patches.dtype)], axis=1)
        positions = jnp.arange(len(patches), dtype=default_dtype())
        channels = 1 if image.ndim == 2 else image.shape[2]
        return Start(
            Measure.uniform(patches, positions=positions), picture=(rows, columns), image=(size, size, channels)
        )


def _hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding=UTF8)
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path} cannot be read as text: {reason_of(error)}.") from error


def _named_rows(path: Path, words: list[str]) -> np.ndarray:
    """The rows of an archive of `vectors` and `tokens` that belong to some words."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            vectors, tokens = archive["vectors"], archive["tokens"]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ArgumentError(
            f"{path} must be an archive with `vectors` and `tokens`, but is not: {reason_of(error)}."
        ) from error
    row = {str(token): index for index, token in enumerate(tokens)}
    missing = [word for word in words if word not in row]
    if missing:
        raise ArgumentError(f"{path} has no vector for {missing[0]!r} (and {len(missing) - 1} other words).")
    return np.asarray(vectors, float)[[row[word] for word in words]]


def _read_image(path: Path) -> np.ndarray:
    """The numbers of an image, (height, width) or (height, width, channels); whole ones of 8 and 16 bits in [0, 1]."""
    try:
        image = np.load(path, allow_pickle=False) if path.suffix.lower() == ".npy" else _read_picture(path)
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        raise ArgumentError(f"{path} cannot be read as an image: {reason_of(error)}.") from error
    if image.ndim not in (2, 3) or image.dtype.kind not in "fiu":
        raise ArgumentError(f"{path} must hold numbers (height, width[, channels]), but has shape {image.shape}.")
    is_small = image.dtype.kind == "u" and image.dtype.itemsize <= 2
    return image / float(np.iinfo(image.dtype).max) if is_small else image.astype(float)


def _read_picture(path: Path) -> np.ndarray:
    """The pixels of a picture: 16-bit greys as such, floating-point ones as they are, everything else as 8 bits.

    Pillow has one kind of 32-bit whole numbers for 16-bit greys (of a PNG or PGM) and for numbers of any range.
    """
    from PIL import Image

    with Image.open(path) as picture:
        if picture.mode == "F" or picture.mode.startswith("I;16"):
            return np.asarray(picture)
        if picture.mode == "I":
            numbers = np.asarray(picture)
            if picture.format not in ("PNG", "PPM") or numbers.min() < 0 or numbers.max() > 65535:
                raise ValueError("its 32-bit numbers have no known range; save brightnesses as an .npy array")
            return numbers.astype(np.uint16)
        return np.asarray(picture.convert("L" if picture.mode in ("1", "L") else "RGB"))
