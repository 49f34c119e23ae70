"""Pictures of a trajectory: figures, movies, the interactive page and the notebook's card. Nothing here imports JAX.

Every plot takes a trajectory (or plain arrays) and an optional `ax`, and returns the axes. It computes no result:
numbers about a run come from `analysis`; only where things lie on the page, and in which colour, is decided here.

The public names stand in `__init__.pyi`, each with its home; they are imported when they are first used, so that
importing the package costs nothing. No file or folder directly in this one has the name of a public function: importing
it would hide the function. `plots/` holds the figures, `movie/` the animation, `webpage/` the page.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
