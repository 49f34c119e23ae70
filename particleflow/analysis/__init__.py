"""Numbers from a trajectory alone: clusters and how they merge, plateaus, rates, distances, modes, agreement.

NumPy and SciPy only. Names are imported when they are first used; the stub beside this file lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
