"""The card of a trajectory in a notebook: a slot for the function that draws it.

`view` lies above this room, so it cannot be imported here. The root of the package, which may import all rooms,
registers the function that draws the card.
"""

from collections.abc import Callable
from typing import Any

_renderers: list[Callable[[Any], str]] = []


def register(renderer: Callable[[Any], str]) -> None:
    """Use `renderer`, a function from a trajectory to HTML, for all cards from now on."""
    _renderers[:] = [renderer]


def render(trajectory: Any) -> str | None:
    """Return the HTML of a trajectory's card, None where no renderer is registered."""
    return _renderers[0](trajectory) if _renderers else None
