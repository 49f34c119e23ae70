"""particleflow: tokens are particles, attention is a local mean, and depth is time.

Names are imported when they are first used, so that reading a trajectory never imports JAX; the stub beside this file
says which names there are and where each comes from.
"""

import lazy_loader

from particleflow._precision import prefer_64_bits
from particleflow.compilation_cache import silence_compiler

prefer_64_bits()
silence_compiler()
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
