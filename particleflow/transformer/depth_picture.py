"""`depth_figure` of `particleflow.view` as a function of this room, which must not import that one itself."""

from typing import Any


def depth_figure(depth: Any, spectra: Any = None, title: str = "") -> Any:
    """Draw the cosines of all pairs of tokens by depth, numbers along depth and, where given, spectra of the heads.

    The same as `particleflow.view.depth_figure`, whose figure is returned. Parameters: `depth`, what `along_depth`
    returns; `spectra`, what `head_spectra` returns; a `title`.
    """
    import particleflow

    return particleflow.view.depth_figure(depth, spectra, title)
