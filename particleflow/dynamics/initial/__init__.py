"""Where particles begin: clouds that are drawn, clouds that are laid out, and clouds that are read.

`UniformSphere(dim=3).sample(key, 512)` gives points; `.start(key, 512)` gives a measure, with labels where a cloud has
them. Where the density of the points is known, it is `.density(key)`. Clouds whose size is their own
(a grid, a text, an image, a file) are called without a count.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
