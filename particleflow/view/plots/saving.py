"""A figure to a file, whole or not at all, and the same file for the same run."""

from pathlib import Path
from typing import Any

import numpy as np

from particleflow._support.files import written
from particleflow.errors import ArgumentError
from particleflow.view import style
from particleflow.view.made_of import MadeOf

_DATE_AND_COMMENT = {".svg": ("Date", "Description"), ".pdf": ("CreationDate", "Subject")}
_ROUNDED_UP = 1e-6  # of a pixel: matplotlib rounds widths down
_WIDE = 1600  # pixels of a picture whose resolution is left open
_COMPRESSION = 4  # of 9: twice as fast as 6, and without an alpha channel the files are smaller still


def check_picture(path: Path) -> None:
    """Raise unless the ending of `path` is one of a picture that can be written."""
    from matplotlib.backend_bases import FigureCanvasBase

    known = [f".{ending}" for ending in FigureCanvasBase.get_supported_filetypes()]
    if path.suffix.lower() not in known:
        raise ArgumentError(f"A picture must end in one of {', '.join(known)}, but is {path.name!r}.")


def save_figure(figure: Any, path: Path, dpi: float | None = None, made: MadeOf | None = None) -> Path:
    """Save a figure without the date; the ending of `path` decides how. Returns the path.

    The text of a PDF or SVG stays text, in fonts that are embedded (PDF) or named (SVG).

    Parameters: `dpi`, of a PNG and of the pixels inside of an SVG or PDF, such that the figure is 1,600 pixels wide if
    left out; `made`, what the figure was made of, kept in a PNG, SVG or PDF.
    """
    import matplotlib as mpl

    check_picture(path)
    fine = (_WIDE + _ROUNDED_UP) / figure.get_figwidth() if dpi is None else float(dpi)
    settings: dict[Any, Any] = {**style.EDITABLE_TEXT, **style.REPEATABLE}
    with written(path) as partial, mpl.rc_context(settings):
        if path.suffix == ".png":
            _save_png(figure, partial, fine, made)
        else:
            date, comment = _DATE_AND_COMMENT.get(path.suffix, (None, None))
            about = {comment: str(made)} if made else {}
            figure.savefig(partial, dpi=fine, metadata={date: None, **about} if date else None)
    return path


def _save_png(figure: Any, path: Path, dpi: float, made: MadeOf | None) -> None:
    """Draw once, layout included: `savefig` draws a figure a first time for its layout alone."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    about = PngInfo()
    if made is not None:
        about.add_text("Comment", str(made))
    figure.set_dpi(dpi)
    figure.canvas.draw()
    pixels = np.ascontiguousarray(np.asarray(figure.canvas.buffer_rgba())[..., :3])
    Image.fromarray(pixels).save(path, "PNG", compress_level=_COMPRESSION, dpi=(dpi, dpi), pnginfo=about)
