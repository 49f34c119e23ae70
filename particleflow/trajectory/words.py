"""The words of tokens: one text per particle, and short names for groups of particles made from them.

Words may come from any file. They are kept as they are, bounded in length, and reach a terminal, a figure or a
page only through `visible` and `named`, which remove control characters and direction overrides.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from particleflow._support.text import one_line
from particleflow.errors import ArgumentError, ShapeError

LONGEST = 200  # bytes of a word in UTF-8
_SHOWN_LETTERS = 24
_BLANK = "␣"


def as_words(words: Any, count: int, runs: int | None = None) -> np.ndarray | None:
    """Words as an array of text, (count,), or (runs, count) where the runs of an ensemble differ.

    Of a word longer than 200 bytes of UTF-8 the beginning is kept; NUL and half a surrogate pair, which no file of text
    can hold, are replaced.

    Parameters: `words`, texts (count,) or (runs, count), None stays None; `count` of particles; `runs` of an ensemble.
    """
    if words is None:
        return None
    array = np.asarray(words, dtype=object)
    if array.shape != (count,) and (runs is None or array.shape != (runs, count)):
        rows = "" if runs is None else f", or a row of them for each of the {runs} runs"
        raise ShapeError(
            f"Argument `words` must hold one word for each of the {count} particles{rows}, but has shape {array.shape}."
        )
    for place, word in enumerate(array.ravel()):
        if not isinstance(word, str):
            raise ArgumentError(f"Argument `words` must hold texts, but holds {word!r} at index {place}."[:300])
    kept = np.array([_kept(word) for word in array.ravel()], dtype=str).reshape(array.shape)
    return kept[0] if kept.ndim == 2 and (kept == kept[0]).all() else kept


def _kept(word: str) -> str:
    """A word as it is stored: valid UTF-8 without NUL, at most LONGEST bytes."""
    content = word.replace("\0", "\ufffd").encode("utf-8", "replace")
    if len(content) <= LONGEST:
        return content.decode()
    return content[: LONGEST - len("…".encode())].decode("utf-8", "ignore") + "…"


def to_bytes(words: np.ndarray) -> np.ndarray:
    """Words as UTF-8 of one length, padded with zeros: how a file keeps them."""
    content = [word.encode() for word in words.ravel().tolist()]
    return np.array(content, dtype=f"S{max(map(len, content), default=1) or 1}").reshape(words.shape)


def from_bytes(content: np.ndarray) -> np.ndarray:
    """Decode the words of a file: invalid UTF-8 is replaced, and each word is cut to `LONGEST` bytes."""
    words = [_kept(word.decode("utf-8", "replace")) for word in content.ravel().tolist()]
    return np.array(words, dtype=str).reshape(content.shape)


def distinct(words: Iterable[str]) -> list[str]:
    """The different words, the most frequent first; of equally frequent ones the first to appear comes first."""
    found = Counter(words)
    return sorted(found, key=lambda word: -found[word])


def visible(word: str, letters: int = _SHOWN_LETTERS) -> str:
    """A word for a reader: one line of printable characters, shortened; a blank one is an open box."""
    shown = " ".join(one_line(word).split()) or _BLANK
    return shown if len(shown) <= letters else shown[: letters - 1] + "…"


def bare(word: str) -> str:
    """A word for a column of a table: without blanks or control characters, and never empty."""
    return "_".join(one_line(word).split()) or "_"


def named(words: Iterable[str], most: int = 3) -> str:
    """The name of a group: its most frequent words, then the number of the others: "river, bank, water +3"."""
    found = distinct(words)
    return listed(found, len(found), most)


def listed(words: Sequence[str], different: int, most: int = 3) -> str:
    """The first `most` words, then how many of the `different` distinct words are left out."""
    name = ", ".join(visible(word) for word in words[:most])
    return name if different <= most else f"{name} +{different - most}"
