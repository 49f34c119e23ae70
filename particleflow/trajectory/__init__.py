"""What a run left: its frames and facts, the HDF5 store they lie in, and exports to other formats. No JAX."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
