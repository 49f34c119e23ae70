"""Pictures of a trajectory: figures, animations and the interactive page. Nothing here imports JAX.

Every plot takes a trajectory (or plain arrays) and an optional `ax`, and returns the axes. The public names stand in
`__init__.pyi`, each with its home; they are imported when they are first used, so that importing the package costs
nothing. No file or folder here has the name of a public function: importing it would hide the function.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
