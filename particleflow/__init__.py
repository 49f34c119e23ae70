"""particleflow: tokens are particles, attention is a local mean, and depth is time.

Names are imported when they are first used, so that reading a trajectory never imports JAX; the stub beside this file
says which names there are and where each comes from. The only setting that the import changes is JAX's, to 64 bits.
"""

from typing import TYPE_CHECKING

import lazy_loader

from particleflow._support.precision import prefer_64_bits
from particleflow.trajectory import notebook_card as _card

if TYPE_CHECKING:
    from particleflow.trajectory.trajectory import Trajectory

prefer_64_bits()
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def _draw_card(trajectory: "Trajectory") -> str:
    """Return the card of a trajectory as HTML; the pictures are loaded when the first card is drawn."""
    from particleflow.view.card import notebook_card

    return notebook_card(trajectory)


_card.register(_draw_card)
