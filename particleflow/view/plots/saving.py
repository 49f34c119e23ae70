"""A figure to a file, whole or not at all, and the same file for the same run."""

from pathlib import Path
from typing import Any

import numpy as np

from particleflow._support.files import written
from particleflow.errors import ArgumentError

_WITHOUT_DATE = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
_COMPRESSION = 4  # of 9: twice as fast as 6, and without an alpha channel the files are smaller still


def check_picture(path: Path) -> None:
    """Raise unless the ending of `path` is one of a picture that can be written."""
    from matplotlib.backend_bases import FigureCanvasBase

    known = [f".{ending}" for ending in FigureCanvasBase.get_supported_filetypes()]
    if path.suffix.lower() not in known:
        raise ArgumentError(f"A picture must end in one of {', '.join(known)}, but is {path.name!r}.")


def save_figure(figure: Any, path: Path, dpi: float = 160) -> Path:
    """Save a figure without the date; the ending of `path` decides how. Returns the path."""
    check_picture(path)
    with written(path) as partial:
        if path.suffix == ".png":
            _save_png(figure, partial, dpi)
        else:
            figure.savefig(partial, dpi=dpi, metadata=_WITHOUT_DATE.get(path.suffix))
    return path


def _save_png(figure: Any, path: Path, dpi: float) -> None:
    """Draw once, layout included: `savefig` draws a figure a first time for its layout alone."""
    from PIL import Image

    figure.set_dpi(dpi)
    figure.canvas.draw()
    pixels = np.ascontiguousarray(np.asarray(figure.canvas.buffer_rgba())[..., :3])
    Image.fromarray(pixels).save(path, "PNG", compress_level=_COMPRESSION, dpi=(dpi, dpi))
