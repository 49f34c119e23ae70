"""The clock of an animation: the only text that changes, so it is not matplotlib that writes it (ten times as slow)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.view import style
from particleflow.view.drawing.base import format_time

if TYPE_CHECKING:
    from PIL.Image import Image

_FALLBACK = "DejaVu Sans"  # has every letter of a time


class Clock:
    """Times as text that ends at a place, `right` and `baseline` in pixels, in letters of `size` pixels.

    The font is that of the theme if it has all the letters of all the times, else one for all of them: a clock that
    changes its font would jump.
    """

    def __init__(self, times: Sequence[float] | np.ndarray, right: float, baseline: float, size: float) -> None:
        from matplotlib.colors import to_rgb
        from matplotlib.font_manager import findfont
        from PIL import ImageFont

        theme = style.current()
        self.texts = [f"t = {format_time(float(time))}" for time in times]
        known = style.glyphs(theme.font).issuperset(map(ord, "".join(self.texts)))
        self._font = ImageFont.truetype(findfont(theme.font if known else _FALLBACK), size)
        self._place = right, baseline
        self._ink: Any = (*(round(255 * part) for part in to_rgb(theme.text)), 255)

    def write(self, image: "Image", index: int) -> None:
        """Write the time of an instant into a frame."""
        from PIL import ImageDraw

        ImageDraw.Draw(image).text(self._place, self.texts[index], self._ink, self._font, anchor="rs")
