"""Frames to an mp4 through a process of ffmpeg.

ffmpeg may end with exit code 0 although its disk was full, so the file is checked when it has ended.
"""

import contextlib
import subprocess
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from particleflow._support.text import one_line
from particleflow.errors import StoreError, UserError

if TYPE_CHECKING:
    from PIL.Image import Image

# with the preset alone a movie is a fifth smaller, but takes half as long again: dots have no texture to follow
_QUALITY = ("-preset", "veryfast", "-crf", "18", "-x264-params", "subme=0:me=dia:bframes=1:b-adapt=0")


def find_ffmpeg() -> str:
    """The program that imageio-ffmpeg brings, or an error that says how to install it."""
    try:
        import imageio_ffmpeg

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        raise UserError(
            "Writing an mp4 needs imageio-ffmpeg, which is not installed: "
            "run `pip install particleflow[video]`, or write a .gif."
        ) from None


class Encoder:
    """A process that takes frames of width × height × 4 bytes (RGBA), and writes H.264 with a comment to `path`."""

    def __init__(self, path: Path, size: tuple[int, int], fps: float, comment: str = "") -> None:
        self._path = path
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115
        rate = str(Fraction(fps).limit_denominator())
        command = [find_ffmpeg(), "-y", "-v", "error", "-f", "rawvideo", "-pix_fmt", "rgba"]
        command += ["-s", f"{size[0]}x{size[1]}", "-r", rate, "-i", "-", "-an", "-vcodec", "libx264"]
        command += ["-pix_fmt", "yuv420p", *_QUALITY, "-movflags", "+faststart", "-metadata", f"comment={comment}"]
        self._process = subprocess.Popen(
            [*command, str(path.absolute())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._messages,
            start_new_session=True,  # an interrupt from the keyboard reaches this process only, which then ends ffmpeg
        )
        assert self._process.stdin is not None
        self._frames = self._process.stdin

    def write(self, frame: "Image") -> None:
        """Hand a frame over, an image of this size in RGBA."""
        try:
            self._frames.write(frame.tobytes())
        except OSError as error:
            raise self._failure() from error

    def finish(self) -> None:
        """Wait until the movie is written, and make sure that it is."""
        with contextlib.suppress(OSError):  # if ffmpeg has ended early, exit code and file are checked below
            self._frames.close()
        if self._process.wait() != 0 or not is_whole(self._path):
            raise self._failure()

    def stop(self) -> None:
        """End the process if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(OSError):
            self._frames.close()
        self._messages.close()

    def _failure(self) -> StoreError:
        """The last line that ffmpeg wrote to stderr, or its exit code, as an error."""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._messages.seek(0)
        lines = self._messages.read().decode("utf-8", "replace").split("\n")
        written = [one_line(line).strip() for line in lines if line.strip()]
        reason = written[-1].rstrip(".") if written else f"exit code {code}, and the file is not complete"
        return StoreError(
            f"The movie could not be written to {self._path.parent}: {reason}. "
            "See whether the disk is full; a movie that was there before is kept."
        )


def is_whole(path: Path) -> bool:
    """Whether a file is a row of MP4 boxes, each of its stated size, up to its very end, with an index and pictures.

    A box is its size (4 bytes), its name (4 bytes) and its content; size 1 means that 8 more bytes hold the size.
    """
    if not path.is_file():
        return False
    names, end, place = set(), path.stat().st_size, 0
    with path.open("rb") as file:
        while place < end:
            file.seek(place)
            head = file.read(16)
            size, name = int.from_bytes(head[:4], "big"), head[4:8]
            size = int.from_bytes(head[8:16], "big") if size == 1 else size
            if size < 8:
                return False
            names.add(name)
            place += size
    return place == end and {b"ftyp", b"moov", b"mdat"} <= names
