"""The clock of an animation, the only text that changes: Pillow writes it, ten times as fast as matplotlib."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.view import style
from particleflow.view.plots.base import format_time

if TYPE_CHECKING:
    from PIL.Image import Image


class Clock:
    """Times as text that ends at a place, `right` and `baseline` in pixels, in letters of `size` pixels.

    Letters that the theme's font lacks (the exponents of STIX) are taken from the fallback font, as matplotlib does.
    """

    def __init__(self, times: Sequence[float] | np.ndarray, right: float, baseline: float, size: float) -> None:
        from matplotlib.colors import to_rgb
        from matplotlib.font_manager import findfont
        from PIL import ImageFont

        theme = style.current()
        self.texts = [f"t = {format_time(float(time))}" for time in times]
        self._known = style.glyphs(theme.font)
        self._fonts = {
            known: ImageFont.truetype(findfont(family), size)
            for known, family in ((True, theme.font), (False, style.FALLBACK))
        }
        self._right, self._baseline = right, baseline
        self._ink: Any = (*(round(255 * part) for part in to_rgb(theme.text)), 255)

    def write(self, image: "Image", index: int) -> None:
        """Write the time of an instant into a frame."""
        from PIL import ImageDraw

        pen, right = ImageDraw.Draw(image), self._right
        runs = groupby(self.texts[index], lambda letter: ord(letter) in self._known)
        for known, letters in reversed([(known, "".join(run)) for known, run in runs]):
            pen.text((right, self._baseline), letters, self._ink, self._fonts[known], anchor="rs")
            right -= self._fonts[known].getlength(letters)
