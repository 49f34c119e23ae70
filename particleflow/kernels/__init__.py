"""Localization kernels K(x, y) ≥ 0: one class each, with the formula first.

    inner_product   exp β⟨Qx, Ky⟩ and its relatives         stationary     functions of |x − y|
    affine          attention with biases                   linearised     attention as a few positive features
    positional      functions of token index or time        mapped         user-given maps, tables, functions
    relative        attention with relative positions
    nearest         the k nearest points                    heterogeneous  rules, points with gaps, pairs of points
    overlap         what two laws have in common            algebra        products, mixtures, multiples
    forms           what fast methods read of a kernel

`base` has the classes to inherit from and the arithmetic of all pairs, `capabilities` what only some kernels can do,
`description` writes a kernel for metadata.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
