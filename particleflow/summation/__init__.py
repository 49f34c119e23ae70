"""Ways to sum moments: `Dense`, `Blockwise`, and `Auto`, which chooses between them.

What is summed (kernel, measure) knows nothing of how; so a summation of one's own fits wherever these do.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
