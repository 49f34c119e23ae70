"""The picture of a network's depth by the name it has here: the root composes it from what view draws."""

from typing import Any


def depth_figure(depth: Any, spectra: Any = None, title: str = "") -> Any:
    """Draw the cosines of all pairs of tokens by depth, numbers along depth and, where given, spectra of the heads.

    Parameters: `depth`, what `along_depth` returns; `spectra`, what `head_spectra` returns; a `title`. Returns the
    figure of `particleflow.view.depth_figure`, which is the same.
    """
    import particleflow

    return particleflow.view.depth_figure(depth, spectra, title)
