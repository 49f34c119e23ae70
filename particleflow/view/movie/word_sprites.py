"""Words in a movie: names beside the particles of a frame, by the same rules as in the figures."""

from typing import TYPE_CHECKING, Any

import numpy as np

from particleflow.view import style
from particleflow.view.label_placement import REACH, Box, Group, find_groups, place_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from PIL.Image import Image


class WordWriter:
    """Writes the names of particles into frames.

    Parameters: the `words` (n,) of the particles that are shown; `scale`, pixels of a frame for one at 720 lines;
    `taken`, boxes that hold other text.
    """

    def __init__(self, words: np.ndarray, scale: float, taken: "Sequence[Box]" = ()) -> None:
        from matplotlib.colors import to_rgb
        from matplotlib.font_manager import findfont
        from PIL import ImageFont

        theme = style.current()
        self._words, self._taken = words, taken
        self._size = max(round(1.15 * theme.font_size * scale), 7)
        self._font = ImageFont.truetype(findfont(theme.font), self._size)
        self._inks = [tuple(round(255 * part) for part in to_rgb(color)) for color in (theme.text, theme.muted)]
        self._halo = tuple(round(255 * part) for part in to_rgb(theme.background))
        self._shown: dict[str, str] = {}

    def write(
        self, image: "Image", places: np.ndarray, weights: np.ndarray, depth: Any, bounds: Box,
        radius: "Callable[[Group], float]",
    ) -> list[str]:  # fmt: skip
        """Write names beside particles at `places` (n, 2), pixels from the top left; returns the names written."""
        from PIL import ImageDraw

        groups = find_groups(places, weights, REACH * self._size, depth=depth)
        names = place_names(groups, self._words, radius, self._measure, bounds, self._taken)
        draw = ImageDraw.Draw(image)
        halo = max(round(0.16 * self._size), 1)
        for name in names:
            ink = self._inks[int(name.group.behind)]
            draw.text(
                name.box[:2], self._clean(name.text), font=self._font, fill=ink, stroke_width=halo,
                stroke_fill=self._halo,
            )  # fmt: skip
        return [name.text for name in names]

    def _clean(self, text: str) -> str:
        """Text in printable characters of the font, computed once for each text."""
        if text not in self._shown:
            self._shown[text] = style.clean(text).replace(r"\$", "$")  # Pillow parses no mathtext
        return self._shown[text]

    def _measure(self, text: str) -> tuple[float, float]:
        """Width and height of a text in pixels."""
        return self._font.getlength(self._clean(text)), 1.2 * self._size
