"""particleflow: tokens are particles, attention is a local mean, and depth is time.

Names are imported when they are first used, so that reading a trajectory never imports JAX; the stub beside this file
says which names there are and where each comes from.
"""

from typing import Any

import lazy_loader

from particleflow._precision import prefer_64_bits
from particleflow.compilation_cache import collector_at_rest, silence_compiler

prefer_64_bits()
silence_compiler()
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    with collector_at_rest():
        return _load(name)
