"""Frames to a file, whole or not at all: mp4 through ffmpeg (imageio-ffmpeg), gif through Pillow."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from particleflow._support.files import written
from particleflow.errors import ArgumentError, StoreError
from particleflow.view.movie.encoder import Encoder, find_ffmpeg

if TYPE_CHECKING:
    from PIL.Image import Image

Write = Callable[["Image"], None]
_FRAMES_AHEAD = 2  # drawn frames that may wait for the encoder


def check_size(size: tuple[int, int]) -> tuple[int, int]:
    """Width and height in pixels: multiples of 16, which every player and encoder takes."""
    width, height = (int(side) for side in size)
    if width < 64 or height < 64 or width % 16 or height % 16 or max(width, height) > 8192:
        near = tuple(int(np.clip(16 * round(side / 16), 64, 8192)) for side in (width, height))
        raise ArgumentError(
            f"Argument `size` must be multiples of 16 between 64 and 8192, but is {(width, height)}: use {near}."
        )
    return width, height


@contextmanager
def open_writer(
    path: Path, size: tuple[int, int], fps: float, samples: "Sequence[Image]" = (), comment: str = ""
) -> Iterator[Write]:
    """A function that appends a frame to the movie; the suffix, .mp4 or .gif, decides how. The file appears at the end.

    `samples` are frames from which a gif takes its colours; `comment` is a text that is kept in the file.
    """
    check_target(path, fps)
    with written(path) as partial:
        is_mp4 = partial.suffix.lower() == ".mp4"
        with _mp4(partial, size, fps, comment) if is_mp4 else _gif(partial, samples, fps, comment) as write:
            yield write


def check_target(path: Path, fps: float) -> None:
    """Everything about a movie file that can be wrong before a frame is drawn."""
    suffix = path.suffix.lower()
    if suffix not in (".mp4", ".gif"):
        raise ArgumentError(f"Argument `path` must end in .mp4 or .gif, but is {str(path)!r}.")
    highest = 50 if suffix == ".gif" else 240
    if not 0 < fps <= highest:
        raise ArgumentError(f"Argument `fps` must be above 0 and at most {highest} for {suffix}, but is {fps}.")
    if suffix == ".mp4":
        find_ffmpeg()
    if not path.parent.is_dir():
        raise StoreError(f"The folder of {str(path)!r} must exist, but does not: create it first.")


@contextmanager
def _mp4(path: Path, size: tuple[int, int], fps: float, comment: str) -> Iterator[Write]:
    """Write H.264, 4:2:0, at constant quality, with the index in front, so that a browser plays it at once.

    A thread hands frames to the encoder, so that the next one is drawn meanwhile; it is given at most two ahead.
    """
    encoder = Encoder(path, size, fps, comment)
    with ThreadPoolExecutor(1) as sender:
        waiting: deque[Future[None]] = deque()

        def write(image: "Image") -> None:
            waiting.append(sender.submit(encoder.write, image))
            while len(waiting) > _FRAMES_AHEAD:
                waiting.popleft().result()

        try:
            yield write
            while waiting:
                waiting.popleft().result()
            encoder.finish()
        finally:
            for frame in waiting:
                frame.cancel()
            encoder.stop()


@contextmanager
def _gif(path: Path, samples: "Sequence[Image]", fps: float, comment: str) -> Iterator[Write]:
    """Write a looping gif in one palette of 256 colours, chosen from sample frames, or else from the first frame."""
    from PIL.Image import Dither

    frames: list[Image] = []
    palette: list[Image] = [common_palette(samples)] if samples else []

    def write(image: "Image") -> None:
        if not palette:
            palette.append(common_palette([image]))
        frames.append(image.convert("RGB").quantize(palette=palette[0], dither=Dither.NONE))

    yield write
    if frames:
        # a gif counts hundredths of a second: durations alternate so that the movie as a whole keeps its length
        marks = np.round(np.arange(len(frames) + 1) * 100 / fps) * 10
        durations = np.maximum(np.diff(marks), 20).astype(int).tolist()
        frames[0].save(
            path, "GIF", save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=False,
            comment=comment,
        )  # fmt: skip


def common_palette(samples: "Sequence[Image]") -> "Image":
    """A palette for frames: colours weighted by the root of how often they occur, so that few dots keep theirs."""
    from PIL import Image

    pixels = np.concatenate([np.asarray(sample.convert("RGB")).reshape(-1, 3) for sample in samples]).astype(np.uint32)
    keys = (pixels[:, 0] << 16) | (pixels[:, 1] << 8) | pixels[:, 2]
    values, counts = np.unique(keys, return_counts=True)
    repeated = np.repeat(values, np.ceil(np.sqrt(counts)).astype(int))
    colors = np.column_stack([repeated >> 16, (repeated >> 8) & 255, repeated & 255]).astype(np.uint8)
    image = Image.fromarray(colors[None]).quantize(256, method=Image.Quantize.MEDIANCUT, kmeans=2)
    table = np.array(image.getpalette()).reshape(-1, 3)
    most = values[counts.argmax()]
    page = np.array([most >> 16, (most >> 8) & 255, most & 255], int)
    # Pillow looks colours up in steps of four: the page stays exact if no entry is nearer to its step than itself
    step = page - page % 4
    table[np.square(table - page).sum(axis=1).argmin()] = page
    table[np.square(table - step).sum(axis=1) <= np.square(page - step).sum()] = page
    image.putpalette(table.ravel().tolist())
    return image
