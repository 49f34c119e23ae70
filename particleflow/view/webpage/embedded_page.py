"""The interactive page inside a notebook: an iframe that holds all of it, and can reach nothing around it."""

import html

_ALLOWED = "allow-scripts allow-downloads"  # not the notebook's origin: its cookies, storage and document stay closed


class EmbeddedPage:
    """The page of a run as a notebook shows it: the last value of a cell, or `display(page)`.

    Parameters: the `text` of the page; its `title`; the `height` of the frame in pixels.
    """

    def __init__(self, text: str, title: str, height: int) -> None:
        self.text, self.title, self.height = text, title, height

    def __repr__(self) -> str:
        return f"EmbeddedPage of {len(self.text):,} characters, which a notebook shows: {self.title!r}"

    def _repr_html_(self) -> str:
        """A sandboxed iframe whose document is the page, escaped."""
        return (
            f'<iframe title="{html.escape(self.title)}" sandbox="{_ALLOWED}" '
            f'style="width:100%;height:{self.height}px;border:0" srcdoc="{html.escape(self.text)}"></iframe>'
        )
