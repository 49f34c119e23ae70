"""Storage of numbers in the page: quantise, predict, split into byte planes, deflate, write as base64 text.

A *code* is the integer a coordinate is rounded to, x ≈ low + step · code. Codes of frame k are predicted from the
frames before it, code_k ≈ code_{k−1} (order 1) or 2 code_{k−1} − code_{k−2} (order 2), modulo 2¹⁶, so a smooth run
leaves residuals near zero. The browser undoes the same steps in `assets/decode.js`.
"""

import base64
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

CHUNK_VALUES = 2_000_000  # values decoded before the browser handles events again: about 20 ms
BITS = (16, 14, 12)  # tried in this order before any frame is given up; 12 bits are a quarter of a pixel on a phone
DEFLATE_LEVEL = 6


@dataclass(frozen=True)
class CodeGrid:
    """The lattice x = low + step · code per axis; the largest code means that the particle is missing."""

    low: np.ndarray
    high: np.ndarray
    bits: int

    @property
    def missing(self) -> int:
        """The code of a missing particle: all bits set."""
        return 2**self.bits - 1

    @property
    def step(self) -> np.ndarray:
        """The distance of two codes along every axis, (d,): (high − low) / (2^bits − 2), 1 for a width of 0."""
        width = np.asarray(self.high, float) - self.low
        return np.where(width > 0, width, 1.0) / (self.missing - 1)

    def encode(self, points: np.ndarray) -> np.ndarray:
        """Nearest codes of points (..., d), with error at most step / 2; a non-finite point becomes missing."""
        points = np.asarray(points, np.float64)
        alive: np.ndarray = np.asarray(np.isfinite(points).all(axis=-1))
        scaled = np.where(alive[..., None], (points - self.low) / self.step, 0.0)
        codes = np.clip(np.rint(scaled), 0, self.missing - 1).astype(np.uint16)
        codes[~alive] = self.missing
        return codes


@dataclass(frozen=True)
class Section:
    """One compressed array of the page: its name, its kind and shape, which the decoder needs, and its base64 text.

    `kind` is "codes" for predicted residuals, else NumPy's name of a little-endian type, such as "f8".
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    text: str

    def describe(self) -> dict:
        """The name, the kind and the shape of the array, for the page's facts."""
        return {"name": self.name, "kind": self.kind, "shape": list(self.shape)}


def _deflate(raw: bytes, level: int = DEFLATE_LEVEL) -> str:
    """Bytes compressed by zlib, as base64 text."""
    return base64.b64encode(zlib.compress(raw, level)).decode("ascii")


def array_section(name: str, values: np.ndarray) -> Section:
    """A plain array, little-endian: float64, float32, int32 or uint32 as it comes."""
    values = np.ascontiguousarray(values)
    kind = values.dtype.newbyteorder("<").str[1:]
    return Section(name, kind, values.shape, _deflate(values.astype(values.dtype.newbyteorder("<")).tobytes()))


def residual_bytes(codes: np.ndarray, before: list[np.ndarray], order: int) -> bytes:
    """Prediction residuals of frames (F, ...) after the frames `before`, zigzag folded, low bytes first, then high.

    residual_k = code_k − predicted_k (mod 2¹⁶), folded 0, −1, 1, −2, … → 0, 1, 2, 3, … . Splitting the byte planes lets
    deflate see the almost constant high bytes as one long run.
    """
    history = [np.zeros_like(codes[0])] * (2 - len(before)) + before[-2:]
    full = np.concatenate([np.stack(history), codes])
    first = full[1:] - full[:-1]
    residual = first[1:] if order == 1 else first[1:] - first[:-1]
    signed = residual.view(np.int16)
    folded = ((signed << 1) ^ (signed >> 15)).view(np.uint16).ravel()
    return (folded & 0xFF).astype(np.uint8).tobytes() + (folded >> 8).astype(np.uint8).tobytes()


def frames_per_chunk(values_per_frame: int) -> int:
    """How many frames a block of codes holds: about `CHUNK_VALUES` values, and one frame at least."""
    return max(1, CHUNK_VALUES // max(1, values_per_frame))


def code_sections(
    name: str, blocks: Iterator[np.ndarray], order: int, budget: float = np.inf
) -> tuple[list[Section], int]:
    """Compress consecutive blocks of codes (F, ..., N) and stop as soon as the text passes the budget.

    Returns the sections and the number of bytes of their text. Prediction runs on across blocks.
    """
    sections: list[Section] = []
    before: list[np.ndarray] = []
    used = 0
    for number, codes in enumerate(blocks):
        text = _deflate(residual_bytes(codes, before, order))
        used += len(text)
        sections.append(Section(f"{name}{number}", "codes", codes.shape, text))
        before = [*before, *codes][-2:]
        if used > budget:
            break
    return sections, used


def cheapest_order(sample: np.ndarray) -> int:
    """1 or 2: the prediction order that compresses a window of consecutive frames (F, ..., N) better."""
    if len(sample) < 4:
        return 1
    before = [sample[0], sample[1]]
    sizes = [len(zlib.compress(residual_bytes(sample[2:], before, order), 1)) for order in (1, 2)]
    return 1 + int(np.argmin(sizes))


def position_blocks(
    read: Callable[[np.ndarray], np.ndarray], grid: CodeGrid, frames: np.ndarray, count: int
) -> Iterator[np.ndarray]:
    """Codes of the chosen frames, block by block, as (F, d, N): coordinates apart, particles side by side."""
    size = frames_per_chunk(count * len(grid.low))
    for begin in range(0, len(frames), size):
        points = read(frames[begin : begin + size])
        yield np.ascontiguousarray(np.swapaxes(grid.encode(points), 1, 2))


def label_blocks(
    codes: Callable[[np.ndarray, Any], np.ndarray], frames: np.ndarray, particles: np.ndarray | slice, count: int
) -> Iterator[np.ndarray]:
    """Cluster codes of the chosen frames, block by block, as (F, N); 65535 means that a particle has no cluster."""
    size = frames_per_chunk(count)
    for begin in range(0, len(frames), size):
        yield np.ascontiguousarray(codes(frames[begin : begin + size], particles))
