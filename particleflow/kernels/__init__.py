"""Localization kernels K(x, y) ≥ 0: one class each, with the formula first.

    inner        exp β⟨Qx, Ky⟩ and its relatives            stationary   functions of |x − y|
    positional   functions of token index or time           features     maps, tables and functions of one's own
    nearest      neighbourhoods of the k nearest points     algebra      products, mixtures, multiples
    unlike       rules, points with gaps, pairs of points   forms        what fast methods ask a kernel for

`base` has the classes to inherit from and the arithmetic of all pairs, `description` writes a kernel for metadata.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
