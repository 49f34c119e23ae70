"""The clock of an animation and its line of progress: what changes in the head of every frame.

Pillow draws both, ten times as fast as matplotlib.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.view import style
from particleflow.view.plots.base import drawn_times, time_words

if TYPE_CHECKING:
    from PIL.Image import Image

    from particleflow.trajectory.trajectory import Trajectory
    from particleflow.view.resampling import Resampling


def clock_texts(run: "Trajectory", instants: "Resampling") -> list[str]:
    """The time of every instant as text, "t = 3.00", or "layer 3", as in the figures of the run."""
    return [time_words(run, float(time)) for time in instants.times]


def progress_shares(times: np.ndarray, shown: np.ndarray, log: bool) -> np.ndarray:
    """Where on a time axis, from 0 to 1, the `shown` instants of a run that was saved at `times` are."""
    saved, now = np.split(drawn_times(np.concatenate([times, shown]), log), [len(times)])
    begin, end, now = (np.log(each) if log else each for each in (saved[0], saved[-1], now))
    return np.clip((now - begin) / (end - begin), 0.0, 1.0) if end > begin else np.ones(len(now))


class Clock:
    """Texts, one an instant, that end at a place, `right` and `baseline` in pixels, in letters of `size` pixels.

    Letters that the theme's font lacks (the exponents of STIX) are taken from the fallback font, as matplotlib does.
    """

    def __init__(self, texts: Sequence[str], right: float, baseline: float, size: float) -> None:
        from matplotlib.colors import to_rgb
        from matplotlib.font_manager import findfont
        from PIL import ImageFont

        theme = style.current()
        self.texts = list(texts)
        self._known = style.glyphs(theme.font)
        self._fonts = {
            known: ImageFont.truetype(findfont(family), size)
            for known, family in ((True, theme.font), (False, style.FALLBACK))
        }
        self._right, self._baseline = right, baseline
        self._ink: Any = (*(round(255 * part) for part in to_rgb(theme.text)), 255)

    def write(self, image: "Image", index: int) -> None:
        """Write the text of an instant into a frame."""
        from PIL import ImageDraw

        pen, right = ImageDraw.Draw(image), self._right
        runs = groupby(self.texts[index], lambda letter: ord(letter) in self._known)
        for known, letters in reversed([(known, "".join(run)) for known, run in runs]):
            pen.text((right, self._baseline), letters, self._ink, self._fonts[known], anchor="rs")
            right -= self._fonts[known].getlength(letters)


class ProgressLine:
    """A line that stands for all of the run's time, bright up to now.

    Parameters: the `shares` (k,) of the line that are over at the instants; its `box` (left, top, right, bottom) in
    pixels.
    """

    def __init__(self, shares: np.ndarray, box: tuple[float, float, float, float]) -> None:
        from matplotlib.colors import to_rgb

        theme = style.current()
        left, top, right, bottom = (round(edge) for edge in box)
        self.columns = np.rint(left + shares * (right - left)).astype(int)
        self.box = left, top, right, max(bottom, top + 1)
        self._ahead, self._past = (
            (*(round(255 * part) for part in to_rgb(color)), 255) for color in (theme.grid, theme.muted)
        )

    def draw(self, image: "Image", index: int) -> None:
        """Draw the line of an instant into a frame."""
        left, top, right, bottom = self.box
        image.paste(self._ahead, (left, top, right, bottom))
        image.paste(self._past, (left, top, max(int(self.columns[index]), left + 1), bottom))
