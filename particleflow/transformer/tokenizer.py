"""Texts to token ids and back: a trained network's own tokenizer.json, read by the package `tokenizers`."""

from pathlib import Path
from typing import Any

import numpy as np

from particleflow.errors import ArgumentError
from particleflow.transformer.checkpoint_files import needed, plain_file

_MOST_BYTES = 64 * 2**20


class Tokenizer:
    """The tokenizer of a network, which splits texts into tokens (words or pieces of words) with numbers, their ids.

    Parameters: the `path` of its tokenizer.json.
    """

    def __init__(self, path: Path):
        tokenizers = needed("tokenizers")
        plain_file(path, _MOST_BYTES)
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain exceptions of its own
            raise ArgumentError(f"{path} is no tokenizer: {str(error)[:200]}.") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def ids(self, text: str) -> np.ndarray:
        """The token ids of a text, special tokens of its beginning and end included."""
        if not isinstance(text, str):
            raise ArgumentError(f"Argument `text` must be a text, but is {type(text).__name__}.")
        found = np.asarray(self._tokenizer.encode(text).ids, np.int64)
        if found.size == 0:
            raise ArgumentError("The text holds no word, so there is no token.")
        return found

    def words(self, ids: Any) -> list[str]:
        """The tokens of some ids as texts.

        Tokens of bytes, as those of GPT-2, are decoded one by one: a token that ends inside a letter shows �.
        """
        pieces = [self._tokenizer.id_to_token(int(number)) for number in np.asarray(ids).ravel()]
        if None in pieces:
            raise ArgumentError(f"The tokenizer has no token of the id {np.asarray(ids).ravel()[pieces.index(None)]}.")
        if not isinstance(self._tokenizer.decoder, needed("tokenizers").decoders.ByteLevel):
            return pieces
        return [self._tokenizer.decoder.decode([piece]) for piece in pieces]

    def number_of(self, word: str) -> int:
        """The id of a word that is a single token; refused where it is several."""
        pieces = self._tokenizer.encode(word, add_special_tokens=False).ids
        if len(pieces) != 1:
            raise ArgumentError(f"{word[:60]!r} is no single word of this tokenizer, but {len(pieces)} pieces.")
        return pieces[0]
