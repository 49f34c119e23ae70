"""A figure to a file, whole or not at all, and the same file for the same run."""

from pathlib import Path
from typing import Any

import numpy as np

from particleflow._support.files import written
from particleflow.errors import ArgumentError
from particleflow.view.made_of import MadeOf

_DATE_AND_COMMENT = {".svg": ("Date", "Description"), ".pdf": ("CreationDate", "Subject")}
_COMPRESSION = 4  # of 9: twice as fast as 6, and without an alpha channel the files are smaller still


def check_picture(path: Path) -> None:
    """Raise unless the ending of `path` is one of a picture that can be written."""
    from matplotlib.backend_bases import FigureCanvasBase

    known = [f".{ending}" for ending in FigureCanvasBase.get_supported_filetypes()]
    if path.suffix.lower() not in known:
        raise ArgumentError(f"A picture must end in one of {', '.join(known)}, but is {path.name!r}.")


def save_figure(figure: Any, path: Path, dpi: float = 160, made: MadeOf | None = None) -> Path:
    """Save a figure without the date; the ending of `path` decides how. Returns the path.

    Parameters: `dpi` of a PNG; `made`, what the figure was made of, kept in a PNG, SVG or PDF.
    """
    check_picture(path)
    with written(path) as partial:
        if path.suffix == ".png":
            _save_png(figure, partial, dpi, made)
        else:
            date, comment = _DATE_AND_COMMENT.get(path.suffix, (None, None))
            about = {comment: str(made)} if made else {}
            figure.savefig(partial, dpi=dpi, metadata={date: None, **about} if date else None)
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
